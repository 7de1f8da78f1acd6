"""Django REST framework: its client, its views, its own errors and ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("rest_framework")

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.settings import api_settings
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, RateLimits, Rule
from ratelimit.identity import hashed
from ratelimit.paths import PathRule
from ratelimit.testing import FakeClock, isolated
from ratelimit_django.rest import RateLimitThrottle, exception_handler
from ratelimit_django.store import DjangoCacheStore

SESSIONS = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
]
OURS = "ratelimit_django.middleware.PathRateLimitMiddleware"
SAID: list[int | None] = []


class ByHeader(BaseAuthentication):
    """`Authorization: user 7` or `key abc` logs a user in, or accepts a key."""

    def authenticate(self, request: Any) -> Any:
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if kind == "user":
            return User(pk=int(value)), None
        return (None, value) if kind == "key" else None


class Asked(RateLimitThrottle):
    rule = "WRITE_HEAVY"


class View(APIView):
    authentication_classes = [ByHeader]

    def get(self, request: Any) -> Response:
        return Response({"limited": getattr(request, "limited", None), "key": getattr(request, "limit_key", None)})

    post = get


class Category(View):
    throttle_classes = [Asked]


class Own(View):
    throttle_classes = [RateLimitThrottle]
    throttle_rule = "2/m"


class OwnToo(Own):
    pass


class ByAddress(View):
    throttle_classes = [RateLimitThrottle.of("2/m", key="ip")]


class ByToken(View):
    throttle_classes = [RateLimitThrottle.of("2/m", key="token_or_ip")]


class Several(View):
    throttle_classes = [
        RateLimitThrottle.of(Rate(2, 60)),
        RateLimitThrottle.of("2/m", key="ip"),
        RateLimitThrottle.of("9/h"),
    ]


class Unlimited(View):
    throttle_classes = [RateLimitThrottle]
    throttle_rule = None


class Unknown(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        return request.method != "POST"


class BesideUnknown(View):
    throttle_classes = [Unknown, RateLimitThrottle.of("1/m")]


class Never(View):
    throttle_classes = [RateLimitThrottle.of("0/m")]


class Ruled(View):
    throttle_classes = [
        RateLimitThrottle.of(
            Policy(Rule("post", "1/m", by="tenant", match={"method": "POST"}), Rule("skip", action="skip")),
            attributes=lambda group, request: {"tenant": request.headers["x-tenant"]},
        )
    ]


class Chosen(View):
    def get_throttles(self) -> list[Any]:
        return [self.ONE()] if self.request.method == "POST" else []

    ONE = RateLimitThrottle.of("1/m")


class Things(ViewSet):
    throttle_classes = [RateLimitThrottle]
    throttle_rule = "3/m"

    def list(self, request: Any) -> Response:
        return Response("list")

    def retrieve(self, request: Any, pk: str) -> Response:
        return Response("one")

    @action(detail=False, throttle_rule="1/m")
    def dear(self, request: Any) -> Response:
        return Response("dear")

    @action(detail=False, throttle_classes=[RateLimitThrottle.of("1/m")])
    def other(self, request: Any) -> Response:
        return Response("other")

    @action(detail=False)
    def cheap(self, request: Any) -> Response:
        return Response("cheap")


@api_view()
@throttle_classes([RateLimitThrottle.of("1/m")])
def function(request: Any) -> Response:
    return Response("function")


def same_name() -> Any:
    @api_view()
    @throttle_classes([RateLimitThrottle.of("1/m")])
    def function(request: Any) -> Response:
        return Response("another")

    return function


router = SimpleRouter()
router.register("things", Things, basename="thing")
VIEWS = [Category, Own, OwnToo, ByAddress, ByToken, Several, Unlimited, BesideUnknown, Never, Ruled, Chosen]
urlpatterns = [
    *(path(f"api/{view.__name__}", view.as_view()) for view in VIEWS),
    path("api/function", function),
    path("api/another", same_name()),
    path("api/", include(router.urls)),
]

pytestmark = [pytest.mark.usefixtures("cache_limiter"), pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def _no_database() -> Iterator[None]:
    with override_settings(
        MIDDLEWARE=[], REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []}
    ):
        yield


@pytest.fixture
def our_errors() -> Iterator[None]:
    with override_settings(
        REST_FRAMEWORK={
            "UNAUTHENTICATED_USER": None,
            "DEFAULT_AUTHENTICATION_CLASSES": [],
            "EXCEPTION_HANDLER": "ratelimit_django.rest.exception_handler",
        }
    ):
        assert api_settings.EXCEPTION_HANDLER is exception_handler
        yield


def ask(name: str, method: str = "get", as_: str = "", **options: Any) -> Any:
    headers = {"authorization": as_, **options.pop("headers", {})}
    return getattr(APIClient(), method)(f"/api/{name}", headers=headers, **options)


def codes(name: str, times: int, *args: Any, **options: Any) -> list[int]:
    return [ask(name, *args, **options).status_code for _ in range(times)]


class TestNested:
    def test_what_one_view_refused_takes_nothing_from_the_limits_of_another(self) -> None:
        """A batch hands one request of Django's to several views."""
        request = APIRequestFactory().get("/api/batch")
        views = [Never, Own, Own, Own]
        assert [view.as_view()(request).status_code for view in views] == [429, 200, 200, 429]


