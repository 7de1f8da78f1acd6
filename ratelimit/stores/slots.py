"""Charges on several callers where each caller's keys lie in a slot of their own (Redis Cluster).

Rules:
- Charges of one caller share a slot by the hash tag, and stay one atomic step.
- Callers are asked one after the other, the lowest rate first, for it is the likeliest to refuse.
- When one refuses, what was taken from the others is given back, and the rest is only looked at. It may over-deny for an
  instant, never over-admit. Values counted distinctly are not given back, so they come last.

No I/O here: `by_slot` says what to do next, and is told what came of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ratelimit.errors import StoreError
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.transaction import held_back


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply these charges, all of one slot, and send the outcomes back."""

    charges: list[Charge]
    mode: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Settle these charges, all of one slot; their costs are negative. Send an empty list back."""

    charges: list[Charge]


Step = Apply | GiveBack


def in_one_slot(charges: Sequence[Charge]) -> bool:
    """Whether one script can take all charges."""
    return len(charges) == 1 or len({charge.caller for charge in charges}) == 1


def split(charges: Sequence[Charge]) -> list[list[Charge]]:
    """The charges of each caller."""
    return [[charges[i] for i in places] for places in _groups(charges)]


def by_slot(charges: Sequence[Charge], mode: int) -> Generator[Step, list[Outcome], list[Outcome]]:
    """The steps for `charges`, and finally their outcomes in order."""
    found: dict[int, Outcome] = {}
    taken: list[list[int]] = []
    refused = False
    for places in _groups(charges):
        try:
            outcomes = yield Apply([charges[i] for i in places], LOOK if refused else mode)
        except GeneratorExit:
            raise
        except BaseException:  # the store, or a cancelled task: the call comes to nothing
            yield from _give_back(charges, found, taken)
            raise
        found |= zip(places, outcomes, strict=True)
        if refused or mode != TAKE:
            continue
        if all(found[i].allowed or not charges[i].enforce for i in places):
            taken.append(places)
        else:
            refused = True
    if refused:
        yield from _give_back(charges, found, taken)
    return [found[i] for i in range(len(charges))]


def _give_back(
    charges: Sequence[Charge], found: dict[int, Outcome], taken: Sequence[Sequence[int]]
) -> Generator[Step, list[Outcome], None]:
    """The steps that undo what was taken, and the figures after them. One that fails leaves its units counted."""
    asked = sorted(found)
    silent = held_back([charges[i] for i in asked], [found[i].allowed for i in asked])
    for places in taken:
        counted = [i for i in places if charges[i].cost and charges[i].member is None]
        counted = [i for i in counted if charges[i].enforce or charges[i].rule not in silent]
        if counted:
            with suppress(StoreError):
                yield GiveBack([charges[i]._replace(cost=-charges[i].cost) for i in counted])
        for i in counted:
            remaining = min(found[i].limit, found[i].remaining + charges[i].cost)
            found[i] = found[i]._replace(remaining=remaining)


def _groups(charges: Sequence[Charge]) -> list[list[int]]:
    """The places of each caller's charges: the lowest rate first, distinct counting last."""
    groups: dict[str, list[int]] = {}
    for i, charge in enumerate(charges):
        groups.setdefault(charge.caller, []).append(i)

    def strictness(places: list[int]) -> tuple[bool, float]:
        distinct = any(charges[i].member is not None for i in places)
        return distinct, min(charges[i].rate.limit / charges[i].rate.window for i in places)

    return sorted(groups.values(), key=strictness)
