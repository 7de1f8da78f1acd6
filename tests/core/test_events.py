from __future__ import annotations

import logging

import pytest

from ratelimit import Call, Identity, Limiter, Rate
from ratelimit.testing import isolated

NONE = Rate.parse("0/m")
DENIAL = "rate limit exceeded: rule=AI_QUERY key=user:42 rate=40/m protocol=graphql"


@pytest.fixture(autouse=True)
def debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


async def test_each_denial_is_one_warning_with_rule_key_rate_and_protocol(
    limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    identity = Identity("42", "203.0.113.7")
    assert limiter.check("AI_QUERY", identity, cost=40, protocol="graphql")
    assert caplog.records == []
    assert not limiter.check("AI_QUERY", identity, protocol="graphql")
    assert not await limiter.acheck("AI_QUERY", identity, protocol="graphql")
    assert [(r.name, r.levelno, r.getMessage()) for r in caplog.records] == [("ratelimit", logging.WARNING, DENIAL)] * 2


@pytest.mark.parametrize(
    ("rate", "group", "line"),
    [
        (NONE, None, "rule=default key=u rate=0/m protocol=-"),
        (NONE, "graphql:Query.documents", "rule=graphql:Query.documents key=u rate=0/m protocol=-"),
        (Rate.parse("5/s; 0/h"), "g", "rule=g key=u rate=0/h protocol=-"),
    ],
)
def test_the_line_names_what_denied(
    limiter: Limiter, caplog: pytest.LogCaptureFixture, rate: Rate, group: str | None, line: str
) -> None:
    limiter.check(rate, "u", group=group)
    assert caplog.messages == [f"rate limit exceeded: {line}"]


def test_of_several_calls_the_line_names_the_caller_that_was_denied(
    limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    decision = limiter.check_many([Call(NONE, "everybody", "cap"), Call("AI_QUERY", "user:42")], protocol="mcp")
    assert (decision.rule, decision.key) == ("cap", "everybody")
    assert caplog.messages == ["rate limit exceeded: rule=cap key=everybody rate=0/m protocol=mcp"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("u\n2027-01-15 WARNING ratelimit all is well", "u%0A2027-01-15%20WARNING%20ratelimit%20all%20is%20well"),
        ("u\r\x1b[2K", "u%0D%1B[2K"),
        ("u key=admin", "u%20key=admin"),
        ("\u2028\u202e", "%E2%80%A8%E2%80%AE"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_no_caller_or_group_can_forge_a_line_or_a_field(
    limiter: Limiter, caplog: pytest.LogCaptureFixture, text: str, shown: str
) -> None:
    limiter.check(NONE, text, group=text)
    assert caplog.messages == [f"rate limit exceeded: rule={shown} key={shown} rate=0/m protocol=-"]


def test_a_long_caller_makes_a_short_line(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    limiter.check(NONE, "x" * 1_000_000)
    assert len(caplog.messages[0]) < 200


def test_no_token_stands_in_the_line(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    limiter.check(NONE, Identity(token="sk-live-0123456789"), key="token_or_ip")
    assert "key=tok:" in caplog.messages[0]
    assert "sk-live" not in caplog.text


async def test_looking_is_no_denial(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    assert not limiter.peek(NONE, "u")
    assert not await limiter.apeek(NONE, "u")
    assert caplog.messages == []


def test_a_log_that_is_switched_off_changes_no_decision(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL, "ratelimit"):
        assert [bool(limiter.check(Rate.parse("1/m"), "u")) for _ in range(2)] == [True, False]
    assert caplog.records == []


def test_nothing_is_logged_when_limits_are_disabled(caplog: pytest.LogCaptureFixture) -> None:
    with isolated(disable=True) as limiter:
        assert limiter.check(NONE, "u")
    assert caplog.messages == []
