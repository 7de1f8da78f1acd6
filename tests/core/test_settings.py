from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, Policy, Rate, RateLimits, Rule, settings
from ratelimit.settings import Settings

DEFAULTS = Settings()


def test_defaults() -> None:
    assert Settings.load({}) == DEFAULTS == settings.current()
    assert (DEFAULTS.disable, DEFAULTS.fail_open, DEFAULTS.key_prefix, DEFAULTS.ipv6_mask) == (False, True, "rl", 64)
    assert (DEFAULTS.proxies_count, DEFAULTS.use_cache, DEFAULTS.store) == (0, "default", "memory://")
    assert (DEFAULTS.headers, dict(DEFAULTS.overrides)) == ("none", {})
    assert (DEFAULTS.policy_file, dict(DEFAULTS.policies)) == ("", {})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("disable", text, True) for text in ("1", "true", "True", " YES ", "on")),
        *(("fail_open", text, False) for text in ("0", "false", "FALSE", "no", "off\n")),
        ("key_prefix", "app:rl", "app:rl"),
        ("ipv6_mask", " 56 ", 56),
        ("ipv6_mask", "128", 128),
        ("proxies_count", "02", 2),
        ("use_cache", "limits", "limits"),
        ("store", " redis://localhost/1\n", "redis://localhost/1"),
        ("headers", "IETF", "ietf"),
    ],
)
def test_a_variable_is_read(name: str, text: str, value: object) -> None:
    assert getattr(Settings.load({f"RATELIMIT_{name.upper()}": text}), name) == value


BAD = [
    *(("DISABLE", text) for text in ("maybe", "2", "tru", "truefalse", "-1")),
    *(("FAIL_OPEN", text) for text in ("closed", "yes no", "\x00")),
    *(
        ("KEY_PREFIX", text)
        for text in ("r l", "rl{", "}", "%", "~", "rl*", "[rl]", "?", "a\\b", "é", "x" * 33, "a\x00")
    ),
    *(
        ("IPV6_MASK", text)
        for text in ("0", "129", "-1", "+64", "64.0", "6_4", "/64", "٦٤", "0" * 9 + "64", "9" * 5000)
    ),
    *(("PROXIES_COUNT", text) for text in ("-1", "101", "one", "1.0", "²", "0" * 9 + "1")),
    *(("HEADERS", text) for text in ("all", "x,ietf", "none!")),
    *(("STORE", text) for text in ("memory", "redsi://localhost", "localhost:6379", "://", "/0", "memory+x://")),
    *(("AI_QUERY", text) for text in ("50", "50/mm", "unlimited", "0", "-1/m", "50/m;", "１０/m", "None")),
]


@pytest.mark.parametrize(("name", "text"), BAD)
def test_a_bad_value_is_an_error_that_names_the_variable_and_its_text(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load({f"RATELIMIT_{name}": text})
    assert str(caught.value).startswith(f"RATELIMIT_{name}={text!r}: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("disable", value) for value in (None, 2, 1.0, [], "")),
        *(("ipv6_mask", value) for value in (None, True, 64.0, [])),
        *(("proxies_count", value) for value in (False, -1, 1.5, "")),
        *(("key_prefix", value) for value in (None, 5, "", b"rl")),
        *(("use_cache", value) for value in (None, "", 5)),
        *(("store", value) for value in (None, "", 5, object())),
        *(("headers", value) for value in (None, "", True)),
        *(("policy_file", value) for value in (None, 5, b"policies.toml", ["policies.toml"])),
    ],
)
def test_explicit_values_are_checked_too(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"^RATELIMIT_{name.upper()}="):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_an_error_does_not_show_the_stores_password() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(store="redsi://user:s3cret@host/0")
    assert str(caught.value).startswith("RATELIMIT_STORE='redsi://***@host/0': ")
    assert "s3cret" not in repr(Settings(store="redis://user:s3cret@host/0"))