class TestBudgets:
    def test_a_category_is_the_one_that_everybody_spends(self, cache_limiter: Limiter) -> None:
        assert codes("Category", 6) == [200] * 5 + [429]
        assert not cache_limiter.peek("WRITE_HEAVY", Identity(ip="127.0.0.1"))
        assert codes("Category", 11, as_="user 7") == [200] * 10 + [429]  # twice as much for users

    def test_a_rate_is_each_views_own(self) -> None:
        assert codes("Own", 3) == codes("OwnToo", 3) == [200, 200, 429]
        assert codes("function", 2) == codes("another", 2) == [200, 429]

    def test_actions_share_what_the_viewset_says_and_not_what_they_say_themselves(self) -> None:
        assert [ask(f"things/{name}").status_code for name in ("", "1/", "cheap/", "2/")] == [200, 200, 200, 429]
        assert codes("things/dear/", 2) == codes("things/other/", 2) == [200, 429]

    def test_several_throttles_count_apart(self) -> None:
        assert codes("Several", 3) == [200, 200, 429]

    def test_one_that_a_view_chooses_when_it_is_asked(self) -> None:
        assert codes("Chosen", 2, "post") == [200, 429]
        assert codes("Chosen", 1) == [200]

    def test_a_group_is_shared(self) -> None:
        throttle = RateLimitThrottle.of("2/m", group="api")
        views = [type(f"V{n}", (View,), {"throttle_classes": [throttle]}).as_view() for n in (1, 2)]
        request = APIRequestFactory()
        assert [view(request.get("/")).status_code for view in (*views, *views)] == [200, 200, 429, 429]

    def test_by_default_for_every_view(self) -> None:
        default = type("Default", (View,), {"throttle_classes": [Asked], "throttle_rule": "1/m"}).as_view()
        assert [default(APIRequestFactory().get("/")).status_code for _ in range(6)] == [200] * 5 + [429]

    def test_a_view_without_a_rule_is_not_limited(self) -> None:
        assert codes("Unlimited", 5) == [200] * 5
        assert ask("Unlimited").json() == {"limited": False, "key": None}

    def test_one_that_forgets_its_rule_is_told_so(self) -> None:
        forgot = type("Forgot", (View,), {"throttle_classes": [RateLimitThrottle], "throttle_rules": "1/m"})
        inherits = type("Inherits", (forgot,), {})

        @api_view()
        @throttle_classes([RateLimitThrottle])
        def function(request: Any) -> Response:
            return Response()

        for name, view in (("Forgot", forgot.as_view()), ("Inherits", inherits.as_view()), ("function", function)):
            said = rf"view {__name__}\.{name} has the throttle RateLimitThrottle and no throttle_rule: .*throttle_rule = '10/m'"
            for _ in range(2):
                with pytest.raises(ConfigurationError, match=said):
                    view(APIRequestFactory().get("/"))

    def test_the_default_throttle_leaves_views_without_a_rule_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(APIView, "throttle_classes", [RateLimitThrottle])

        @api_view()
        def function(request: Any) -> Response:
            return Response()

        ruled = type("Ruled", (View,), {"throttle_rule": "1/m"})
        for view, last in ((View.as_view(), 200), (function, 200), (ruled.as_view(), 429)):
            assert [view(APIRequestFactory().get("/")).status_code for _ in range(2)] == [200, last]

    def test_disabled(self) -> None:
        with override_settings(RATELIMIT_DISABLE=True):
            assert codes("Never", 2) == [200, 200]

    def test_rules_match_and_skip(self) -> None:
        assert codes("Ruled", 3, headers={"x-tenant": "a"}) == [200] * 3
        policy = type(
            "V", (View,), {"throttle_classes": [RateLimitThrottle.of(Rule("p", "1/m", match={"method": "POST"}))]}
        )
        requests = APIRequestFactory()
        assert [policy.as_view()(getattr(requests, m)("/")).status_code for m in ("get", "post", "post")] == [
            200,
            200,
            429,
        ]


