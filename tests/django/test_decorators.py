from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from ratelimit import Limiter, Rate, RateLimits
from ratelimit.testing import FakeClock, isolated
from ratelimit_django import UNSAFE, view_ratelimit
from tests.django.calls import Person, acodes, aok, by, codes, get, ok

pytestmark = pytest.mark.usefixtures("cache_limiter")


def test_of_n_plus_one_requests_n_pass_and_the_next_window_is_a_new_one(fake_clock: FakeClock) -> None:
    view = view_ratelimit(key="ip", rate="3/m")(ok)
    assert codes(view, 4) == [200, 200, 200, 429]
    fake_clock.advance(60)
    assert codes(view, 4) == [200, 200, 200, 429]


async def test_async_views_too(fake_clock: FakeClock) -> None:
    view = view_ratelimit(key="ip", rate="3/m")(aok)
    assert await acodes(view, 4) == [200, 200, 200, 429]
    fake_clock.advance(60)
    assert await acodes(view, 4) == [200, 200, 200, 429]


def test_eight_threads_share_one_budget_exactly() -> None:
    view = view_ratelimit(key="ip", rate="50/m")(ok)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: codes(view, 25), range(8)))
    assert sum(code == 200 for batch in answers for code in batch) == 50


async def test_two_hundred_coroutines_share_one_budget_exactly() -> None:
    view = view_ratelimit(key="ip", rate="50/m")(aok)
    responses = await asyncio.gather(*(view(get()) for _ in range(200)))
    assert sorted(response.status_code for response in responses) == [200] * 50 + [429] * 150


def test_a_category_named_as_rule_is_one_budget_for_all_who_name_it(cache_limiter: Limiter) -> None:
    one = view_ratelimit("WRITE_HEAVY")(ok)
    other = view_ratelimit(RateLimits.WRITE_HEAVY)(ok)
    assert codes(one, 3) + codes(other, 3) == [200] * 5 + [429]
    assert not cache_limiter.peek("WRITE_HEAVY", "ip:127.0.0.1")


def test_a_category_as_rate_is_a_budget_of_the_views_own() -> None:
    one, other = (view_ratelimit(rate=rate)(ok) for rate in ("WRITE_HEAVY", RateLimits.WRITE_HEAVY))
    assert codes(one, 6) == codes(other, 6) == [200] * 5 + [429]


def test_categories_are_scaled_by_tier_and_rate_texts_are_not() -> None:
    scaled, exact = view_ratelimit(rate="WRITE_HEAVY")(ok), view_ratelimit(rate="5/m")(ok)
    assert codes(scaled, 11, by(Person(1))).count(200) == 10
    assert codes(scaled, 51, by(Person(2, is_superuser=True))).count(200) == 50
    assert codes(scaled, 26, by(Person(3, is_superuser=True, is_usage_capped=True))).count(200) == 25
    assert codes(exact, 11, by(Person(1))).count(200) == 5


def test_users_and_addresses_are_counted_apart() -> None:
    view = view_ratelimit(rate="1/m")(ok)
    assert codes(view, 2, by(Person(1))) == [200, 429]
    assert codes(view, 2, by(Person(2))) == [200, 429]
    assert codes(view, 2) == [200, 429]
    assert codes(view, 2, by(None, REMOTE_ADDR="203.0.113.7")) == [200, 429]


def test_views_with_one_group_share_it() -> None:
    one, other = (view_ratelimit(rate="2/m", group="both")(ok) for _ in range(2))
    assert codes(one, 1) + codes(other, 2) + codes(one, 1) == [200, 200, 429, 429]


def test_cost_is_what_a_request_takes() -> None:
    view = view_ratelimit(rate="10/m", cost=lambda group, request: int(request.GET["rows"]))(ok)
    assert [view(get(f"/?rows={rows}")).status_code for rows in (6, 5, 3, 2, 0, 1, 1)] == [
        200,
        429,
        200,
        429,
        200,
        200,
        429,
    ]


def test_the_last_limit_given_is_the_limiters(fake_clock: FakeClock) -> None:
    own = Limiter(clock=fake_clock)
    view = view_ratelimit(rate="1/m", group="g", limiter=own)(ok)
    assert codes(view, 2) == [200, 429]
    assert not own.peek(Rate(1, 60), "ip:127.0.0.1", group="g")


