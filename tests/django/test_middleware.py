"""`PathRateLimitMiddleware` in whole requests, under both of Django's handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, Rule
from ratelimit.guard import Guard
from ratelimit.paths import PathRule
from ratelimit.spent import note_spent
from ratelimit.testing import FakeClock, isolated
from ratelimit_django import view_ratelimit
from ratelimit_django.middleware import PathRateLimitMiddleware
from ratelimit_django.store import DjangoCacheStore
from tests.django.path_urls import CALLS, SHARED, atold
from tests.wire import CountingProxy

OURS = "ratelimit_django.middleware.PathRateLimitMiddleware"
SESSIONS = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
AFTER = [*SESSIONS, OURS]
BEFORE = [OURS, *SESSIONS]

pytestmark = [
    pytest.mark.usefixtures("cache_limiter", "_closed_threads"),
    pytest.mark.django_db,
    pytest.mark.urls("tests.django.path_urls"),
]

Fetch = Callable[..., HttpResponse]


@pytest.fixture(autouse=True)
def _no_calls() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


class OneHostClient(AsyncClient):
    """Django's client, with the host that a test gives in place of its own, not beside it."""

    async def request(self, **scope: Any) -> Any:
        *_, host = (line for line in scope["headers"] if line[0] == b"host")
        scope["headers"] = [line for line in scope["headers"] if line[0] != b"host"] + [host]
        return await super().request(**scope)


@pytest.fixture(params=["wsgi", "asgi"])
def fetch(request: pytest.FixtureRequest) -> Fetch:
    """A request through one of the two handlers."""

    def fetch(path: str, method: str = "GET", **options: Any) -> Any:
        if request.param == "wsgi":
            return Client().generic(method, path, **options)
        headers = options.pop("headers", {})  # which early releases of Django 5.2 send with underscores
        return asyncio.run(OneHostClient().generic(method, path, **options, **headers))  # type: ignore[arg-type]

    return fetch


def site(*rules: Any, middleware: list[str] = AFTER, exempt: Any = (), **settings: Any) -> override_settings:
    return override_settings(
        MIDDLEWARE=middleware, RATELIMIT_PATHS=list(rules), RATELIMIT_PATHS_EXEMPT=exempt, **settings
    )


def codes(fetch: Fetch, path: str, times: int, method: str = "GET", **options: Any) -> list[int]:
    return [fetch(path, method, **options).status_code for _ in range(times)]


