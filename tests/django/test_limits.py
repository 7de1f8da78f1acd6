from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from ratelimit import Limiter
from ratelimit_django import view_ratelimit
from ratelimit_django.store import DjangoCacheStore
from tests.django.calls import acodes, aok, codes, get, ok

pytestmark = pytest.mark.usefixtures("cache_limiter")


def test_the_request_says_whether_a_limit_was_exceeded() -> None:
    seen = []

    @view_ratelimit(rate="2/m", block=False)
    def view(request: HttpRequest) -> HttpResponse:
        seen.append(request.limited)  # type: ignore[attr-defined]
        return HttpResponse("ok")

    assert codes(view, 4) == [200] * 4
    assert seen == [False, False, True, True]


async def test_async_views_too() -> None:
    seen = []

    @view_ratelimit(rate="2/m", block=False)
    async def view(request: HttpRequest) -> HttpResponse:
        seen.append(request.limited)  # type: ignore[attr-defined]
        return HttpResponse("ok")

    assert await acodes(view, 4) == [200] * 4
    assert seen == [False, False, True, True]


def test_what_one_of_several_limits_says_is_not_taken_back_by_another() -> None:
    @view_ratelimit(rate="1/m", block=False)
    @view_ratelimit(rate="3/m", block=False)
    @view_ratelimit(rate="9/m", method="POST", block=False)
    def view(request: Any) -> HttpResponse:
        seen.append((request.limited, request.limit_decision.limit, request.limit_decision.remaining))
        return HttpResponse("ok")

    seen: list[Any] = []
    codes(view, 4)
    # Denied comes before allowed, then the longer wait, here the same; the first one seen stays.
    assert [limited for limited, *_ in seen] == [False, True, True, True]
    assert [figures for _, *figures in seen] == [[1, 0], [1, 0], [1, 0], [1, 0]]


def test_the_decision_is_that_of_the_limit_which_constrains_most() -> None:
    decisions = []

    @view_ratelimit(rate="9/m", block=False)
    @view_ratelimit(rate="3/m", block=False)
    @view_ratelimit(rate="2/h", block=False)
    def view(request: Any) -> HttpResponse:
        decisions.append(request.limit_decision)
        return HttpResponse("ok")

    codes(view, 4)
    assert [(d.limit, d.remaining, d.retry_after_seconds) for d in decisions] == [
        (2, 1, 0),
        (2, 0, 0),
        (2, 0, 3600),
        (2, 0, 3600),
    ]


def test_a_wait_that_never_ends_comes_before_all_others() -> None:
    seen = []

    @view_ratelimit(rate="0/m", block=False)
    @view_ratelimit(rate="1/h", block=False)
    def view(request: Any) -> HttpResponse:
        seen.append(request.limit_decision.limit)
        return HttpResponse("ok")

    codes(view, 2)
    assert seen == [0, 0]


@pytest.mark.parametrize(
    "options",
    [
        {"rate": None},
        {"rate": lambda group, request: None},
        {"rate": "1/m", "method": "POST"},
    ],
)
def test_a_request_that_is_not_counted_is_not_limited(options: dict[str, Any], cache_limiter: Limiter) -> None:
    @view_ratelimit(**options)
    def view(request: Any) -> HttpResponse:
        assert (request.limited, request.limit_decision) == (False, None)
        return HttpResponse("ok")

    with override_settings(RATELIMIT_HEADERS="x"):
        responses = [view(get()) for _ in range(3)]
    assert [response.status_code for response in responses] == [200] * 3
    assert [name for response in responses for name in response.headers if "ate" in name] == []


def test_disabling_stores_nothing_and_asks_nobody() -> None:
    view = view_ratelimit(rate="1/m", key=lambda group, request: 1 / 0)(ok)
    with override_settings(RATELIMIT_DISABLE=True):
        assert codes(view, 200) == [200] * 200
    assert len(DjangoCacheStore()._own.get()._cache) == 0  # type: ignore[attr-defined]


async def test_async_views_are_called_at_once_when_nothing_counts_them() -> None:
    view = view_ratelimit(rate="1/m", method="POST")(aok)
    assert await acodes(view, 3) == [200] * 3
