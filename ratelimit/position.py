"""Where in a request's chain the client was found, hop by hop, and whether that place looks right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ratelimit.addresses import UNKNOWN, Header, header_lines, peer_address, read_address
from ratelimit.chain import (
    CHAIN_HEADERS,
    MOST_HOPS,
    PEER,
    Chosen,
    choose,
    entries,
    forwarded_text,
    not_an_address,
    trusts_peer,
)
from ratelimit.networks import Networks
from ratelimit.shapes import forwarding

if TYPE_CHECKING:
    from ratelimit.settings import Settings

SHOWN: Final = 20
"""Entries that are shown, those on the right."""
_CHARACTERS: Final = 100
_OWN: Final = Networks(
    "10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, ::1, fc00::/7, fe80::/10"
)
"""Addresses that no client on the internet has."""

TOO_LOW: Final = "too low"
TOO_HIGH: Final = "too high"
PLAUSIBLE: Final = "plausible"
UNKNOWABLE: Final = "cannot be told"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the chain as it arrived, and its part: `trusted`, `client`, `never read`, or `not used` in a chain that is
    too short."""

    text: str
    part: str


@dataclass(frozen=True, slots=True)
class Position:
    """The way from the peer to the client.

    `header` is the one that was read, None if none was; `arrived` are the forwarding headers that were there. `entries` are
    those of the header, from left to right, without `left_out` more on the left. `address` is not masked. `fallback` says
    why the peer is taken for the client though the header was there. `verdict` says of the configured depth or networks that
    they look too low, too high or plausible, or that it cannot be told, and `because` why.
    """

    configured: str
    peer: str
    peer_trusted: bool
    arrived: tuple[str, ...]
    header: str | None
    entries: tuple[Entry, ...]
    left_out: int
    address: str
    fallback: str
    verdict: str
    because: str


def position(headers: Iterable[Header], peer: str | None, settings: Settings) -> Position:
    """The position in a request's chain under the settings. `headers` may be iterated twice."""
    trusted = trusts_peer(peer, settings)
    text = forwarded_text(headers, settings) if trusted else None
    chosen = PEER if text is None else choose(text, settings)
    address = None if chosen.text is None else read_address(chosen.text)
    written = [] if text is None else _written(text, settings.client_header)
    arrived = forwarding(headers)
    if settings.client_header not in arrived and header_lines(headers, settings.client_header):
        arrived.append(settings.client_header)
    verdict, because = _verdict(peer, trusted, arrived, len(written), chosen, address, settings)
    return Position(
        configured=_configured(settings),
        peer=shown(peer) if peer else UNKNOWN,
        peer_trusted=trusted,
        arrived=tuple(arrived),
        header=None if text is None else settings.client_header,
        entries=_entries(written[:SHOWN], chosen),
        left_out=max(0, len(written) - SHOWN),
        address=address or peer_address(peer, 128),
        fallback="" if address else chosen.problem or not_an_address(chosen.text, settings),
        verdict=verdict,
        because=because,
    )


def shown(text: str) -> str:
    """`text` for people: cut, and without what would move a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text.strip(" \t")[:_CHARACTERS])


def _configured(settings: Settings) -> str:
    if settings.trusted_proxies:
        return f"{settings.client_header}, RATELIMIT_TRUSTED_PROXIES={settings.trusted_proxies}"
    if settings.proxies_count:
        return f"{settings.client_header}, RATELIMIT_PROXIES_COUNT={settings.proxies_count}"
    return "no proxy: no header is read"


def _written(text: str, header: str) -> list[str]:
    return list(entries(text, header, MOST_HOPS + 1)) if header in CHAIN_HEADERS else [text]


def _entries(written: list[str], chosen: Chosen) -> tuple[Entry, ...]:
    found = [Entry(shown(one), _part(place, chosen)) for place, one in enumerate(written, 1)]
    return tuple(reversed(found))


def _part(place: int, chosen: Chosen) -> str:
    if chosen.text is None:
        return "not used"
    return "trusted" if place < chosen.place else "client" if place == chosen.place else "never read"


def _is_own(address: str | None) -> bool:
    return address is not None and address in _OWN


def _verdict(
    peer: str | None,
    trusted: bool,
    arrived: list[str],
    seen: int,
    chosen: Chosen,
    address: str | None,
    settings: Settings,
) -> tuple[str, str]:
    if not trusted:
        return _of_the_peer(peer, arrived, settings)
    header = settings.client_header
    if not seen:
        if arrived:
            return UNKNOWABLE, f"{header} did not arrive, but {arrived[0]} did: your proxy may use that one"
        return TOO_HIGH, f"{header} did not arrive: the request came past the proxy, or there is none"
    if header not in CHAIN_HEADERS:
        return UNKNOWABLE, f"{header} is as good as the proxy that replaces what a client sends in it"
    if chosen.text is not None and address is None:
        return UNKNOWABLE, "the entry is no address: the proxy that wrote it hides its clients, or is not one of yours"
    if settings.trusted_proxies:
        return _of_networks(seen, chosen, address)
    return _of_count(seen, chosen, address)


def _of_the_peer(peer: str | None, arrived: list[str], settings: Settings) -> tuple[str, str]:
    """The verdict where no header is read."""
    address = read_address(peer) if peer else None
    if not arrived:
        return PLAUSIBLE, "no forwarding header arrived"
    what = "no proxy is configured" if not settings.proxied else "the peer is not in RATELIMIT_TRUSTED_PROXIES"
    if not peer:
        return TOO_LOW, f"{arrived[0]} arrived over a connection without an address, as a proxy's may be, and {what}"
    if _is_own(address):
        return TOO_LOW, f"{arrived[0]} arrived from {address}, a private address, as a proxy's is, and {what}"
    return UNKNOWABLE, f"{arrived[0]} arrived and {what}: too low if the peer is your proxy, else the client typed it"


def _of_networks(seen: int, chosen: Chosen, address: str | None) -> tuple[str, str]:
    if chosen.place < seen and _is_own(address):
        return TOO_LOW, f"{address} is a private address, and the chain goes on: it may be a proxy of yours"
    if chosen.place < seen:
        return PLAUSIBLE, "the first entry that is not trusted is a public address; too low if it is a proxy of yours"
    return PLAUSIBLE, "the chain ends with this entry: nothing was typed further left"


def _of_count(seen: int, chosen: Chosen, address: str | None) -> tuple[str, str]:
    if chosen.text is None:
        return TOO_HIGH, "the chain is shorter than the depth: there are fewer proxies, or the request came past some"
    if seen == chosen.place:
        return UNKNOWABLE, (
            "the client is the leftmost entry: right, unless there are fewer proxies and the client typed it; send a request "
            "with an X-Forwarded-For of your own from outside: the same entry must be chosen"
        )
    if _is_own(address):
        return TOO_LOW, f"{address} is a private address, and the chain goes on: it may be a proxy of yours"
    return PLAUSIBLE, "entries further left are typed by the client; too low if this address is a proxy of yours"
