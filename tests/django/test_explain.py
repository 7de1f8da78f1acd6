"""The view that explains a requester's own request, and the command that explains a described one."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.http import Http404, HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from ratelimit import Limiter
from ratelimit.identity import hashed
from ratelimit.paths import PathRule, PathRules
from ratelimit.testing import isolated
from ratelimit_django.explain import aexplain_view, explain_view
from tests.django.calls import Person, get

PATHS = PathRules(
    [
        PathRule("/api", "100/m"),
        PathRule("/api/login", "AUTH_LOGIN", methods="POST", hosts="testserver"),
        PathRule("/own", "9/m", key=lambda group, request: f"{group} {request.method} {request.path}"),
    ]
)
urlpatterns = [
    path("explain", explain_view),
    path("aexplain", aexplain_view, {"paths": lambda: PATHS}),
    path("paths", explain_view, {"paths": PATHS}),
]
View = Callable[..., HttpResponse]
VIEWS = [explain_view, async_to_sync(aexplain_view)]
pytestmark = pytest.mark.parametrize("view", VIEWS, ids=["sync", "async"])
SECRET = "sk-live-0123456789abcdef"


def told(response: HttpResponse) -> Any:
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Content-Type"] == "application/json"
    return json.loads(response.content)


def test_it_is_not_found_unless_it_is_on(view: View) -> None:
    with isolated(), pytest.raises(Http404):
        view(get())
    with override_settings(RATELIMIT_EXPLAIN=True), isolated():
        assert told(view(get()))["ip"] == "127.0.0.1"


def test_the_requesters_own_position_and_identity_are_told(view: View) -> None:
    request = get(HTTP_X_FORWARDED_FOR="192.0.2.66, 203.0.113.7", REMOTE_ADDR="10.0.0.1", HTTP_AUTHORIZATION=SECRET)
    request.user = Person(42)  # type: ignore[assignment]
    request.limit_token = SECRET  # type: ignore[attr-defined]
    with isolated(explain=True, proxies_count=1):
        response = view(request)
    found = told(response)
    assert found["position"]["header"] == "X-Forwarded-For"
    assert found["position"]["entries"][1] == {"text": "203.0.113.7", "part": "client"}
    assert found["keys"]["user_or_ip"] == "user:42"
    assert found["keys"]["token_or_ip"] == f"tok:{hashed(SECRET)}"
    assert SECRET.encode() not in response.content


def test_a_user_that_nobody_logged_in_is_anonymous(view: View) -> None:
    with isolated(explain=True):
        assert told(view(get()))["tier"] == "anonymous"


def test_nothing_in_the_request_names_another_caller(view: View) -> None:
    with isolated(explain=True):
        query = "user=1&ip=203.0.113.9&peer=203.0.113.9&token=x&identity=user:1&key=user:1&header=X-Real-IP&limiter=x"
        assert told(view(get(f"/?{query}"))) == told(view(get("/")))


def test_a_category_or_a_path_is_asked_about_and_nothing_is_spent(view: View) -> None:
    with isolated(explain=True) as limiter:
        limiter.check("EXPORT", "ip:127.0.0.1", cost=2)
        for _ in range(9):
            found = told(view(get("/?rule=EXPORT")))
        (spending,) = found["spends"]
        assert (found["rule"], spending["remaining"], spending["limit"]) == ("EXPORT", 3, 5)
        assert spending["store_key"] == "rl:EXPORT:{ip:127.0.0.1}:500000"
        for query, rule in (
            ("path=/api/x", "/api"),
            ("path=/api/login", "/api"),
            ("path=/api/login&method=post", "POST testserver/api/login"),
            ("path=/", ""),
            ("method=POST", ""),
        ):
            assert told(view(get(f"/?{query}", HTTP_HOST="testserver:80"), paths=PATHS))["rule"] == rule
        assert told(view(get("/?path=/api/x")))["rule"] == ""


def test_functions_of_a_path_rule_are_asked_about_the_request_that_is_asked_about(view: View) -> None:
    with isolated(explain=True):
        request = get("/explain?path=/own/x&method=PUT")
        found = told(view(request, paths=PATHS))
    assert found["spends"][0]["caller"] == "key:path:/own PUT /own/x"
    assert (request.path, request.method) == ("/explain", "GET")


@pytest.mark.parametrize("rule", ["EXPORTS", "10/m", "", "rl:EXPORT", "%1b"])
def test_only_known_names_are_rules(view: View, rule: str) -> None:
    with isolated(explain=True):
        response = view(get(f"/?rule={rule}"))
    assert (response.status_code, response.headers["Cache-Control"]) == (400, "no-store")
    error = json.loads(response.content)["error"]
    assert error["code"] == "BAD_REQUEST"
    assert error["message"].endswith("is the name of no category and of no policy")


def test_text_for_those_who_read(view: View) -> None:
    with isolated(explain=True):
        response = view(get("/?rule=EXPORT", HTTP_ACCEPT="text/plain"))
        both = view(get(HTTP_ACCEPT="text/html, */*"))
        none = view(get(HTTP_ACCEPT="image/png"))
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.content.decode().splitlines()[0] == "configured    no proxy: no header is read"
    assert {both.headers["Content-Type"], none.headers["Content-Type"]} == {"application/json"}


def test_it_only_looks(view: View) -> None:
    request = get()
    request.method = "POST"
    with isolated(explain=True):
        response = view(request)
        request.method = "HEAD"
        assert view(request).status_code == 200
    assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.django_db
def test_it_is_served_by_either_handler(view: View, client: Client, async_client: AsyncClient) -> None:
    def both(path_: str) -> list[Any]:
        # Not by headers=, which early releases of Django 5.2 send with underscores.
        asynchronous = async_to_sync(async_client.get)(path_, **{"X-Forwarded-For": "203.0.113.7"})
        return [client.get(path_, headers={"X-Forwarded-For": "203.0.113.7"}), asynchronous]

    with override_settings(ROOT_URLCONF=__name__):
        with isolated(explain=True, proxies_count=1):
            for path_ in ("/explain?rule=EXPORT", "/aexplain?path=/api/x", "/paths?path=/api/x"):
                for response in both(path_):
                    found = told(response)
                    assert found["ip"] == "203.0.113.7"
                    assert len(found["spends"]) == 1
        with isolated():
            assert {response.status_code for path_ in ("/explain", "/aexplain") for response in both(path_)} == {404}


def ran(*options: str) -> str:
    out = StringIO()
    call_command("ratelimit_explain", *options, stdout=out)
    return out.getvalue()


def test_the_command_speaks_of_the_projects_settings(view: View, cache_limiter: Limiter) -> None:
    described = ["--header", "X-Forwarded-For: 203.0.113.7", "--peer", "127.0.0.1", "--rule", "EXPORT"]
    with override_settings(RATELIMIT_PROXIES_COUNT=1, RATELIMIT_EXPORT="7/h"):
        text = ran(*described)
        assert "address       203.0.113.7, counted as 203.0.113.7\n" in text
        assert "1 of EXPORT (7/h)" in text
        assert "store         DjangoCacheStore\n" in text
        assert "memory://" not in text
        assert json.loads(ran(*described, "--json"))["ip"] == "203.0.113.7"
        assert json.loads(ran(*described, "--json", "--trusted-proxies", "::1"))["ip"] == "127.0.0.1"


def test_the_command_looks_paths_up_where_the_view_does(view: View, cache_limiter: Limiter) -> None:
    asked = ["--peer", "203.0.113.7", "--path", "/api/x", "--json"]
    with override_settings(RATELIMIT_PATHS=[{"prefix": "/api", "rule": "7/h", "name": "ours"}]):
        assert json.loads(ran(*asked))["rule"] == "ours"
        assert json.loads(ran(*asked, "--paths", f"{__name__}.PATHS"))["rule"] == "/api"
        assert json.loads(ran(*asked[:2], "--json"))["spends"] == []
    with override_settings(RATELIMIT_PATHS=[]):
        assert json.loads(ran(*asked))["spends"] == []
    with (
        override_settings(RATELIMIT_PATHS=["/api"]),
        pytest.raises(CommandError, match=r"^RATELIMIT_PATHS\[0\]='/api': expected PathRule"),
    ):
        ran(*asked)


def test_the_command_refuses_what_cannot_be_used(view: View) -> None:
    with pytest.raises(CommandError, match="rule 'EXPORTS' is the name of no category") as caught:
        ran("--rule", "EXPORTS")
    assert caught.value.returncode == 2


def test_a_request_object_is_left_as_it_was(view: View) -> None:
    request: HttpRequest = get("/x?path=/y&method=POST")
    before = dict(vars(request))
    with isolated(explain=True):
        view(request, paths=PATHS)
    assert {name: value for name, value in vars(request).items() if name in before} == before


def test_a_host_that_django_refuses_is_no_host_of_a_rule(view: View) -> None:
    with override_settings(ALLOWED_HOSTS=["shop.example"]), isolated(explain=True):
        assert told(view(get("/?path=/api/login&method=POST"), paths=PATHS))["rule"] == "/api"


def test_the_projects_own_path_rules_are_looked_up_without_others(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratelimit_django.explain.configured_paths", lambda: PATHS)
    with isolated(explain=True):
        assert told(view(get("/?path=/api/x")))["rule"] == "/api"
