"""What is asked, and given back, when the callers of one call lie in different slots: no server needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ratelimit.errors import StoreError
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.rates import Rate
from ratelimit.stores.slots import Apply, GiveBack, Step, by_slot, in_one_slot, split


def charge(name: str, rate: str, caller: str, cost: int = 1, **more: object) -> Charge:
    return Charge(f"rl:{name}", caller, Rate.parse(rate), cost, name)._replace(**more)


WIDE = charge("wide", "100/m", "global", 2)
SHADOW = charge("shadow", "90/m", "device", enforce=False)
NARROW = charge("narrow", "3/m", "user")
SEEN = charge("seen", "1/m", "ip", member="m")


def drive(
    charges: list[Charge], refuse: Callable[[Charge], bool], mode: int = TAKE
) -> tuple[list[Step], list[Outcome]]:
    """The steps, and the outcomes, when what `refuse` names does not pass and everything else leaves 5 units."""
    steps = by_slot(charges, mode)
    done: list[Step] = []
    step = next(steps)
    while True:
        done.append(step)
        found: list[Outcome] = []
        if isinstance(step, Apply):
            found = [Outcome(not refuse(one), one.rate.limit, 5, 0, 0) for one in step.charges]
        try:
            step = steps.send(found)
        except StopIteration as end:
            return done, end.value


def test_charges_of_one_caller_are_one_step() -> None:
    assert in_one_slot([WIDE])
    assert in_one_slot([NARROW, charge("other", "9/h", "user")])
    assert not in_one_slot([NARROW, WIDE])
    assert split([WIDE, NARROW, charge("other", "9/h", "user")]) == [[NARROW, charge("other", "9/h", "user")], [WIDE]]


def test_the_lowest_rate_is_asked_first_and_distinct_counting_last() -> None:
    steps, outcomes = drive([SEEN, WIDE, NARROW], refuse=lambda one: False)
    assert steps == [Apply([NARROW], TAKE), Apply([WIDE], TAKE), Apply([SEEN], TAKE)]
    assert [outcome.limit for outcome in outcomes] == [1, 100, 3]


def test_what_was_taken_is_given_back_and_the_rest_only_looked_at() -> None:
    steps, outcomes = drive([WIDE, NARROW, SEEN], refuse=lambda one: one is WIDE)
    assert steps == [
        *(Apply([NARROW], TAKE), Apply([WIDE], TAKE), Apply([SEEN], LOOK)),
        GiveBack([NARROW._replace(cost=-1)]),
    ]
    assert [(outcome.allowed, outcome.remaining) for outcome in outcomes] == [(False, 5), (True, 3), (True, 5)]


def test_a_rule_in_shadow_that_took_nothing_gives_nothing_back() -> None:
    steps, outcomes = drive([SHADOW, WIDE], refuse=lambda one: True)
    assert steps == [Apply([SHADOW], TAKE), Apply([WIDE], TAKE)]
    assert [outcome.allowed for outcome in outcomes] == [False, False]


def test_looking_takes_and_gives_back_nothing() -> None:
    steps, _ = drive([WIDE, NARROW], refuse=lambda one: one is NARROW, mode=LOOK)
    assert steps == [Apply([NARROW], LOOK), Apply([WIDE], LOOK)]


@pytest.mark.parametrize("error", [StoreError("down"), KeyboardInterrupt()])
def test_a_step_that_fails_gives_back_what_was_taken_and_fails(error: BaseException) -> None:
    steps = by_slot([WIDE, NARROW], TAKE)
    assert next(steps) == Apply([NARROW], TAKE)
    assert steps.send([Outcome(True, 3, 2, 0, 0)]) == Apply([WIDE], TAKE)
    assert steps.throw(error) == GiveBack([NARROW._replace(cost=-1)])
    with pytest.raises(type(error)):
        steps.send([])


def test_a_refusal_stays_one_when_nothing_can_be_given_back() -> None:
    steps = by_slot([WIDE, NARROW], TAKE)
    next(steps)
    steps.send([Outcome(True, 3, 2, 0, 0)])
    assert steps.send([Outcome(False, 100, 0, 9, 9)]) == GiveBack([NARROW._replace(cost=-1)])
    with pytest.raises(StopIteration) as end:
        steps.throw(StoreError("down"))
    assert [outcome.allowed for outcome in end.value.value] == [False, True]


def test_steps_that_nobody_follows_are_let_go() -> None:
    steps = by_slot([WIDE, NARROW], TAKE)
    next(steps)
    steps.close()
