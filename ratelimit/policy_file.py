"""Policies from a TOML file: each top-level table is a policy, its `rules` are the fields of `Rule`.

[login]
[[login.rules]]
name = "login-pair"
rate = "5/m"
by = ["ip", "account"]
ban_for = [900, 3600]
match = { path = "/login", method = ["POST", "PUT"], agent = { regex = "curl" } }
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from ratelimit.errors import ConfigurationError
from ratelimit.rules import POLICY_NAME, Policy, Rule

_FIELDS: Final = tuple(field.name for field in fields(Rule))
_COUNTING: Final = ("rate", "by", "ban_for", "count_distinct")


def load_policies(path: str | Path) -> dict[str, Policy]:
    """The policies of a file by name. Raises `ConfigurationError` that gives file, policy, rule and field."""
    where = f"policy file {str(path)!r}"
    try:
        tables = tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:  # of TOML, of UTF-8, of the path
        raise ConfigurationError(f"{where}: {error}") from None
    policies = {name: _policy(where, name, table) for name, table in tables.items()}
    _check_shared(where, policies)
    return policies


def _policy(where: str, name: str, table: Any) -> Policy:
    where = f"{where}, {name}"
    if not POLICY_NAME.fullmatch(name):
        raise ConfigurationError(f"{where}: a policy's name has lower-case letters, digits, '-' and '_', as in 'login'")
    if not isinstance(table, dict):
        raise ConfigurationError(f"{where}: expected a policy, [[{name}.rules]] tables; {table!r} is none")
    _check_names(where, table, ("rules",), "a policy has")
    rules = table.get("rules")
    if not isinstance(rules, list) or not rules:
        raise ConfigurationError(f"{where}: give at least one rule, a [[{name}.rules]] table")
    read = [_rule(f"{where}, rule {number}", given) for number, given in enumerate(rules, 1)]
    try:
        return Policy(*read)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _rule(where: str, given: Any) -> Rule:
    if not isinstance(given, dict):
        raise ConfigurationError(f"{where}: expected a table, not {given!r}")
    _check_names(where, given, _FIELDS, "a rule has")
    if "name" not in given:
        raise ConfigurationError(f"{where}, name: missing; give one that is found in keys, headers and logs")
    try:
        return Rule(**{**given, "match": _match(given.get("match", {}))})
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _match(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigurationError("match: expected a table, as in { path = '/login' }")
    return {name: _matcher(f"match.{name}", wanted) for name, wanted in given.items()}


def _matcher(field: str, wanted: Any) -> Any:
    """A value, `{ regex = "…" }`, or a list of these."""
    if isinstance(wanted, list):
        return [_matcher(field, one) for one in wanted]
    if not isinstance(wanted, dict):
        return wanted
    if set(wanted) != {"regex"} or not isinstance(wanted["regex"], str):
        raise ConfigurationError(f"{field}: {wanted!r} is not {{ regex = '…' }}")
    try:
        return re.compile(wanted["regex"])
    except re.error as error:
        raise ConfigurationError(f"{field}: {wanted['regex']!r} is not a regular expression: {error}") from None


def _check_names(where: str, given: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"{what} {', '.join(known)}"
            raise ConfigurationError(f"{where}: unknown field {name!r}; {hint}")


def _check_shared(where: str, policies: Mapping[str, Policy]) -> None:
    """A rule's counts are found by its name: rules of one name in two policies must count the same."""
    seen: dict[str, tuple[str, Rule]] = {}
    for name, policy in policies.items():
        for rule in policy:
            first_name, first = seen.setdefault(rule.name, (name, rule))
            for field in _COUNTING:
                if getattr(first, field) != getattr(rule, field):
                    raise ConfigurationError(
                        f"{where}, {name}: rule {rule.name!r} has another {field} than in {first_name!r}, and their "
                        "counts would be mixed; give it another name"
                    )
