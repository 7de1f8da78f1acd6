"""What chains look like: one line in the log for each shape, so that a wrong position is seen before it is felt.

Rules:
- A shape is the header, how many entries it had, what is configured and whether the peer is trusted. Its first request
  names the address that was found. Lines are at INFO.
- Strangers choose how many entries there are: what is above `MANY` is one shape, and no more than `MOST` are told.
- Where no proxy is configured, the first requests of a process are looked at for a forwarding header, and one line says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ratelimit.addresses import Header
    from ratelimit.settings import Settings

logger = logging.getLogger("ratelimit")

MANY: Final = 20
MOST: Final = 200
LOOKS: Final = 256
"""Requests that are looked at for a forwarding header that nobody configured."""
FORWARDING: Final = ("X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP")

looking = True
"""Whether the next request is looked at."""
_left = LOOKS
_seen: dict[tuple[Any, ...], object] = {}
_BY_NAME: Final[dict[str | bytes, str]] = {
    spelling: name for name in FORWARDING for spelling in (name.lower(), name.lower().encode())
}


def note(settings: Settings, entries: int, trusted: bool, address: str) -> None:
    """Logs the shape of a request's chain if it is a new one."""
    if not logger.isEnabledFor(logging.INFO):
        return
    entries = min(entries, MANY + 1)
    shape = (settings.client_header, settings.proxies_count, settings.trusted_proxies.texts, entries, trusted)
    if shape in _seen or len(_seen) >= MOST:
        return
    mine = object()
    if _seen.setdefault(shape, mine) is mine:
        logger.info(
            "forwarding chain: header=%s entries=%s %s peer=%s address=%s",
            settings.client_header,
            entries if entries <= MANY else f"more than {MANY}",
            configured(settings),
            "trusted" if trusted else "not trusted",
            address,
        )


def configured(settings: Settings) -> str:
    """Which proxies are trusted, in a word."""
    if settings.trusted_proxies:
        return f"networks={','.join(settings.trusted_proxies.texts)}"
    return f"depth={settings.proxies_count}"


def look(headers: Iterable[Header], peer: str | None) -> None:
    """Says once that a forwarding header arrives though no proxy is configured."""
    global looking, _left
    found = forwarding(headers)
    _left -= 1
    if found or _left <= 0:
        looking = False
    if found:
        logger.info(
            "%s arrives from %.100r, and no proxy is configured: if that is your proxy, all its clients count as one; "
            "set RATELIMIT_PROXIES_COUNT or RATELIMIT_TRUSTED_PROXIES",
            found[0],
            peer or "unknown",
        )


def forwarding(headers: Iterable[Any]) -> list[str]:
    """The names of the known forwarding headers that are there, in the order in which they arrived."""
    return list(dict.fromkeys(name for name in map(_known, headers) if name))


def _known(line: Any) -> str | None:
    # Nobody asked for these headers: what holds them need not even be made of pairs.
    name = line[0] if isinstance(line, (tuple, list)) and line else None
    return _BY_NAME.get(name.lower()) if isinstance(name, (str, bytes)) else None