class TestCallers:
    def test_users_of_the_frameworks_authentication(self) -> None:
        assert ask("Own", as_="user 7").json() == {"limited": False, "key": "user:7"}
        assert codes("Own", 2, as_="user 7") == [200, 429]
        assert codes("Own", 3, as_="user 8") == [200, 200, 429]
        assert codes("ByAddress", 3, as_="user 7") == [200, 200, 429]
        assert codes("ByAddress", 1, as_="user 8") == [429]

    def test_a_key_is_counted_by_its_hash(self) -> None:
        assert ask("ByToken", as_="key s3cret").json()["key"] == f"tok:{hashed('s3cret')}"
        assert codes("ByToken", 2, as_="key s3cret") == [200, 429]
        assert codes("ByToken", 3, as_="key other") == [200, 200, 429]
        assert ask("ByToken").json()["key"] == "ip:127.0.0.1"

    @pytest.mark.parametrize(
        ("auth", "key"),
        [
            (type("Token", (), {"key": "s3cret"})(), f"tok:{hashed('s3cret')}"),
            (object(), "ip:127.0.0.1"),
            (True, "ip:127.0.0.1"),
            ({"sub": "7"}, "ip:127.0.0.1"),
            ("", "ip:127.0.0.1"),
        ],
    )
    def test_of_other_things_only_their_key(self, auth: Any, key: str) -> None:
        class Fixed(BaseAuthentication):
            def authenticate(self, request: Any) -> Any:
                return None, auth

        view = type("V", (ByToken,), {"authentication_classes": [Fixed]}).as_view()
        assert view(APIRequestFactory().get("/")).data["key"] == key

    def test_functions_are_given_the_frameworks_request_and_may_keep_things_on_it(self) -> None:
        seen = []

        def key(group: str, request: Any) -> str:
            request.tenant = request.query_params["tenant"]
            seen.append((group, request.auth, request.user.pk))
            return request.tenant  # type: ignore[no-any-return]

        class Tenant(View):
            throttle_classes = [RateLimitThrottle.of("1/m", key=key)]

            def get(self, request: Any) -> Response:
                return Response(request.tenant)

        view = Tenant.as_view()
        requests = [APIRequestFactory().get(f"/?tenant={one}", headers={"authorization": "user 7"}) for one in "aab"]
        answers = [view(request) for request in requests]
        assert [answer.status_code for answer in answers] == [200, 429, 200]
        assert answers[0].data == "a"
        assert {(auth, pk) for _, auth, pk in seen} == {(None, 7)}

    def test_a_token_that_the_application_has_set_comes_first(self) -> None:
        request = APIRequestFactory().get("/", headers={"authorization": "key s3cret"})
        request.limit_token = "own"
        assert ByToken.as_view()(request).data["key"] == f"tok:{hashed('own')}"


