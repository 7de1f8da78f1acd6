"""What the response in a context is made to say, and contexts that hold something else in its place."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from django.http import HttpResponse
from starlette.datastructures import Headers
from starlette.responses import Response

from ratelimit import Decision, Limiter, Rate
from ratelimit.decision import Part, decided
from ratelimit.outcome import Outcome
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from ratelimit_graphql.response import show_field, show_operation, showing
from tests.graphql.callers import info


def decision(remaining: int, limit: int = 10, allowed: bool = True) -> Decision:
    wait = 0 if allowed else 60_000_000
    return decided([Part("r", Rate(limit, 60), Outcome(allowed, limit, remaining, wait, 60_000_000), "ip:x")])


REFUSED = decision(1, allowed=False)


class Aiohttp:
    """A response like aiohttp's, whose status is set by a method."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.status_code = 200

    def set_status(self, status: int) -> None:
        self.status_code = status


@pytest.mark.parametrize(
    "make", [Response, HttpResponse, Aiohttp, lambda: SimpleNamespace(headers={}, status_code=200)]
)
@pytest.mark.parametrize("wrap", [lambda made: {"response": made}, lambda made: SimpleNamespace(response=made)])
def test_a_response_tells_of_the_limit_that_constrains_most(make: Any, wrap: Any) -> None:
    made = make()
    context = wrap(made)
    for remaining in (7, 3, 5):
        show_field(context, decision(remaining), "x")
    assert made.headers["X-RateLimit-Remaining"] == "3"
    show_operation(context, decision(9), "x", 429)
    assert made.headers["X-RateLimit-Remaining"] == "3"
    show_field(context, REFUSED, "x")
    assert made.headers["X-RateLimit-Remaining"] == "1"
    assert ("Retry-After" in made.headers, made.status_code) == (False, 200)


@pytest.mark.parametrize("make", [Response, HttpResponse, Aiohttp])
def test_a_refused_request_is_429_until_something_of_it_runs(make: Any) -> None:
    made = make()
    context = {"response": made}
    for _ in range(2):
        show_operation(context, REFUSED, "none", 429)
        assert (made.status_code, made.headers["Retry-After"]) == (429, "60")
    show_operation(context, decision(1), "none", 429)
    assert made.status_code == 200
    assert not {"Retry-After", "Cache-Control"} & set(made.headers)
    show_operation(context, REFUSED, "none", 429)
    assert made.status_code == 200


def test_a_status_of_the_applications_own_comes_back() -> None:
    made = Response(status_code=202)
    show_operation({"response": made}, REFUSED, "none", 429)
    show_operation({"response": made}, decision(1), "none", 429)
    assert made.status_code == 202


def test_a_call_that_nothing_limits_has_no_headers() -> None:
    made = Response()
    show_field({"response": made}, Limiter().unlimited("x"), "x")
    assert "X-RateLimit-Limit" not in made.headers


class Raising:
    @property
    def response(self) -> Any:
        raise RuntimeError("no response here")


@pytest.mark.parametrize(
    "context",
    [
        None,
        5,
        {},
        {"response": None},
        {"response": "text"},
        {"response": SimpleNamespace(headers=Headers({}))},
        {"response": SimpleNamespace(headers=MappingProxyType({}))},
        {"response": HttpResponse},
        SimpleNamespace(response=SimpleNamespace(headers=[])),
        Raising(),
    ],
)
def test_contexts_without_a_response_are_left_alone(context: Any) -> None:
    show_field(context, REFUSED, "x")
    show_operation(context, REFUSED, "x", 429)


def test_who_gathers_is_told_instead_and_nested_ones_share() -> None:
    made = Response()
    with showing() as outer:
        with showing() as inner:
            show_operation({"response": made}, REFUSED, "x", 429)
        assert (inner is outer, outer.asked, outer.status) == (True, 1, 429)
        assert "X-RateLimit-Limit" not in made.headers
    with showing() as other:
        assert (other.asked, other.status, other.headers("x")) == (0, None, {})


@pytest.mark.usefixtures("limiter")
def test_a_field_says_nothing_unless_a_style_is_set() -> None:
    limited = graphql_ratelimit(rate="1/m")(lambda root, info: 1)
    made = Response()
    field = info({"response": made, "user": 1})
    limited(None, field)
    with pytest.raises(RateLimitExceeded):
        limited(None, field)
    assert set(made.headers) <= {"content-length", "content-type"}
