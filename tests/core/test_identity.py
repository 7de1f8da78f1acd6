from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Identity
from ratelimit.identity import STRATEGIES, hashed, resolve
from ratelimit.settings import Settings

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SECRET = "Bearer sk-live-0123456789abcdef"
IP = "203.0.113.7"


def who(user: Any = None, token: str | None = None) -> Identity:
    return resolve([], IP, user, token, settings=Settings())


@pytest.mark.parametrize(
    ("identity", "keys"),
    [
        (Identity(ip=IP), [f"ip:{IP}", f"ip:{IP}", f"ip:{IP}", f"ip:{IP}", "global"]),
        (Identity("42", IP), ["user:42", "user:42", f"ip:{IP}", f"ip:{IP}", "global"]),
        (Identity("42", IP, "t"), ["user:42", "user:42", f"ip:{IP}", f"tok:{hashed('t')}", "global"]),
        (Identity(ip=IP, token=""), [f"ip:{IP}", f"ip:{IP}", f"ip:{IP}", f"ip:{IP}", "global"]),
        (Identity(), ["ip:unknown", "ip:unknown", "ip:unknown", "ip:unknown", "global"]),
        (Identity("42", IP, "t", name="key:x"), ["key:x"] * 5),
    ],
)
def test_each_strategy_has_its_key(identity: Identity, keys: list[str]) -> None:
    assert [identity.key(strategy) for strategy in STRATEGIES] == keys
    assert identity.key() == keys[0]


@pytest.mark.parametrize("strategy", ["", "users", "USER", "user ", "header:x", None, 5])
def test_an_unknown_strategy_is_an_error_that_lists_the_valid_ones(strategy: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Identity().key(strategy)
    assert repr(strategy) in str(caught.value)
    assert "user_or_ip, user, ip, token_or_ip, global" in str(caught.value)


def test_named_keeps_the_tier_and_changes_the_key() -> None:
    identity = Identity("42", IP, superuser=True, capped=True)
    assert identity.named("key:abc") == Identity("42", IP, superuser=True, capped=True, name="key:abc")


def test_a_token_stands_in_no_key_and_no_text() -> None:
    identity = Identity(token=SECRET)
    assert SECRET not in repr(identity)
    assert SECRET not in identity.key("token_or_ip")
    assert len(hashed(SECRET)) == 32


@given(ANY_TEXT, ANY_TEXT)
def test_different_tokens_have_different_keys(one: str, other: str) -> None:
    assert (hashed(one) == hashed(other)) is (one == other)


@pytest.mark.parametrize(
    ("user", "key"),
    [
        (None, f"ip:{IP}"),
        ("", f"ip:{IP}"),
        (42, "user:42"),
        (0, "user:0"),
        ("42", "user:42"),
        (False, f"ip:{IP}"),
        (True, f"ip:{IP}"),
        (SimpleNamespace(is_authenticated=True, pk=42), "user:42"),
        (SimpleNamespace(is_authenticated=lambda: True, pk=42), "user:42"),
        (SimpleNamespace(is_authenticated=True, id="u-7"), "user:u-7"),
        (SimpleNamespace(is_authenticated=True, pk=0, id=9), "user:0"),
        (SimpleNamespace(is_authenticated=True, pk=None, id=9), "user:9"),
        (SimpleNamespace(is_authenticated=True, pk=None), f"ip:{IP}"),
        (SimpleNamespace(is_authenticated=True), f"ip:{IP}"),
        (SimpleNamespace(is_authenticated=False, pk=42), f"ip:{IP}"),
        (SimpleNamespace(is_authenticated=lambda: False, pk=42), f"ip:{IP}"),
        (SimpleNamespace(pk=42), f"ip:{IP}"),
        (object(), f"ip:{IP}"),
    ],
)
def test_a_user_is_an_authenticated_object_or_an_id(user: Any, key: str) -> None:
    assert who(user).key() == key


def test_flags_of_a_user() -> None:
    user = SimpleNamespace(is_authenticated=True, pk=1, is_superuser=True, is_usage_capped=True)
    assert who(user) == Identity("1", IP, superuser=True, capped=True)
    user.is_authenticated = False
    assert who(user) == Identity(ip=IP, capped=True)


@pytest.mark.parametrize("odd", [1, "True", "no", [1], object()])
def test_only_true_makes_a_superuser(odd: object) -> None:
    user = SimpleNamespace(is_authenticated=True, pk=1, is_superuser=odd, is_usage_capped=odd)
    assert who(user) == Identity("1", IP)
    assert not who(Mock(pk=1)).superuser


def test_the_address_follows_the_settings() -> None:
    headers = [("X-Forwarded-For", "203.0.113.9, 2001:db8:1:2:3::4")]
    assert resolve(headers, IP, settings=Settings()).ip == IP
    assert resolve(headers, IP, settings=Settings(proxies_count=1)).ip == "2001:db8:1:2::"
    assert resolve(headers, IP, settings=Settings(proxies_count=1, ipv6_mask=48)).ip == "2001:db8:1::"
    assert resolve(headers, IP, settings=Settings(proxies_count=2)).ip == "203.0.113.9"


def test_no_peer_and_no_proxy_make_one_unknown_caller() -> None:
    spoofed = [("X-Forwarded-For", "203.0.113.9"), ("X-Real-IP", "203.0.113.9")]
    for peer in (None, ""):
        assert resolve(spoofed, peer, settings=Settings()).key() == "ip:unknown"


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["X-Forwarded-For", "x-real-ip", b"X-FORWARDED-FOR", b"\xff", "é"]) | ANY_TEXT,
        ANY_TEXT | st.binary(),
    ),
    max_size=4,
)


@given(HEADERS, ANY_TEXT | st.none(), st.integers(0, 3))
def test_nothing_that_a_caller_sends_raises(headers: Any, peer: str | None, count: int) -> None:
    assert resolve(headers, peer, settings=Settings(proxies_count=count)).key().startswith("ip:")


@given(HEADERS)
def test_nothing_that_a_caller_sends_is_read_without_proxies(headers: Any) -> None:
    assert resolve(headers, IP, settings=Settings()) == Identity(ip=IP)
