from __future__ import annotations

import pickle
import re
import sys
import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Rate
from ratelimit.rates import MAX_LIMIT, MAX_WINDOW

FOREIGN_DIGITS = [
    chr(code) for code in range(128, sys.maxunicode + 1) if unicodedata.category(chr(code)) in ("Nd", "No", "Nl")
]

LIMITS = st.integers(0, MAX_LIMIT)
WINDOWS = st.integers(1, MAX_WINDOW)
BURSTS = st.integers(1, MAX_LIMIT)


def bucket(limit: int, window: int, burst: int, algorithm: str) -> Rate:
    """A bucket that is full again within ten years."""
    return Rate(limit, window, min(burst, limit * MAX_WINDOW // window) if limit else burst, algorithm)


SINGLE_RATES = st.one_of(
    st.builds(Rate, LIMITS, WINDOWS, algorithm=st.sampled_from(["fixed", "anchored", "sliding"])),
    st.builds(bucket, LIMITS, WINDOWS, BURSTS, st.sampled_from(["token_bucket", "leaky_bucket"])),
)
RATES = st.lists(SINGLE_RATES, min_size=1, max_size=4, unique_by=lambda rate: rate.window).map(
    lambda rates: Rate(rates[0].limit, rates[0].window, rates[0].burst, rates[0].algorithm, tuple(rates[1:]))
)


@pytest.mark.parametrize(
    ("text", "limit", "window"),
    [
        ("10/m", 10, 60),
        ("1/s", 1, 1),
        ("3/h", 3, 3600),
        ("2/d", 2, 86_400),
        ("5/30s", 5, 30),
        ("30/7d", 30, 604_800),
        ("100/hour", 100, 3600),
        ("4/2 hrs", 4, 7200),
        ("6/15mins", 6, 900),
        ("10/M", 10, 60),
        ("10/Minute", 10, 60),
        (" 10 / m ", 10, 60),
        ("10/m\n", 10, 60),
        ("\t10 /\t1 m", 10, 60),
        ("010/030s", 10, 30),
        ("0/m", 0, 60),
        ("1000000000000/s", MAX_LIMIT, 1),
        ("1/3660d", 1, MAX_WINDOW),
    ],
)
def test_text_gives_limit_and_window(text: str, limit: int, window: int) -> None:
    assert Rate.parse(text) == Rate(limit, window)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("60/m burst 120", Rate(60, 60, 120, "token_bucket")),
        ("60/M  BURST  120", Rate(60, 60, 120, "token_bucket")),
        ("100/m sliding", Rate(100, 60, None, "sliding")),
        ("100/m anchored", Rate(100, 60, None, "anchored")),
        ("10/m leaky", Rate(10, 60, 1, "leaky_bucket")),
        ("10/m LEAKY burst 5", Rate(10, 60, 5, "leaky_bucket")),
        ("1/d burst 3660", Rate(1, 86_400, 3660, "token_bucket")),
        ("10/s; 200/h", Rate(10, 1, also=(Rate(200, 3600),))),
        ("10/s;200/h sliding;5/d", Rate(10, 1, also=(Rate(200, 3600, None, "sliding"), Rate(5, 86_400)))),
    ],
)
def test_text_gives_algorithm_burst_and_further_rates(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "m", "/", "/m", "10/", "10", "10m", "10//m", "/10/m", "10/m/", "10/60"),
        *("10/mm", "10/months", "10/w", "10/ms", "ten/m", "m/10", "10/m x", "x 10/m", "10/m,", "10 per m"),
        *("-1/m", "+1/m", "1.5/m", "1e3/m", "1_0/m", "0x10/m", "10/-1m", "10/1.5m", "1 0/m", "10/3 0s"),
        *("10/0s", "10/00m", "10/3661d", "1000000000001/m", "9" * 5000 + "/m", "1/" + "9" * 5000 + "s"),
        *(
            "10/m burst",
            "10/m burst 0",
            "10/m burst -1",
            "10/m burst x",
            "10/m burst 5 sliding",
            "10/m sliding sliding",
        ),
        *("10/mburst 5", "10/m burst5", "10/m bursts 5", "10/m slide"),
        *(
            "10/m sliding burst 5",
            "10/m anchored burst 5",
            "10/m leaky leaky",
            "10/m sliding anchored",
            "1/d burst 3661",
        ),
        *(";", "10/m;", ";10/m", "10/m;;5/h", "10/m;5/perr", "10/m 5/h", "10/m, 5/h", "10/m; 5/60s", "1/s; 9/h; 8/60m"),
        *("10/m\x00", "\x0010/m", "10/\x00m", "10/m\u00a0", "10/\u200bm", "10\uff0fm", "10/\ud800m"),
        *("١٠/m", "１０/m", "10/１m", "1²/m", "10/m burst ٣", "10/\u212a", "10/ſ", "10/mİn"),
    ],
)
def test_anything_else_is_refused_by_an_error_that_names_the_text(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rate.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", [None, 10, 10.5, True, b"10/m", ["10/m"], Rate(10, 60), object])
def test_what_is_no_text_is_refused_and_named(text: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rate.parse(text)  # type: ignore[arg-type]
    assert repr(text) in str(caught.value)


@given(st.sampled_from(FOREIGN_DIGITS))
def test_only_ascii_digits_count(digit: str) -> None:
    for text in (f"{digit}/m", f"1{digit}/m", f"1/{digit}m", f"1/m burst {digit}"):
        with pytest.raises(ConfigurationError):
            Rate.parse(text)


@given(RATES)
def test_the_text_of_a_rate_reads_as_that_rate(rate: Rate) -> None:
    assert Rate.parse(str(rate)) == rate


@given(st.text() | st.text(alphabet="0123456789/smhd ;-+._\nburstliding"))
def test_a_text_is_read_whole_or_refused_whole(text: str) -> None:
    rate = None
    with suppress(ConfigurationError):
        rate = Rate.parse(text)
    if rate is not None:
        assert Rate.parse(str(rate)) == rate
        assert re.fullmatch(r"[0-9a-z/;\s]+", text.lower(), re.ASCII)


def test_a_very_long_text_is_refused_in_one_pass() -> None:
    for text in ("1/" + " " * 200_000, "1/m" + " " * 200_000 + "x", "1" * 200_000, " " * 200_000):
        with pytest.raises(ConfigurationError):
            Rate.parse(text)


@pytest.mark.parametrize(
    "arguments",
    [
        *({"limit": limit} for limit in (True, 10.0, "10", None, -1, MAX_LIMIT + 1, float("inf"))),
        *({"window": window} for window in (True, 60.0, "60", None, 0, -60, MAX_WINDOW + 1)),
        *({"burst": burst, "algorithm": "token_bucket"} for burst in (None, True, 1.5, 0, -1, MAX_LIMIT + 1)),
        *({"burst": 5}, {"burst": 5, "algorithm": "sliding"}, {"algorithm": "leaky"}, {"algorithm": None}),
        *({"also": also} for also in ([Rate(5, 3600)], ("5/h",), (Rate(5, 60),), (Rate(1, 1), Rate(2, 1)))),
        {"also": (Rate(5, 3600, also=(Rate(9, 7200),)),)},
        *({"algorithm": name} for name in ("token_bucket", "leaky_bucket")),
        *({"algorithm": name, "burst": 5} for name in ("fixed", "anchored", "sliding")),
        {"limit": 1, "window": 86_400, "burst": 3661, "algorithm": "token_bucket"},
    ],
    ids=str,
)
def test_a_rate_that_makes_no_sense_cannot_be_made(arguments: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Rate(**{"limit": 10, "window": 60, **arguments})  # type: ignore[arg-type]


def test_parts_are_single_rates_in_order() -> None:
    rate = Rate.parse("10/s; 200/h; 300/d")
    assert rate.parts == (Rate(10, 1), Rate(200, 3600), Rate(300, 86_400))
    assert Rate(10, 1).parts == (Rate(10, 1),)


@pytest.mark.parametrize(
    ("text", "factor", "divisor", "scaled"),
    [
        ("10/m", 10, 2, "50/m"),
        ("5/m", 1, 2, "2/m"),
        ("1/m", 1, 2, "1/m"),
        ("0/m", 10, 1, "0/m"),
        ("60/m burst 120", 2, 1, "120/m burst 240"),
        ("3/m burst 1", 1, 2, "1/m burst 1"),
        ("10/s; 201/h", 1, 2, "5/s; 100/h"),
        ("1000000000000/m burst 999999999999", 10, 1, "1000000000000/m burst 1000000000000"),
        ("10/m anchored", 3, 1, "30/m anchored"),
        ("10/m leaky", 3, 1, "30/m leaky burst 3"),
        ("3/d burst 10980", 1, 2, "1/d burst 3660"),
    ],
)
def test_scaling(text: str, factor: int, divisor: int, scaled: str) -> None:
    assert Rate.parse(text).scaled(factor, divisor) == Rate.parse(scaled)


@given(SINGLE_RATES, st.integers(1, 1000), st.integers(1, 1000))
def test_scaling_never_makes_a_limit_zero_or_too_large(rate: Rate, factor: int, divisor: int) -> None:
    scaled = rate.scaled(factor, divisor)
    assert scaled.limit == min(max(1, rate.limit * factor // divisor), MAX_LIMIT) * (rate.limit > 0)
    assert (scaled.window, scaled.algorithm) == (rate.window, rate.algorithm)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("10/m", "10 requests per minute"),
        ("1/s", "1 request per second"),
        ("0/h", "0 requests per hour"),
        ("7/d", "7 requests per day"),
        ("5/30s", "5 requests per 30 seconds"),
        ("5/60s", "5 requests per minute"),
        ("60/m burst 120", "60 requests per minute"),
        ("10/m leaky", "10 requests per minute"),
        ("10/s; 200/h", "10 requests per second"),
    ],
)
def test_a_rate_in_words(text: str, words: str) -> None:
    assert Rate.parse(text).describe() == words


@pytest.mark.parametrize(
    ("text", "capacity"), [("10/m", 10), ("10/m sliding", 10), ("10/m burst 20", 20), ("9/m leaky", 1)]
)
def test_the_capacity_is_what_can_be_used_at_once(text: str, capacity: int) -> None:
    assert Rate.parse(text).capacity == capacity


def test_a_burst_on_a_window_is_told_what_to_write() -> None:
    with pytest.raises(
        ConfigurationError, match="a sliding window has no burst; leave out 'sliding' for a token bucket"
    ):
        Rate.parse("10/m sliding burst 5")


def test_the_window_in_microseconds() -> None:
    assert Rate.parse("1/2m").window_us == 120_000_000


@given(RATES, RATES)
def test_equal_rates_have_one_hash(one: Rate, other: Rate) -> None:
    twin = Rate(one.limit, one.window, one.burst, one.algorithm, one.also)
    assert twin == one
    assert hash(twin) == hash(twin) == hash(one)
    assert (one == other) is (len({one, other}) == 1)


def test_a_pickled_rate_leaves_its_hash_behind() -> None:
    rate = Rate.parse("10/s; 200/h")
    assert hash(rate) == rate._hash
    twin = pickle.loads(pickle.dumps(rate))
    assert not hasattr(twin, "_hash")
    assert (twin, hash(twin), str(twin)) == (rate, hash(rate), "10/s; 200/h")