def test_the_limiter_is_looked_up_when_a_request_comes() -> None:
    view = view_ratelimit(rate="1/m")(ok)
    assert codes(view, 2) == [200, 429]
    with isolated():
        assert codes(view, 2) == [200, 429]
    assert codes(view, 1) == [429]


def test_only_the_methods_asked_for_are_counted() -> None:
    view = view_ratelimit(rate="1/m", method="post")(ok)
    assert codes(view, 3) == [200, 200, 200]
    assert codes(view, 2, by(None, REQUEST_METHOD="POST")) == [200, 429]
    assert codes(view, 1) == [200]


def test_get_means_head_which_a_view_answers_by_the_same_code() -> None:
    view = view_ratelimit(rate="2/m", method="get")(ok)
    head = by(None, REQUEST_METHOD="HEAD")
    assert [*codes(view, 1), *codes(view, 2, head), *codes(view, 1)] == [200, 200, 429, 429]
    view = view_ratelimit(rate="1/m", method="HEAD")(ok)
    assert [*codes(view, 2), *codes(view, 2, head)] == [200, 200, 200, 429]


@pytest.mark.parametrize("unsafe", [UNSAFE, view_ratelimit.UNSAFE])  # type: ignore[attr-defined]
def test_unsafe_methods_are_those_that_change_something(unsafe: Any) -> None:
    view = view_ratelimit(rate="4/m", method=unsafe)(ok)
    methods = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "POST", "GET")
    assert [codes(view, 1, by(None, REQUEST_METHOD=method))[0] for method in methods] == [200] * 7 + [429, 200]


def test_all_is_every_method() -> None:
    view = view_ratelimit(rate="2/m", method=view_ratelimit.ALL)(ok)  # type: ignore[attr-defined]
    assert [codes(view, 1, by(None, REQUEST_METHOD=method))[0] for method in ("GET", "POST", "PUT")] == [
        200,
        200,
        429,
    ]


@pytest.mark.parametrize("view", [ok, aok])
def test_name_docstring_signature_and_kind_stay(view: Callable[..., Any]) -> None:
    decorated = view_ratelimit(rate="1/m")(view)
    assert iscoroutinefunction(decorated) is iscoroutinefunction(view)
    assert (decorated.__name__, decorated.__qualname__, decorated.__module__, decorated.__doc__) == (
        *(view.__name__, view.__qualname__, view.__module__, view.__doc__),
    )
    assert inspect.signature(decorated) == inspect.signature(view)


async def test_a_callable_that_is_marked_async_or_has_an_async_call_is_async() -> None:
    class Callable_:
        async def __call__(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse("ok")

    def marked(request: HttpRequest) -> Any:
        return aok(request)

    views = [Callable_(), markcoroutinefunction(marked), functools.partial(aok)]
    for view in map(view_ratelimit(rate="1/m"), views):
        assert iscoroutinefunction(view)
        assert await acodes(view, 2) == [200, 429]


def test_other_decorators_may_stand_on_either_side() -> None:
    outside = require_POST(view_ratelimit(rate="1/m")(ok))
    inside = view_ratelimit(rate="1/m")(require_POST(ok))
    assert codes(outside, 2) == [405, 405]
    assert codes(inside, 2) == [405, 429]


def test_arguments_reach_the_view() -> None:
    @view_ratelimit(rate="1/m")
    def view(request: HttpRequest, pk: int, *, slug: str) -> tuple[int, str]:
        return pk, slug

    assert view(get(), 7, slug="a") == (7, "a")


@pytest.mark.parametrize("args", [(), (1,), (1, 2)])
def test_a_call_without_a_request_is_an_error_that_names_the_view(args: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=r"tests\.django\.calls\.ok was called without a request"):
        view_ratelimit(rate="1/m")(ok)(*args)


def test_what_a_view_raises_gets_through() -> None:
    @view_ratelimit(rate="1/m")
    def view(request: HttpRequest) -> HttpResponse:
        raise LookupError("own")

    with pytest.raises(LookupError, match="own"):
        view(get())
    assert view(get()).status_code == 429
