"""What a store is asked and what it answers."""

from __future__ import annotations

from typing import Final, NamedTuple

from ratelimit.keys import keyed
from ratelimit.rates import Rate

NEVER: Final = -1
"""A `retry_after_us` that says: this cost can never pass."""

MAX_SKEW_US: Final = 60_000_000
"""How far ahead of the clock a state may be and still count: nodes differ by less, a clock put right by more."""

LOOK: Final = 0
"""Evaluate the charges, write nothing."""
TAKE: Final = 1
"""Take all charges or none."""


def whole_seconds(wait_us: int) -> int:
    """Microseconds as whole seconds, rounded up: waiting exactly that long is enough."""
    return -(-wait_us // 1_000_000)


class Charge(NamedTuple):
    """`cost` units to take from one caller's budget.

    `head` is the beginning of the keys it is counted under (see `keys.py`), `caller` who it is for; `rate` is one rate,
    without `also`; `rule` names what asked. `enforce` False counts in shadow: it never refuses. `bans_us` are the lengths
    of the ban that a refusal writes under `ban_head`: the first, second, … in a row; empty for none. `member`, when set, is
    a value to count distinctly: it uses one unit the first time, none afterwards.
    """

    head: str
    caller: str
    rate: Rate
    cost: int
    rule: str
    enforce: bool = True
    bans_us: tuple[int, ...] = ()
    ban_head: str = ""
    member: str | None = None

    @property
    def key(self) -> str:
        """The key it is counted under, complete but for what the algorithm adds."""
        return keyed(self.head, self.caller)

    @property
    def ban_key(self) -> str:
        """The key of its ban; empty when a refusal writes none."""
        return f"{keyed(self.ban_head, self.caller)}:ban" if self.ban_head else ""

    def needs(self) -> set[str]:
        """What a store must be able to hold for it: the algorithm, and `"ban"` or `"distinct"`."""
        needed = {self.rate.algorithm}
        if self.bans_us:
            needed.add("ban")
        if self.member is not None:
            needed.add("distinct")
        return needed


class Outcome(NamedTuple):
    """What became of one charge: whether it fits, and the figures after the call; waits in microseconds."""

    allowed: bool
    limit: int
    remaining: int
    retry_after_us: int
    reset_after_us: int
    banned: bool = False
