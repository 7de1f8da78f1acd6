"""Places: what a store keeps for callers who may do only so many things at once. A capability that a store may have.

Rules:
- A place belongs to a member until its lease ends, unless it is renewed; whoever vanishes gives it back by that.
- There are never more places taken than the room has, whoever asks at once. One who has a place keeps it when the room
  becomes smaller.
- To hold is to take or to renew: a member that has a place gets another lease, one that has none takes a place if there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Room(NamedTuple):
    """The places of one caller: the key they are kept under, how many there are, and how long a lease is (us)."""

    key: str
    most: int
    lease_us: int


class Claim(NamedTuple):
    """One member's claim to a place. Members are different texts of ASCII letters and digits."""

    room: Room
    member: str


class Claimed(NamedTuple):
    """What became of a claim: whether the member has a place, and how many of the room are taken then."""

    held: bool
    taken: int


class Places(Protocol):
    """Keeps places, for threads and any event loop. Raises `StoreError`, and `ConfigurationError` if it cannot be exact."""

    async def ahold(self, claims: Sequence[Claim], now_us: int) -> list[Claimed]:
        """Takes or renews a place for each claim; a claim that fails writes nothing. One round trip for one claim."""
        ...

    async def arelease(self, claim: Claim) -> None:
        """Gives the member's place back, if it has one. One round trip."""
        ...

    def count(self, room: Room, now_us: int) -> int:
        """How many places are taken; writes nothing. One round trip."""
        ...

    async def acount(self, room: Room, now_us: int) -> int:
        """`count` for an event loop, which it never blocks."""
        ...


@runtime_checkable
class HasPlaces(Protocol):
    """A store that keeps places too."""

    @property
    def places(self) -> Places: ...
