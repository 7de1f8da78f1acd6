"""Django Ninja: its test clients, whole requests under both of Django's handlers, its own errors and ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("ninja")

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from ninja import NinjaAPI, Router, Schema
from ninja.decorators import decorate_view
from ninja.errors import Throttled
from ninja.security import HttpBearer
from ninja.testing import TestAsyncClient, TestClient
from ninja.throttling import BaseThrottle

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, Rule
from ratelimit.identity import hashed
from ratelimit.paths import PathRule
from ratelimit.testing import FakeClock, isolated
from ratelimit_django.ninja import RateLimitThrottle, exception_handler
from ratelimit_django.store import DjangoCacheStore
from tests.django.calls import Person

SESSIONS = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
OURS = "ratelimit_django.middleware.PathRateLimitMiddleware"


class Bearer(HttpBearer):
    """`Bearer user-7` is user 7; anything else is a key."""

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        return Person(int(token[5:])) if token.startswith("user-") else token


class Item(Schema):
    name: str


class Unknown(BaseThrottle):
    def allow_request(self, request: HttpRequest) -> bool:
        return "unknown" not in request.GET


def told(request: Any) -> dict[str, Any]:
    return {"limited": request.limited, "key": request.limit_key}


def make() -> NinjaAPI:
    """An API with limits on itself, on a router, and on operations."""
    api = NinjaAPI(urls_namespace=f"ratelimit-{next(NUMBERS)}", throttle=RateLimitThrottle("9/m"))
    router = Router(throttle=RateLimitThrottle("2/m"))
    by_token = RateLimitThrottle("2/m", key="token_or_ip")
    dear = RateLimitThrottle("1/m")
    awaited = RateLimitThrottle("2/m")
    category = RateLimitThrottle("WRITE_HEAVY")

    @api.get("/plain")
    def plain(request: HttpRequest) -> Any:
        return told(request)

    @api.get("/category", throttle=category)
    def of_category(request: HttpRequest) -> Any:
        return told(request)

    @api.get("/acategory", throttle=[])
    @category
    async def of_acategory(request: HttpRequest) -> Any:
        return told(request)

    @api.get("/token", auth=Bearer(), throttle=by_token)
    def token(request: HttpRequest) -> Any:
        return told(request)

    @api.get("/dear/{number}", throttle=[dear])
    def one(request: HttpRequest, number: int) -> Any:
        return number

    @api.post("/dear/{number}", throttle=[dear])
    def posted(request: HttpRequest, number: int, item: Item) -> Any:
        return item.name

    @api.get("/awaited/{number}", auth=Bearer(), throttle=[])
    @awaited
    async def by_await(request: HttpRequest, number: int, q: str = "none") -> Any:
        """What it does."""
        await asyncio.sleep(0)
        return {"number": number, "q": q, **told(request)}

    @api.get("/decorated", throttle=[])
    @awaited
    def decorated(request: HttpRequest) -> Any:
        return told(request)

    @api.get("/viewed", throttle=[])
    @decorate_view(awaited)
    async def viewed(request: HttpRequest, q: int) -> Any:
        return q

    @api.get("/blocking", throttle=RateLimitThrottle("1/m"))
    async def blocking(request: HttpRequest) -> Any:
        return None

    @api.get("/two", throttle=[Unknown(), RateLimitThrottle("1/10s"), RateLimitThrottle("1/m", group="two"), category])
    def two(request: HttpRequest) -> Any:
        return None

    @api.get("/never", throttle=RateLimitThrottle("0/m"))
    def never(request: HttpRequest) -> Any:
        return None

    @router.get("/a")
    def a(request: HttpRequest) -> Any:
        return None

    @router.get("/b")
    def b(request: HttpRequest) -> Any:
        return None

    api.add_router("/router", router)
    return api


NUMBERS: Iterator[int] = iter(range(10_000))
API = make()
OUR_API = make()
OUR_API.add_exception_handler(Throttled, exception_handler)
urlpatterns = [path("api/", API.urls), path("ours/", OUR_API.urls)]

pytestmark = [
    pytest.mark.usefixtures("cache_limiter", "_closed_threads"),
    pytest.mark.urls(__name__),
    pytest.mark.django_db,
]


@pytest.fixture(autouse=True)
def _no_middleware() -> Iterator[None]:
    with override_settings(MIDDLEWARE=[]):
        yield


def ask(where: str, method: str = "GET", **options: Any) -> Any:
    """A request under WSGI."""
    return Client().generic(method, f"/{where}", **options)


def aask(where: str, method: str = "GET", **options: Any) -> Any:
    """A request under ASGI."""
    return asyncio.run(AsyncClient().generic(method, f"/{where}", **options))  # type: ignore[arg-type]


def codes(where: str, times: int, how: Any = ask, **options: Any) -> list[int]:
    return [how(where, **options).status_code for _ in range(times)]


BOTH = pytest.mark.parametrize("how", [ask, aask])


class TestBudgets:
    @BOTH
    def test_each_operation_has_its_own_whatever_object_it_is_asked_for(self, how: Any) -> None:
        assert [how(f"api/dear/{number}").status_code for number in (1, 2)] == [200, 429]
        item = {"data": '{"name": "x"}', "content_type": "application/json"}
        assert codes("api/dear/1", 2, how, method="POST", **item) == [200, 429]

    @BOTH
    def test_a_router_and_the_whole_api(self, how: Any) -> None:
        assert codes("api/router/a", 3, how) == codes("api/router/b", 3, how) == [200, 200, 429]
        assert codes("api/plain", 10, how) == [200] * 9 + [429]
        assert codes("ours/router/a", 2, how) == [200, 200]

    @BOTH
    @pytest.mark.parametrize("where", ["api/category", "api/acategory"])
    def test_a_category_is_the_one_that_everybody_spends(self, how: Any, where: str, cache_limiter: Limiter) -> None:
        assert codes(where, 6, how) == [200] * 5 + [429]
        assert not cache_limiter.peek("WRITE_HEAVY", Identity(ip="127.0.0.1"))

    @BOTH
    @pytest.mark.parametrize("where", ["api/category", "api/acategory"])
    def test_the_path_rule_and_the_throttle_that_name_one_rule_count_once(self, how: Any, where: str) -> None:
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/api", "WRITE_HEAVY")]):
            assert codes(where, 6, how) == [200] * 5 + [429]

    def test_what_one_throttle_refuses_spends_nothing_of_the_next(self, cache_limiter: Limiter) -> None:
        assert codes("api/two", 3) == [200, 429, 429]
        assert cache_limiter.peek("WRITE_HEAVY", Identity(ip="127.0.0.1")).remaining == 4

    def test_threads_share_one_throttle(self) -> None:
        client = TestClient(API)
        with ThreadPoolExecutor(8) as threads:
            answers = list(
                threads.map(lambda n: client.get("/plain", META={"REMOTE_ADDR": f"203.0.113.{n % 8}"}), range(160))
            )
        assert sorted(answer.status_code for answer in answers) == [200] * 72 + [429] * 88
        assert {answer["Retry-After"] for answer in answers if answer.status_code == 429} == {"60"}

    def test_disabled(self) -> None:
        with override_settings(RATELIMIT_DISABLE=True):
            assert codes("api/never", 2) == [200, 200]


class TestCallers:
    @pytest.mark.parametrize(
        ("token", "key"), [("user-7", "user:7"), ("user-8", "user:8"), ("s3cret", f"tok:{hashed('s3cret')}")]
    )
    def test_whom_the_operation_authenticates(self, token: str, key: str) -> None:
        headers = {"authorization": f"Bearer {token}"}
        assert ask("api/awaited/1", headers=headers).json()["key"] == (key if "user" in token else "ip:127.0.0.1")
        found = ask("api/token", headers=headers).json()["key"]
        assert found == (key if "tok:" in key else "ip:127.0.0.1")

    @BOTH
    def test_two_users_and_two_keys_do_not_share(self, how: Any) -> None:
        for token in ("one", "two"):
            headers = {"authorization": f"Bearer {token}"}
            assert codes("api/token", 3, how, headers=headers) == [200, 200, 429]
        for token in ("user-1", "user-2"):
            headers = {"authorization": f"Bearer {token}"}
            assert codes("api/awaited/1", 3, how, headers=headers) == [200, 200, 429]
        assert how("api/token").status_code == 401

    @pytest.mark.django_db(transaction=True)
    async def test_users_of_djangos_sessions_whom_nobody_reads_in_the_loop(self, async_client: AsyncClient) -> None:
        user = await User.objects.acreate_user("ann")
        await async_client.aforce_login(user)
        with override_settings(MIDDLEWARE=[*SESSIONS, OURS], RATELIMIT_PATHS=[PathRule("/api", "WRITE_HEAVY")]):
            answers = [await async_client.get("/api/acategory") for _ in range(11)]
        assert [answer.status_code for answer in answers] == [200] * 10 + [429]  # once, and twice as much for users
        assert answers[0].json()["key"] == f"user:{user.pk}"


class TestAsync:
    @BOTH
    def test_an_operation_that_awaits_its_limit_keeps_what_it_is(self, how: Any) -> None:
        headers = {"authorization": "Bearer user-7"}
        assert how("api/awaited/5?q=x", headers=headers).json() == {
            "number": 5,
            "q": "x",
            "limited": False,
            "key": "user:7",
        }
        assert how("api/awaited/five", headers=headers).status_code == 422
        operation = API.get_openapi_schema()["paths"]["/api/awaited/{number}"]["get"]
        assert [one["name"] for one in operation["parameters"]] == ["number", "q"]
        assert operation["description"] == "What it does."

    @BOTH
    def test_before_its_parameters_are_read(self, how: Any) -> None:
        assert [how(f"api/viewed{query}").status_code for query in ("?q=x", "?q=1", "?q=2")] == [422, 200, 429]

    @BOTH
    def test_a_throttle_that_would_hold_up_the_loop_refuses_to(self, how: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"on an async operation would hold up the event loop; write it as a"
        ):
            how("api/blocking")

    async def test_ninjas_own_client(self) -> None:
        client = TestAsyncClient(API)
        assert [(await client.get("/acategory")).status_code for _ in range(6)] == [200] * 5 + [429]

    @BOTH
    @pytest.mark.parametrize("mode", ["view", "operation"])
    def test_for_all_operations_of_an_api(self, how: Any, mode: Any) -> None:
        api = NinjaAPI(urls_namespace=f"ratelimit-{next(NUMBERS)}")
        api.add_decorator(RateLimitThrottle("2/m"), mode=mode)

        @api.get("/sync")
        def plain(request: HttpRequest, q: int = 0) -> Any:
            return q

        @api.get("/async")
        async def coroutine(request: HttpRequest, q: int = 0) -> Any:
            return q

        urls = type("Urls", (), {"urlpatterns": [path("api/", api.urls)]})
        with override_settings(ROOT_URLCONF=urls):
            for where in ("api/sync?q=3", "api/async?q=3"):
                answers = [how(where) for _ in range(3)]
                assert [answer.status_code for answer in answers] == [200, 200, 429]
                assert answers[0].content == b"3"


class TestAnswers:
    def test_ninjas_own(self) -> None:
        codes("api/router/a", 2)
        response = ask("api/router/a")
        assert (response.status_code, response.json()) == (429, {"detail": "Too many requests."})
        assert response.headers["Retry-After"] == "60"

    def test_that_of_every_adapter(self) -> None:
        codes("ours/router/a", 2)
        response = ask("ours/router/a", headers={"x-request-id": "req-1"})
        assert dict(response.headers) == {
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After",
            "Retry-After": "60",
        }
        assert response.json()["error"]["request_id"] == "req-1"

    def test_other_throttles_answer_as_ninja_does(self) -> None:
        response = ask("ours/two?unknown=1")
        assert (response.status_code, response.json()) == (429, {"detail": "Too many requests."})

    @BOTH
    def test_a_decorated_operation_answers_so_by_itself(self, how: Any, fake_clock: FakeClock) -> None:
        with isolated(DjangoCacheStore(), fake_clock, headers="x"):
            answers = [how("api/decorated") for _ in range(3)]
        assert json.loads(answers[2].content)["error"]["code"] == "RATE_LIMITED"
        assert answers[2].headers["X-RateLimit-Limit"] == "2"
        assert answers[2].headers["Retry-After"] == "60"

    def test_limit_headers_of_what_is_allowed(self, fake_clock: FakeClock) -> None:
        with isolated(DjangoCacheStore(), fake_clock, headers="x"):
            assert ask("api/viewed?q=1").headers["X-RateLimit-Remaining"] == "1"  # around the whole operation
            with override_settings(MIDDLEWARE=[OURS]):
                assert ask("api/router/a").headers["X-RateLimit-Remaining"] == "1"
                assert ask("api/decorated").headers["X-RateLimit-Remaining"] == "1"

    @pytest.mark.parametrize(("left", "said"), [(0.6, "1"), (0.001, "1"), (1.9, "2"), (59.0, "59")])
    def test_the_wait_is_whole_seconds_and_enough(self, fake_clock: FakeClock, left: float, said: str) -> None:
        fake_clock.advance(60 - left)
        assert codes("api/router/a", 3) == [200, 200, 429]
        assert ask("api/router/a").headers["Retry-After"] == said
        fake_clock.advance(int(said))
        assert codes("api/router/a", 1) == [200]

    def test_of_several_waits_the_longest_and_an_unknown_one_makes_no_difference(self, fake_clock: FakeClock) -> None:
        fake_clock.advance(10)
        assert codes("api/two", 1) == [200]
        assert ask("api/two").headers["Retry-After"] == "50"
        assert ask("api/two?unknown=1").headers["Retry-After"] == "50"

    def test_a_wait_that_never_ends_is_not_promised(self) -> None:
        response = ask("api/never")
        assert (response.status_code, response.headers.get("Retry-After")) == (429, None)
        assert RateLimitThrottle("1/m").wait() is None


def stream(request: HttpRequest) -> Iterator[int]:
    yield 1


async def astream(request: HttpRequest) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("operation", [stream, astream])
def test_a_stream_has_its_limit_before_it_begins(operation: Any) -> None:
    with pytest.raises(ConfigurationError, match="streams: its limit has to stand before it begins"):
        RateLimitThrottle("1/m")(operation)


@BOTH
def test_a_stream_is_limited_as_a_view(how: Any) -> None:
    streaming = pytest.importorskip("ninja.streaming")
    api = NinjaAPI(urls_namespace=f"ratelimit-{next(NUMBERS)}")

    @api.get("/events", response=streaming.SSE[int])
    @decorate_view(RateLimitThrottle("1/m"))
    async def events(request: HttpRequest) -> AsyncIterator[int]:
        for number in range(2):
            yield number

    async def body(response: Any) -> bytes:
        return b"".join([part async for part in response.streaming_content])

    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": [path("", api.urls)]})):
        first, second = (how("events") for _ in range(2))
    assert (first.status_code, first.headers["Content-Type"], second.status_code) == (200, "text/event-stream", 429)
    if how is aask:
        assert asyncio.run(body(first)) == b"data: 0\n\ndata: 1\n\n"


@pytest.mark.parametrize(
    ("rule", "options", "said"),
    [
        (None, {}, "throttle: None is neither a rule nor a rate"),
        ("10/mm", {}, "rate '10/mm'"),
        ("AI_QUERRY", {}, "unknown category 'AI_QUERRY'"),
        (Rate(1, 60), {"key": "adress"}, "unknown key 'adress'"),
        (Policy(Rule("a", "1/m")), {"key": "ip"}, "no effect"),
    ],
)
def test_what_cannot_be_used_is_an_error_when_it_is_made(rule: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        RateLimitThrottle(rule, **options)


def test_types_that_are_defined_later_are_left_to_ninja() -> None:
    def operation(request: HttpRequest, item: Later) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Not yet."""

    assert RateLimitThrottle("1/m")(operation).__doc__ == "Not yet."
