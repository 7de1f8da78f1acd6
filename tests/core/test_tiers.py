from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Identity, Limiter, MemoryStore, Rate
from ratelimit.rates import MAX_LIMIT
from ratelimit.testing import FakeClock
from ratelimit.tiers import default_tiers

ANONYMOUS = Identity(ip="203.0.113.7")
CAPPED_ANONYMOUS = Identity(ip="203.0.113.7", capped=True)
USER = Identity("42")
CAPPED_USER = Identity("42", capped=True)
SUPERUSER = Identity("1", superuser=True)
CAPPED_SUPERUSER = Identity("1", superuser=True, capped=True)


@pytest.mark.parametrize(
    ("identity", "text", "expected"),
    [
        (ANONYMOUS, "10/m", "10/m"),
        (CAPPED_ANONYMOUS, "5/m", "2/m"),
        (CAPPED_ANONYMOUS, "1/m", "1/m"),
        (USER, "10/m", "20/m"),
        (CAPPED_USER, "5/m", "5/m"),
        (SUPERUSER, "10/m", "100/m"),
        (CAPPED_SUPERUSER, "10/m", "50/m"),
        (Identity(ip="203.0.113.7", superuser=True), "10/m", "10/m"),
        (USER, "60/m burst 120", "120/m burst 240"),
        (USER, "10/s; 200/h", "20/s; 400/h"),
        (SUPERUSER, "1000000000000/m", "1000000000000/m"),
        *((identity, "0/m", "0/m") for identity in (ANONYMOUS, CAPPED_ANONYMOUS, USER, SUPERUSER)),
    ],
)
def test_the_rate_of_a_tier(identity: Identity, text: str, expected: str) -> None:
    assert default_tiers(identity, Rate.parse(text)) == Rate.parse(expected)


@given(
    st.builds(Identity, st.none() | st.text(), superuser=st.booleans(), capped=st.booleans()),
    st.builds(Rate, st.integers(1, MAX_LIMIT), st.integers(1, 86_400)),
)
def test_half_of_the_rate_to_ten_times_the_rate_and_never_none(identity: Identity, rate: Rate) -> None:
    limit = default_tiers(identity, rate).limit
    assert max(1, rate.limit // 2) <= limit <= min(10 * rate.limit, MAX_LIMIT)
    if not identity.capped:
        assert limit >= rate.limit


def test_a_category_scales_and_a_rate_is_exact(limiter: Limiter) -> None:
    assert limiter.peek("AI_QUERY", SUPERUSER).limit == 200
    assert limiter.peek("AI_QUERY", SUPERUSER, group="elsewhere").limit == 200
    assert limiter.peek(Rate.parse("20/m"), SUPERUSER).limit == 20
    assert limiter.peek("AI_QUERY", "user:1").limit == 20


def test_an_application_brings_its_own_tiers(fake_clock: FakeClock) -> None:
    def plans(identity: Identity, rate: Rate) -> Rate:
        return Rate.parse("600/m") if identity.token == "team" else rate

    limiter = Limiter(MemoryStore(), clock=fake_clock, tiers=plans)
    assert limiter.peek("AI_QUERY", Identity(token="team"), key="token_or_ip").limit == 600
    assert limiter.peek("AI_QUERY", SUPERUSER).limit == 20


def test_tiers_of_an_applications_own_may_give_any_rate(fake_clock: FakeClock) -> None:
    rates = {"a": "1/m", "b": "3/m burst 3", "c": "1/s; 2/m"}
    limiter = Limiter(MemoryStore(), clock=fake_clock, tiers=lambda identity, rate: Rate.parse(rates[identity.user]))
    for user, times in (("a", 1), ("b", 3), ("c", 1)):
        assert sum(bool(limiter.check("AI_QUERY", Identity(user))) for _ in range(5)) == times
    fake_clock.advance(1)
    assert [bool(limiter.check("AI_QUERY", Identity("c"))) for _ in range(2)] == [True, False]
