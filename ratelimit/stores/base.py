"""What a store is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ratelimit.outcome import TAKE, Charge, Outcome


class Store(Protocol):
    """Counts, shared by whoever shares the store; safe under threads and in any event loop.

    `holds` names what it can hold: algorithms of rates, `"ban"`, `"distinct"`. Errors of the medium are raised as
    `StoreError`.
    """

    @property
    def holds(self) -> frozenset[str]: ...

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """Takes all `charges` or, if an enforced one does not fit, none, atomically and in one round trip.

        Gives one outcome for each. With `LOOK` nothing is written.
        """
        ...

    async def aapply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """`apply` for an event loop, which it never blocks."""
        ...

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """Takes the charges' costs without asking, negative ones give back, as if it were done at `taken_us`."""

    async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """`settle` for an event loop."""

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """Forgets what was counted under the charges' keys."""

    async def aclear(self, charges: Sequence[Charge], now_us: int) -> None:
        """`clear` for an event loop."""

    def clear_caller(self, prefix: str, caller_tag: str) -> None:
        """Forgets everything counted for one caller, whatever the group."""

    async def aclear_caller(self, prefix: str, caller_tag: str) -> None:
        """`clear_caller` for an event loop."""

    def close(self) -> None:
        """Lets go of connections; a later call opens new ones."""

    async def aclose(self) -> None:
        """`close`, for the connections of the running event loop too."""
