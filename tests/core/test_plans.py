from __future__ import annotations

import logging
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, Rate, Rule
from ratelimit.plans import Plans
from ratelimit.testing import FakeClock

PLANS = {
    "untokened": "60/m burst 60",
    "free": "60/m burst 120",
    "team": "600/m burst 1200",
    "enterprise": Rate.parse("6000/m burst 12000"),
}
TOKENS = {"t-free": "free", "t-team": "team", "t-team-2": "team", "t-ent": "enterprise", "t-old": "platinum"}
HERE, THERE = "203.0.113.7", "198.51.100.9"


def plan_of(identity: Identity) -> str | None:
    return TOKENS.get(identity.token or "")


RULE = Rule("api", Plans(PLANS, of=plan_of, default="untokened"), by=("token", "environment"))


def caller(token: str | None = None, environment: str | None = None, ip: str = HERE) -> Identity:
    identity = Identity(ip=ip, token=token)
    return identity if environment is None else identity.having(environment=environment)


def spent(limiter: Limiter, identity: Identity) -> int:
    """How many calls pass in this instant, found by asking for one more than is left."""
    left = limiter.peek(RULE, identity).remaining
    assert not limiter.check(RULE, identity, cost=left + 1)
    assert left == 0 or limiter.check(RULE, identity, cost=left)
    assert not limiter.check(RULE, identity)
    return left


@pytest.mark.parametrize(
    ("token", "burst", "each"),
    [("t-free", 120, 1.0), ("t-team", 1200, 0.1), ("t-ent", 12_000, 0.01), (None, 60, 1.0)],
)
def test_each_plan_has_its_burst_and_its_refill(
    limiter: Limiter, fake_clock: FakeClock, token: str | None, burst: int, each: float
) -> None:
    identity = caller(token, "prod" if token else None)
    assert limiter.peek(RULE, identity).limit == burst
    assert spent(limiter, identity) == burst
    assert limiter.check(RULE, identity).retry_after == each
    fake_clock.advance(each - 0.000001)
    assert limiter.check(RULE, identity).retry_after == 0.000001
    fake_clock.advance(0.000001)
    assert [bool(limiter.check(RULE, identity)) for _ in range(2)] == [True, False]
    fake_clock.advance(30)
    assert spent(limiter, identity) == round(30 / each)
    fake_clock.advance(burst * each)
    assert spent(limiter, identity) == burst


def test_a_free_token_passes_120_calls_at_once_and_the_next_after_a_second(
    limiter: Limiter, fake_clock: FakeClock
) -> None:
    identity = caller("t-free", "prod")
    assert sum(bool(limiter.check(RULE, identity)) for _ in range(130)) == 120
    fake_clock.advance(1)
    assert sum(bool(limiter.check(RULE, identity)) for _ in range(3)) == 1


def test_the_budget_belongs_to_token_and_environment(limiter: Limiter) -> None:
    assert spent(limiter, caller("t-team", "prod")) == 1200
    assert spent(limiter, caller("t-team", "test")) == 1200
    assert spent(limiter, caller("t-team", "prod", ip=THERE)) == 0
    assert spent(limiter, caller("t-team-2", "prod")) == 1200
    assert spent(limiter, caller()) == 60
    assert spent(limiter, caller(ip=THERE)) == 60
    assert spent(limiter, caller()) == 0


def test_the_plan_is_looked_up_at_each_check(limiter: Limiter, monkeypatch: pytest.MonkeyPatch) -> None:
    assert limiter.check(RULE, caller("t-free", "prod"), cost=20).remaining == 100
    monkeypatch.setitem(TOKENS, "t-free", "team")
    assert limiter.check(RULE, caller("t-free", "prod"), cost=20).remaining == 1160


def test_an_unknown_plan_is_the_default_and_logged(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    assert limiter.peek(RULE, caller("t-old", "prod")).limit == 60
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "unknown plan 'platinum'; using 'untokened'")
    ]
    caplog.clear()
    assert limiter.peek(RULE, caller("t-nobody", "prod")).limit == 60
    assert caplog.records == []


def test_a_caller_named_by_a_text_has_the_default(limiter: Limiter) -> None:
    assert limiter.peek(RULE, "user:42").limit == 60


async def later(identity: Identity) -> str:
    return "free"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rates": {"free": "60/mm"}}, "plan 'free': rate '60/mm' is not understood: "),
        ({"rates": {"free": None}}, "plan 'free': rate None is not a text: "),
        ({"default": "fere"}, "default plan 'fere' is not one of 'free', 'team'"),
        ({"rates": {}}, "default plan 'free' is not one of "),
        ({"of": "free"}, "of='free' is not a plain function of the caller"),
        pytest.param({"of": later}, f"of={later!r} is not a plain function of the caller", id="async"),
    ],
)
def test_a_mistake_is_an_error_when_the_plans_are_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Plans(**{"rates": {"free": "60/m", "team": "600/m"}, "of": plan_of, "default": "free", **arguments})
    assert str(caught.value).startswith(message)
