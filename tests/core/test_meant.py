"""Policies whose rules match calls: what is meant decides, whichever way it goes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rule
from ratelimit.meant import _MAX_KEPT
from ratelimit.plan import Call
from ratelimit.prepared import MAX_PREPARED
from ratelimit.settings import override
from ratelimit.testing import FakeClock

ANN = Identity("ann", "203.0.113.7")
POLICY = Policy(
    Rule("staff", action="skip", match={"superuser": True}),
    Rule("export", "5/m", match={"path": "/export"}),
    Rule("slow", "7/m; 20/h", match={"path": re.compile("^/(export|report)"), "protocol": ("http", "ws")}),
    Rule("anon", "3/m", by="ip", match={"authenticated": False}),
)
Check = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def check(request: pytest.FixtureRequest, fake_clock: FakeClock) -> Iterator[Check]:
    limiter = Limiter(MemoryStore(), clock=fake_clock)
    with asyncio.Runner() as runner:

        def ask(*args: Any, **options: Any) -> Any:
            if request.param == "sync":
                return limiter.check(*args, **options)
            return runner.run(limiter.acheck(*args, **options))  # type: ignore[arg-type]

        ask.limiter = limiter  # type: ignore[attr-defined]
        yield ask


def left(decision: Any) -> list[tuple[str, int]]:
    return [(part.rule, part.outcome.remaining) for part in decision.parts]


def test_what_is_meant_is_asked(check: Any) -> None:
    export, report = {"path": "/export"}, {"path": "/report"}
    assert left(check(POLICY, ANN, attributes=export)) == [("export", 4)]
    found = check(POLICY, ANN, attributes=export, protocol="ws")
    assert left(found) == [("export", 3), ("slow", 6), ("slow", 19)]
    assert left(check(POLICY, ANN, attributes=report, protocol="http", cost=2)) == [("slow", 4), ("slow", 17)]
    assert left(check(POLICY, Identity(ip="::1"), attributes=export)) == [("export", 4), ("anon", 2)]
    assert left(check.limiter.peek(POLICY, ANN, attributes=export)) == [("export", 3)]


def test_what_nothing_means_and_what_is_skipped_is_let_through(check: Any) -> None:
    root = Identity("root", superuser=True)
    for _ in range(9):
        assert not check(POLICY, ANN, attributes={"path": "/"}).counted
        assert not check(POLICY, root, attributes={"path": "/export"}).counted


def test_a_single_rule_counts_as_it_does_without_its_match(check: Any) -> None:
    rule = Rule("r", "3/m", match={"path": "/"})
    assert [check(rule, ANN, attributes={"path": "/"}).remaining for _ in range(3)] == [2, 1, 0]
    assert not check(rule, ANN, attributes={"path": "/"})
    assert not check(rule, ANN, attributes={"path": "/x"}).counted
    assert not check(Rule("r", "3/m"), ANN)
    check.limiter.clear(rule, ANN)
    assert check(rule, ANN, attributes={"path": "/"}, cost=3)


def test_attributes_of_the_caller_count_too_and_facts_of_the_engine_win(check: Any) -> None:
    rule = Rule("r", "3/m", match={"plan": "free"})
    assert check(rule, ANN.having(plan="free")).counted
    assert not check(rule, ANN.having(plan="paid")).counted
    assert not check(Rule("s", "3/m", match={"superuser": True}), ANN, attributes={"superuser": True}).counted
    assert check(Rule("t", "3/m", match={"authenticated": False}), "job").key == "job"


@pytest.mark.parametrize("more", [{"action": "log"}, {"ban_for": 60}, {"count_distinct": "device"}, {"by": "device"}])
def test_what_goes_the_general_way_matches_there(check: Any, more: dict[str, Any]) -> None:
    policy = Policy(Rule("a", "1/m", match={"path": "/"}, **more), Rule("b", "9/m", match={"path": "/"}))
    found = [check(policy, ANN, attributes={"path": "/", "device": device}) for device in "aab"]
    assert [len(one.parts) for one in found] == [2, 2, 2]
    assert found[2].allowed == (more in ({"action": "log"}, {"by": "device"}))
    assert found[2].banned == ("ban_for" in more)
    assert not check(policy, ANN, attributes={"path": "/x"}).counted


def test_a_group_and_what_is_no_caller_or_cost_are_treated_as_ever(check: Any) -> None:
    one = Policy(Rule("a", "9/m", match={"path": "/"}))
    assert check(one, ANN, group="g", attributes={"path": "/"}).rule == "g"
    with pytest.raises(ConfigurationError, match="its rules' counts would be mixed"):
        check(POLICY, ANN, group="g", attributes={"path": "/export"})
    with pytest.raises(ConfigurationError, match="neither an Identity nor a text"):
        check(POLICY, 42)
    with pytest.raises(ConfigurationError, match="cost"):
        check(one, ANN, cost=-1, attributes={"path": "/"})
    assert check(one, ANN, cost=0, attributes={"path": "/"}).remaining == 9


def test_settings_that_change_are_seen_at_once(check: Any) -> None:
    rule = Rule("r", "EXPORT", match={"path": "/"})
    assert check(rule, ANN, attributes={"path": "/"}).limit == 5
    with override(overrides={"EXPORT": "9/h"}):
        assert check(rule, ANN, attributes={"path": "/"}).limit == 9
        with override(disable=True):
            assert [check(rule, ANN, attributes={"path": "/"}).allowed for _ in range(20)] == [True] * 20
    assert check(rule, ANN, attributes={"path": "/"}).limit == 5


def test_sets_of_rules_and_policies_do_not_pile_up(check: Any) -> None:
    policy = Policy(*(Rule(f"r{bit}", "9999/m", match={f"a{bit}": True}) for bit in range(8)))
    for number in range(256):
        attributes = {f"a{bit}": bool(number >> bit & 1) for bit in range(8)}
        assert len(check(policy, ANN, attributes=attributes).parts) == max(1, number.bit_count())
    matching = check.limiter.shelf._matching[id(policy)]
    assert len(matching._kept) <= _MAX_KEPT
    for number in range(MAX_PREPARED + 5):
        check(Rule(f"s{number}", "9/m", match={"path": "/"}), ANN)
    assert len(check.limiter.shelf._matching) <= MAX_PREPARED


def test_several_calls_at_once_match_each_by_its_own(check: Any) -> None:
    calls = [Call(POLICY, ANN, attributes={"path": path}) for path in ("/export", "/")]
    assert left(check.limiter.check_many(calls)) == [("export", 4)]
