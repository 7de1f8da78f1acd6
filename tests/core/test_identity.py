from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Identity, shapes
from ratelimit import identity as module
from ratelimit.identity import STRATEGIES, hashed, resolve, resolve_address
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


FULL = Identity("42", IP, SECRET, True, True, "key:x", {"device": "d1"})


def test_an_identity_is_its_fields() -> None:
    assert repr(FULL) == (
        f"Identity(user='42', ip='{IP}', superuser=True, capped=True, name='key:x', attributes={{'device': 'd1'}})"
    )
    assert repr(Identity()).endswith("name=None, attributes={})")
    names = [one.name for one in fields(Identity)]
    assert names == ["user", "ip", "token", "superuser", "capped", "name", "attributes"]
    assert Identity(**asdict(FULL)) == FULL
    assert asdict(Identity())["attributes"] == {}


def test_equal_identities_have_one_hash_and_attributes_do_not_matter() -> None:
    assert Identity("42", IP) == Identity(user="42", ip=IP, attributes={"path": "/"})
    assert len({Identity("42", IP), Identity("42", IP).having(path="/"), Identity("42")}) == 2
    assert Identity("42") != Identity("43")
    assert Identity() != "ip:unknown"


@pytest.mark.parametrize("name", ["user", "ip", "token", "superuser", "capped", "name", "attributes"])
def test_no_field_can_be_changed(name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(FULL, name, "x")
    with pytest.raises(FrozenInstanceError):
        delattr(FULL, name)


@pytest.mark.parametrize("identity", [Identity(), FULL, Identity("42", IP), who(42)])
def test_copies_and_pickles_are_the_same_caller(identity: Identity) -> None:
    for twin in (
        *(copy.copy(identity), copy.deepcopy(identity), replace(identity)),
        *(pickle.loads(pickle.dumps(identity, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert twin == identity
        assert [twin.key(strategy) for strategy in STRATEGIES] == [identity.key(strategy) for strategy in STRATEGIES]
        assert twin.attributes == identity.attributes
        assert twin.having(path="/").named("n").key() == "n"


def test_a_changed_copy_has_the_key_of_its_fields() -> None:
    assert FULL.named("key:y").key() == "key:y"
    assert replace(FULL, name=None).key() == "user:42"
    assert replace(FULL, name=None, user=None).key() == f"ip:{IP}"
    assert FULL.having(path="/").attributes == {"device": "d1", "path": "/"}
    assert FULL.having(device="d2").attributes == {"device": "d2"}
    assert FULL.attributes == {"device": "d1"}


@dataclass(frozen=True)
class Member(Identity):
    team: str = ""


def test_a_subclass_keeps_its_own_fields() -> None:
    member = Member(user="42", ip=IP, team="red")
    assert (member.key(), member.key(), member.key("ip")) == ("user:42", "user:42", f"ip:{IP}")
    assert Member(ip=IP).key() == f"ip:{IP}"
    named = member.named("key:x").having(path="/")
    assert (type(named), named.team, named.key(), named.attributes) == (Member, "red", "key:x", {"path": "/"})
    assert member != Identity("42", IP)


@pytest.mark.parametrize(
    "change",
    [
        lambda attributes: attributes.__setitem__("path", "/"),
        lambda attributes: attributes.__delitem__("path"),
        lambda attributes: attributes.__ior__({"path": "/"}),
        lambda attributes: attributes.update(path="/"),
        lambda attributes: attributes.setdefault("path", "/"),
        lambda attributes: attributes.pop("path", None),
        lambda attributes: attributes.popitem(),
        lambda attributes: attributes.clear(),
    ],
)
def test_nobody_can_give_attributes_to_every_caller(change: Any) -> None:
    with pytest.raises(TypeError, match="having"):
        change(who().attributes)
    assert who().attributes == Identity().attributes == {}


def test_a_caller_seen_before_need_not_be_made_again() -> None:
    assert who() is who()
    assert who(SimpleNamespace(is_authenticated=True, pk=7)) is who("7")
    assert who(7) is not who(SimpleNamespace(is_authenticated=True, pk=7, is_superuser=True))


def test_the_callers_that_are_remembered_are_bounded_and_short_and_have_no_secret() -> None:
    module._remembered.cache_clear()
    for number in range(5000):
        resolve([], f"10.0.{number >> 8}.{number & 255}", settings=Settings())
    assert module._remembered.cache_info().currsize == 4096
    module._remembered.cache_clear()
    assert who(token=SECRET).token == SECRET
    assert who("u" * 101).key() == "user:" + "u" * 101
    assert resolve([], "p" * 101, settings=Settings()).key() == "ip:" + "p" * 101
    assert module._remembered.cache_info().currsize == 0


def test_a_remembered_caller_follows_the_mask() -> None:
    masks = {mask: resolve([], "2001:db8:1:2:3::4", settings=Settings(ipv6_mask=mask)).ip for mask in (32, 64, 128)}
    assert masks == {32: "2001:db8::", 64: "2001:db8:1:2::", 128: "2001:db8:1:2:3::4"}


def test_without_proxies_no_header_is_looked_at_after_the_first_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "looking", False)

    def headers() -> Any:
        raise AssertionError("looked")
        yield

    assert resolve(headers(), IP, settings=Settings()).ip == IP
    assert resolve(headers(), IP, 42, "t", settings=Settings()).ip == IP


@pytest.mark.parametrize("peer", [IP, "2001:db8:1:2:3::4", "::ffff:203.0.113.7", "not an address", "p" * 100])
@pytest.mark.parametrize("mask", [32, 64])
def test_the_short_way_finds_the_same_caller(monkeypatch: pytest.MonkeyPatch, peer: str, mask: int) -> None:
    monkeypatch.setattr(shapes, "looking", False)
    settings = Settings(ipv6_mask=mask)
    assert resolve_address(peer, settings) == resolve([], peer, settings=settings)


@pytest.mark.parametrize("peer", [None, "", "p" * 101])
def test_the_short_way_is_for_addresses(monkeypatch: pytest.MonkeyPatch, peer: str | None) -> None:
    monkeypatch.setattr(shapes, "looking", False)
    assert resolve_address(peer, Settings()) is None


def test_the_short_way_is_not_taken_where_headers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "looking", True)
    assert resolve_address(IP, Settings()) is None
    monkeypatch.setattr(shapes, "looking", False)
    assert resolve_address(IP, Settings(proxies_count=1)) is None
