"""Who calls, through the real adapters: what a server may hand over, and what a client may have typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import override_settings

from ratelimit.testing import isolated
from tests.identity.places import PLACES, Answer, Client, Lines

# Django's handlers look at the database connection before and after each request.
pytestmark = pytest.mark.django_db

Ask = Callable[[Lines, Client], Answer]
PEER = "10.0.0.1"


@pytest.fixture(params=PLACES)
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    with override_settings(ROOT_URLCONF="tests.identity.places"):
        yield PLACES[request.param]
    asyncio.run(sync_to_async(connections.close_all)())


def forwarded(text: str) -> Lines:
    return [("X-Forwarded-For", text)]


@pytest.mark.parametrize(
    ("entry", "address"),
    [
        ("203.0.113.7:51344", "203.0.113.7"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1:443", "2001:db8::1:443"),
        (" 203.0.113.7 ", "203.0.113.7"),
        ("\t203.0.113.7\t", "203.0.113.7"),
        ("fe80::1%eth0", "fe80::1"),
        *((odd, PEER) for odd in ("203.0.113.7:abc", "203.0.113.7:99999", "[2001:db8::1", "unknown", "", "_x", "\xff")),
    ],
)
def test_an_entry_in_any_spelling_is_one_caller(ask: Ask, entry: str, address: str) -> None:
    for stated in ({"proxies_count": 1}, {"trusted_proxies": PEER}):
        with isolated(ipv6_mask=128, **stated):
            assert ask(forwarded(entry), (PEER, 1)) == (200, f"ip:{address}")
            assert ask(forwarded(address), (PEER, 2)) == (429, f"ip:{address}")


def test_the_port_does_not_make_another_caller(ask: Ask) -> None:
    with isolated(proxies_count=1):
        assert ask(forwarded("203.0.113.7:51344"), PEER) == (200, "ip:203.0.113.7")
        assert ask(forwarded("203.0.113.7:51345"), PEER) == (429, "ip:203.0.113.7")


@pytest.mark.parametrize(
    ("spellings", "address"),
    [
        (["::ffff:192.0.2.1", "::FFFF:c000:201", "192.0.2.1", "[::ffff:192.0.2.1]:80", "192.0.2.1:80"], "192.0.2.1"),
        (["::ffff:192.0.2.2"], "192.0.2.2"),
        (["2001:db8:1:2::192.0.2.1", "2001:db8:1:2::9", "2001:DB8:1:2::a"], "2001:db8:1:2::"),
        (["2001:db8:1:3::a"], "2001:db8:1:3::"),
    ],
)
def test_an_address_is_told_by_its_bits(ask: Ask, spellings: list[str], address: str) -> None:
    with isolated(proxies_count=1):
        found = [ask(forwarded(one), PEER) for one in spellings]
    assert found == [(200 if not number else 429, f"ip:{address}") for number in range(len(spellings))]
    peers = [one for one in spellings if "[" not in one]
    with isolated():
        assert [ask([], (one, 4711))[1] for one in peers] == [f"ip:{address}"] * len(peers)


@pytest.mark.parametrize(
    ("client", "address"),
    [("", "unknown"), (None, "unknown"), (("testclient", 50000), "testclient"), (("", 0), "unknown")],
)
def test_a_connection_without_an_address_is_served_limited_and_not_renamed(
    ask: Ask, client: Client, address: str
) -> None:
    with isolated():
        assert ask(forwarded("203.0.113.5"), client) == (200, f"ip:{address}")
        assert ask(forwarded("203.0.113.6"), client) == (429, f"ip:{address}")
    with isolated(proxies_count=1):
        assert ask(forwarded("203.0.113.5"), client) == (200, "ip:203.0.113.5")
        assert ask([], client) == (200, f"ip:{address}")
    with isolated(trusted_proxies="10.0.0.0/8"):
        assert ask(forwarded("203.0.113.5"), client) == (200, f"ip:{address}")
    with isolated(trusted_proxies="unix"):
        renamed = "203.0.113.5" if address == "unknown" else address
        assert ask(forwarded("203.0.113.5"), client) == (200, f"ip:{renamed}")


HEADERS: list[tuple[dict[str, Any], Lines]] = [
    ({}, forwarded("192.0.2.9, 203.0.113.7")),
    ({}, [*forwarded("192.0.2.9"), *forwarded("203.0.113.7")]),
    ({"client_header": "Forwarded"}, [("Forwarded", 'for=192.0.2.9, For="203.0.113.7:80";proto=https')]),
    ({"client_header": "Forwarded"}, [("Forwarded", 'for="192.0.2.9'), ("Forwarded", "by=_x;for=203.0.113.7")]),
    ({"client_header": "CF-Connecting-IP"}, [("CF-Connecting-IP", "203.0.113.7"), *forwarded("192.0.2.9")]),
]


@pytest.mark.parametrize(("header", "lines"), HEADERS)
def test_the_configured_header_is_read_behind_a_stated_proxy_and_no_other(
    ask: Ask, header: dict[str, Any], lines: Lines
) -> None:
    others = [("X-Real-IP", "192.0.2.66"), ("True-Client-IP", "192.0.2.66"), ("X-Client-IP", "192.0.2.66")]
    for stated in ({"proxies_count": 1}, {"trusted_proxies": "10.0.0.0/8"}):
        with isolated(**header, **stated):
            assert ask([*others, *lines], PEER) == (200, "ip:203.0.113.7")
    with isolated(**header, trusted_proxies="192.168.0.0/16"):
        assert ask([*others, *lines], PEER) == (200, f"ip:{PEER}")


@pytest.mark.parametrize("place", [name for name in PLACES if "ASGI" in name])
def test_on_asgi_the_underscore_spelling_is_never_read(place: str) -> None:
    spoofed = [("x_forwarded_for", "192.0.2.66"), *forwarded("203.0.113.7"), ("x_forwarded_for", "192.0.2.66")]
    with override_settings(ROOT_URLCONF="tests.identity.places"), isolated(proxies_count=1):
        assert PLACES[place](spoofed, PEER) == (200, "ip:203.0.113.7")
        assert PLACES[place](spoofed[:1], PEER) == (200, f"ip:{PEER}")
    asyncio.run(sync_to_async(connections.close_all)())


@pytest.mark.parametrize(
    "lines", [[("X-Real-IP", "203.0.113.7"), ("X-Real-IP", "203.0.113.7")], [("X-Real-IP", "a, b")]]
)
def test_two_values_of_a_single_header_are_no_address(ask: Ask, lines: Lines, caplog: pytest.LogCaptureFixture) -> None:
    with isolated(client_header="X-Real-IP", proxies_count=1):
        assert ask(lines, PEER) == (200, f"ip:{PEER}")
    assert "is not an address; using the peer's address" in caplog.messages[0]
