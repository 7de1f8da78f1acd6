from __future__ import annotations

import json
import re
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit import headers as module
from ratelimit.headers import error_body, raw_headers
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated

ONCE = Rate.parse("1/m")


@pytest.mark.parametrize(
    ("left", "retry_after"),
    [(0.6, "1"), (0.001, "1"), (0.000001, "1"), (1.9, "2"), (1.0, "1"), (59.0, "59"), (60, "60")],
)
def test_retry_after_rounds_up_and_waiting_that_long_is_enough(
    limiter: Limiter, fake_clock: FakeClock, left: float, retry_after: str
) -> None:
    fake_clock.advance(60 - left)
    assert limiter.check(ONCE, "u").headers() == {}
    assert limiter.check(ONCE, "u").headers() == {"Retry-After": retry_after}
    fake_clock.advance(int(retry_after))
    assert limiter.check(ONCE, "u").headers() == {}


def test_retry_after_only_counts_down(limiter: Limiter, fake_clock: FakeClock) -> None:
    limiter.check(ONCE, "u")
    waits = []
    for _ in range(4):
        waits.append(limiter.check(ONCE, "u").headers()["Retry-After"])
        fake_clock.advance(5)
    assert waits == ["60", "55", "50", "45"]


@given(st.integers(0, 86_400_000_000 - 1), st.sampled_from([1, 30, 60, 3600, 86_400]))
def test_retry_after_is_decimal_digits_only_and_exact(offset_us: int, window: int) -> None:
    clock = FakeClock()
    clock.now_us += offset_us
    with isolated(clock=clock) as limiter:
        rate = Rate(1, window)
        limiter.check(rate, "u")
        wait = limiter.check(rate, "u").headers()["Retry-After"]
        assert re.fullmatch(r"[1-9][0-9]*", wait)
        assert 1 <= int(wait) <= window
        clock.advance(int(wait))
        assert limiter.check(rate, "u")


@pytest.mark.parametrize("style", ["none", "ietf", "x"])
@pytest.mark.parametrize(("rate", "cost"), [("0/m", 1), ("5/m", 6)])
def test_no_wait_is_promised_when_none_would_help(limiter: Limiter, style: str, rate: str, cost: int) -> None:
    decision = limiter.check(Rate.parse(rate), "u", cost=cost)
    assert not decision
    assert "Retry-After" not in decision.headers(style)


def test_x_headers(limiter: Limiter, fake_clock: FakeClock) -> None:
    fake_clock.advance(12.5)
    rate = Rate.parse("2/m")
    limits = {"X-RateLimit-Limit": "2", "X-RateLimit-Reset": "48"}
    assert limiter.check(rate, "u").headers("x") == {**limits, "X-RateLimit-Remaining": "1"}
    assert limiter.check(rate, "u").headers("x") == {**limits, "X-RateLimit-Remaining": "0"}
    assert limiter.check(rate, "u").headers("x") == {**limits, "X-RateLimit-Remaining": "0", "Retry-After": "48"}
    assert limiter.peek(rate, "v").headers("x") == {**limits, "X-RateLimit-Remaining": "2", "X-RateLimit-Reset": "0"}


def test_ietf_headers(limiter: Limiter, fake_clock: FakeClock) -> None:
    fake_clock.advance(12.5)
    assert limiter.check("AI_QUERY", "u").headers("ietf") == {
        "RateLimit-Policy": '"AI_QUERY";q=20;w=60',
        "RateLimit": '"AI_QUERY";r=19;t=48',
    }
    assert limiter.check(Rate.parse("5/s; 9/h"), "u", group="g").headers("ietf") == {
        "RateLimit-Policy": '"g-1s";q=5;w=1, "g-3600s";q=9;w=3600',
        "RateLimit": '"g-1s";r=4;t=1, "g-3600s";r=8;t=3588',
    }


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=100))
@example('a"b\\c')
def test_a_policys_name_is_one_quoted_ascii_string(group: str) -> None:
    with isolated() as limiter:
        headers = limiter.peek(ONCE, "u", group=group).headers("ietf")
    assert re.fullmatch(r'"(?:[ !#-\[\]-~]|\\["\\])*";q=1;w=60', headers["RateLimit-Policy"])
    assert headers["RateLimit"].removesuffix(";r=1;t=0") == headers["RateLimit-Policy"].removesuffix(";q=1;w=60")


@pytest.mark.parametrize("style", ["", "X", "all", None])
def test_an_unknown_style_is_an_error(limiter: Limiter, style: str) -> None:
    for headers in (
        limiter.check(ONCE, "u", group=repr(style)).headers,
        partial(raw_headers, limiter.check(ONCE, "u")),
    ):
        with pytest.raises(ConfigurationError) as caught:
            headers(style)
        assert repr(style) in str(caught.value)