class TestCounting:
    def test_the_longest_prefix_decides_and_each_rule_has_its_own_count(self, fetch: Fetch) -> None:
        with site(PathRule("/", "5/m"), PathRule("/api", "3/m"), PathRule("/api/login", "1/m")):
            assert codes(fetch, "/api/login", 2) == [200, 429]
            assert codes(fetch, "/api/x", 4) == [200, 200, 200, 429]
            assert codes(fetch, "/apis", 6) == [200] * 5 + [429]
            assert codes(fetch, "//api/login/", 1) == [429]

    def test_callers_are_counted_apart_and_windows_end(self, fetch: Fetch, fake_clock: FakeClock) -> None:
        with site(PathRule("/", "1/m")):
            assert codes(fetch, "/", 2) == [200, 429]
            assert fetch("/", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 429
            with isolated(DjangoCacheStore(), fake_clock, proxies_count=1):
                assert fetch("/", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 200
            fake_clock.advance(60)
            assert codes(fetch, "/", 2) == [200, 429]

    def test_what_no_rule_means_and_what_is_exempt_is_not_counted(self, fetch: Fetch, cache_limiter: Limiter) -> None:
        with site(
            PathRule("/api", "1/m"), PathRule("/static/private", "1/m"), exempt=["/static", "/health", "/api/docs"]
        ):
            for path in ("/", "/static/x.css", "/health", "/api/docs/index"):
                assert codes(fetch, path, 3) == [200] * 3
            assert json.loads(fetch("/").content) == {"limited": False, "decision": None, "key": None}
            assert codes(fetch, "/static/private/x", 2) == [200, 429]

    def test_the_view_is_not_called_when_a_request_is_denied(self, fetch: Fetch) -> None:
        with site(PathRule("/", "2/m")):
            codes(fetch, "/x", 5)
        assert CALLS == ["/x", "/x"]

    def test_the_request_tells_as_a_decorated_view_is_told(self, fetch: Fetch) -> None:
        with site(PathRule("/api", "5/m", name="api")):
            assert json.loads(fetch("/api/x").content) == {
                "limited": False,
                "decision": ["path:api", 4],
                "key": "ip:127.0.0.1",
            }

    def test_methods(self, fetch: Fetch) -> None:
        with site(PathRule("/x", "1/m", methods="GET"), PathRule("/x", "2/m", methods="post")):
            assert codes(fetch, "/x", 2) == [200, 429]
            assert codes(fetch, "/x", 1, "HEAD") == [429]
            assert codes(fetch, "/x", 3, "POST") == [200, 200, 429]
            assert codes(fetch, "/x", 3, "PUT") == [200] * 3

    def test_hosts(self, fetch: Fetch) -> None:
        with site(PathRule("/", "2/m"), PathRule("/", "1/m", hosts="*.example.com")):
            assert codes(fetch, "/", 2, headers={"host": "API.example.com:8000"}) == [200, 429]
            assert codes(fetch, "/", 3) == [200, 200, 429]

    def test_a_host_that_django_refuses_is_djangos_to_answer(self, fetch: Fetch) -> None:
        common = [OURS, "django.middleware.common.CommonMiddleware"]
        with site(PathRule("/", "1/m", hosts="a.example"), middleware=common, ALLOWED_HOSTS=["a.example"]):
            assert codes(fetch, "/", 2, headers={"host": "evil.example"}) == [400, 400]
            assert codes(fetch, "/", 2, headers={"host": "a.example"}) == [200, 429]
        with site(PathRule("/", "1/m"), middleware=[OURS], ALLOWED_HOSTS=["a.example"]):
            assert codes(fetch, "/", 2, headers={"host": "evil.example"}) == [200, 429]  # nobody asks for the host

    def test_preflights_are_for_rules_that_name_options_alone(self, fetch: Fetch) -> None:
        preflight = {"headers": {"origin": "https://a.example", "access-control-request-method": "POST"}}
        with site(PathRule("/", "1/m"), PathRule("/strict", "1/m", methods=["POST", "OPTIONS"])):
            assert codes(fetch, "/x", 3, "OPTIONS", **preflight) == [200] * 3
            assert codes(fetch, "/x", 2, "OPTIONS") == [200, 429]
            assert codes(fetch, "/strict", 2, "OPTIONS", **preflight) == [200, 429]

    def test_the_prefix_that_the_site_is_mounted_under_is_not_part_of_a_path(self) -> None:
        with site(PathRule("/api", "1/m")):
            for _ in range(2):
                response = Client().get("/shop/api/x", SCRIPT_NAME="/shop", PATH_INFO="/api/x")
            assert response.status_code == 429

            async def mounted(path: str) -> int:
                scope = AsyncRequestFactory()._base_scope(path=path, root_path="/shop", server=("testserver", 80))
                return (await AsyncClient().handler(scope)).status_code

            assert [asyncio.run(mounted(path)) for path in ("/shop/api/y", "/shop/other")] == [429, 200]

    def test_case_and_formats_by_choice(self, fetch: Fetch) -> None:
        with site(PathRule("/login", "1/m"), RATELIMIT_PATHS_IGNORE_CASE=True, RATELIMIT_PATHS_FORMATS=True):
            assert [fetch(path).status_code for path in ("/login", "/LOGIN", "/login.json")] == [200, 429, 429]

    def test_off_by_a_setting(self, fetch: Fetch) -> None:
        with site(PathRule("/", "0/m"), RATELIMIT_DISABLE=True):
            assert codes(fetch, "/", 3) == [200] * 3
        assert len(DjangoCacheStore()._own.get()._cache) == 0  # type: ignore[attr-defined]

    def test_changed_settings_hold_at_once(self, fetch: Fetch) -> None:
        client = Client()
        with site(PathRule("/", "0/m")):
            assert client.get("/").status_code == 429
            with override_settings(RATELIMIT_PATHS=[PathRule("/api", "0/m")]):
                assert [client.get(path).status_code for path in ("/", "/api")] == [200, 429]
            with override_settings(RATELIMIT_PATHS_EXEMPT=["/free"]):
                assert client.get("/free").status_code == 200
            assert client.get("/free").status_code == 429

    def test_functions_are_given_the_rule_and_the_request(self, fetch: Fetch) -> None:
        seen = []

        def key(group: str, request: HttpRequest) -> str:
            seen.append(group)
            return request.headers["x-tenant"]

        def cost(group: str, request: HttpRequest) -> int:
            return len(request.path_info)

        with site(PathRule("/", "10/m", key=key, cost=cost)):
            assert [fetch("/2345", headers={"x-tenant": name}).status_code for name in "aaab"] == [200, 200, 429, 200]
        assert set(seen) == {"path:/"}

    def test_rules_see_path_and_method(self, fetch: Fetch) -> None:
        policy = Policy(Rule("post", "1/m", by="ip", match={"method": "POST"}), Rule("x", "2/m", match={"path": "/x"}))
        with site(PathRule("/", policy)):
            assert codes(fetch, "/x", 2, "POST") == [200, 429]
            assert codes(fetch, "/x", 2) == [200, 429]
            assert codes(fetch, "/y", 5) == [200] * 5


class TestOnce:
    @pytest.mark.parametrize("path", ["/category", "/acategory", "/twice"])
    def test_a_view_that_names_the_same_rule_does_not_count_again(self, fetch: Fetch, path: str) -> None:
        with site(PathRule("/", "WRITE_HEAVY")):
            assert codes(fetch, path, 6) == [200] * 5 + [429]
        assert [path] * 5 == CALLS

    def test_a_rule_object_too(self, fetch: Fetch) -> None:
        with site(PathRule("/ruled", SHARED)):
            assert codes(fetch, "/ruled", 4) == [200] * 3 + [429]

    def test_a_view_that_costs_more_or_names_another_rule_counts_for_itself(
        self, fetch: Fetch, cache_limiter: Limiter
    ) -> None:
        caller = Identity(ip="127.0.0.1")
        with site(PathRule("/", "WRITE_HEAVY")):
            fetch("/dearer")
            assert cache_limiter.peek("WRITE_HEAVY", caller).remaining == 2
            fetch("/wide")
            assert cache_limiter.peek("WRITE_HEAVY", caller).remaining == 1
            assert cache_limiter.peek(Rate(50, 60), caller, group="tests.django.path_urls.told").limit == 50

    async def test_what_an_asgi_middleware_around_django_has_spent_stands_in_too(self, cache_limiter: Limiter) -> None:
        caller, request = Identity(ip="127.0.0.1"), AsyncRequestFactory().get("/acategory")
        around = Guard("WRITE_HEAVY", protocol="http")
        note_spent(request.scope, around, caller, await around.acheck(caller, ""))
        view: Any = view_ratelimit("WRITE_HEAVY")(atold)
        assert (await view(request)).status_code == 200
        assert cache_limiter.peek("WRITE_HEAVY", caller).remaining == 4

    def test_without_the_middleware_a_rule_named_twice_counts_once(self, fetch: Fetch) -> None:
        with override_settings(MIDDLEWARE=[]):
            assert codes(fetch, "/twice", 6) == [200] * 5 + [429]


class TestCallers:
    RULE = PathRule("/", "1/m")

    def test_after_authentication_users_are_callers_and_before_it_addresses(self, client: Client) -> None:
        client.force_login(User.objects.create_user("ann"))
        with site(self.RULE):
            assert client.get("/").json()["key"] == f"user:{User.objects.get().pk}"
        with site(self.RULE, middleware=BEFORE):
            assert Client().get("/").json()["key"] == "ip:127.0.0.1"

    @pytest.mark.django_db(transaction=True)
    async def test_async_too(self, async_client: AsyncClient) -> None:
        user = await User.objects.acreate_user("ann")
        await async_client.aforce_login(user)
        with site(self.RULE):
            assert (await async_client.get("/atold")).json()["key"] == f"user:{user.pk}"
            assert (await async_client.get("/atold")).status_code == 429

    @pytest.mark.parametrize(("rule", "queries"), [(PathRule("/", "9/m", key="ip"), 0), (PathRule("/", "9/m"), 2)])
    def test_session_and_user_are_read_only_where_the_rule_needs_them(
        self, client: Client, rule: PathRule, queries: int
    ) -> None:
        from django.db import connection

        client.force_login(User.objects.create_user("ann"))
        with site(rule), CaptureQueriesContext(connection) as seen:
            response = client.get("/")
        assert (response.status_code, len(seen), "Vary" in response.headers) == (200, queries, queries > 0)

    @pytest.mark.parametrize("peer", ["", None])
    def test_a_connection_without_an_address_is_a_caller_and_chooses_no_other(
        self, peer: str | None, fake_clock: FakeClock
    ) -> None:
        def ask(address: str) -> tuple[int, str | None]:
            request: Any = RequestFactory().get("/", headers={"x-forwarded-for": address})
            request.META.pop("REMOTE_ADDR")
            if peer is not None:
                request.META["REMOTE_ADDR"] = peer
            return PathRateLimitMiddleware(lambda request: HttpResponse())(request).status_code, request.limit_key

        with site(self.RULE):
            assert [ask("203.0.113.5"), ask("203.0.113.6")] == [(200, "ip:unknown"), (429, "ip:unknown")]
            with isolated(DjangoCacheStore(), fake_clock, proxies_count=1):
                assert ask("203.0.113.5") == (200, "ip:203.0.113.5")

    def test_a_rule_by_address_reads_no_user(self, client: Client) -> None:
        from django.db import connection

        client.force_login(User.objects.create_user("ann"))
        with site(PathRule("/", Rule("address", "9/m", by="ip"))), CaptureQueriesContext(connection) as seen:
            client.get("/")
        assert len(seen) == 0


def own_answer(request: HttpRequest, exception: Any) -> HttpResponse:
    return HttpResponse(f"own {exception.decision.limit}", status=429)


async def own_async_answer(request: HttpRequest, exception: Any) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(f"own {exception.decision.limit}", status=429)


class TestAnswers:
    X = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

    def test_a_denial(self, fetch: Fetch) -> None:
        with site(PathRule("/", "1/m", name="all"), middleware=[OURS]):
            fetch("/")
            response = fetch("/", headers={"x-request-id": "req-1"})
        assert response.status_code == 429
        assert dict(response.headers) == {
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After",
            "Retry-After": "60",
        }
        assert json.loads(response.content)["error"]["request_id"] == "req-1"

    @pytest.mark.parametrize("name", ["own_answer", "own_async_answer"])
    def test_an_answer_of_the_applications_own(self, fetch: Fetch, name: str) -> None:
        with site(PathRule("/", "1/m"), RATELIMIT_VIEW=f"{__name__}.{name}", RATELIMIT_HEADERS="x"):
            fetch("/")
            response = fetch("/")
        assert (response.status_code, response.content) == (429, b"own 1")
        assert [response.headers[one] for one in (*self.X, "Retry-After")] == ["1", "0", "60", "60"]
        assert response.headers["Access-Control-Expose-Headers"] == f"Retry-After, {', '.join(self.X)}"

    @pytest.mark.parametrize("path", ["/", "/atold", "/stream", "/events", "/wide"])
    def test_every_counted_response_has_the_limit_headers_by_choice(self, fetch: Fetch, path: str) -> None:
        with site(PathRule("/", "3/m"), RATELIMIT_HEADERS="x"):
            response = fetch(path)
            assert [response.headers[name] for name in self.X] == ["3", "2", "60"]
            assert "Retry-After" not in response.headers
        with site(PathRule("/", "3/m", name="all")):
            assert [name for name in fetch(path).headers if "ate" in name] == []

    def test_what_is_not_counted_has_none(self, fetch: Fetch) -> None:
        with site(PathRule("/api", "3/m"), RATELIMIT_HEADERS="ietf"):
            assert [name for name in fetch("/").headers if "ate" in name] == []
            assert fetch("/api").headers["RateLimit"] == '"path:/api";r=2;t=60'

    @pytest.mark.parametrize(("path", "rule"), [("/category", "WRITE_HEAVY"), ("/acategory", "WRITE_HEAVY")])
    def test_all_limits_that_counted_are_shown_once(self, fetch: Fetch, path: str, rule: str) -> None:
        with site(PathRule("/", "9/m", name="all"), RATELIMIT_HEADERS="ietf"):
            response = fetch(path)
            assert response.headers["RateLimit-Policy"] == f'"path:all";q=9;w=60, "{rule}";q=5;w=60'
            assert response.headers["RateLimit"] == f'"path:all";r=8;t=60, "{rule}";r=4;t=60'
            assert response.json()["decision"] == [rule, 4]
            for _ in range(4):
                fetch(path)
            denied = fetch(path)
            assert (denied.status_code, denied.headers["RateLimit"]) == (429, f'"{rule}";r=0;t=60')
        with site(PathRule("/", rule), RATELIMIT_HEADERS="ietf"):
            assert fetch("/").headers["RateLimit"] == f'"{rule}";r=0;t=60'

    def test_what_two_layers_count_once_is_shown_once(self, fetch: Fetch) -> None:
        with site(PathRule("/", "WRITE_HEAVY"), RATELIMIT_HEADERS="ietf"):
            assert fetch("/twice").headers["RateLimit"] == '"WRITE_HEAVY";r=4;t=60'

    def test_of_several_limits_the_strictest_is_shown(self, fetch: Fetch) -> None:
        with site(PathRule("/", "9/m"), RATELIMIT_HEADERS="x"):
            response = fetch("/category")
            assert [response.headers[name] for name in self.X] == ["5", "4", "60"]

    def test_a_views_own_headers_stay(self, fetch: Fetch) -> None:
        with site(PathRule("/", "3/m"), RATELIMIT_HEADERS="x"):
            response = fetch("/own")
        assert (response.status_code, response.headers["Retry-After"]) == (429, "9")
        assert [response.headers[name] for name in self.X] == ["1", "2", "60"]
        assert "Cache-Control" not in response.headers

    def test_streams_are_neither_read_nor_held_back(self) -> None:
        with site(PathRule("/", "9/m"), RATELIMIT_HEADERS="x"):
            response = Client().get("/stream")
            assert (response.streaming, CALLS) == (True, [])
            parts = iter(response.streaming_content)
            assert (next(parts), CALLS) == (b"part 0\n", ["part 0"])
            assert list(parts) == [b"part 1\n", b"part 2\n"]

    async def test_server_sent_events_too(self, async_client: AsyncClient) -> None:
        with site(PathRule("/", "9/m"), RATELIMIT_HEADERS="x"):
            response = await async_client.get("/events")
            assert (response.headers["X-RateLimit-Limit"], CALLS) == ("9", [])
            parts = aiter(response.streaming_content)
            assert (await anext(parts), CALLS) == (b"data: 0\n\n", ["event 0"])
            assert [part async for part in parts] == [b"data: 1\n\n", b"data: 2\n\n"]

    def test_the_body_is_left_to_the_view(self, fetch: Fetch) -> None:
        with site(PathRule("/", "1/m"), DATA_UPLOAD_MAX_MEMORY_SIZE=10):
            assert fetch("/posted", "POST", data=b"0123456789").content == b"0123456789"
            assert fetch("/posted", "POST", data=b"0" * 99).status_code == 429  # too large, and nobody looked


class TestForm:
    def test_it_is_sync_or_async_as_what_it_wraps(self) -> None:
        async def asynchronous(request: HttpRequest) -> HttpResponse:
            return HttpResponse("async")

        def plain(request: HttpRequest) -> HttpResponse:
            return HttpResponse("plain")

        with site(PathRule("/", "1/m")):
            one, other = PathRateLimitMiddleware(plain), PathRateLimitMiddleware(asynchronous)
            assert (iscoroutinefunction(one), iscoroutinefunction(other)) == (False, True)
            assert one(RequestFactory().get("/")).content == b"plain"
            assert asyncio.run(other(RequestFactory().get("/"))).status_code == 429

    def test_wrong_settings_end_the_start(self) -> None:
        with site({"prefix": "/"}), pytest.raises(ConfigurationError, match=r"RATELIMIT_PATHS\[0\]"):
            PathRateLimitMiddleware(lambda request: HttpResponse())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_costs_one_round_trip_and_what_is_spent_or_exempt_none(
    proxy: CountingProxy, asynchronous: bool
) -> None:
    async def afetch(path: str) -> int:
        return (await AsyncClient().get(path)).status_code

    with (
        site(PathRule("/", "WRITE_HEAVY"), exempt=["/free"]),
        isolated(Limiter(proxy.url).store) as limiter,
        asyncio.Runner() as runner,
    ):

        def trips(path: str) -> tuple[int, int]:
            proxy.reset()
            found = runner.run(afetch(path)) if asynchronous else Client().get(path).status_code
            return found, proxy.round_trips

        trips("/")  # connects
        path = "/acategory" if asynchronous else "/category"
        assert [trips(one) for one in ("/free", "/", path)] == [(200, 0), (200, 1), (200, 1)]
        assert [trips(path)[0] for _ in range(3)] == [200, 200, 429]
        if asynchronous:
            runner.run(limiter.store.aclose())
        limiter.store.close()
