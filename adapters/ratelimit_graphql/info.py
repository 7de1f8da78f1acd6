"""Finding `root` and `info` among a resolver's arguments, and what an `info` says about its field.

graphql-core and Graphene call `resolver(root, info, **arguments)`. A classmethod gets its class before these.
Strawberry passes `info` by keyword, under the resolver's own name for it, if the resolver asks for it at all.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_origin

from ratelimit import ConfigurationError

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_LAST_NAME = re.compile(r"(\w+)(?:\[.*)?$", re.DOTALL)
_INFO_TYPES = frozenset({"Info", "ResolveInfo", "GraphQLResolveInfo"})
_PARENT_TYPES = frozenset({"Parent", "StrawberryParent"})
_ANY_TYPES = frozenset({"_empty", "Any", "object"})


class Call(NamedTuple):
    """One call of a resolver, taken apart: `args` and `kwargs` are the field's arguments alone."""

    root: Any
    info: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where one function, `owner`, takes its `info`: by `name`, or at `index` (None if keyword-only).

    `root_name` is the keyword that brings the root, if it does not come by position.
    """

    owner: str
    name: str
    index: int | None
    root_name: str = "root"

    def take(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        """The call with these arguments; `ConfigurationError` when what stands in `info`'s place is none."""
        arguments = dict(kwargs)
        if self.index is not None and self.index < len(args):
            root = args[self.index - 1] if self.index else None
            info = args[self.index]
            args = args[self.index + 1 :]
        else:
            root = args[0] if args else arguments.pop(self.root_name, None)
            info = arguments.pop(self.name, None)
            args = args[1:]
        if not hasattr(info, "context"):
            raise ConfigurationError(f"{self.owner} was called without info to tell its caller by: {_MEND}")
        return Call(root, info, args, arguments)


_MEND = (
    "give it a parameter named `info` (in Strawberry `info: strawberry.Info`), "
    "or limit the field with ratelimit_graphql.strawberry.RateLimitExtension"
)


def find_info(function: Callable[..., Any], owner: str) -> Place:
    """Where `function` takes its `info`: by name, by annotation, else in second place.

    `ConfigurationError` that names `owner` for a function that cannot be given one.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # written in C: called as every resolver is
        return Place(owner, "info", 1)
    root_name = next((p.name for p in parameters if p.name == "root" or _types(p) & _PARENT_TYPES), "root")
    named = [p for p in parameters if p.name == "info"] or [p for p in parameters if _types(p) & _INFO_TYPES]
    if named:
        index = parameters.index(named[0]) if named[0].kind in POSITIONAL else None
        return Place(owner, named[0].name, index, root_name)
    positional = [p for p in parameters if p.kind in POSITIONAL]
    if len(positional) > 1 and _types(positional[1]) & _ANY_TYPES:
        return Place(owner, positional[1].name, 1, root_name)
    if len(positional) < 2 and any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return Place(owner, "info", 1, root_name)
    raise ConfigurationError(f"{owner} takes no info to tell its caller by: {_MEND}")


def _types(parameter: inspect.Parameter) -> set[str]:
    """The names an annotation goes by: `Info` for `strawberry.Info[Context, None]`, be it text or a type."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        found = _LAST_NAME.search(annotation)
        return {found[1]} if found else set()
    origin = get_origin(annotation) or annotation
    bases = inspect.getmro(origin)[1:-1] if inspect.isclass(origin) else ()  # an application may have its own Info
    marks = (type(mark) for mark in getattr(annotation, "__metadata__", ()))  # Parent[X] is Annotated[X, mark]
    return {getattr(one, "__name__", "") for one in (origin, *bases, *marks)}


def field_group(info: Any, owner: str) -> str:
    """Where a field counts by default: `graphql:Query.documents`, whatever its alias or function is called.

    `graphql:<owner>` when `info` does not say, as a stand-in in a unit test may not.
    """
    return f"graphql:{field_name(info) or owner}"


def field_name(info: Any) -> str | None:
    """The type and name of the field, `Query.documents`; None when `info` does not say."""
    for source in (info, getattr(info, "_raw_info", None)):  # Strawberry's own info does not tell the type
        type_name = getattr(getattr(source, "parent_type", None), "name", None)
        name = getattr(source, "field_name", None)
        if isinstance(type_name, str) and isinstance(name, str):
            return f"{type_name}.{name}"
    return None


def operation_name(info: Any) -> str | None:
    """`query`, `mutation` or `subscription`; None when `info` does not say."""
    for source in (info, getattr(info, "_raw_info", None)):
        kind = getattr(getattr(getattr(source, "operation", None), "operation", None), "value", None)
        if isinstance(kind, str):
            return kind
    return None
