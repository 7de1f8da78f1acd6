"""The answer to a check. Figures are kept as integers and worked out when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from ratelimit.compiling import Unchecked, mypyc_attr
from ratelimit.headers import response_headers
from ratelimit.outcome import NEVER, Outcome, whole_seconds
from ratelimit.rates import MAX_LIMIT, Rate

UNLIMITED: Final = Rate(MAX_LIMIT, 1)
"""The rate of a call that nothing limits: what response headers would tell a client must not slow it down."""


class Part(NamedTuple):
    """One rate's share in a decision; `key` is the caller it counts for. `enforced` False only counts, in shadow."""

    rule: str
    rate: Rate
    outcome: Outcome
    key: str
    enforced: bool = True


Figures = tuple[int, int, int]
"""The limit, whole units left, and microseconds until nothing is used."""


class Asked(Protocol):
    """What was asked, as far as figures follow from it: one rate or several."""

    def parts(self, caller: Any, cost: int, taken: Any, /) -> Sequence[Part]:
        """What was found, in figures: one for each rate."""
        ...

    def figures(self, cost: int, found: Any, at_us: int, /) -> Figures | None:
        """The figures of a call that passed, where there is one rate; None means that the parts have to be looked at."""
        ...


@mypyc_attr(acyclic=True)
class Decision:
    """Whether a call may go on, and the figures of the rate that constrains it most. True when it may.

    Attribute: `allowed`.
    """

    __slots__ = ("_at_us", "_binding", "_caller", "_cost", "_degraded", "_found", "_parts", "allowed")

    allowed: bool
    _binding: Part | Asked
    """The part that constrains most, or what it is worked out from at the first look."""
    _caller: Any
    """The caller's key; when several rates were asked, it may be one for each."""
    _cost: int
    """Units that were asked for, 1 or more; 0 when the decision was made of `_parts`."""
    _degraded: bool
    _parts: Sequence[Part]
    _found: Any
    """What was found, as the counter keeps it, and `_at_us`, the time it was judged by."""
    _at_us: int

    # Without an __init__, for one is made in every check: `taken` and `decided` set what it consists of.

    @property
    def parts(self) -> Sequence[Part]:
        """One for every rate that was asked."""
        if self._cost:
            _ = self.binding  # which works them out
        return self._parts

    @property
    def degraded(self) -> bool:
        """Whether the outage policy decided, because the store could not answer."""
        return not self._cost and self._degraded

    @property
    def binding(self) -> Part:
        """The part that constrains the call most."""
        binding = self._binding
        if not isinstance(binding, Part):
            found = self.allowed, self._found, self._at_us
            parts = self._parts = binding.parts(self._caller, self._cost, found)
            binding = self._binding = parts[0] if len(parts) == 1 else strictest(parts)
        return binding

    def __reduce__(self) -> tuple[Any, ...]:
        return decided, (self.parts, self.degraded)

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        verdict = "allowed" if self.allowed else "denied"
        return (
            f"<Decision {verdict} {self.rule} {self.key} {self.remaining}/{self.limit} retry_after={self.retry_after}>"
        )

    @property
    def rule(self) -> str:
        """The name of the category or group that constrains the call most."""
        return self.binding.rule

    @property
    def key(self) -> str:
        """The caller whose budget this is, as counted: `user:42`."""
        return self.binding.key

    @property
    def rate(self) -> Rate:
        """The rate behind the figures, as it holds for this caller."""
        return self.binding.rate

    @property
    def limit(self) -> int:
        """Units per window (or the bucket's capacity)."""
        return self.binding.outcome.limit

    @property
    def remaining(self) -> int:
        """Whole units left after this call, never negative."""
        return self.binding.outcome.remaining

    @property
    def retry_after(self) -> float | None:
        """Seconds until the same cost could pass: 0.0 if it passed, None if it never can."""
        wait_us = self.binding.outcome.retry_after_us
        return 0.0 if self.allowed else None if wait_us == NEVER else wait_us / 1_000_000

    @property
    def retry_after_seconds(self) -> int | None:
        """`retry_after` for the wire: whole seconds, rounded up; 0 if it passed, None if it never can."""
        wait_us = self.binding.outcome.retry_after_us
        return 0 if self.allowed else None if wait_us == NEVER else whole_seconds(wait_us)

    @property
    def reset_after(self) -> float:
        """Seconds until nothing is used."""
        return self.binding.outcome.reset_after_us / 1_000_000

    @property
    def banned(self) -> bool:
        """Whether a ban, not the count, denied the call."""
        return self.binding.outcome.banned and not self.allowed

    @property
    def counted(self) -> bool:
        """Whether any rate was asked: False for a call that nothing limits, such as a skipped one."""
        return self._cost > 0 or self.binding.rate != UNLIMITED

    @property
    def shadow_denials(self) -> tuple[str, ...]:
        """The rules that only log and would have denied the call."""
        return tuple(part.rule for part in self.parts if not part.enforced and not part.outcome.allowed)

    def figures(self) -> Figures | None:
        """What clients are told; None in shadow, where there is nothing for them to heed.

        Every response may tell it: of a call that passed the one rate it asked for, that takes no `binding`.
        """
        asked = self._binding
        if self.allowed and not isinstance(asked, Part):
            found = asked.figures(self._cost, self._found, self._at_us)
            if found is not None:
                return found
        part = self.binding
        outcome = part.outcome
        return (outcome.limit, outcome.remaining, outcome.reset_after_us) if part.enforced else None

    def describe(self) -> str:
        """The limit in words: `Max 10 requests per minute`."""
        return f"Max {self.rate.describe()}"

    def exceeded_message(self) -> str:
        """The sentence for a denied caller: `Limit exceeded: Max 10 requests per minute. Please try again later.`"""
        return f"Limit exceeded: {self.describe()}. Please try again later."

    def headers(self, style: str | Unchecked = "none") -> dict[str, str]:
        """Response headers: `Retry-After` on a denial whose end is known, and those of `style`.

        `"none"` adds nothing, `"ietf"` adds `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers),
        `"x"` adds `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds). All numbers are whole.
        """
        return response_headers(self, style)


