"""Networks of trusted proxies: read from text or code, asked whether an address lies in one.

Rules:
- Addresses and networks are compared by their bits: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
- The word `unix` means a connection without an address: a unix socket.
- A network that holds every address is refused: whoever is trusted chooses the address it counts as.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from ratelimit.errors import ConfigurationError

UNIX: Final = "unix"
_PREFIX: Final = re.compile(r"[0-9a-fA-F:.]+(?:/[0-9]{1,3})?")
_LONGEST: Final = 64
_REMEMBERED: Final = 4_096
_MAPPED: Final = ipaddress.IPv6Network("::ffff:0:0/96")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Networks:
    """Some networks; false when there are none. `texts` are their canonical spellings, in order.

    `given` is comma-separated text, or an iterable of texts and of the `ipaddress` module's networks and addresses.
    Raises `ConfigurationError`, naming the text, for anything that is neither an address, a network nor `unix`.
    """

    __slots__ = ("_found", "_known", "texts")

    def __init__(self, given: object = ()) -> None:
        if isinstance(given, Networks):
            given = given.texts
        read = [_read(item) for item in _items(given)]
        self._found = [network for network in read if network is not None]
        self.texts: tuple[str, ...] = tuple(map(_text, read))
        self._known: dict[str, bool] = {}

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Networks) and self.texts == other.texts

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return repr(", ".join(self.texts))

    def __str__(self) -> str:
        return ", ".join(self.texts)

    def __reduce__(self) -> tuple[type[Networks], tuple[tuple[str, ...]]]:
        return Networks, (self.texts,)

    @property
    def unix(self) -> bool:
        """Whether a connection without an address is trusted."""
        return UNIX in self.texts

    @property
    def wide(self) -> list[str]:
        """Those with more addresses than an organisation has: shorter prefixes than /8 (IPv4) and /16 (IPv6)."""
        return [str(network) for network in self._found if network.prefixlen < (8 if network.version == 4 else 16)]

    def __contains__(self, address: str) -> bool:
        """Whether a canonical address, as `read_address` gives it without a mask, lies in one of them."""
        known = self._known
        found = known.get(address)
        if found is None:
            parsed = ipaddress.ip_address(address)
            found = any(parsed in network for network in self._found)
            if len(known) >= _REMEMBERED:  # callers bring new ones as they like
                known = self._known = {}
            known[address] = found
        return found


def _items(given: object) -> list[object]:
    if isinstance(given, str):
        return list(given.split(",")) if given.strip() else []
    if isinstance(given, Iterable) and not isinstance(given, (bytes, ipaddress.IPv4Network, ipaddress.IPv6Network)):
        return list(given)
    raise ConfigurationError(f"{given!r} is neither text nor a list of networks")


def _read(item: object) -> Network | None:
    """The network an item names; None for `unix`."""
    if isinstance(item, (ipaddress.IPv4Network, ipaddress.IPv6Network, ipaddress.IPv4Address, ipaddress.IPv6Address)):
        item = str(item)
    text = item.strip() if isinstance(item, str) else ""
    if text.lower() == UNIX:
        return None
    if len(text) > _LONGEST or not _PREFIX.fullmatch(text):
        raise ConfigurationError(f"{item!r} is not an address, a network such as '10.0.0.0/8', or 'unix'")
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"{item!r} is not a network: {error}") from None
    if network.prefixlen == 0:
        raise ConfigurationError(f"{item!r} holds every address: each caller could choose its own; name your proxies'")
    if network == _MAPPED:
        raise ConfigurationError(f"{item!r} holds every IPv4 address: each caller could choose its own")
    return _unmapped(network)


def _unmapped(network: Network) -> Network:
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        kept = int(network.network_address) & 0xFFFF_FFFF
        return ipaddress.IPv4Network((kept, network.prefixlen - _MAPPED.prefixlen))
    return network


def _text(network: Network | None) -> str:
    if network is None:
        return UNIX
    one = network.prefixlen == network.max_prefixlen
    return str(network.network_address if one else network)
