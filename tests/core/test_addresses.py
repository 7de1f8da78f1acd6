from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import addresses
from ratelimit.addresses import UNKNOWN, environ_headers, header_lines, peer_address, read_address


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


def test_texts_that_are_no_address_are_not_remembered() -> None:
    addresses._address.cache_clear()
    for text in ("junk", "1.2.3", "x" * 101, "", "[::1", "203.0.113.7:x"):
        read_address(text)
        peer_address(text, 64)
    assert addresses._address.cache_info().currsize == 0
    for number in range(9000):
        read_address(f"10.1.{number >> 8}.{number & 255}")
    assert addresses._address.cache_info().currsize == 8192


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        *((None, UNKNOWN), ("", UNKNOWN), ("testclient", "testclient"), ("t" * 101, "t" * 101)),
        *(("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:1:2:3::4", "2001:db8:1:2::"), ("fe80::1%eth0", "fe80::")),
    ],
)
def test_a_peer_may_be_missing_or_no_address(peer: str | None, address: str) -> None:
    assert peer_address(peer, 64) == address


LINES = [
    *((b"host", b"shop"), (b"X-Client-IP", b"203.0.113.7"), ("x-client-ip", "203.0.113.8"), (b"x-client-ip", b"\xff")),
    *((b"x_client_ip", b"no"), (b"x-client-i", b"no"), ("x-client-ip ", "no"), ("x-client-i\u0154", "no")),
]


def test_the_lines_of_one_header_are_found_in_order_as_text_or_bytes_in_any_case() -> None:
    assert header_lines(LINES, "X-Client-IP") == ["203.0.113.7", "203.0.113.8", "\xff"]
    assert header_lines(iter(LINES), "x-cLIENT-ip") == ["203.0.113.7", "203.0.113.8", "\xff"]
    assert header_lines(LINES, "Forwarded") == []


ENVIRON = {
    "REMOTE_ADDR": "10.0.0.1",
    "wsgi.multithread": True,
    "HTTP_HOST": "shop",
    "HTTP_X_CLIENT_IP": "203.0.113.7, 203.0.113.8",
    "HTTP_ODD": 5,
}


def test_an_environ_is_asked_for_one_header() -> None:
    headers = environ_headers(ENVIRON)
    assert header_lines(headers, "X-Client-IP") == ["203.0.113.7, 203.0.113.8"]
    assert (
        header_lines(headers, "Forwarded") == header_lines(headers, "Odd") == header_lines(headers, "Remote-Addr") == []
    )
    assert list(headers) == [("host", "shop"), ("x-client-ip", "203.0.113.7, 203.0.113.8")]
