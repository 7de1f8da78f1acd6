"""What the decorator takes, what it leaves of the function it decorates, and what it refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import pickle
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import graphql
import pytest
from asgiref.sync import sync_to_async

import ratelimit
from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Rate, RateLimits
from ratelimit.testing import isolated
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from tests.graphql.callers import HERE, User, info, request
from tests.graphql.schemas import Executor, denied_paths, schema

pytestmark = pytest.mark.usefixtures("limiter")


def outcomes(resolver: Any, times: int, *args: Any, **kwargs: Any) -> list[bool]:
    """Whether each of so many calls in a row got through."""

    def passed() -> bool:
        try:
            resolver(*args, **kwargs)
        except RateLimitExceeded:
            return False
        return True

    return [passed() for _ in range(times)]


# What is kept of the function


def test_a_plain_function_keeps_its_face() -> None:
    def resolve_items(root: object, info: Any, first: int = 3) -> list[int]:
        """The items."""
        return [first]

    limited = graphql_ratelimit(rate="10/m")(resolve_items)
    assert (limited.__name__, limited.__doc__, limited.__module__) == ("resolve_items", "The items.", __name__)
    assert inspect.signature(limited) == inspect.signature(resolve_items)
    assert limited.__annotations__ == resolve_items.__annotations__
    assert not inspect.iscoroutinefunction(limited)
    assert limited(None, info(request()), first=5) == [5]


async def test_a_coroutine_function_stays_one() -> None:
    @graphql_ratelimit(rate="10/m")
    async def resolve_items(root: object, info: Any) -> int:
        """The items."""
        return 5

    assert inspect.iscoroutinefunction(resolve_items)
    assert (resolve_items.__name__, resolve_items.__doc__) == ("resolve_items", "The items.")
    assert await resolve_items(None, info(request())) == 5


async def test_an_async_generator_becomes_a_coroutine_function_that_returns_it() -> None:
    @graphql_ratelimit(rate="1/m")
    async def subscribe_ticks(root: object, info: Any) -> AsyncIterator[int]:
        yield 1
        yield 2

    assert inspect.iscoroutinefunction(subscribe_ticks)
    ticks = await subscribe_ticks(None, info(request()))
    with pytest.raises(RateLimitExceeded):
        await subscribe_ticks(None, info(request()))
    assert [tick async for tick in ticks] == [1, 2]


async def test_a_plain_function_may_return_an_awaitable() -> None:
    async def load() -> int:
        return 5

    @graphql_ratelimit(rate="1/m")
    def resolve_item(root: object, info: Any) -> Any:
        return load()

    assert await resolve_item(None, info(request())) == 5
    with pytest.raises(RateLimitExceeded):
        resolve_item(None, info(request()))


async def test_a_function_made_async_by_asgiref_is_limited_as_async(limiter: Limiter) -> None:
    @graphql_ratelimit(rate="1/m")
    @sync_to_async
    def resolve_item(root: object, info: Any) -> int:
        return 5

    assert await resolve_item(None, info(request())) == 5
    with pytest.raises(RateLimitExceeded):
        await resolve_item(None, info(request()))


class Methods:
    @graphql_ratelimit(rate="1/m")
    @staticmethod
    def static_outside(root: object, info: Any) -> str:
        return "static"

    @staticmethod
    @graphql_ratelimit(rate="1/m")
    def static_inside(root: object, info: Any) -> str:
        return "static"

    @graphql_ratelimit(rate="1/m")
    @classmethod
    def class_outside(cls, root: object, info: Any) -> str:
        return cls.__name__

    @classmethod
    @graphql_ratelimit(rate="1/m")
    def class_inside(cls, root: object, info: Any) -> str:
        return cls.__name__


@pytest.mark.parametrize("name", ["static_outside", "static_inside", "class_outside", "class_inside"])
def test_static_and_class_methods_in_either_order(name: str) -> None:
    method = getattr(Methods, name)
    assert method(None, info(request())) in ("static", "Methods")
    assert outcomes(method, 1, None, info(request())) == [False]


def test_other_decorators_on_both_sides() -> None:
    seen: list[str] = []

    def noting(word: str) -> Any:
        def decorate(function: Any) -> Any:
            @functools.wraps(function)
            def noted(*args: Any, **kwargs: Any) -> Any:
                seen.append(word)
                return function(*args, **kwargs)

            return noted

        return decorate

    @noting("outer")
    @graphql_ratelimit(rate="1/m")
    @noting("inner")
    def resolve_item(root: object, info: Any) -> None: ...

    assert outcomes(resolve_item, 2, None, info(request())) == [True, False]
    assert seen == ["outer", "inner", "outer"]


def test_a_partial_is_a_resolver_too() -> None:
    def resolve_item(prefix: str, root: object, info: Any) -> str:
        return prefix

    limited = graphql_ratelimit(rate="1/m")(functools.partial(resolve_item, "x"))
    assert limited(None, info(request())) == "x"
    assert outcomes(limited, 1, None, info(request())) == [False]


async def test_an_object_that_is_called_is_a_resolver_too() -> None:
    class Plain:
        def __call__(self, root: Any, info: Any) -> int:
            return 5

    class Async:
        async def __call__(self, root: Any, info: Any) -> int:
            return 5

    plain, coroutine = (graphql_ratelimit(rate="1/m")(one) for one in (Plain(), Async()))
    assert outcomes(plain, 2, None, info(request(), field_name="plain")) == [True, False]
    assert inspect.iscoroutinefunction(coroutine)
    assert await coroutine(None, info(request())) == 5
    with pytest.raises(RateLimitExceeded):
        await coroutine(None, info(request()))


# Where it counts


def test_the_default_group_is_the_field(limiter: Limiter) -> None:
    limited = graphql_ratelimit(rate="5/m")(lambda root, info: None)
    limited(None, info(request(), "Query", "documents"))
    assert limiter.peek(Rate.parse("5/m"), f"ip:{HERE}", group="graphql:Query.documents").remaining == 4


def test_an_info_that_does_not_tell_the_field_counts_under_the_function(limiter: Limiter) -> None:
    def resolve_documents(root: object, info: Any) -> None: ...

    graphql_ratelimit(rate="5/m")(resolve_documents)(None, SimpleNamespace(context=request()))
    group = f"graphql:{__name__}.{resolve_documents.__qualname__}"
    assert limiter.peek(Rate.parse("5/m"), f"ip:{HERE}", group=group).remaining == 4


def test_two_functions_of_one_name_do_not_share() -> None:
    def made() -> tuple[Any, Any]:
        class A:
            @graphql_ratelimit(rate="2/m")
            @staticmethod
            def mutate(root: object, info: Any) -> None: ...

        class B:
            @graphql_ratelimit(rate="3/m")
            @staticmethod
            def mutate(root: object, info: Any) -> None: ...

        return A.mutate, B.mutate

    a, b = made()
    untold = SimpleNamespace(context=request())
    assert outcomes(a, 3, None, untold) == [True, True, False]
    assert outcomes(b, 4, None, untold) == [True, True, True, False]


def test_a_bare_rate_as_the_rule_counts_under_the_field() -> None:
    limited = graphql_ratelimit(Rate.parse("1/m"))(lambda root, info: None)
    assert outcomes(limited, 2, None, info(request(), "Query", "a")) == [True, False]
    assert outcomes(limited, 2, None, info(request(), "Query", "b")) == [True, False]


def test_an_explicit_limiter_goes_before_the_processes_own(limiter: Limiter) -> None:
    own = Limiter(MemoryStore())
    limited = graphql_ratelimit(rate="1/h", limiter=own)(lambda root, info: None)
    assert outcomes(limited, 2, None, info(request())) == [True, False]
    assert limiter.peek(Rate.parse("1/h"), f"ip:{HERE}", group="graphql:Query.items")
    assert not own.peek(Rate.parse("1/h"), f"ip:{HERE}", group="graphql:Query.items")


def test_the_processes_limiter_is_looked_up_at_the_call() -> None:
    limited = graphql_ratelimit(rate="1/m")(lambda root, info: None)
    assert outcomes(limited, 2, None, info(request())) == [True, False]
    with isolated():
        assert outcomes(limited, 2, None, info(request())) == [True, False]
    with isolated(disable=True):
        assert outcomes(limited, 200, None, info(request())) == [True] * 200
    with isolated(overrides={"WRITE_HEAVY": "1/m"}):
        category = graphql_ratelimit(rate=RateLimits.WRITE_HEAVY)(lambda root, info: None)
        assert outcomes(category, 2, None, info(request())) == [True, False]


def test_settings_may_change_after_decoration() -> None:
    category = graphql_ratelimit(RateLimits.WRITE_HEAVY)(lambda root, info: None)
    with isolated(overrides={"WRITE_HEAVY": "2/m"}):
        assert outcomes(category, 3, None, info(request())) == [True, True, False]
    with isolated():
        assert outcomes(category, 6, None, info(request())) == [True] * 5 + [False]


# Callables


def test_callables_get_what_the_resolver_gets(executor: Executor) -> None:
    seen: list[Any] = []

    def key(root: Any, info: Any, **arguments: Any) -> str:
        seen.append(("key", root, info.field_name, arguments))
        return str(arguments["project"])

    def rate(root: Any, info: Any, **arguments: Any) -> str:
        seen.append(("rate", root, info.field_name, arguments))
        return "3/m"

    def cost(root: Any, info: Any, *, first: int, **arguments: Any) -> int:
        return first

    built = schema(
        "type Query { items(project: ID!, first: Int = 1): Int }",
        {
            "Query": {
                "items": graphql_ratelimit(rate=rate, key=key, cost=cost)(
                    executor.resolver(lambda root, info, project, first: first)
                )
            }
        },
    )

    def denied(arguments: str) -> bool:
        return bool(denied_paths(executor.run(built, f"{{ items({arguments}) }}", request())))

    assert [denied('project: "a", first: 2'), denied('project: "a", first: 2')] == [False, True]
    assert [denied('project: "a"'), denied('project: "a"')] == [False, True]
    assert [denied('project: "b", first: 3'), denied('project: "b"')] == [False, True]
    assert seen[:2] == [
        ("rate", None, "items", {"project": "a", "first": 2}),
        ("key", None, "items", {"project": "a", "first": 2}),
    ]


def test_arguments_may_come_by_position() -> None:
    def key(root: Any, info: Any, name: str, **arguments: Any) -> str:
        return name

    def resolve_item(root: Any, info: Any, name: str) -> None: ...

    limited = graphql_ratelimit(rate="1/m", key=key)(resolve_item)
    assert outcomes(limited, 2, None, info(request()), "a") == [True, False]
    assert outcomes(limited, 2, None, info(request()), "b") == [True, False]


def test_an_argument_may_have_any_name(executor: Executor) -> None:
    names = ("self", "args", "group", "identity", "default_group", "rule", "cost", "call", "owner", "rate", "limiter")
    arguments = ", ".join(f"{name}: Int" for name in names)
    limited = graphql_ratelimit(rate="1/m", key=lambda root, info, **kwargs: f"{kwargs}")
    built = schema(
        f"type Query {{ item({arguments}): Int }}",
        {"Query": {"item": limited(executor.resolver(lambda root, info, **kwargs: sum(kwargs.values())))}},
    )
    given = ", ".join(f"{name}: 1" for name in names)
    assert executor.run(built, f"{{ item({given}) }}", request()).data == {"item": len(names)}


@pytest.mark.parametrize(
    ("rate", "allowed"),
    [("2/m", 2), (Rate.parse("3/m"), 3), ("WRITE_HEAVY", 5), (RateLimits.AI_ANALYSIS, 5), (None, 50)],
)
def test_the_dynamic_form_takes_whatever_is_a_rate_and_none_for_no_limit(
    executor: Executor, rate: Any, allowed: int
) -> None:
    built = schema(
        "type Query { item: Int }",
        {"Query": {"item": graphql_ratelimit(rate=lambda root, info: rate)(executor.resolver(lambda root, info: 1))}},
    )
    denied = [bool(denied_paths(executor.run(built, "{ item }", request()))) for _ in range(50)]
    assert denied == [False] * allowed + [True] * (50 - allowed)


def test_a_rate_by_caller(executor: Executor) -> None:
    def plan(root: Any, info: Any) -> str:
        user = info.context.user
        return "1/m" if user is None else f"{user.pk}/m"

    built = schema(
        "type Query { item: Int }",
        {"Query": {"item": graphql_ratelimit(rate=plan)(executor.resolver(lambda root, info: 1))}},
    )

    def allowed(user: Any) -> int:
        return sum(not denied_paths(executor.run(built, "{ item }", request(user=user))) for _ in range(10))

    assert [allowed(None), allowed(User(4)), allowed(User(7))] == [1, 4, 7]


def test_a_dynamic_rate_that_is_none_such_is_an_error_and_not_unlimited(executor: Executor) -> None:
    resolved: list[int] = []
    limited = graphql_ratelimit(rate=lambda root, info: "10/mm")
    item = limited(executor.resolver(lambda root, info: resolved.append(1)))
    result = executor.run(schema("type Query { item: Int }", {"Query": {"item": item}}), "{ item }", request())
    assert resolved == []
    assert result.errors is not None
    assert "'10/mm'" in result.errors[0].message


def test_a_key_may_be_an_identity() -> None:
    tenant = Identity(user="7").named("tenant:acme")
    limited = graphql_ratelimit(rate="WRITE_HEAVY", key=lambda root, info: tenant)(lambda root, info: None)
    assert outcomes(limited, 11, None, info(request())) == [True] * 10 + [False]


@pytest.mark.parametrize(
    ("key", "told_apart"),
    [("user_or_ip", "user"), ("user", "user"), ("ip", "ip"), ("token_or_ip", "token"), ("global", "none")],
)
def test_key_strategies(key: str, told_apart: str) -> None:
    limited = graphql_ratelimit(rate="1/m", key=key)(lambda root, info: None)

    def context(address: str, user: int, token: str) -> Any:
        made = request(address, User(user))
        made.limit_token = token
        return made

    assert outcomes(limited, 1, None, info(context("192.0.2.1", 1, "a"))) == [True]
    assert outcomes(limited, 1, None, info(context("192.0.2.1", 2, "b"))) == [told_apart in ("user", "token")]
    assert outcomes(limited, 1, None, info(context("192.0.2.2", 1, "a"))) == [told_apart == "ip"]


# What is refused


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rate": "10/mm"}, "'10/mm'"),
        ({"rate": ""}, "''"),
        ({"rate": "1_0/m"}, "'1_0/m'"),
        ({"rate": "NO_SUCH"}, "'NO_SUCH'"),
        ({"rate": 10}, "10"),
        ({"rule": "NO_SUCH"}, "'NO_SUCH'"),
        ({"rule": "10/m"}, "'10/m'"),
        ({"rate": "10/m", "key": "user_ip"}, "'user_ip'"),
        ({"rate": "10/m", "key": None}, "None"),
        ({"rate": "10/m", "cost": -1}, "-1"),
        ({"rate": "10/m", "cost": 1.5}, "1.5"),
        ({"rate": "10/m", "group": ""}, "''"),
        ({}, "rate"),
        ({"rule": "AI_QUERY", "rate": "10/m"}, "rate"),
    ],
)
def test_what_cannot_be_used_is_an_error_where_it_is_written(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(named)):
        graphql_ratelimit(**arguments)


def test_an_unknown_category_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"AI_QUERY.*WRITE_MEDIUM"):
        graphql_ratelimit("AI_QUERRY")


def test_forgotten_parentheses_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"resolve_item.*@graphql_ratelimit\(\.\.\.\) with parentheses"):

        @graphql_ratelimit  # type: ignore[arg-type]
        def resolve_item(root: object, info: Any) -> None: ...


@pytest.mark.parametrize("target", [object, type("Mutation", (), {}), 5, None, "resolver", property(lambda self: 1)])
def test_only_functions_and_methods_are_limited(target: Any) -> None:
    with pytest.raises(ConfigurationError, match="limits a resolver function or method, not"):
        graphql_ratelimit(rate="10/m")(target)


# The denial


def test_a_denial_is_both_libraries_error(limiter: Limiter) -> None:
    limited = graphql_ratelimit(rate="1/m")(lambda root, info: None)
    limited(None, info(request()))
    with pytest.raises(RateLimitExceeded) as raised:
        limited(None, info(request()))
    error = raised.value
    assert isinstance(error, graphql.GraphQLError)
    assert isinstance(error, ratelimit.RateLimitExceeded)
    assert str(error) == error.message == "Limit exceeded: Max 1 request per minute. Please try again later."
    assert error.extensions == {"code": "RATE_LIMITED", "retry_after": 60, "limit": 1}
    assert (error.decision.key, error.decision.limit, error.decision.allowed) == (f"ip:{HERE}", 1, False)


def test_a_denial_can_be_pickled() -> None:
    with pytest.raises(RateLimitExceeded) as raised:
        graphql_ratelimit(rate="0/m")(lambda root, info: None)(None, info(request()))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.message, again.extensions) == (
        RateLimitExceeded,
        "Limit exceeded: Max 0 requests per minute. Please try again later.",
        {"code": "RATE_LIMITED", "retry_after": None, "limit": 0},
    )


def test_a_denial_is_logged_once_with_nothing_secret(caplog: pytest.LogCaptureFixture) -> None:
    context = request(authorization="Bearer sesame", cookie="sessionid=sesame")
    context.limit_token = "sesame"
    limited = graphql_ratelimit(rate="1/m", key="token_or_ip")(lambda root, info, password: None)
    with caplog.at_level(logging.DEBUG):
        assert outcomes(limited, 2, None, info(context, "Mutation", "login"), password="sesame") == [True, False]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    line = record.getMessage()
    assert all(part in line for part in ("graphql:Mutation.login", "key=tok:", "rate=1/m", "protocol=graphql")), line
    assert "sesame" not in line


def test_the_resolver_of_a_denied_field_is_not_called(executor: Executor) -> None:
    resolved: list[int] = []
    item = graphql_ratelimit(rate="0/m")(executor.resolver(lambda root, info: resolved.append(1)))
    built = schema("type Query { item: Int }", {"Query": {"item": item}})
    assert denied_paths(executor.run(built, "{ item }", request())) == [["item"]]
    assert resolved == []


def test_one_decorated_function_serves_several_loops() -> None:
    @graphql_ratelimit(rate="2/m")
    async def resolve_item(root: object, info: Any) -> int:
        return 1

    def denied() -> bool:
        try:
            return asyncio.run(resolve_item(None, info(request()))) != 1
        except RateLimitExceeded:
            return True

    assert [denied() for _ in range(3)] == [False, False, True]
