"""`RATELIMIT_PATHS` and its companions: what can be written there, and what the system checks say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import include, path, re_path

from ratelimit import ConfigurationError, Policy, Rule, get_limiter, set_limiter
from ratelimit.answers import Answer
from ratelimit.paths import PathRule, PathRules
from ratelimit.testing import isolated
from ratelimit_django import paths as module
from ratelimit_django.checks import check_limits
from ratelimit_django.middleware import PathRateLimitMiddleware
from ratelimit_django.path_checks import check_answer, check_paths
from ratelimit_django.paths import PathLimits, path_limits
from ratelimit_django.store import DjangoCacheStore

OURS = "ratelimit_django.middleware.PathRateLimitMiddleware"


def tenant(group: str, request: HttpRequest) -> str:
    return request.headers["x-tenant"]


def dear(group: str, request: HttpRequest) -> int:
    return 4


def told(group: str, request: HttpRequest) -> dict[str, str]:
    return {"device": request.headers["x-device"]}


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


class Subclass(PathRateLimitMiddleware):
    pass


def answer(decision: Any, answer: Answer) -> Answer:
    return answer


@pytest.mark.usefixtures("cache_limiter")
def test_a_mapping_says_what_a_path_rule_says_functions_by_their_path() -> None:
    rules = [
        {"prefix": "/a", "rule": "1/m", "key": f"{__name__}.tenant", "methods": ["GET"]},
        {"prefix": "/b", "rule": "9/m", "cost": f"{__name__}.dear"},
        {"prefix": "/c", "rule": Rule("device", "1/m", by="device"), "attributes": f"{__name__}.told"},
        PathRule("/d", "WRITE_HEAVY"),
    ]
    with override_settings(RATELIMIT_PATHS=rules):
        site = PathRateLimitMiddleware(view)
        assert check_paths()[0].id == "ratelimit.W011"

        def codes(path: str, *headers: dict[str, str]) -> list[int]:
            return [site(RequestFactory().get(path, headers=one)).status_code for one in headers]

        assert codes("/a", *({"x-tenant": name} for name in "aab")) == [200, 429, 200]
        assert codes("/b", {}, {}, {}) == [200, 200, 429]
        assert codes("/c", *({"x-device": name} for name in "aab")) == [200, 429, 200]
        assert codes("/d", *[{}] * 6) == [200] * 5 + [429]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"RATELIMIT_PATHS": "/api"}, "RATELIMIT_PATHS='/api': expected a list of PathRule"),
        ({"RATELIMIT_PATHS": {"prefix": "/", "rule": "1/m"}}, "RATELIMIT_PATHS={.*}: expected a list"),
        ({"RATELIMIT_PATHS": ["/api"]}, r"RATELIMIT_PATHS\[0\]='/api': expected PathRule"),
        ({"RATELIMIT_PATHS": [PathRule("/", "1/m"), {"prefix": "/x"}]}, r"RATELIMIT_PATHS\[1\]=.*: it lacks 'rule'"),
        ({"RATELIMIT_PATHS": [{"rule": "1/m"}]}, r"RATELIMIT_PATHS\[0\]=.*: it lacks 'prefix'"),
        (
            {"RATELIMIT_PATHS": [{"prefix": "/x", "rule": "1/m", "method": "GET"}]},
            r"RATELIMIT_PATHS\[0\]=.*: there is no field 'method'; the fields are prefix, rule, name, methods",
        ),
        ({"RATELIMIT_PATHS": [{"prefix": "x", "rule": "1/m"}]}, r"RATELIMIT_PATHS\[0\]=.*: path 'x': write it from"),
        (
            {"RATELIMIT_PATHS": [{"prefix": "/x", "rule": "1/mm"}]},
            r"RATELIMIT_PATHS\[0\]=.*: path rule '/x': rate '1/mm'",
        ),
        ({"RATELIMIT_PATHS": [{"prefix": "/x", "rule": "1/m", "key": "ipp"}]}, r"\[0\]=.*: unknown key strategy 'ipp'"),
        (
            {"RATELIMIT_PATHS": [PathRule("/x", "1/m"), PathRule("/x/", "2/m")]},
            "RATELIMIT_PATHS with RATELIMIT_PATHS_EXEMPT=.*: path rules '/x' and '/x/' mean the same requests",
        ),
        ({"RATELIMIT_PATHS_EXEMPT": ["static"]}, r"RATELIMIT_PATHS_EXEMPT=\['static'\]: path 'static'"),
        ({"RATELIMIT_PATHS_EXEMPT": 7}, "RATELIMIT_PATHS_EXEMPT=7: exempt paths 7"),
        ({"RATELIMIT_PATHS_IGNORE_CASE": "yes"}, "RATELIMIT_PATHS_IGNORE_CASE='yes': expected True or False"),
        ({"RATELIMIT_PATHS_FORMATS": 1}, "RATELIMIT_PATHS_FORMATS=1: expected True or False"),
    ],
)
def test_an_error_names_the_setting_the_entry_and_what_is_wrong(settings: dict[str, Any], said: str) -> None:
    with override_settings(**settings):
        for _ in range(2):  # and no half of it is kept
            with pytest.raises(ConfigurationError, match=said):
                path_limits()
        (message,) = check_paths()
        assert (message.id, message.level) == ("ratelimit.E010", 40)
    assert not path_limits()


def test_a_setting_that_changes_while_it_is_read_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meanwhile(PathLimits):
        def __init__(self, rules: PathRules) -> None:
            super().__init__(rules)
            setting_changed.send(sender=None, setting="RATELIMIT_PATHS", value=None, enter=True)

    with override_settings(RATELIMIT_PATHS=[PathRule("/", "1/m")]):
        with monkeypatch.context() as patch:
            patch.setattr(module, "PathLimits", Meanwhile)
            first = path_limits()
        assert path_limits() is not first
        assert path_limits() is path_limits()


def test_path_rules_in_the_environment_would_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATELIMIT_PATHS", "/api=1/m")
    with (
        override_settings(RATELIMIT_PATHS=[]),
        pytest.raises(ConfigurationError, match="RATELIMIT_PATHS is a variable"),
    ):
        path_limits()


SLIDING = "10/m sliding"


async def later(group: str, request: HttpRequest) -> str:
    return "a"


class TestChecks:
    @pytest.mark.parametrize("field", ["key", "cost", "attributes"])
    @pytest.mark.parametrize(
        ("name", "wrong"), [("gone", "cannot be imported"), ("later", "is async"), ("OURS", "not callable")]
    )
    def test_a_function_that_cannot_be_used(self, field: str, name: str, wrong: str) -> None:
        entry = {"prefix": "/x", "rule": "1/m", field: f"{__name__}.{name}"}
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/", "1/m"), entry]):
            (message,) = check_paths()
            assert (message.id, message.level) == ("ratelimit.E010", 40)
            assert message.msg.startswith(f"RATELIMIT_PATHS[1]: {field}='{__name__}.{name}'")
            assert wrong in message.msg
            assert check_limits() == []  # nor is it told twice

    @pytest.mark.parametrize(
        ("rule", "said"),
        [
            (SLIDING, "'/x': 10/m sliding needs sliding; DjangoCacheStore holds fixed"),
            (Rule("a", SLIDING), "'/x': a needs sliding;"),
            (Rule("a", "1/m", ban_for=60), "'/x': a needs ban;"),
            (Rule("a", "1/m", count_distinct="user"), "'/x': a needs distinct;"),
            (Policy(Rule("a", "1/m"), Rule("b", SLIDING)), "'/x': a, b needs sliding;"),
            ("EXPORT", "'/x': EXPORT needs token_bucket;"),
            ("no-such", "'/x': unknown policy 'no-such'"),
            ("9/m", None),
            ("AI_QUERY", None),
            (Rule("a", lambda caller: None), None),
        ],
    )
    @pytest.mark.parametrize("store", ["django://", "memory://"])
    def test_a_rule_that_the_store_cannot_hold(self, rule: Any, said: str | None, store: str) -> None:
        given = {"RATELIMIT_STORE": store, "RATELIMIT_EXPORT": "7/h burst 9", "RATELIMIT_PATHS": [PathRule("/x", rule)]}
        with (
            override_settings(MIDDLEWARE=[OURS], **given),
            isolated(DjangoCacheStore() if store == "django://" else None),
        ):
            found = check_paths()
        if said is None or (store == "memory://" and rule != "no-such"):
            assert found == []
        else:
            assert [message.id for message in found] == ["ratelimit.E011"]
            assert said in found[0].msg

    def test_what_the_store_cannot_hold_is_no_matter_while_nothing_is_limited(self) -> None:
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_DISABLE=True, RATELIMIT_PATHS=[PathRule("/", SLIDING)]):
            assert check_paths() == []

    @pytest.mark.parametrize("anew", [True, False])
    @pytest.mark.parametrize("wrong", [{"RATELIMIT_STORE": "what://"}, {"RATELIMIT_IPV6_MASK": "many"}])
    def test_settings_that_cannot_be_used_are_for_another_check(self, wrong: dict[str, str], anew: bool) -> None:
        set_limiter(None)
        if not anew:
            get_limiter()
        with override_settings(MIDDLEWARE=[OURS], RATELIMIT_PATHS=[PathRule("/", "1/m")], **wrong):
            assert check_paths() == []

    def test_a_policy_file_that_the_store_cannot_hold(self, tmp_path: Path) -> None:
        file = tmp_path / "limits.toml"
        file.write_text('[[api.rules]]\nname = "api"\nrate = "1/m sliding"\nby = "ip"\n')
        given = {"RATELIMIT_POLICY_FILE": str(file), "RATELIMIT_PATHS": [PathRule("/", "api")]}
        with override_settings(MIDDLEWARE=[OURS], **given):
            set_limiter(None)
            (message,) = check_paths()
        assert message.id == "ratelimit.E011"
        assert "RATELIMIT_POLICY_FILE: api: rule 'api' with the rate '1/m sliding' needs sliding" in message.msg

    @pytest.mark.parametrize(
        ("middleware", "rules", "found"),
        [
            ([], [], []),
            ([OURS], [PathRule("/", "1/m")], []),
            ([f"{__name__}.Subclass"], [PathRule("/", "1/m")], []),
            ([OURS], [], ["ratelimit.W010"]),
            (["no.such.Middleware", f"{__name__}.view"], [PathRule("/", "1/m")], ["ratelimit.W011"]),
        ],
    )
    def test_the_middleware_and_its_rules_go_together(self, middleware: Any, rules: Any, found: list[str]) -> None:
        with override_settings(MIDDLEWARE=middleware, RATELIMIT_PATHS=rules):
            assert [message.id for message in check_paths()] == found

    @pytest.mark.parametrize(
        ("pattern", "settings", "found"),
        [
            (re_path(r"(?i)^login$", view), {}, ["IGNORE_CASE"]),
            (path("api/", include([re_path(r"(?i)^login$", view)])), {}, ["IGNORE_CASE"]),
            (re_path(r"(?i)^login$", view), {"RATELIMIT_PATHS_IGNORE_CASE": True}, []),
            (re_path(r"^login\.(?P<format>[a-z0-9]+)/?$", view), {}, ["FORMATS"]),
            (re_path(r"(?i)^login\.(?P<format>[a-z0-9]+)/?$", view), {}, ["IGNORE_CASE", "FORMATS"]),
            (re_path(r"^login\.(?P<format>[a-z0-9]+)/?$", view), {"RATELIMIT_PATHS_FORMATS": True}, []),
            (path("login", view), {}, []),
        ],
    )
    def test_spellings_that_the_urls_take_and_the_rules_do_not(
        self, pattern: Any, settings: dict[str, Any], found: list[str]
    ) -> None:
        urls = type("Urls", (), {"urlpatterns": [path("", view), pattern]})
        rules = {"MIDDLEWARE": [OURS], "RATELIMIT_PATHS": [PathRule("/login", "1/m")]}
        with override_settings(ROOT_URLCONF=urls, **rules, **settings):
            messages = check_paths()
        assert [message.hint for message in messages] == [f"Set RATELIMIT_PATHS_{name} = True." for name in found]
        assert {message.id for message in messages} <= {"ratelimit.W012"}

    def test_urls_that_cannot_be_read_are_for_other_checks(self) -> None:
        rules = {"MIDDLEWARE": [OURS], "RATELIMIT_PATHS": [PathRule("/login", "1/m")]}
        with override_settings(ROOT_URLCONF="no.such.urls", **rules):
            assert check_paths() == []

    @pytest.mark.parametrize(
        ("settings", "found"),
        [
            ({}, []),
            ({"RATELIMIT_ANSWER": f"{__name__}.answer"}, []),
            ({"RATELIMIT_ANSWER": answer}, []),
            ({"RATELIMIT_ANSWER": f"{__name__}.gone"}, ["ratelimit.E004"]),
            ({"RATELIMIT_IPV6_MASK": "many"}, []),
        ],
    )
    def test_the_answer_leads_somewhere(self, settings: dict[str, Any], found: list[str]) -> None:
        with override_settings(**settings):
            assert [message.id for message in check_answer()] == found