def test_values_of_other_types_come_from_a_mapping_as_they_are() -> None:
    below = {"RATELIMIT_DISABLE": True, "RATELIMIT_IPV6_MASK": 48, "RATELIMIT_AI_QUERY": Rate(7, 60), "DEBUG": 1}
    loaded = Settings.load({}, below)
    assert (loaded.disable, loaded.ipv6_mask, loaded.rate(RateLimits.AI_QUERY)) == (True, 48, Rate(7, 60))
    with pytest.raises(ConfigurationError, match="RATELIMIT_AI_QUERY=50: "):
        Settings.load({}, {"RATELIMIT_AI_QUERY": 50})


def test_explicit_wins_over_the_environment_and_that_over_the_mapping() -> None:
    environ = {"RATELIMIT_IPV6_MASK": "56", "RATELIMIT_PROXIES_COUNT": "1", "RATELIMIT_AI_QUERY": "2/m"}
    below = {
        "RATELIMIT_IPV6_MASK": 48,
        "RATELIMIT_HEADERS": "x",
        "RATELIMIT_AI_QUERY": "3/m",
        "RATELIMIT_EXPORT": "3/h",
    }
    loaded = Settings.load(environ, below, proxies_count=2, overrides={"AI_QUERY": "1/m"})
    assert (loaded.proxies_count, loaded.ipv6_mask, loaded.headers) == (2, 56, "x")
    assert {name: str(rate) for name, rate in loaded.overrides.items()} == {"AI_QUERY": "1/m", "EXPORT": "3/h"}


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_blank_is_unset(blank: str) -> None:
    names = (
        "DISABLE",
        "FAIL_OPEN",
        "KEY_PREFIX",
        "IPV6_MASK",
        "PROXIES_COUNT",
        "USE_CACHE",
        "STORE",
        "HEADERS",
        "POLICY_FILE",
        "AI_QUERY",
    )
    environ = {f"RATELIMIT_{name}": blank for name in names}
    assert Settings.load(environ) == DEFAULTS
    assert Settings.load({}, {**environ, "RATELIMIT_IPV6_MASK": None}) == DEFAULTS
    assert Settings.load(environ, {"RATELIMIT_IPV6_MASK": "48"}).ipv6_mask == 48


def test_only_names_with_the_prefix_in_capitals_count() -> None:
    assert Settings.load({"DISABLE": "1", "ratelimit_disable": "1", "XRATELIMIT_DISABLE": "1"}) == DEFAULTS


@pytest.mark.parametrize("form", [str, Path])
def test_the_policy_file_is_a_path_and_its_policies_are_read_with_the_settings(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "policies.toml"
    path.write_text('[login]\n[[login.rules]]\nname = "pair"\nrate = "5/m"\n')
    loaded = Settings.load({}, {"RATELIMIT_POLICY_FILE": form(path)})
    assert (loaded.policy_file, dict(loaded.policies)) == (str(path), {"login": Policy(Rule("pair", "5/m"))})
    path.write_text("[login]")
    with pytest.raises(
        ConfigurationError, match=r"^RATELIMIT_POLICY_FILE: policy file '.*', login: give at least one rule"
    ):
        Settings.load({"RATELIMIT_POLICY_FILE": str(path)})


def test_djangos_cache_is_named_by_its_own_setting() -> None:
    environ = {"RATELIMIT_STORE": "django://", "RATELIMIT_USE_CACHE": "limits"}
    assert Settings.load(environ).store == "django://limits"
    assert Settings.load({**environ, "RATELIMIT_STORE": "django://other"}).store == "django://other"


def test_an_override_of_no_category_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="unknown category 'AI_QERY'; valid ones: "):
        Settings(overrides={"AI_QERY": "1/m"})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        DEFAULTS.disable = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        DEFAULTS.overrides["AI_QUERY"] = Rate(1, 1)  # type: ignore[index]


def test_unknown_names_are_told_with_the_nearest_valid_one() -> None:
    names = {
        "RATELIMIT_FAILOPEN": "1",
        "RATELIMIT_AI_QERY": "1/m",
        "RATELIMIT_XQZ": "1",
        "RATELIMIT_STORE": "",
        "PATH": "",
    }
    assert settings.unknown_names(names) == {
        "RATELIMIT_FAILOPEN": "RATELIMIT_FAIL_OPEN",
        "RATELIMIT_AI_QERY": "RATELIMIT_AI_QUERY",
        "RATELIMIT_XQZ": None,
    }


