"""The client's address in a chain of proxies, for each form in which the trusted hops may be stated."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit.addresses import UNKNOWN, environ_headers
from ratelimit.chain import MOST_HOPS, client_address
from ratelimit.identity import resolve
from ratelimit.settings import Settings

PEER = "10.0.0.1"
CLIENT = "203.0.113.7"


def behind(count: int, *lines: str, peer: str | None = PEER, real_ip: str | None = None, mask: int = 64) -> str:
    headers = [("X-Forwarded-For", line) for line in lines]
    headers += [] if real_ip is None else [("X-Real-IP", real_ip)]
    return resolve(headers, peer, settings=Settings(proxies_count=count, ipv6_mask=mask)).ip


@pytest.mark.parametrize(
    ("count", "lines", "client"),
    [
        (0, ["198.51.100.1, 203.0.113.7"], PEER),
        (1, ["203.0.113.7"], CLIENT),
        (1, ["198.51.100.1, 203.0.113.7"], CLIENT),
        (1, ["spoofed, 1.2.3.4, ,;, 203.0.113.7"], CLIENT),
        (1, ["203.0.113.7:51344"], CLIENT),
        (1, ["198.51.100.1", "203.0.113.7"], CLIENT),
        (2, ["203.0.113.7, 10.0.0.2"], CLIENT),
        (2, ["198.51.100.1, 203.0.113.7, 10.0.0.2"], CLIENT),
        (2, ["198.51.100.1, 203.0.113.7", "10.0.0.2"], CLIENT),
        (3, ["203.0.113.7, 10.0.0.3, unknown"], CLIENT),
        (1, [], PEER),
        (2, ["203.0.113.7"], PEER),
        (100, ["203.0.113.7"] * 99, PEER),
        *((1, [entry], PEER) for entry in ("", "unknown", "203.0.113.7:abc", "203.0.113.7:99999", "[2001:db8::1", ",")),
    ],
)
def test_the_client_is_the_nth_entry_from_the_right(count: int, lines: list[str], client: str) -> None:
    assert behind(count, *lines) == client


@pytest.mark.parametrize(
    ("count", "lines", "client"),
    [(0, [], PEER), (1, [], PEER), (2, [], PEER), (1, ["198.51.100.1"], "198.51.100.1"), (1, ["junk"], PEER)],
)
def test_another_header_than_the_configured_one_is_never_read(count: int, lines: list[str], client: str) -> None:
    assert behind(count, *lines, real_ip=CLIENT) == client


def test_the_underscore_spelling_is_another_header() -> None:
    for name in ("x_forwarded_for", b"X_Forwarded_For", "x-forwarded_for"):
        for settings in (Settings(proxies_count=1), Settings(trusted_proxies="10.0.0.0/8")):
            assert client_address([(name, CLIENT)], PEER, settings) == PEER


NETWORKS = "10.0.0.0/8, 2001:db8:ff::/48, 198.51.100.4"


def within(text: str | None, peer: str | None = PEER, networks: str = NETWORKS, header: str = "X-Forwarded-For") -> str:
    settings = Settings(trusted_proxies=networks, client_header=header)
    return resolve([] if text is None else [(header, text)], peer, settings=settings).ip


@pytest.mark.parametrize(
    ("peer", "text", "client"),
    [
        (PEER, "203.0.113.7", CLIENT),
        (PEER, "192.0.2.1, 203.0.113.7, 10.0.0.2, 198.51.100.4", CLIENT),
        (PEER, "203.0.113.7:51344, 10.0.0.2:80, [2001:db8:ff::9]:443", CLIENT),
        (PEER, "203.0.113.7, ::ffff:10.0.0.2, ::FFFF:c633:6404", CLIENT),
        ("::ffff:10.0.0.1", "203.0.113.7", CLIENT),
        ("2001:db8:ff::1", "2001:db8:1:2:3::4", "2001:db8:1:2::"),
        (PEER, "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (PEER, "10.0.0.3", "10.0.0.3"),
        (PEER, None, PEER),
        (PEER, "", PEER),
        (PEER, "203.0.113.7, unknown, 10.0.0.2", PEER),
        (PEER, "203.0.113.7, unix:, 10.0.0.2", PEER),
        ("198.51.100.5", "203.0.113.7", "198.51.100.5"),
        ("testclient", "203.0.113.7", "testclient"),
        ("2001:db8:fe::1", "203.0.113.7", "2001:db8:fe::"),
        (None, "203.0.113.7", UNKNOWN),
        ("", "203.0.113.7", UNKNOWN),
        ("10.0.0.1%eth0", "203.0.113.7", CLIENT),
    ],
)
def test_the_client_is_the_first_entry_outside_the_trusted_networks(
    peer: str | None, text: str | None, client: str
) -> None:
    assert within(text, peer) == client


@pytest.mark.parametrize("peer", [None, "", "unix:", "unix:/run/app.sock"])
def test_a_unix_socket_is_trusted_by_its_word(peer: str | None) -> None:
    assert within("203.0.113.7", peer, "unix") == CLIENT
    assert within("192.0.2.1, 203.0.113.7, 10.0.0.2", peer, "unix, 10.0.0.0/8") == CLIENT
    assert within("192.0.2.1, 203.0.113.7, unix:", peer, "unix") == CLIENT
    assert within("192.0.2.1, unix:", PEER, "unix") == PEER


def test_no_more_entries_are_skipped_than_proxies_could_be() -> None:
    many = [f"10.0.{number >> 8}.{number & 255}" for number in range(5_000)]
    assert within(", ".join(many)) == many[-MOST_HOPS]


FORWARDED = [
    ("for=203.0.113.7", CLIENT),
    ("for=192.0.2.1, for=203.0.113.7", CLIENT),
    ('FOR="203.0.113.7:4711";proto=https', CLIENT),
    ('host="a, b";for="[::ffff:203.0.113.7]:443"', CLIENT),
    ("by=10.0.0.1;For=2001:db8:1:2:3::4", "2001:db8:1:2::"),
    ('for="[2001:db8:1:2:3::4%eth0]"', "2001:db8:1:2::"),
    ('for="192.0.2.1, for=203.0.113.7', CLIENT),
    ("for=unknown", PEER),
    ('for="_hidden"', PEER),
    ("for=203.0.113.7, for=unknown", PEER),
    ("proto=https", PEER),
    ("for=203.0.113.7, proto=https", PEER),
    ("for=203.0.113.7;for=203.0.113.8", PEER),
    ("203.0.113.7", PEER),
    ("", PEER),
]


@pytest.mark.parametrize(("text", "client"), FORWARDED)
@pytest.mark.parametrize("stated", [{"proxies_count": 1}, {"trusted_proxies": "10.0.0.0/8"}])
def test_a_forwarded_header_names_the_client_in_any_of_its_forms(
    stated: dict[str, Any], text: str, client: str
) -> None:
    settings = Settings(client_header="Forwarded", **stated)
    assert client_address([("forwarded", text)], PEER, settings) == client
    assert client_address(environ_headers({"HTTP_FORWARDED": text}), PEER, settings) == client


def test_several_lines_and_hops_of_forwarded_are_one_chain() -> None:
    lines = [
        (b"Forwarded", b"for=192.0.2.1, for=203.0.113.7"),
        (b"FORWARDED", b'for="10.0.0.3:80";proto=http, for=10.0.0.2'),
    ]
    assert client_address(lines, PEER, Settings(client_header="forwarded", trusted_proxies="10.0.0.0/8")) == CLIENT
    for count, client in ((1, "10.0.0.2"), (2, "10.0.0.3"), (3, CLIENT), (4, "192.0.2.1"), (5, PEER)):
        assert client_address(lines, PEER, Settings(client_header="Forwarded", proxies_count=count)) == client


@pytest.mark.parametrize("header", ["CF-Connecting-IP", "True-Client-IP", "X-Real-IP"])
@pytest.mark.parametrize("stated", [{"proxies_count": 1}, {"proxies_count": 3}, {"trusted_proxies": "10.0.0.0/8"}])
def test_a_single_header_is_one_address(stated: dict[str, Any], header: str) -> None:
    settings = Settings(client_header=header, **stated)
    name = header.lower().encode()

    def found(*lines: bytes, peer: str | None = PEER) -> str:
        others = [(b"x-forwarded-for", b"192.0.2.1"), (b"forwarded", b"for=192.0.2.1"), (b"client-ip", b"192.0.2.1")]
        return client_address([*others, *((name, line) for line in lines)], peer, settings)

    assert found(b"203.0.113.7") == found(b" 203.0.113.7:80 ") == found(b"::ffff:203.0.113.7") == CLIENT
    assert found(b"2001:db8:1:2::9") == "2001:db8:1:2::"
    for odd in ([], [b""], [b"203.0.113.7", b"203.0.113.7"], [b"203.0.113.7, 192.0.2.1"], [b"unknown"], [b"\xff"]):
        assert found(*odd) == PEER
    if "trusted_proxies" in stated:
        assert found(b"203.0.113.7", peer="192.0.2.200") == "192.0.2.200"
        assert found(b"203.0.113.7", peer=None) == UNKNOWN
    environ = {"HTTP_" + header.upper().replace("-", "_"): CLIENT, "HTTP_X_FORWARDED_FOR": "192.0.2.1"}
    assert client_address(environ_headers(environ), PEER, settings) == CLIENT


@pytest.mark.parametrize(
    ("given_", "text", "said"),
    [
        ({"proxies_count": 2}, "203.0.113.7", "X-Forwarded-For has 1 entries, fewer than RATELIMIT_PROXIES_COUNT=2"),
        ({"proxies_count": 1}, "unknown", "X-Forwarded-For entry 'unknown' is not an address"),
        ({"trusted_proxies": PEER}, "a, junk", "X-Forwarded-For entry ' junk' is not an address"),
        ({"proxies_count": 1, "client_header": "forwarded"}, "for=_x", "Forwarded entry '_x' is not an address"),
        (
            {"proxies_count": 2, "client_header": "Forwarded"},
            "for=_x",
            "Forwarded has 1 entries, fewer than RATELIMIT_PRO",
        ),
        (
            {"proxies_count": 1, "client_header": "X-Real-IP"},
            "::1, ::2",
            "X-Real-IP entry '::1, ::2' is not an address",
        ),
    ],
)
def test_a_fallback_to_the_peer_is_warned_of(
    caplog: pytest.LogCaptureFixture, given_: dict[str, Any], text: str, said: str
) -> None:
    settings = Settings(**given_)
    assert client_address([(settings.client_header, text)], PEER, settings) == PEER
    ((level, message),) = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert level == logging.WARNING
    assert message.startswith(said)
    assert message.endswith("; using the peer's address")


def test_an_entry_that_is_no_address_is_warned_of_on_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    behind(1, "junk\nforged line" + "x" * 10_000)
    (message,) = caplog.messages
    assert message.startswith("X-Forwarded-For entry 'junk\\nforged linexxx")
    assert "\n" not in message
    assert len(message) < 200


def test_the_ordinary_case_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    behind(0, "203.0.113.7")
    behind(1, "198.51.100.1, 203.0.113.7")
    behind(1)
    within("203.0.113.7", "192.0.2.200")
    within(None)
    assert caplog.messages == []


@pytest.mark.parametrize("peer", [None, "", "testclient", "t" * 101, "::ffff:192.0.2.1", "2001:db8:1:2:3::4"])
def test_the_peer_may_be_missing_or_no_address(peer: str | None) -> None:
    alone = resolve([], peer, settings=Settings()).ip
    assert behind(0, "203.0.113.5", peer=peer) == alone
    assert behind(1, "203.0.113.5", peer=peer) == "203.0.113.5"
    assert behind(2, "203.0.113.5", peer=peer) == alone


def _count(header: str, add: Callable[[str], str]) -> Any:
    return Settings(proxies_count=2, client_header=header), header, add


def _networks(header: str, add: Callable[[str], str]) -> Any:
    return Settings(trusted_proxies="10.0.0.0/8", client_header=header), header, add


FORMS = [
    form(header, add)
    for form in (_count, _networks)
    for header, add in (("X-Forwarded-For", str), ("Forwarded", lambda address: f'for="{address}:4711";proto=https'))
]
TYPED = st.text('for="\\;, 10.:2[]', max_size=60) | st.text(st.characters(exclude_categories=()), max_size=40)


@given(st.lists(TYPED, max_size=3), st.sampled_from(FORMS), st.booleans())
def test_whatever_is_typed_left_of_the_trusted_hops_never_changes_who_calls(
    typed: list[str], form: Any, own_line: bool
) -> None:
    settings, header, add = form
    trusted = f"{add(CLIENT)}, {add('10.0.0.2')}"
    lines = [*typed, trusted] if own_line or not typed else [*typed[:-1], f"{typed[-1]}, {trusted}"]
    assert client_address([(header, line) for line in lines], PEER, settings) == CLIENT
    folded = {f"HTTP_{header.upper().replace('-', '_')}": ",".join(lines)}
    assert client_address(environ_headers(folded), PEER, settings) == CLIENT


@given(
    st.lists(st.tuples(st.sampled_from(["X-Forwarded-For", "Forwarded", "X_Real_IP", "x-real-ip "]), TYPED), max_size=4)
)
def test_whatever_is_typed_beside_a_single_header_never_changes_who_calls(others: list[tuple[str, str]]) -> None:
    for stated in ({"proxies_count": 1}, {"trusted_proxies": "10.0.0.0/8"}):
        settings = Settings(client_header="X-Real-IP", **stated)
        assert client_address([*others, ("X-Real-IP", CLIENT)], PEER, settings) == CLIENT


@given(TYPED, TYPED, st.sampled_from(FORMS))
def test_whatever_an_untrusted_peer_sends_is_not_read(one: str, other: str, form: Any) -> None:
    settings, header, _ = form
    if settings.trusted_proxies:
        assert client_address([(header, one), (header, other)], "203.0.113.9", settings) == "203.0.113.9"


@given(st.ip_addresses(), st.integers(0, 65_535), st.sampled_from(FORMS), st.data())
def test_every_spelling_of_one_address_is_one_caller(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int, form: Any, data: st.DataObject
) -> None:
    settings, header, _ = form
    if address.version == 4:
        spellings = [
            f"{address}",
            f" {address}\t",
            f"{address}:{port}",
            f"::ffff:{address}",
            f"[::FFFF:{address}]:{port}",
        ]
    else:
        exploded = address.exploded
        spellings = [f"{address}", exploded.upper(), f"[{address}]", f"[{exploded}]:{port}", f"{address}%eth0"]
    callers = set()
    for spelling in spellings:
        entry = f'for="{spelling.strip()}"' if header == "Forwarded" else spelling
        last = "for=10.0.0.2" if header == "Forwarded" else "10.0.0.2"
        headers = [(header, f"{entry}, {last}")]
        callers.add(resolve(headers, PEER, settings=settings).key())
    assert len(callers) == 1
    assert callers == {resolve([], str(address), settings=Settings()).key()}
