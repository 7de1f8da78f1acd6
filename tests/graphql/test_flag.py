"""`block=False`: the resolver is called, and told."""

from __future__ import annotations

import asyncio
import functools
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter
from ratelimit.testing import FakeClock
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from tests.graphql.callers import info, request
from tests.graphql.schemas import Executor, schema

pytestmark = pytest.mark.usefixtures("limiter")


def told(root: Any, info: Any) -> tuple[bool, bool]:
    return info.context.limited, info.context.limit_decision.allowed


def test_the_flag_follows_each_call(fake_clock: FakeClock) -> None:
    limited = graphql_ratelimit(rate="2/m", block=False)(told)
    context = request()
    field = info(context)
    assert [limited(None, field) for _ in range(3)] == [(False, True), (False, True), (True, False)]
    assert context.limit_decision.retry_after_seconds == 60
    fake_clock.advance(60)
    assert limited(None, field) == (False, True)


@pytest.mark.parametrize(
    "wrap", [lambda made: made, lambda made: {"request": made}, lambda made: SimpleNamespace(request=made)]
)
def test_it_is_set_on_the_request_wherever_that_is(wrap: Any) -> None:
    limited = graphql_ratelimit(rate="0/m", block=False)(lambda root, info: 1)
    for made in (
        request(),
        SimpleNamespace(scope={"type": "http", "headers": []}),
        SimpleNamespace(remote="192.0.2.1"),
    ):
        assert limited(None, info(wrap(made))) == 1
        assert made.limited is True


def test_on_a_mapping_it_is_a_key() -> None:
    limited = graphql_ratelimit(rate="0/m", block=False)(lambda root, info: 1)
    environ = {"REQUEST_METHOD": "POST", "REMOTE_ADDR": "192.0.2.1"}
    limited(None, info({"request": environ}))
    assert environ["limited"] is True
    context: dict[str, Any] = {"user": 42}
    limited(None, info(context))
    assert (context["limited"], context["limit_decision"].key) == (True, "user:42")


@pytest.mark.parametrize("context", [None, 5, MappingProxyType({"user": 42}), "text"])
def test_a_context_that_cannot_hold_it_is_an_error_and_not_unlimited(context: Any) -> None:
    limited = graphql_ratelimit(rate="10/m", block=False)(lambda root, info: 1)
    with pytest.raises(ConfigurationError, match=f"`limited` on a context of type {type(context).__name__}"):
        limited(None, info(context))


def test_one_fields_flag_is_not_anothers(executor: Executor) -> None:
    sdl = "type Query { scarce: Boolean, plenty: Boolean }"
    flagged = executor.resolver(lambda root, info: info.context.limited)

    async def at_once(root: Any, info: Any) -> bool:
        return bool(info.context.limited)

    resolver = flagged if executor.mode == "sync" else at_once
    built = schema(
        sdl,
        {
            "Query": {
                "scarce": graphql_ratelimit(rate="0/m", block=False)(resolver),
                "plenty": graphql_ratelimit(rate="9/m", block=False)(resolver),
            }
        },
    )
    assert executor.run(built, "{ scarce plenty again: scarce }", request()).data == {
        "scarce": True,
        "plenty": False,
        "again": True,
    }


def passing(function: Any) -> Any:
    """Some other decorator."""

    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return passed


@pytest.mark.parametrize("between", [lambda function: function, passing])
@pytest.mark.parametrize(("outer", "inner"), [("1/m", "9/h"), ("9/m", "1/h")])
def test_of_two_limits_on_one_field_either_sets_it(between: Any, outer: str, inner: str) -> None:
    twice = graphql_ratelimit(rate=outer, group="outer", block=False)(
        between(graphql_ratelimit(rate=inner, group="inner", block=False)(told))
    )
    field = info(request())
    assert [twice(None, field) for _ in range(3)] == [(False, True), (True, False), (True, False)]


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_of_three_limits_any_sets_it(refusing: int) -> None:
    resolver: Any = told
    for n in range(3):
        resolver = graphql_ratelimit(rate="0/m" if n == refusing else "9/m", group=f"{n}", block=False)(resolver)
    field = info(request())
    assert [resolver(None, field) for _ in range(2)] == [(True, False)] * 2


def test_a_limit_that_lets_through_does_not_hide_a_refusal_outside_of_it() -> None:
    inner = graphql_ratelimit(rate="9/m", group="inner", block=False)(told)
    blocking = graphql_ratelimit(rate="9/m", group="blocking")(inner)
    outer = graphql_ratelimit(rate="0/m", group="outer", block=False)(blocking)
    assert outer(None, info(request())) == (True, False)


async def test_of_two_limits_on_one_async_field_either_sets_it_beside_others() -> None:
    @graphql_ratelimit(rate="0/m", group="outer", block=False)
    @graphql_ratelimit(rate="99/m", group="inner", block=False)
    async def scarce(root: Any, info: Any) -> bool:
        return bool(info.context.limited)

    @graphql_ratelimit(rate="99/m", group="other", block=False)
    async def plenty(root: Any, info: Any) -> bool:
        return bool(info.context.limited)

    field = info(request())
    flags = await asyncio.gather(*(resolver(None, field) for _ in range(20) for resolver in (scarce, plenty)))
    assert flags == [True, False] * 20


def test_a_refusal_ends_with_its_field() -> None:
    limited = graphql_ratelimit(rate="0/m", group="a", block=False)(told)
    other = graphql_ratelimit(rate="9/m", group="b", block=False)(told)
    field = info(request())
    assert [limited(None, field), other(None, field), limited(None, field)] == [
        (True, False),
        (False, True),
        (True, False),
    ]


def test_a_refusal_ends_when_the_resolver_fails() -> None:
    @graphql_ratelimit(rate="0/m", group="a", block=False)
    def failing(root: Any, info: Any) -> None:
        raise LookupError

    field = info(request())
    with pytest.raises(LookupError):
        failing(None, field)
    assert graphql_ratelimit(rate="9/m", group="b", block=False)(told)(None, field) == (False, True)


def test_a_blocking_limit_within_a_flagging_one_still_blocks() -> None:
    both = graphql_ratelimit(rate="0/m", group="soft", block=False)(graphql_ratelimit(rate="1/m", group="hard")(told))
    field = info(request())
    assert both(None, field) == (True, False)
    with pytest.raises(RateLimitExceeded):
        both(None, field)


def test_disabled_means_not_limited(limiter: Limiter) -> None:
    from ratelimit.testing import isolated

    limited = graphql_ratelimit(rate="0/m", block=False)(lambda root, info: info.context.limited)
    with isolated(disable=True):
        assert limited(None, info(request())) is False
