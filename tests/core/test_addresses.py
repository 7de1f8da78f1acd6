from __future__ import annotations

import ipaddress
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import addresses
from ratelimit.addresses import UNKNOWN, client_address, environ_headers, read_address

PEER = "10.0.0.1"
CLIENT = "203.0.113.7"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        (" \t203.0.113.7 ", "203.0.113.7"),
        ("203.0.113.7:51344", "203.0.113.7"),
        ("203.0.113.7:65535", "203.0.113.7"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("2001:db8::1:443", "2001:db8::1:443"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%eth0]:443", "fe80::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("[::ffff:192.0.2.1]:443", "192.0.2.1"),
        ("2001:db8:1:2::192.0.2.1", "2001:db8:1:2::c000:201"),
    ],
)
def test_an_address_is_read_in_any_spelling(text: str, address: str) -> None:
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", ":", "%", "unknown", "_hidden", "localhost", "testclient", "203.0.113", "203.0.113.256"),
        *("203.0.113.07", "0xcb007107", "3405803783", "203.0.113.7\n", "203.0.113.7\x00", "203.0.113.7/32"),
        *("203.0.113.7:", "203.0.113.7:abc", "203.0.113.7:99999", "203.0.113.7:000080", "203.0.113.7:-1"),
        *("[2001:db8::1", "2001:db8::1]", "[2001:db8::1]443", "[2001:db8::1]:", "[2001:db8::1]:x", "[203.0.113.7]"),
        *("[]", "[[::1]]", "2001:db8::g", "1::2::3", "203.0.113.7, ::1", " " * 100 + "::1", "1" * 100_000),
        *("２03.0.113.7", "٢٠٣.0.113.7", "203.0.113.7:٤", "\ud800"),
    ],
)
def test_anything_else_is_no_address(text: str) -> None:
    assert read_address(text) is None


@pytest.mark.parametrize(
    ("text", "mask", "masked"),
    [
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
        ("2001:db8:1:2:3:4:5:6", 56, "2001:db8:1::"),
        ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
        ("ffff::", 1, "8000::"),
        ("2001:db8:1:2::192.0.2.1", 64, "2001:db8:1:2::"),
        ("::ffff:192.0.2.1", 64, "192.0.2.1"),
        ("192.0.2.1", 1, "192.0.2.1"),
    ],
)
def test_only_ipv6_is_masked(text: str, mask: int, masked: str) -> None:
    assert read_address(text, mask) == masked


@given(st.ip_addresses(), st.integers(1, 128))
def test_the_canonical_form_is_its_own_canonical_form(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, mask: int
) -> None:
    once = read_address(str(address), mask)
    assert once is not None
    assert read_address(once, mask) == once


@given(st.ip_addresses(v=6), st.integers(1, 128), st.integers(0, 65_535))
def test_the_spelling_of_an_address_does_not_matter(address: ipaddress.IPv6Address, mask: int, port: int) -> None:
    dotted = f"{address.exploded[:30]}{ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)}"
    spellings = [address.compressed, address.exploded, address.exploded.upper(), dotted, f"[{address}]:{port}"]
    assert len({read_address(spelling, mask) for spelling in spellings}) == 1


@given(st.ip_addresses(v=4), st.integers(1, 128))
def test_ipv4_dressed_as_ipv6_is_that_ipv4(address: ipaddress.IPv4Address, mask: int) -> None:
    assert read_address(f"::ffff:{address}", mask) == read_address(f"{address}:80", mask) == str(address)


@given(st.ip_addresses(v=6, network="2000::/3"), st.integers(3, 128), st.integers(0, 127))
def test_addresses_share_a_form_if_they_share_the_masked_bits(
    address: ipaddress.IPv6Address, mask: int, bit: int
) -> None:
    other = ipaddress.IPv6Address(int(address) ^ (1 << (127 - bit)))
    assert (read_address(str(address), mask) == read_address(str(other), mask)) is (bit >= mask)


def behind(count: int, *lines: str, peer: str | None = PEER, real_ip: str | None = None, mask: int = 64) -> str:
    headers = [("X-Forwarded-For", line) for line in lines]
    headers += [] if real_ip is None else [("X-Real-IP", real_ip)]
    return client_address(headers, peer, proxies_count=count, ipv6_mask=mask)


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


