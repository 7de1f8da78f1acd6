"""What a request is explained to count as, and that explaining it spends nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, MemoryStore, Policy, Rate, RateLimits, Rule, set_limiter
from ratelimit.explain import aexplain, explain, known_rule
from ratelimit.identity import hashed
from ratelimit.paths import PathRule, PathRules
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated

PEER = "10.0.0.1"
HEADERS = [("X-Forwarded-For", "192.0.2.66, 2001:db8:1:2:3::4")]
SECRET = "sk-live-0123456789abcdef"


def behind_one(**more: Any) -> Limiter:
    return Limiter(MemoryStore(), clock=FakeClock(), settings=Settings(proxies_count=1, **more))


def test_address_identity_and_tier_are_told() -> None:
    user = SimpleNamespace(is_authenticated=True, pk=42, is_superuser=True, is_usage_capped=True)
    found = explain(HEADERS, PEER, user, SECRET, limiter=behind_one())
    assert (found.position.address, found.ip) == ("2001:db8:1:2:3::4", "2001:db8:1:2::")
    assert found.keys == {
        "user_or_ip": "user:42",
        "user": "user:42",
        "ip": "ip:2001:db8:1:2::",
        "token_or_ip": f"tok:{hashed(SECRET)}",
        "global": "global",
    }
    assert found.tier == "superuser, usage-capped"
    assert [explain([], PEER, one, limiter=behind_one()).tier for one in (None, 7)] == ["anonymous", "authenticated"]
    assert (found.rule, found.spends, found.allowed) == ("", (), True)


def test_a_secret_is_shown_nowhere() -> None:
    found = explain([*HEADERS, ("Authorization", SECRET)], PEER, None, SECRET, limiter=behind_one(), rule="EXPORT")
    for text in (str(found), json.dumps(found.as_dict()), repr(found)):
        assert SECRET not in text
        assert hashed(SECRET) in text


async def test_the_key_that_is_spent_is_told_and_nothing_is_written() -> None:
    limiter = behind_one()
    one = explain(HEADERS, PEER, limiter=limiter, rule="AUTH_LOGIN")
    assert [await aexplain(HEADERS, PEER, limiter=limiter, rule="AUTH_LOGIN") for _ in range(20)] == [one] * 20
    (spending,) = one.spends
    assert (spending.rule, spending.rate, spending.caller, spending.cost) == (
        "AUTH_LOGIN",
        "5/m",
        "ip:2001:db8:1:2::",
        1,
    )
    assert spending.store_key == "rl:AUTH_LOGIN:{ip:2001:db8:1:2::}:30000000"
    assert (spending.limit, spending.remaining, spending.reset_after, spending.retry_after) == (5, 5, 0.0, 0.0)
    assert one.allowed


def test_what_is_left_and_when_a_refused_caller_passes_again_are_told() -> None:
    limiter = behind_one()
    identity = "ip:2001:db8:1:2::"
    limiter.check("AUTH_LOGIN", identity, cost=2)
    (some,) = explain(HEADERS, PEER, limiter=limiter, rule="AUTH_LOGIN").spends
    assert (some.remaining, some.reset_after, some.allowed, some.retry_after) == (3, 60.0, True, 0.0)
    limiter.check("AUTH_LOGIN", identity, cost=3)
    found = explain(HEADERS, PEER, limiter=limiter, rule="AUTH_LOGIN")
    (none,) = found.spends
    assert (none.remaining, none.allowed, none.retry_after, found.allowed) == (0, False, 60.0, False)
    assert "  refused     passes again: in 60 s" in found.lines()
    never = explain(HEADERS, PEER, limiter=limiter, rule=Rate.parse("0/m"))
    assert (never.spends[0].retry_after, never.rule) == (None, "0/m")
    assert "  refused     passes again: never" in never.lines()


POLICY = Policy(
    Rule("health", action="skip", match={"path": re.compile("^/health")}),
    Rule("writes", "5/m; 100/h", by=("ip", "device"), match={"method": ("POST", "PUT")}),
    Rule("trial", "1/m", by="ip", action="log"),
    Rule("login", "1/m", by="ip", match={"path": "/login"}, ban_for=900),
)


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({}, ["rl:trial:{ip:10.0.0.1}:30000000"]),
        ({"path": "/health/db"}, []),
        ({"path": "/x", "method": "POST"}, ["rl:writes:{ip:10.0.0.1&device:}:30000000", "~3600s:", "rl:trial:"]),
        ({"path": "/login"}, ["rl:trial:", "rl:login:{ip:10.0.0.1}:30000000"]),
    ],
)
def test_every_matching_rule_of_a_policy_is_told(asked: dict[str, Any], keys: list[str]) -> None:
    found = explain([], PEER, limiter=Limiter(MemoryStore(), clock=FakeClock()), rule=POLICY, **asked)
    assert len(found.spends) == len(keys)
    for spending, key in zip(found.spends, keys, strict=True):
        assert key in spending.store_key
    if not keys:
        assert "spends        nothing limits this request" in found.lines()


def test_a_ban_and_a_rule_in_shadow_are_told() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock())
    for _ in range(2):
        limiter.check(POLICY["login"], f"ip:{PEER}", attributes={"path": "/login"})
        limiter.check(POLICY["trial"], f"ip:{PEER}")
    found = explain([], PEER, limiter=limiter, rule=POLICY, path="/login")
    trial, login = found.spends
    assert (trial.enforced, trial.allowed, login.enforced, login.banned, login.retry_after) == (
        False,
        False,
        True,
        True,
        900.0,
    )
    assert not found.allowed
    assert "spends        1 of trial (1/m, only counted)" in found.lines()
    assert "  banned      passes again: in 900 s" in found.lines()


PATHS = PathRules(
    [
        PathRule("/api", "100/m"),
        PathRule("/api/login", "AUTH_LOGIN", methods="POST", hosts="shop.example", key="ip"),
        PathRule("/own", "9/m", key=lambda group, request: f"{group} {request}", cost=lambda group, request: 3),
        PathRule("/policy", POLICY),
    ],
    exempt=["/static"],
)


@pytest.mark.parametrize(
    ("asked", "rule", "key", "limit"),
    [
        ({"path": "/api/x"}, "/api", "rl:path:/api:{user:7}:30000000", 100),
        (
            {"path": "/api/login", "method": "POST", "host": "shop.example:80"},
            "POST shop.example/api/login",
            "rl:AUTH_LOGIN:{ip:10.0.0.1}:30000000",
            10,
        ),
        ({"path": "/api/login", "method": "POST", "host": "other"}, "/api", "rl:path:/api:{user:7}:30000000", 100),
        ({"path": "/own", "arguments": lambda name: ("g", name)}, "/own", "rl:path:/own:{key:g%20/own}:30000000", 9),
        ({"path": "/policy", "method": "GET"}, "/policy", "rl:trial:{ip:10.0.0.1}:30000000", 1),
    ],
)
def test_the_rule_of_a_path_is_told(asked: dict[str, Any], rule: str, key: str, limit: int) -> None:
    found = explain([], PEER, 7, limiter=Limiter(MemoryStore(), clock=FakeClock()), paths=PATHS, **asked)
    (spending,) = found.spends
    assert (found.rule, spending.store_key, spending.limit) == (rule, key, limit)


@pytest.mark.parametrize("asked", [{"path": "/static/x"}, {"path": "/"}, {}, {"paths": None, "path": "/api"}])
def test_what_no_path_rule_means_is_not_limited(asked: dict[str, Any]) -> None:
    found = explain([], PEER, limiter=Limiter(), **{"paths": PATHS, **asked})
    assert (found.rule, found.spends, found.allowed) == ("", (), True)


def test_a_callable_that_says_no_limit_is_not_limited() -> None:
    from ratelimit.guard import Guard

    class Free(PathRule):
        def guard(self, *_: Any, **__: Any) -> Guard:
            return Guard(rate=lambda: None)

    found = explain([], PEER, limiter=Limiter(), paths=PathRules([Free("/", "1/m")]), path="/x")
    assert (found.rule, found.spends, found.allowed) == ("/", (), True)


def test_switched_off_limits_and_a_store_that_is_out_are_noted() -> None:
    off = explain([], PEER, limiter=behind_one(disable=True), rule="EXPORT")
    assert off.notes == ("RATELIMIT_DISABLE is on: nothing is limited, nothing is counted",)
    assert (off.allowed, off.spends[0].remaining) == (True, 5)

    class Broken(MemoryStore):
        def apply(self, *_: Any) -> Any:
            raise OSError("gone")

    out = explain([], PEER, limiter=Limiter(Broken()), rule="EXPORT")
    assert out.notes == ("the store did not answer: the figures are what the outage policy makes of it",)
    assert out.allowed
    assert f"note          {out.notes[0]}" in out.lines()


def test_the_processs_limiter_is_asked_unless_another_is_given() -> None:
    with isolated(proxies_count=1) as limiter:
        limiter.check("EXPORT", "ip:203.0.113.7", cost=4)
        found = explain([("X-Forwarded-For", "203.0.113.7")], PEER, rule=RateLimits.EXPORT)
    assert (found.rule, found.spends[0].remaining) == ("EXPORT", 1)
    set_limiter(None)


def test_headers_may_be_of_any_kind() -> None:
    found = explain(iter([(b"x-forwarded-for", b"203.0.113.7")]), PEER, limiter=behind_one())
    assert found.ip == "203.0.113.7"
    many = explain([("X-Forwarded-For", "1, " * 60 + "203.0.113.7")], PEER, limiter=behind_one())
    assert "              (41 more entries, never read)" in many.lines()
    assert "fallback" not in str(many)
    bad = explain([("X-Forwarded-For", "_x")], PEER, limiter=behind_one())
    assert "fallback      X-Forwarded-For entry '_x' is not an address: the peer is the client" in bad.lines()


def test_only_names_of_categories_and_policies_are_known(tmp_path: Path) -> None:
    file = tmp_path / "policies.toml"
    file.write_text('[[shop.rules]]\nname = "shop"\nrate = "1/m"\n')
    limiter = Limiter(settings=Settings(policy_file=str(file)))
    assert [known_rule(name, limiter) for name in ("EXPORT", "shop")] == ["EXPORT", "shop"]
    assert explain([], PEER, limiter=limiter, rule="shop").spends[0].limit == 1
    for odd in ("export", "10/m", "", "shops", "\x1b"):
        with pytest.raises(ConfigurationError, match="is the name of no category and of no policy"):
            known_rule(odd, limiter)


def test_an_unknown_rule_or_question_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="unknown category 'EXPORTS'"):
        explain([], PEER, limiter=Limiter(), rule="EXPORTS")
    with pytest.raises(TypeError, match="pathh"):
        explain([], PEER, limiter=Limiter(), pathh="/")
