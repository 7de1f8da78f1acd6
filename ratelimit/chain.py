"""Who sent a request that came through proxies: the chain of hops, walked from the right.

Rules:
- The chain begins at the peer, the one address that nobody can make up, and goes on to the left through the entries of one
  header. Each trusted hop vouches for the entry that it added; what lies beyond the first untrusted one was typed by it.
- With a count of N proxies the client is the Nth entry. With networks a header is read only if the peer lies in them; entries
  in them are skipped, and the first other one is the client; if all are trusted, the leftmost.
- Of a header that is not a chain, the one value is the client.
- What cannot be used falls back to the peer, with a warning. No other header than the configured one is ever read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ratelimit import shapes
from ratelimit.addresses import Header, header_lines, peer_address, read_address
from ratelimit.forwarded import elements, hop

if TYPE_CHECKING:
    from ratelimit.settings import Settings

logger = logging.getLogger("ratelimit")

X_FORWARDED_FOR: Final = "X-Forwarded-For"
FORWARDED: Final = "Forwarded"
CHAIN_HEADERS: Final = (X_FORWARDED_FOR, FORWARDED)
"""Headers to which each proxy adds an entry; of any other one, the last proxy replaces the value."""
MOST_HOPS: Final = 100
"""Trusted entries that are skipped. A caller within the networks may have sent thousands: the last one looked at counts."""
UNIX_HOP: Final = "unix:"
"""What some servers call the other end of a unix socket."""


class Chosen(NamedTuple):
    """The entry that names the client: its text, and its place from the right, 1 for the last. `text` None means the peer,
    and `problem` says why, if the header was there."""

    text: str | None
    place: int = 0
    problem: str = ""


PEER: Final = Chosen(None)


def client_address(headers: Iterable[Header], peer: str | None, settings: Settings) -> str:
    """The address to hold responsible: canonical, masked, `"unknown"` if the connection has none.

    `peer` is the other end of the connection as the server saw it.
    """
    trusted = trusts_peer(peer, settings)
    text = forwarded_text(headers, settings) if trusted else None
    entry, _, problem = PEER if text is None else choose(text, settings)
    address = None if entry is None else read_address(entry, settings.ipv6_mask)
    if address is None:
        problem = problem or not_an_address(entry, settings)
        if problem:
            logger.warning("%s; using the peer's address", problem)
        address = peer_address(peer, settings.ipv6_mask)
    shapes.note(settings, 0 if text is None else text.count(",") + 1, trusted, address)
    return address


def trusts_peer(peer: str | None, settings: Settings) -> bool:
    """Whether the peer is a proxy whose header may be read. With a count of proxies it is taken to be the last of them."""
    return settings.proxies_count > 0 or (settings.proxied and _trusts(peer or UNIX_HOP, settings))


def forwarded_text(headers: Iterable[Header], settings: Settings) -> str | None:
    """All lines of the configured header, joined in order; None without one."""
    lines = header_lines(headers, settings.client_header)
    return ",".join(lines) if lines else None


def choose(text: str, settings: Settings) -> Chosen:
    """The entry that names the client."""
    if settings.client_header not in CHAIN_HEADERS:
        return Chosen(text, 1)
    count = settings.proxies_count
    if not count:
        return _first_untrusted(text, settings)
    found = list(entries(text, settings.client_header, count))
    if len(found) == count:
        return Chosen(_hop(found[-1], settings.client_header), count)
    problem = f"{settings.client_header} has {len(found)} entries, fewer than RATELIMIT_PROXIES_COUNT={count}"
    return Chosen(None, 0, problem)


def entries(text: str, header: str, most: int) -> Iterable[str]:
    """The entries of a header's joined lines as they were written, the last one first, no more than `most`."""
    if header == FORWARDED:
        return islice(elements(text), most)
    # Split from the right, where the trusted entries are, and no further: a caller may have sent thousands.
    return text.rsplit(",", most)[: -most - 1 : -1]


def _hop(entry: str, header: str) -> str:
    return hop(entry) if header == FORWARDED else entry


def not_an_address(entry: str | None, settings: Settings) -> str:
    """What is wrong with an entry that is no address; nothing if the peer was chosen."""
    return "" if entry is None else f"{settings.client_header} entry {entry[:100]!r} is not an address"


def _first_untrusted(text: str, settings: Settings) -> Chosen:
    found = PEER
    for place, entry in enumerate(entries(text, settings.client_header, MOST_HOPS), 1):
        found = Chosen(_hop(entry, settings.client_header), place)
        if not _trusts(found.text or "", settings):
            break
    return found


def _trusts(entry: str, settings: Settings) -> bool:
    networks = settings.trusted_proxies
    address = read_address(entry)
    if address is None:
        unix: bool = networks.unix and entry.strip(" \t").startswith(UNIX_HOP)
        return unix
    return address in networks