class TestAnswers:
    def test_the_frameworks_own(self) -> None:
        codes("Own", 2)
        response = ask("Own")
        assert response.json() == {"detail": "Request was throttled. Expected available in 60 seconds."}
        assert {
            name: response.headers[name] for name in ("Retry-After", "Cache-Control", "Access-Control-Expose-Headers")
        } == {
            "Retry-After": "60",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After",
        }

    @pytest.mark.usefixtures("our_errors")
    def test_that_of_every_adapter(self, fake_clock: FakeClock) -> None:
        codes("Own", 2)
        fake_clock.advance(1.5)
        response = ask("Own", headers={"x-request-id": "req-1"})
        assert response.json() == {
            "error": {
                "code": "RATE_LIMITED",
                "message": "Limit exceeded: Max 2 requests per minute. Please try again later.",
                "details": {"retry_after_ms": 58_500},
                "request_id": "req-1",
            }
        }
        assert response.headers["Content-Type"] == "application/json"
        assert response.headers["Retry-After"] == "59"
        with override_settings(RATELIMIT_ERRORS="problem"):
            assert ask("Own").headers["Content-Type"] == "application/problem+json"

    @pytest.mark.usefixtures("our_errors")
    def test_other_errors_are_the_frameworks(self) -> None:
        assert ask("Own", "put").json() == {"detail": 'Method "PUT" not allowed.'}
        assert ask("BesideUnknown", "post").json() == {"detail": "Request was throttled."}

    @pytest.mark.parametrize(("left", "said"), [(0.6, "1"), (0.001, "1"), (1.9, "2"), (59.0, "59")])
    def test_the_wait_is_whole_seconds_and_enough(self, fake_clock: FakeClock, left: float, said: str) -> None:
        fake_clock.advance(60 - left)
        assert "Retry-After" not in ask("Own").headers
        assert codes("Own", 2) == [200, 429]
        assert ask("Own").headers["Retry-After"] == said
        fake_clock.advance(int(said))
        assert codes("Own", 1) == [200]

    def test_of_several_waits_the_longest_and_an_unknown_one_makes_no_difference(self, fake_clock: FakeClock) -> None:
        fake_clock.advance(53)
        assert codes("BesideUnknown", 1) == [200]
        assert ask("BesideUnknown", "post").headers["Retry-After"] == "7"
        throttles = [RateLimitThrottle.of("1/10s"), RateLimitThrottle.of("1/m")]
        both = type("V", (View,), {"throttle_classes": throttles}).as_view()
        fake_clock.advance(17)  # ten seconds into a minute
        answers = [both(APIRequestFactory().get("/")) for _ in range(2)]
        assert answers[1].headers["Retry-After"] == "50"

    def test_what_one_throttle_refuses_spends_nothing_of_the_next(self, cache_limiter: Limiter) -> None:
        throttles = [
            RateLimitThrottle.of("1/m"),
            Asked,
            RateLimitThrottle.of(Rule("none", "9/m", match={"method": "PUT"})),
        ]
        view = type("V", (View,), {"throttle_classes": throttles}).as_view()
        assert [view(APIRequestFactory().get("/")).status_code for _ in range(4)] == [200, 429, 429, 429]
        assert cache_limiter.peek("WRITE_HEAVY", Identity(ip="127.0.0.1")).remaining == 4

    def test_a_wait_that_never_ends_is_not_promised(self) -> None:
        response = ask("Never")
        assert (response.status_code, response.headers.get("Retry-After")) == (429, None)
        assert RateLimitThrottle().wait() is None

    @pytest.mark.usefixtures("our_errors")
    @pytest.mark.parametrize(
        ("style", "allowed"),
        [
            ("x", {"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "60"}),
            ("ietf", {"RateLimit-Policy": f'"{__name__}.Own";q=2;w=60', "RateLimit": f'"{__name__}.Own";r=1;t=60'}),
            ("none", {}),
        ],
    )
    def test_limit_headers_by_choice(self, style: str, allowed: dict[str, str], fake_clock: FakeClock) -> None:
        with isolated(DjangoCacheStore(), fake_clock, headers=style):
            first, *_, last = [ask("Own") for _ in range(3)]
        assert {name: value for name, value in first.headers.items() if "Rate" in name or "Retry" in name} == allowed
        assert [name for name in last.headers if "Rate" in name] == list(allowed)
        assert last.headers["Access-Control-Expose-Headers"] == ", ".join(["Retry-After", *allowed])

    def test_ietf_shows_the_path_rule_and_every_throttle(self, fake_clock: FakeClock) -> None:
        with (
            isolated(DjangoCacheStore(), fake_clock, headers="ietf"),
            override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/api", "9/m", name="all")]),
        ):
            first, *_, last = [ask("Several") for _ in range(3)]
        name = f"{__name__}.Several"
        assert (
            first.headers["RateLimit"]
            == f'"path:all";r=8;t=60, "{name}";r=1;t=60, "{name}#2";r=1;t=60, "{name}#3";r=8;t=3600'
        )
        assert last.headers["RateLimit"] == f'"{name}";r=0;t=60'


class TestOnce:
    def test_the_path_rule_and_the_throttle_that_name_one_rule(self) -> None:
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/api", RateLimits.WRITE_HEAVY)]):
            assert codes("Category", 6) == [200] * 5 + [429]

    @pytest.mark.django_db
    def test_a_user_of_djangos_sessions(self) -> None:
        client = APIClient()
        client.force_login(User.objects.create_user("ann"))
        view = type("V", (Category,), {"authentication_classes": [SessionAuthentication]}).as_view()
        urls = type("Urls", (), {"urlpatterns": [path("api/x", view)]})
        rules = [PathRule("/api", "WRITE_HEAVY")]
        with override_settings(MIDDLEWARE=[*SESSIONS, OURS], RATELIMIT_PATHS=rules, ROOT_URLCONF=urls):
            assert [client.get("/api/x").status_code for _ in range(11)] == [200] * 10 + [429]

    def test_a_throttle_that_is_another_caller_counts_for_itself(self, cache_limiter: Limiter) -> None:
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/api", "WRITE_HEAVY")]):
            assert codes("Category", 6, as_="user 7") == [200] * 5 + [429]  # for the middleware, an address
        assert cache_limiter.peek("WRITE_HEAVY", Identity("7", "127.0.0.1")).remaining == 5


def plain(group: str, request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.mark.parametrize(
    ("rule", "options", "said"),
    [
        (None, {}, "throttle: None is neither a rule nor a rate"),
        (plain, {}, "is neither a rule nor a rate"),
        ("10/mm", {}, "rate '10/mm'"),
        ("AI_QUERRY", {}, "unknown category 'AI_QUERRY'"),
        ("1/m", {"key": "adress"}, "unknown key 'adress'"),
        ("1/m", {"cost": -1}, "cost -1"),
        ("1/m", {"methods": "GET"}, "there is no option 'methods'; the options are key, group"),
        (Rule("a", "1/m"), {"key": "ip"}, "no effect"),
    ],
)
def test_what_cannot_be_used_is_an_error_when_the_class_is_made(rule: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        RateLimitThrottle.of(rule, **options).rule  # noqa: B018
