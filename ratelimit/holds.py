"""One holder of a place, from the moment it asks until it leaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import token_hex
from types import TracebackType
from typing import Protocol

from ratelimit.decision import Decision
from ratelimit.events import logger
from ratelimit.identity import Identity
from ratelimit.keys import encoded
from ratelimit.stores.places import Claim, Room


class Keeper(Protocol):
    """Who gives the places and takes them back."""

    @property
    def name(self) -> str: ...

    def take(self, hold: Hold) -> Awaitable[Decision]: ...

    def give_back(self, hold: Hold) -> Awaitable[None]: ...


class Hold:
    """A place for `caller`, or the wish for one: entered by `async with`, once, which gives the decision.

    `lost` tells that it has no place any more, because others took it while this process stood still; `ended` that it needs
    none. `room` is None where nothing is capped.
    """

    __slots__ = ("_cap", "_on_lost", "caller", "decision", "ended", "identity", "lost", "member", "room")

    def __init__(
        self,
        cap: Keeper,
        room: Room | None,
        identity: Identity | str,
        caller: str,
        on_lost: Callable[[], object] | None,
    ) -> None:
        self._cap, self.room, self.identity, self.caller, self._on_lost = cap, room, identity, caller, on_lost
        self.member = token_hex(8)
        self.decision: Decision | None = None
        self.lost = self.ended = False

    @property
    def claim(self) -> Claim:
        """What the store is asked for."""
        assert self.room is not None
        return Claim(self.room, self.member)

    async def __aenter__(self) -> Decision:
        if self.decision is not None:
            raise RuntimeError("a hold is entered once: ask the cap for another one")
        self.decision = await self._cap.take(self)
        return self.decision

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended = True
        if self.room is not None and self.decision is not None and self.decision.allowed:
            await self._cap.give_back(self)

    def tell(self, lost: bool) -> None:
        """Is told at every renewal whether the place is lost."""
        newly, self.lost = lost and not self.lost, lost
        if newly:
            caller = encoded(self.caller)  # so that no caller can forge a line
            logger.warning("rate limit place lost, others have taken all: rule=%s key=%s", self._cap.name, caller)
            if self._on_lost is not None:
                try:
                    self._on_lost()
                except Exception:  # must not keep the news from others
                    logger.exception("on_lost failed: rule=%s", self._cap.name)
