"""Network addresses: reading them, masking them, and finding the client's in a chain of proxies.

Rules:
- An address is judged by its bits, never by its spelling: `::ffff:192.0.2.1`, `::FFFF:c000:201` and `192.0.2.1` are one.
- With N trusted proxies the client is the Nth entry of `X-Forwarded-For` from the right. Whatever a caller adds lies
  further left and is never read.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache

logger = logging.getLogger("ratelimit")

UNKNOWN = "unknown"
"""Stands for the address of a caller whose connection has none (a unix socket, an in-process client)."""

Header = tuple[str | bytes, str | bytes]
"""A header line: name and value."""

_FORWARDED = "x-forwarded-for"
_FORWARDED_BYTES = _FORWARDED.encode()
_LENGTH = len(_FORWARDED)
_LONGEST = 100
"""Characters of a text that may be an address. Callers write such texts: longer ones are neither read nor remembered."""


def read_address(text: str, ipv6_mask: int = 128) -> str | None:
    """The canonical address in `text`, an IPv6 one masked to its first `ipv6_mask` bits; None if there is none.

    Takes a port (`203.0.113.7:4711`, `[2001:db8::1]:443`), brackets and surrounding blanks. Without brackets every
    colon of an IPv6 address belongs to the address.
    """
    if len(text) > _LONGEST:
        return None
    try:
        return _address(text, ipv6_mask)
    except ValueError:
        return None


@lru_cache(maxsize=8192)
def _address(text: str, ipv6_mask: int) -> str:
    """The address in `text`, remembered. What is none is an error, for that is not remembered: it would push out the rest."""
    address = ipaddress.ip_address(_host(text.strip(" \t")).partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    kept = int(address) >> (128 - ipv6_mask) << (128 - ipv6_mask)
    return str(ipaddress.IPv6Address(kept))


def _host(text: str) -> str:
    """`text` without brackets and port; empty if these are malformed."""
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        return host if closed and ":" in host and (not port or _is_port(port.removeprefix(":"), port)) else ""
    host, colon, port = text.partition(":")
    if colon and ":" not in port:  # exactly one colon: IPv4 and a port
        return host if _is_port(port, colon) else ""
    return text


def _is_port(digits: str, with_colon: str) -> bool:
    return (
        with_colon.startswith(":")
        and digits.isascii()
        and digits.isdigit()
        and len(digits) <= 5
        and int(digits) <= 65_535
    )


def client_address(headers: Iterable[Header], peer: str | None, *, proxies_count: int, ipv6_mask: int) -> str:
    """The address to hold responsible: canonical, masked, `"unknown"` if the connection has none.

    `peer` is the other end of the connection as the server saw it. With `proxies_count` 0 no header is read. With
    more, the entry is taken from `X-Forwarded-For`, all its lines joined in order; no other header is ever read. A chain
    shorter than the count, or an entry that is no address, falls back to the peer with a warning.
    """
    if proxies_count:
        forwarded = _forwarded(headers, proxies_count)
        if forwarded is not None:
            address = read_address(forwarded, ipv6_mask)
            if address is not None:
                return address
            logger.warning("forwarded entry %.100r is not an address; using the peer's", forwarded)
    return peer_address(peer, ipv6_mask)


def peer_address(peer: str | None, ipv6_mask: int) -> str:
    """The address of a connection's other end, as in `client_address`."""
    return read_address(peer, ipv6_mask) or peer if peer else UNKNOWN


def environ_headers(environ: Mapping[str, str]) -> Iterable[Header]:
    """What `client_address` may read of the header lines in a WSGI environ (or Django's META).

    Servers have joined the lines of one name by commas by then.
    """
    value = environ.get("HTTP_X_FORWARDED_FOR")
    return () if value is None else ((_FORWARDED, value),)


def _forwarded(headers: Iterable[Header], proxies_count: int) -> str | None:
    # A request has dozens of headers: the length alone tells most of them from the one that counts.
    lines = [
        value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in headers
        if len(name) == _LENGTH and name.lower() in (_FORWARDED, _FORWARDED_BYTES)
    ]
    if not lines:
        return None
    # Split from the right, where the trusted entries are, and no further: a caller may have sent thousands.
    chain = ",".join(lines).rsplit(",", proxies_count)
    if len(chain) >= proxies_count:
        return chain[-proxies_count]
    logger.warning(
        "X-Forwarded-For has %d entries, fewer than RATELIMIT_PROXIES_COUNT=%d; using the peer's address",
        len(chain),
        proxies_count,
    )
    return None