class TestTheProcess:
    def test_reads_the_environment_once_and_again_after_reload(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert settings.current() is settings.current()
        monkeypatch.setenv("RATELIMIT_AI_QUERY", "50/m")
        assert settings.current() == DEFAULTS
        settings.reload()
        assert str(settings.current().rate(RateLimits.AI_QUERY)) == "50/m"

    def test_takes_a_source_under_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_IPV6_MASK", "56")
        settings.set_source(lambda: {"RATELIMIT_IPV6_MASK": 48, "RATELIMIT_PROXIES_COUNT": 3})
        assert (settings.current().ipv6_mask, settings.current().proxies_count) == (56, 3)
        settings.set_source(None)
        assert (settings.current().ipv6_mask, settings.current().proxies_count) == (56, 0)

    def test_a_bad_variable_is_an_error_until_it_is_mended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_IPV6_MASK", "sixty-four")
        settings.reload()
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="RATELIMIT_IPV6_MASK='sixty-four'"):
                settings.current()
        monkeypatch.setenv("RATELIMIT_IPV6_MASK", "48")
        assert settings.current().ipv6_mask == 48

    def test_the_override_of_a_category_that_is_added_later_holds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_REPORT", "50/m")
        assert settings.current() == DEFAULTS
        report = RateLimits.add("REPORT", "5/m")
        assert str(settings.current().rate(report)) == "50/m"

    def test_a_reload_while_they_are_being_read_is_not_lost(self) -> None:
        counts = iter((1, 2))

        def source() -> dict[str, object]:
            found = {"RATELIMIT_PROXIES_COUNT": next(counts)}
            settings.reload()  # as another thread would, at the end of its override
            return found

        settings.set_source(source)
        assert settings.current().proxies_count == 1
        assert settings.current().proxies_count == 2

    def test_threads_that_ask_first_agree(self, eager_threads: None) -> None:
        settings.reload()
        seen: list[Settings] = []
        threads = [threading.Thread(target=lambda: seen.append(settings.current())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [DEFAULTS] * 8


class TestOverride:
    def test_takes_effect_at_once_and_leaves_no_trace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_PROXIES_COUNT", "1")
        settings.reload()
        before = settings.current()
        with settings.override(proxies_count=2, disable=True) as inside:
            assert inside == settings.current()
            assert (inside.proxies_count, inside.disable) == (2, True)
        assert settings.current() == before

    def test_nests(self) -> None:
        with settings.override(ipv6_mask=48, overrides={"AI_QUERY": "1/m", "EXPORT": "1/h"}):
            with settings.override(fail_open=False, overrides={"AI_QUERY": "2/m"}) as inner:
                assert (inner.ipv6_mask, inner.fail_open) == (48, False)
                assert {name: str(rate) for name, rate in inner.overrides.items()} == {
                    "AI_QUERY": "2/m",
                    "EXPORT": "1/h",
                }
            outer = settings.current()
            assert (outer.ipv6_mask, outer.fail_open, str(outer.rate(RateLimits.AI_QUERY))) == (48, True, "1/m")
        assert settings.current() == DEFAULTS

    def test_of_one_category_leaves_the_others_to_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_AI_QUERY", "50/m")
        with settings.override(overrides={"EXPORT": "1/h"}) as inside:
            assert str(inside.rate(RateLimits.AI_QUERY)) == "50/m"

    @pytest.mark.parametrize(
        "changes",
        [{"ipv6_mask": 0}, {"overrides": {"AI_QUERY": "x"}}, {"fail_opne": False}, {"overrides": {"X": "1/m"}}],
    )
    def test_a_bad_one_is_an_error_and_leaves_no_trace(self, changes: dict[str, Any]) -> None:
        with pytest.raises((ConfigurationError, TypeError)), settings.override(**changes):
            pass
        assert settings.current() == DEFAULTS

    def test_an_error_inside_leaves_no_trace(self) -> None:
        with pytest.raises(KeyError), settings.override(disable=True):
            raise KeyError
        assert settings.current() == DEFAULTS


def test_a_limiter_tells_the_log_of_names_that_mean_nothing_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RATELIMIT_READ_HEVY", "1/m")
    monkeypatch.setenv("RATELIMIT_XYZZY", "1")
    for _ in range(2):
        Limiter()
    nothing = "is neither a setting nor the rate of a known category"
    assert sorted(caplog.messages) == [
        f"RATELIMIT_READ_HEVY {nothing}; did you mean RATELIMIT_READ_HEAVY?",
        f"RATELIMIT_XYZZY {nothing}",
    ]


@pytest.mark.parametrize(
    ("given_", "position"),
    [
        ({}, (0, "", "X-Forwarded-For", False)),
        ({"RATELIMIT_TRUSTED_PROXIES": " "}, (0, "", "X-Forwarded-For", False)),
        ({"RATELIMIT_PROXIES_COUNT": "2", "RATELIMIT_CLIENT_HEADER": "forwarded"}, (2, "", "Forwarded", True)),
        (
            {"RATELIMIT_PROXIES_COUNT": "1", "RATELIMIT_CLIENT_HEADER": " x-FORWARDED-for "},
            (1, "", "X-Forwarded-For", True),
        ),
        (
            {"RATELIMIT_TRUSTED_PROXIES": "10.0.0.0/8,::1,unix", "RATELIMIT_CLIENT_HEADER": "CF-Connecting-IP"},
            (0, "10.0.0.0/8, ::1, unix", "CF-Connecting-IP", True),
        ),
        ({"RATELIMIT_TRUSTED_PROXIES": ["::1"], "RATELIMIT_PROXIES_COUNT": 0}, (0, "::1", "X-Forwarded-For", True)),
    ],
)
def test_the_position_of_trusted_proxies_is_a_count_or_networks(given_: Any, position: tuple[object, ...]) -> None:
    loaded = Settings.load({}, given_)
    assert (loaded.proxies_count, str(loaded.trusted_proxies), loaded.client_header, loaded.proxied) == position
    assert replace(loaded) == loaded
    assert hash(replace(loaded)) == hash(loaded)


def test_no_networks_may_be_said_in_code() -> None:
    for none in (None, (), [], ""):
        assert not Settings(trusted_proxies=none).proxied


def test_a_count_and_networks_together_are_an_error_that_says_to_choose() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load({"RATELIMIT_PROXIES_COUNT": "1"}, {"RATELIMIT_TRUSTED_PROXIES": "10.0.0.0/8"})
    assert str(caught.value) == (
        "RATELIMIT_PROXIES_COUNT=1 and RATELIMIT_TRUSTED_PROXIES=10.0.0.0/8 both say which proxies are trusted: "
        "choose one, and leave the other out"
    )


@pytest.mark.parametrize("header", ["Forwarded", "X-Real-IP", "cf-connecting-ip"])
def test_a_client_header_without_a_proxy_is_an_error_at_start(header: str) -> None:
    with pytest.raises(
        ConfigurationError, match="without a trusted proxy would never be read: say which proxy sets it"
    ):
        Settings(client_header=header)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.example", "*", "0.0.0.0/0"])
def test_a_bad_network_is_an_error_at_start(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.load({"RATELIMIT_TRUSTED_PROXIES": f"10.0.0.0/8, {text}"})
    assert str(caught.value).startswith("RATELIMIT_TRUSTED_PROXIES: ")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "header",
    [
        *("X_Real_IP", "X-Real-IP, Forwarded", "HTTP_X_REAL_IP\n", "X-Réal", "-", "X-", "x" * 65, 5),
        *("Authorization", "cookie", "Proxy-Authorization"),
    ],
)
def test_a_bad_client_header_is_an_error_at_start(header: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(client_header=header, proxies_count=1)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"RATELIMIT_CLIENT_HEADER={header!r}: expected ")


def test_a_bad_answer_is_an_error_at_start() -> None:
    with pytest.raises(ConfigurationError, match="RATELIMIT_ANSWER=5: expected the dotted path of a function"):
        Settings(answer=5)
