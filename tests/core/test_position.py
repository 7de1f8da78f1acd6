"""Where the client was found, hop by hop, and the verdict on the configured depth or networks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import position as module
from ratelimit.identity import resolve
from ratelimit.position import Entry, Position, position
from ratelimit.settings import Settings

PEER = "10.0.0.1"
COUNT = {"proxies_count": 2}
NETWORKS = {"trusted_proxies": "10.0.0.0/8"}
TYPED, CLIENT, PROXY = "192.0.2.66", "203.0.113.7", "10.0.0.2"


def found(given_: dict[str, Any], *lines: tuple[str, str], peer: str | None = PEER) -> Position:
    return position(list(lines), peer, Settings(**given_))


def forwarded(*entries: str) -> tuple[str, str]:
    return "X-Forwarded-For", ", ".join(entries)


@pytest.mark.parametrize("given_", [COUNT, NETWORKS])
def test_every_hop_has_its_part(given_: dict[str, Any]) -> None:
    one = found(given_, forwarded(TYPED, "2001:db8:1:2:3::4", PROXY))
    assert one.entries == (Entry(TYPED, "never read"), Entry("2001:db8:1:2:3::4", "client"), Entry(PROXY, "trusted"))
    assert (one.header, one.address, one.fallback, one.left_out) == ("X-Forwarded-For", "2001:db8:1:2:3::4", "", 0)
    assert (one.peer, one.peer_trusted, one.arrived) == (PEER, True, ("X-Forwarded-For",))


def test_a_short_chain_is_not_used() -> None:
    one = found(COUNT, forwarded(CLIENT))
    assert (one.entries, one.address) == ((Entry(CLIENT, "not used"),), PEER)
    assert one.fallback == "X-Forwarded-For has 1 entries, fewer than RATELIMIT_PROXIES_COUNT=2"


def test_an_entry_that_is_no_address_is_said_to_be_none() -> None:
    one = found(NETWORKS, forwarded(CLIENT, "unknown", PROXY))
    assert one.entries == (Entry(CLIENT, "never read"), Entry("unknown", "client"), Entry(PROXY, "trusted"))
    assert (one.address, one.fallback) == (PEER, "X-Forwarded-For entry ' unknown' is not an address")


def test_elements_of_forwarded_are_shown_as_they_were_written() -> None:
    one = found(
        {**NETWORKS, "client_header": "Forwarded"}, ("forwarded", f'for="x, FOR="{CLIENT}:80";proto=http, for={PROXY}')
    )
    assert one.entries == (
        Entry('for="x', "never read"),
        Entry(f'FOR="{CLIENT}:80";proto=http', "client"),
        Entry(f"for={PROXY}", "trusted"),
    )
    assert one.address == CLIENT


def test_a_single_header_is_one_entry() -> None:
    one = found({"proxies_count": 1, "client_header": "X-Client"}, ("x-client", CLIENT), forwarded(TYPED))
    assert (one.entries, one.header, one.address) == ((Entry(CLIENT, "client"),), "X-Client", CLIENT)
    assert one.arrived == ("X-Forwarded-For", "X-Client")
    two = found({"proxies_count": 1, "client_header": "X-Client"}, ("x-client", CLIENT), ("x-client", TYPED))
    assert (two.entries, two.address) == ((Entry(f"{CLIENT},{TYPED}", "client"),), PEER)


def test_of_a_long_chain_the_right_end_is_shown() -> None:
    one = found({"proxies_count": 1}, forwarded(*[TYPED] * 50, CLIENT))
    assert (len(one.entries), one.left_out) == (20, 31)
    assert one.entries[-2:] == (Entry(TYPED, "never read"), Entry(CLIENT, "client"))


def test_what_is_shown_cannot_move_a_terminal_and_is_short() -> None:
    one = found({"proxies_count": 1}, ("X-Forwarded-For", "\x1b[2Jé\n" + "x" * 1_000), peer="unix:\x1b")
    assert one.entries[0].text == "\\x1b[2Jé\\x0a" + "x" * 94
    assert one.peer == "unix:\\x1b"


LEFTMOST = "the client is the leftmost entry: right, unless there are fewer proxies and the client typed it"


@pytest.mark.parametrize(
    ("given_", "lines", "peer", "verdict", "because"),
    [
        ({}, [], PEER, "plausible", "no forwarding header arrived"),
        ({}, [forwarded(CLIENT)], PEER, "too low", "X-Forwarded-For arrived from 10.0.0.1, a private address"),
        ({}, [("Forwarded", "for=_x")], "::1", "too low", "Forwarded arrived from ::1, a private address"),
        ({}, [("X-Real-IP", CLIENT)], "", "too low", "X-Real-IP arrived over a connection without an address"),
        (
            {},
            [forwarded(CLIENT)],
            CLIENT,
            "cannot be told",
            "X-Forwarded-For arrived and no proxy is configured: too low if",
        ),
        ({}, [forwarded(CLIENT)], "testclient", "cannot be told", "X-Forwarded-For arrived and no proxy is configured"),
        (
            COUNT,
            [],
            PEER,
            "too high",
            "X-Forwarded-For did not arrive: the request came past the proxy, or there is none",
        ),
        (COUNT, [("X-Real-IP", CLIENT)], PEER, "cannot be told", "X-Forwarded-For did not arrive, but X-Real-IP did"),
        (COUNT, [forwarded(CLIENT)], PEER, "too high", "the chain is shorter than the depth"),
        (COUNT, [forwarded(CLIENT, PROXY)], PEER, "cannot be told", LEFTMOST),
        (
            COUNT,
            [forwarded(CLIENT, PROXY, PROXY)],
            PEER,
            "too low",
            "10.0.0.2 is a private address, and the chain goes on",
        ),
        (COUNT, [forwarded(TYPED, CLIENT, PROXY)], PEER, "plausible", "entries further left are typed by the client"),
        (
            COUNT,
            [forwarded(TYPED, "_x", PROXY)],
            PEER,
            "cannot be told",
            "the entry is no address: the proxy that wrote it",
        ),
        (NETWORKS, [forwarded(CLIENT, "unknown")], PEER, "cannot be told", "the entry is no address"),
        (NETWORKS, [], PEER, "too high", "X-Forwarded-For did not arrive"),
        (NETWORKS, [], CLIENT, "plausible", "no forwarding header arrived"),
        (
            NETWORKS,
            [forwarded(CLIENT)],
            "192.168.0.1",
            "too low",
            "X-Forwarded-For arrived from 192.168.0.1, a private addre",
        ),
        (
            NETWORKS,
            [forwarded(CLIENT)],
            TYPED,
            "cannot be told",
            "X-Forwarded-For arrived and the peer is not in RATELIMIT_T",
        ),
        (
            NETWORKS,
            [forwarded(CLIENT, "172.16.0.2")],
            PEER,
            "too low",
            "172.16.0.2 is a private address, and the chain goes",
        ),
        (NETWORKS, [forwarded(CLIENT, PROXY)], PEER, "plausible", "the chain ends with this entry: nothing was typed"),
        (
            NETWORKS,
            [forwarded(TYPED, CLIENT)],
            PEER,
            "plausible",
            "the first entry that is not trusted is a public address",
        ),
        ({"proxies_count": 1, "client_header": "X-Real-IP"}, [], PEER, "too high", "X-Real-IP did not arrive"),
        (
            {"proxies_count": 1, "client_header": "X-Real-IP"},
            [("X-Real-IP", CLIENT)],
            PEER,
            "cannot be told",
            "X-Real-IP is as good as the proxy that replaces what a client sends in it",
        ),
    ],
)
def test_a_depth_that_looks_wrong_is_called_so(
    given_: dict[str, Any], lines: list[tuple[str, str]], peer: str, verdict: str, because: str
) -> None:
    one = found(given_, *lines, peer=peer)
    assert one.verdict == verdict
    assert one.because.startswith(because)


@pytest.mark.parametrize(
    ("given_", "configured"),
    [
        ({}, "no proxy: no header is read"),
        (COUNT, "X-Forwarded-For, RATELIMIT_PROXIES_COUNT=2"),
        ({**NETWORKS, "client_header": "forwarded"}, "Forwarded, RATELIMIT_TRUSTED_PROXIES=10.0.0.0/8"),
    ],
)
def test_what_is_configured_is_said(given_: dict[str, Any], configured: str) -> None:
    assert found(given_).configured == configured


SETTINGS = [
    Settings(ipv6_mask=128),
    *(
        Settings(ipv6_mask=128, client_header=h, **s)
        for h in ("X-Forwarded-For", "Forwarded", "X-Real-IP")
        for s in (COUNT, NETWORKS)
    ),
]
VALUES = st.lists(
    st.sampled_from([CLIENT, PROXY, "unknown", 'for="[::1]:2"', f"for={CLIENT}", 'for="x', ""]), max_size=6
)


@given(VALUES, VALUES, st.sampled_from(SETTINGS), st.sampled_from([PEER, "192.0.2.1", "", None]))
def test_the_address_is_the_one_that_every_check_counts(
    one: list[str], other: list[str], settings: Settings, peer: str | None
) -> None:
    headers = [(settings.client_header, ", ".join(part)) for part in (one, other) if part]
    explained = position(headers, peer, settings)
    assert explained.address == resolve(headers, peer, settings=settings).ip
    assert [entry.part for entry in explained.entries].count("client") <= 1
    assert explained.verdict in (module.TOO_LOW, module.TOO_HIGH, module.PLAUSIBLE, module.UNKNOWABLE)
