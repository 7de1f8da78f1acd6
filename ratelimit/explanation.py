"""A request, explained: what `explain` gives, as a value, as data for JSON, and as lines for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from ratelimit.position import Position, shown

NOT_LIMITED: Final = "nothing limits this request"
NO_PATHS: Final = "no rules by path were given, so what limits the path is not known"


@dataclass(frozen=True, slots=True)
class Spending:
    """One budget that the request would spend. Times are in seconds; `retry_after` is None if it can never pass.

    `enforced` is False for a rule that only counts.
    """

    rule: str
    rate: str
    caller: str
    store_key: str
    cost: int
    limit: int
    remaining: int
    reset_after: float
    retry_after: float | None
    allowed: bool
    banned: bool
    enforced: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request, explained. `position` is the way to its address, `ip` that address as it is counted (masked), `keys` the
    caller's key by each strategy, `rule` what was asked about (empty for nothing), `spends` the budgets of the rules that
    mean the request, `allowed` whether it would be let through now, and `notes` what else holds."""

    position: Position
    ip: str
    keys: dict[str, str]
    tier: str
    rule: str
    spends: tuple[Spending, ...]
    allowed: bool
    store: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Everything, for people."""
        return [*_position_lines(self), *_identity_lines(self), *_spending_lines(self), *_verdict_lines(self)]

    def noting(self, note: str) -> Explanation:
        """The same with a further note."""
        return replace(self, notes=(*self.notes, note))

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _position_lines(explanation: Explanation) -> list[str]:
    found = explanation.position
    lines = [
        f"configured    {found.configured}",
        f"peer          {found.peer}{' (trusted)' if found.peer_trusted else ''}",
        f"arrived       {', '.join(found.arrived) or 'no forwarding header'}",
        f"header read   {found.header or 'none'}",
    ]
    if found.left_out:
        lines.append(f"              ({found.left_out} more entries, never read)")
    width = max((len(entry.text) for entry in found.entries), default=0)
    lines += [f"              {entry.text:{width}}  {entry.part}" for entry in found.entries]
    if found.fallback:
        lines.append(f"fallback      {found.fallback}: the peer is the client")
    lines.append(f"address       {shown(found.address)}, counted as {shown(explanation.ip)}")
    return lines


def _identity_lines(explanation: Explanation) -> list[str]:
    lines = [
        f"{'identity' if not number else '':14}{strategy:12}  {shown(key)}"
        for number, (strategy, key) in enumerate(explanation.keys.items())
    ]
    return [*lines, f"tier          {explanation.tier}"]


def _spending_lines(explanation: Explanation) -> list[str]:
    lines = [f"rule          {explanation.rule or 'none'}"]
    for one in explanation.spends:
        counted = "" if one.enforced else ", only counted"
        lines += [
            f"spends        {one.cost} of {one.rule} ({one.rate}{counted})",
            f"  key         {one.store_key}",
            f"  left        {one.remaining} of {one.limit}, unused again in {one.reset_after:g} s",
        ]
        if not one.allowed:
            wait = "never" if one.retry_after is None else f"in {one.retry_after:g} s"
            lines.append(f"  {'banned ' if one.banned else 'refused'}     passes again: {wait}")
    if not explanation.spends:
        lines.append(f"spends        {'not known' if NO_PATHS in explanation.notes else NOT_LIMITED}")
    lines.append(f"store         {explanation.store}")
    return [*lines, f"passes now    {'yes' if explanation.allowed else 'no'}"]


def _verdict_lines(explanation: Explanation) -> list[str]:
    found = explanation.position
    return [*(f"note          {note}" for note in explanation.notes), f"position      {found.verdict}: {found.because}"]
