"""A store whose places are far away: every call is a trip, which fails or hangs when a test says so."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Sequence

from ratelimit import MemoryStore
from ratelimit.stores.memory_places import MemoryPlaces
from ratelimit.stores.places import Claim, Claimed, Room


class FarPlaces:
    """`trips` are what was asked, `error` is what every call meets. While `hung` is set, what a call asks is done, and no reply
    arrives; when it is no more, the reply is `lost` if that is an error.
    While `slow` is set, nothing is given back."""

    def __init__(self) -> None:
        self.inner = MemoryPlaces()
        self.trips: list[str] = []
        self.error: Exception | None = None
        self.hung: Event | None = None
        self.lost: Exception | None = None
        self.slow: Event | None = None

    async def ahold(self, claims: Sequence[Claim], now_us: int) -> list[Claimed]:
        self._go(f"hold {len(claims)}")
        found = await self.inner.ahold(claims, now_us)
        await self._reply()
        return found

    async def arelease(self, claim: Claim) -> None:
        self._go("release")
        if self.slow is not None:
            await self.slow.wait()
        await self.inner.arelease(claim)
        await self._reply()

    def count(self, room: Room, now_us: int) -> int:
        self._go("count")
        return self.inner.count(room, now_us)

    async def acount(self, room: Room, now_us: int) -> int:
        return self.count(room, now_us)

    def renew_lock(self) -> None:
        self.inner.renew_lock()

    def _go(self, trip: str) -> None:
        self.trips.append(trip)
        if self.error is not None:
            raise self.error

    async def _reply(self) -> None:
        if self.hung is not None:
            await self.hung.wait()
            if self.lost is not None:
                raise self.lost


class FarPlacesStore(MemoryStore):
    """A store with such places."""

    def __init__(self) -> None:
        super().__init__()
        self.places = FarPlaces()  # type: ignore[assignment]