@pytest.mark.parametrize("style", ["none", "ietf", "x"])
def test_raw_headers_are_the_same_in_bytes(limiter: Limiter, style: str) -> None:
    decisions = [limiter.check(Rate.parse("1/m; 9/h"), "u", group='a "b" é') for _ in range(2)]
    assert [decision.allowed for decision in decisions] == [True, False]
    for decision in decisions:
        raw = raw_headers(decision, style)
        headers = decision.headers(style)
        assert raw == [(name.lower().encode(), text.encode("ascii")) for name, text in headers.items()]


@pytest.mark.parametrize("rate", ["3/m", "3/m sliding", "3/m anchored", "3/m burst 3", "3/m leaky burst 3", "3/m; 9/h"])
@pytest.mark.parametrize("cost", [1, 3])
def test_the_headers_of_every_response_are_those_of_the_parts(
    limiter: Limiter, fake_clock: FakeClock, rate: str, cost: int
) -> None:
    for _ in range(4):
        raw = raw_headers(limiter.check(Rate.parse(rate), "raw", cost=cost, group="g"), "x")
        headers = limiter.check(Rate.parse(rate), "parts", cost=cost, group="g").headers("x")
        assert raw == [(name.lower().encode(), text.encode()) for name, text in headers.items()]
        fake_clock.advance(7.25)


@given(
    st.sampled_from(["7/m", "7/m sliding", "7/m anchored", "7/m burst 7", "3/m burst 7", "7/3s leaky burst 2"]),
    st.lists(st.tuples(st.integers(0, 9_000_000), st.integers(1, 3)), min_size=1, max_size=8),
)
def test_the_figures_of_every_response_are_those_of_the_parts_to_the_microsecond(
    rate: str, calls: list[tuple[int, int]]
) -> None:
    clock, read = FakeClock(), Rate.parse(rate)
    limiter = Limiter(MemoryStore(), settings=Settings(), clock=clock)
    for wait_us, cost in calls:
        clock.now_us += wait_us
        decision = limiter.check(read, "u", cost=cost)
        told = decision.figures()
        outcome = decision.binding.outcome
        assert told == (outcome.limit, outcome.remaining, outcome.reset_after_us)


def test_the_lines_that_are_remembered_are_bounded(limiter: Limiter, fake_clock: FakeClock) -> None:
    for limit in range(1, 1100):
        fake_clock.advance(1)
        raw_headers(limiter.check(Rate(limit, 86_400), "u", group=f"g{limit}"), "x")
    assert [line.cache_info().currsize for line in (module._limit_line, module._reset_line)] == [1024, 1024]


def test_clients_are_not_told_of_what_only_counts_in_shadow(limiter: Limiter) -> None:
    shadow, real = Rule("s", "1/m", action="log"), Rule("r", "5/m")
    for style in ("ietf", "x"):
        assert limiter.check(shadow, "u").headers(style) == {}
        assert raw_headers(limiter.check(shadow, "u"), style) == []
    both = limiter.check(Policy(shadow, real), "u")
    assert both.headers("ietf")["RateLimit-Policy"] == '"r";q=5;w=60'
    assert both.headers("x")["X-RateLimit-Limit"] == "5"


def test_the_names_that_are_remembered_are_bounded_and_short(limiter: Limiter) -> None:
    module._quote_cached.cache_clear()
    limiter.peek(ONCE, "u", group="g" * 257).headers("ietf")
    assert module._quote_cached.cache_info().currsize == 0
    for number in range(1100):
        limiter.peek(ONCE, "u", group=f"g{number}").headers("ietf")
    assert module._quote_cached.cache_info().currsize == 1024


def test_what_nothing_limits_tells_the_client_no_low_limit(limiter: Limiter) -> None:
    headers = limiter.unlimited("u").headers("x")
    assert headers == {
        "X-RateLimit-Limit": "1000000000000",
        "X-RateLimit-Remaining": "1000000000000",
        "X-RateLimit-Reset": "0",
    }


@pytest.mark.parametrize(("left", "milliseconds"), [(48.0, 48_000), (0.0015, 2), (0.000001, 1)])
def test_the_error_body(limiter: Limiter, fake_clock: FakeClock, left: float, milliseconds: int) -> None:
    fake_clock.advance(60 - left)
    limiter.check(ONCE, "u")
    body = error_body(limiter.check(ONCE, "u"), request_id="r-1")
    assert body == {
        "error": {
            "code": "RATE_LIMITED",
            "message": "Limit exceeded: Max 1 request per minute. Please try again later.",
            "details": {"retry_after_ms": milliseconds},
            "request_id": "r-1",
        }
    }


def test_the_error_body_of_a_denial_without_an_end(limiter: Limiter) -> None:
    body = error_body(limiter.check(Rate.parse("0/m"), "u"))
    assert json.loads(json.dumps(body))["error"]["details"] == {"retry_after_ms": None}
    assert body["error"]["request_id"] is None