def test_whatever_a_caller_adds_on_the_left_changes_nothing() -> None:
    for added in ("", "127.0.0.1, ", "10.0.0.1, " * 500, "\x00,\n, ", "[,", "é\ud800, "):
        assert behind(1, f"{added}203.0.113.7") == CLIENT
        assert behind(1, added, "203.0.113.7") == CLIENT


@pytest.mark.parametrize(
    ("count", "lines", "client"),
    [(0, [], PEER), (1, [], PEER), (2, [], PEER), (1, ["198.51.100.1"], "198.51.100.1"), (1, ["junk"], PEER)],
)
def test_x_real_ip_is_never_read(count: int, lines: list[str], client: str) -> None:
    assert behind(count, *lines, real_ip=CLIENT) == client


def test_headers_are_found_as_bytes_and_in_any_case() -> None:
    headers = [(b"host", b"x"), (b"x-FORWARDED-for", b"\xff\xfe, 203.0.113.7")]
    assert client_address(headers, PEER, proxies_count=1, ipv6_mask=64) == CLIENT


def test_only_headers_of_that_very_name_are_read() -> None:
    names = ["x-forwarded-foR", b"X-Forwarded-For"]
    others = ["x-forwarded-fo", "x_forwarded_for", "x-forwarded-for ", b"x-forwarded-f\xf6r", "x-forwarded-fo\u0154"]
    for name in (*names, *others):
        found = client_address([(name, CLIENT)], PEER, proxies_count=1, ipv6_mask=64)
        assert found == (CLIENT if name in names else PEER)


@given(st.lists(st.text("1.,x ", max_size=6), max_size=4), st.integers(1, 5))
def test_a_chain_is_split_as_far_as_it_is_trusted(lines: list[str], count: int) -> None:
    whole = ",".join(lines).split(",") if lines else []
    entry = whole[-count] if len(whole) >= count else None
    assert addresses._forwarded([("X-Forwarded-For", line) for line in lines], count) == entry


@pytest.mark.parametrize(("forwarded", "client"), [({}, PEER), ({"HTTP_X_FORWARDED_FOR": f"{PEER}, {CLIENT}"}, CLIENT)])
def test_an_environ_tells_its_chain(forwarded: dict[str, str], client: str) -> None:
    environ = {"HTTP_HOST": "shop", "HTTP_X_REAL_IP": "192.0.2.1", "REMOTE_ADDR": PEER, **forwarded}
    assert client_address(environ_headers(environ), PEER, proxies_count=1, ipv6_mask=64) == client


def test_texts_that_are_no_address_are_not_remembered() -> None:
    addresses._address.cache_clear()
    for text in ("junk", "1.2.3", "x" * 101, "", "[::1", "203.0.113.7:x"):
        read_address(text)
        behind(1, text, peer=text)
    assert addresses._address.cache_info().currsize == 0
    for number in range(9000):
        read_address(f"10.1.{number >> 8}.{number & 255}")
    assert addresses._address.cache_info().currsize == 8192


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (None, UNKNOWN),
        ("", UNKNOWN),
        ("testclient", "testclient"),
        ("t" * 101, "t" * 101),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
    ],
)
def test_the_peer_may_be_missing_or_no_address(peer: str | None, address: str) -> None:
    assert behind(0, "203.0.113.5", peer=peer) == address
    assert behind(1, "203.0.113.5", peer=peer) == "203.0.113.5"
    assert behind(2, "203.0.113.5", peer=peer) == address


def test_a_short_chain_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    behind(2, "203.0.113.7")
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (
            logging.WARNING,
            "X-Forwarded-For has 1 entries, fewer than RATELIMIT_PROXIES_COUNT=2; using the peer's address",
        )
    ]


def test_an_entry_that_is_no_address_is_warned_of_on_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    behind(1, "junk\nforged line" + "x" * 10_000)
    (message,) = caplog.messages
    assert message.startswith("forwarded entry 'junk\\nforged linexxx")
    assert "\n" not in message
    assert len(message) < 200


def test_the_ordinary_case_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    behind(0, "203.0.113.7")
    behind(1, "198.51.100.1, 203.0.113.7")
    behind(1)
    assert caplog.messages == []
