"""Network addresses: reading and masking them, and the header lines in which proxies pass them on.

Rules:
- An address is judged by its bits, never by its spelling: `::ffff:192.0.2.1`, `::FFFF:c000:201` and `192.0.2.1` are one.
- A header's name is compared as it stands but for letter case. `x_forwarded_for` is another header than `X-Forwarded-For`; only
  in a WSGI environ, where both become one variable, nobody can tell them apart.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

UNKNOWN = "unknown"
"""Stands for the address of a caller whose connection has none (a unix socket, an in-process client)."""

Header = tuple[str | bytes, str | bytes]
"""A header line: name and value."""

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


def peer_address(peer: str | None, ipv6_mask: int) -> str:
    """The address of a connection's other end, as in `client_address`."""
    return read_address(peer, ipv6_mask) or peer if peer else UNKNOWN


class EnvironHeaders:
    """The header lines in a WSGI environ (or Django's META), looked up when they are asked for.

    Servers have joined the lines of one name by commas by then.
    """

    __slots__ = ("_environ",)

    def __init__(self, environ: Mapping[str, Any]) -> None:
        self._environ = environ

    def __iter__(self) -> Iterator[Header]:
        for key, value in self._environ.items():
            if key.startswith("HTTP_") and isinstance(value, str):
                yield key[5:].replace("_", "-").lower(), value

    def lines(self, name: str) -> list[str]:
        """The header called `name`: no line or one."""
        value = self._environ.get(_variable(name))
        return [value] if isinstance(value, str) else []


def environ_headers(environ: Mapping[str, Any]) -> EnvironHeaders:
    """The header lines in a WSGI environ (or Django's META), for `resolve`, which reads the one that is configured."""
    return EnvironHeaders(environ)


def header_lines(headers: Iterable[Header], name: str) -> list[str]:
    """The values of all lines of the header called `name`, in order."""
    if isinstance(headers, EnvironHeaders):
        return headers.lines(name)
    # A request has dozens of headers: the length alone tells most of them from the one that counts.
    length, spellings = len(name), _spellings(name)
    return [
        value.decode("latin-1") if isinstance(value, bytes) else value
        for line, value in headers
        if len(line) == length and line.lower() in spellings
    ]


@lru_cache(maxsize=64)
def _spellings(name: str) -> tuple[str, bytes]:
    return name.lower(), name.lower().encode()


@lru_cache(maxsize=64)
def _variable(name: str) -> str:
    return f"HTTP_{name.upper().replace('-', '_')}"
