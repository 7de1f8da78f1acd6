from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from ratelimit import Decision, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.answers import Answer
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from ratelimit_django import adenied_response, denied_response, view_ratelimit
from ratelimit_django.store import DjangoCacheStore
from tests.django.calls import acodes, aok, codes, get, ok

pytestmark = pytest.mark.usefixtures("cache_limiter")


class TestAnswer:
    def denied(self, fake_clock: FakeClock, *, window: str = "1/m", at: float = 0.0, **meta: Any) -> HttpResponse:
        view = view_ratelimit(rate=window)(ok)
        fake_clock.advance(at)
        assert view(get(**meta)).status_code == 200
        response = view(get(**meta))
        assert isinstance(response, HttpResponse)
        return response

    def test_it_is_a_429_with_the_wait_and_the_error_as_json(self, fake_clock: FakeClock) -> None:
        response = self.denied(fake_clock, at=18.75, HTTP_X_REQUEST_ID="req-7f3a")
        assert response.status_code == 429
        assert dict(response.headers) == {
            "Content-Type": "application/json",
            "Retry-After": "42",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After",
        }
        assert json.loads(response.content) == {
            "error": {
                "code": "RATE_LIMITED",
                "message": "Limit exceeded: Max 1 request per minute. Please try again later.",
                "details": {"retry_after_ms": 41_250},
                "request_id": "req-7f3a",
            }
        }

    @pytest.mark.parametrize(("left", "said"), [(0.6, "1"), (0.001, "1"), (1.9, "2"), (59.0, "59")])
    def test_the_wait_is_whole_seconds_rounded_up_and_enough(
        self, fake_clock: FakeClock, left: float, said: str
    ) -> None:
        view = view_ratelimit(rate="1/m")(ok)
        fake_clock.advance(60 - left)
        assert "Retry-After" not in view(get()).headers
        assert view(get()).headers["Retry-After"] == said
        fake_clock.advance(int(said))
        assert view(get()).status_code == 200

    def test_the_wait_counts_down(self, fake_clock: FakeClock) -> None:
        view = view_ratelimit(rate="1/m")(ok)
        view(get())
        first = int(view(get()).headers["Retry-After"])
        fake_clock.advance(5)
        assert int(view(get()).headers["Retry-After"]) == first - 5

    def test_no_wait_is_promised_that_would_not_help(self) -> None:
        response = view_ratelimit(rate="0/m")(ok)(get())
        assert response.status_code == 429
        assert "Retry-After" not in response.headers

    @pytest.mark.parametrize(
        ("header", "value", "shown"),
        [
            ("HTTP_X_REQUEST_ID", "0f8fad5b-d9cb-469f-a165-70867728950e", True),
            ("HTTP_X_CORRELATION_ID", "01ARZ3NDEKTSV4RRFFQ69G5FAV", True),
            ("HTTP_X_REQUEST_ID", "a" * 128, True),
            ("HTTP_X_REQUEST_ID", "a" * 129, False),
            ("HTTP_X_REQUEST_ID", "<script>", False),
            ("HTTP_X_REQUEST_ID", "a b", False),
            ("HTTP_X_REQUEST_ID", "é", False),
            ("HTTP_X_REQUEST_ID", "a\n", False),
            ("HTTP_X_REQUEST_ID", "", False),
            ("HTTP_X_TRACE", "abc", False),
        ],
    )
    def test_a_request_id_is_repeated_if_it_looks_like_one(
        self, fake_clock: FakeClock, header: str, value: str, shown: bool
    ) -> None:
        body = json.loads(self.denied(fake_clock, **{header: value}).content)
        assert body["error"]["request_id"] == (value if shown else None)

    @pytest.mark.parametrize("asynchronous", [False, True])
    @pytest.mark.parametrize(
        ("style", "allowed", "denied"),
        [
            (
                "ietf",
                {"RateLimit-Policy": '"g";q=2;w=60', "RateLimit": '"g";r=1;t=60'},
                {"RateLimit-Policy": '"g";q=2;w=60', "RateLimit": '"g";r=0;t=60', "Retry-After": "60"},
            ),
            (
                "x",
                {"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "60"},
                {
                    "X-RateLimit-Limit": "2",
                    "X-RateLimit-Remaining": "0",
                    "X-RateLimit-Reset": "60",
                    "Retry-After": "60",
                },
            ),
            ("none", {}, {"Retry-After": "60"}),
        ],
    )
    def test_limit_headers_by_choice(
        self, style: str, allowed: dict[str, str], denied: dict[str, str], asynchronous: bool, fake_clock: FakeClock
    ) -> None:
        with isolated(DjangoCacheStore(), fake_clock, headers=style):
            view = view_ratelimit(rate="2/m", group="g")(aok if asynchronous else ok)
            answers = [asyncio.run(view(get())) if asynchronous else view(get()) for _ in range(3)]
        shown = [
            {name: value for name, value in answer.headers.items() if "ate" in name or "etry" in name}
            for answer in answers
        ]
        assert (shown[0], shown[2]) == (allowed, denied)

    def test_several_limits_show_the_one_that_constrains_most(self, fake_clock: FakeClock) -> None:
        with isolated(DjangoCacheStore(), fake_clock, headers="x"):
            view = view_ratelimit(rate="5/m")(view_ratelimit(rate="3/h")(ok))
            assert view(get()).headers["X-RateLimit-Limit"] == "3"

    def test_a_view_that_serves_a_limited_request_sends_no_wait_and_one_that_refuses_it_does(self) -> None:
        @view_ratelimit(rate="0/m; 1/h", block=False)
        def served(request: Any) -> HttpResponse:
            return HttpResponse("ok")

        @view_ratelimit(rate="1/m", block=False)
        def refused(request: Any) -> HttpResponse:
            return HttpResponse("own", status=429 if request.limited else 200, headers={"Cache-Control": "private"})

        assert "Retry-After" not in served(get()).headers
        assert "Retry-After" not in refused(get()).headers
        answer = refused(get())
        assert answer.headers["Retry-After"] == "60"
        assert answer.headers["Cache-Control"] == "private"
        assert answer.content == b"own"

    def test_what_is_not_a_response_is_left_alone(self) -> None:
        assert view_ratelimit(rate="1/m")(lambda request: {"a": 1})(get()) == {"a": 1}


def answer(request: HttpRequest, exception: Any) -> HttpResponse:
    return HttpResponse(f"{exception} {exception.decision.limit}", status=429)


async def aanswer(request: HttpRequest, exception: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(f"{exception} {exception.decision.limit}", status=429)


def shorter(decision: Decision, answer: Answer) -> Answer:
    kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After")}
    return answer._replace(status=503, headers=kept, body=b'"later"')


class TestOneAnswer:
    def test_problem_details_by_choice(self, fake_clock: FakeClock) -> None:
        with isolated(DjangoCacheStore(), fake_clock, errors="problem", headers="ietf"):
            view = view_ratelimit(rate="1/m", group="search")(ok)
            codes(view, 1)
            response = view(get(HTTP_X_REQUEST_ID="req-7f3a"))
        assert response.status_code == 429
        assert dict(response.headers) == {
            "Content-Type": "application/problem+json",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After, RateLimit-Policy, RateLimit",
            "Retry-After": "60",
            "RateLimit-Policy": '"search";q=1;w=60',
            "RateLimit": '"search";r=0;t=60',
        }
        assert json.loads(response.content) == {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "Limit exceeded: Max 1 request per minute. Please try again later.",
            "violated-policies": ["search"],
            "code": "RATE_LIMITED",
            "retry_after_ms": 60_000,
            "request_id": "req-7f3a",
        }

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_what_the_application_sends_instead_is_sent_as_it_is(self, asynchronous: bool) -> None:
        view = view_ratelimit(rate="1/m")(aok if asynchronous else ok)
        with override_settings(RATELIMIT_ANSWER=f"{__name__}.shorter", RATELIMIT_HEADERS="x"):
            *_, response = [asyncio.run(view(get())) if asynchronous else view(get()) for _ in range(2)]
        assert (response.status_code, response.content) == (503, b'"later"')
        assert dict(response.headers) == {"Content-Type": "application/json", "Retry-After": "60"}

    def test_a_view_of_the_applications_own_comes_before_it(self) -> None:
        with override_settings(RATELIMIT_ANSWER=shorter, RATELIMIT_VIEW=f"{__name__}.answer"):
            view = view_ratelimit(rate="1/m")(ok)
            assert codes(view, 2) == [200, 429]

    def test_the_longest_of_several_waits_is_told_and_is_enough(self, fake_clock: FakeClock) -> None:
        view = view_ratelimit(Policy(Rule("short", "1/7s"), Rule("long", "1/m")))(ok)
        with isolated(MemoryStore(), fake_clock):
            fake_clock.advance(10)
            assert codes(view, 1) == [200]
            request = get()
            assert view(request).headers["Retry-After"] == "50"
            waits = [part.outcome.retry_after_us for part in request.limit_decision.parts]  # type: ignore[attr-defined]
            assert waits == [3_000_000, 50_000_000]
            fake_clock.advance(50)
            assert codes(view, 1) == [200]

    @pytest.mark.parametrize("settings", [None, Settings(headers="x", errors="problem")])
    async def test_an_application_that_asks_the_engine_itself_answers_so_too(
        self, settings: Settings | None, cache_limiter: Limiter
    ) -> None:
        decision = cache_limiter.check(Rate(0, 60), "user:42")
        answers = [
            denied_response(get(), decision, settings=settings),
            await adenied_response(get(), decision, settings=settings),
        ]
        for response in answers:
            assert response.status_code == 429
            assert ("X-RateLimit-Limit" in response.headers) is (settings is not None)
            kind = "json" if settings is None else "problem+json"
            assert response.headers["Content-Type"] == f"application/{kind}"


class TestOwnAnswer:
    TEXT = b"Limit exceeded: Max 1 request per minute. Please try again later. 1"

    @pytest.mark.parametrize("name", ["answer", "aanswer"])
    def test_from_a_sync_view(self, name: str) -> None:
        with override_settings(RATELIMIT_VIEW=f"{__name__}.{name}"):
            view = view_ratelimit(rate="1/m")(ok)
            assert codes(view, 1) == [200]
            response = view(get())
        assert (response.status_code, response.content) == (429, self.TEXT)
        assert (response.headers["Retry-After"], response.headers["Cache-Control"]) == ("60", "no-store")

    @pytest.mark.parametrize("name", ["answer", "aanswer"])
    async def test_from_an_async_view(self, name: str) -> None:
        with override_settings(RATELIMIT_VIEW=f"{__name__}.{name}"):
            view = view_ratelimit(rate="1/m")(aok)
            assert await acodes(view, 1) == [200]
            response = await view(get())
        assert (response.status_code, response.content, response.headers["Retry-After"]) == (429, self.TEXT, "60")

    def test_it_may_be_the_function_itself_and_decide_on_the_status(self) -> None:
        with override_settings(RATELIMIT_VIEW=lambda request, exception: HttpResponse("later", status=503)):
            view = view_ratelimit(rate="1/m")(ok)
            assert codes(view, 2) == [200, 503]
        with override_settings(RATELIMIT_VIEW=lambda request, exception: HttpResponse("page")):
            response = view(get())
        assert (response.status_code, response.headers.get("Retry-After")) == (200, None)
        assert view(get()).status_code == 429

    def test_the_environment_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_VIEW", f"{__name__}.answer")
        view = view_ratelimit(rate="1/m")(ok)
        with override_settings(RATELIMIT_VIEW=lambda request, exception: HttpResponse("page")):
            assert codes(view, 2) == [200, 429]
