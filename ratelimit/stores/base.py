"""What a store is."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ratelimit.decision import Asked, Decision
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.rates import Rate

Taken = tuple[bool, Any, int]
"""Whether a charge passes, the state that was found before it, as its counter keeps it, and the time it was judged by."""


class Counter(Protocol):
    """One rate of one group, ready to be asked for any caller: what `Store.apply` does with a single charge that is
    enforced and has neither a ban nor a member. One round trip. Raises `StoreError`.
    """

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        """Takes `cost` units, 1 or more, if they are there."""
        ...

    def atake(self, caller: str, cost: int, now_us: int) -> Awaitable[Taken]:
        """`take` for an event loop, which it never blocks."""
        ...


@runtime_checkable
class LocalCounter(Protocol):
    """A counter in this process's memory, which never waits and never fails, and makes the decision itself."""

    def decide(self, asked: Asked, caller: str, cost: int, now_us: int) -> Decision:
        """Takes `cost` units, 1 or more, if they are there. `asked` is what the decision works its figures out from."""
        ...


class Share(NamedTuple):
    """One of several rates that are asked together: counted under keys that begin with `head`, `weight` times the cost."""

    head: str
    rate: Rate
    weight: int


Callers = str | tuple[str, ...]
"""Whom several rates count for: the same for all of them, or one for each."""


class JointCounter(Protocol):
    """Several rates, ready to be asked together for any callers: what `Store.apply` does with charges that are enforced and
    have neither a ban nor a member. One round trip. Raises `StoreError`.
    """

    def take(self, callers: Callers, cost: int, now_us: int) -> Taken:
        """Takes `cost` units, 1 or more, of every rate if they are there, else of none."""
        ...

    def atake(self, callers: Callers, cost: int, now_us: int) -> Awaitable[Taken]:
        """`take` for an event loop, which it never blocks."""
        ...

    def each(self, found: Any, at_us: int) -> Sequence[Taken]:
        """What `take` found, for each rate: whether it would pass alone, its state, and the time it was judged by."""
        ...


class LocalJointCounter(Protocol):
    """A joint counter in this process's memory, as `LocalCounter` is one."""

    def decide(self, asked: Asked, callers: Callers, cost: int, now_us: int) -> Decision:
        """Takes `cost` units, 1 or more, of every rate if they are there, else of none."""
        ...

    def each(self, found: Any, at_us: int) -> Sequence[Taken]:
        """See `JointCounter.each`."""
        ...


class Store(Protocol):
    """Counts, shared by whoever shares the store; safe under threads and in any event loop.

    `holds` names what it can hold: algorithms of rates, `"ban"`, `"distinct"`. Errors of the medium are raised as
    `StoreError`.
    """

    @property
    def holds(self) -> frozenset[str]: ...

    def counter(self, head: str, rate: Rate) -> Counter | LocalCounter | None:
        """A counter for `rate`, which has no `also`, under keys that begin with `head`; None if the store has none."""
        ...

    def joint(self, shares: Sequence[Share], one_caller: bool) -> JointCounter | LocalJointCounter | None:
        """A counter for several rates, no two of them on one budget; None if the store has none. `one_caller` tells that they
        will always be asked for one and the same caller."""
        ...

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

    def clear_caller(self, prefix: str, caller: str) -> None:
        """Forgets everything counted for one caller, whatever the group."""

    async def aclear_caller(self, prefix: str, caller: str) -> None:
        """`clear_caller` for an event loop."""

    def close(self) -> None:
        """Lets go of connections; a later call opens new ones."""

    async def aclose(self) -> None:
        """`close`, for the connections of the running event loop too."""