def decided(parts: Sequence[Part], degraded: bool = False) -> Decision:
    """The decision on all `parts`; `degraded` when the outage policy made their outcomes."""
    decision = Decision()
    binding = parts[0] if len(parts) == 1 else strictest(parts)
    decision.allowed = binding.outcome.allowed or not binding.enforced
    decision._binding = binding
    decision._degraded = degraded
    decision._parts = parts
    decision._cost = 0
    return decision


def together(decisions: Sequence[Decision]) -> Decision:
    """Several decisions on one request as one: the strictest binds.

    A rate that was asked twice for a caller is told once, as it stands now; one that has refused is told as refused. In shadow
    it is another one than enforced, whatever the rules are called.
    """
    told: dict[tuple[str, str, Rate, bool], Part] = {}
    for decision in decisions:
        for part in decision.parts:
            place = part.rule, part.key, part.rate, part.enforced
            earlier = told.get(place)
            refused = earlier is not None and earlier.enforced and not earlier.outcome.allowed
            if not refused or not part.outcome.allowed:
                told[place] = part
    return decided(list(told.values()), any(decision.degraded for decision in decisions))


def taken(asked: Asked, caller: Any, cost: int, found: tuple[bool, Any, int]) -> Decision:
    """The decision on what was asked: whether it passes, and what `asked` works the figures out from."""
    decision = Decision()
    decision.allowed, decision._found, decision._at_us = found
    decision._binding = asked
    decision._caller = caller
    decision._cost = cost
    return decision


def strictest(parts: Sequence[Part]) -> Part:
    """A denied part before allowed ones, the one with the longest wait first; else the one with the least left.

    Parts in shadow constrain nothing: they count only when there are no others.
    """
    enforced = [part for part in parts if part.enforced]
    denied = [part for part in enforced if not part.outcome.allowed]
    if denied:
        return max(denied, key=lambda part: (part.outcome.retry_after_us == NEVER, part.outcome.retry_after_us))
    return min(enforced or parts, key=lambda part: part.outcome.remaining)


def stricter(one: Decision, other: Decision) -> Decision:
    """The one of two decisions that constrains more, by `strictest`; the first if neither does."""
    return one if strictest((one.binding, other.binding)) is one.binding else other
