from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from ratelimit import Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.guard import Guard
from ratelimit.prepared import MAX_PREPARED
from ratelimit.settings import override
from ratelimit.testing import FakeClock

ANN = Identity("ann")


class Interrupted(MemoryStore):
    """Does something else, once, while the first rule is prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.interruptions: list[Callable[[], object]] = []

    def counter(self, head: str, rate: Rate) -> Any:
        if self.interruptions:
            self.interruptions.pop()()
        return super().counter(head, rate)


def test_what_was_prepared_by_settings_that_changed_meanwhile_is_not_kept(fake_clock: FakeClock) -> None:
    store = Interrupted()
    limiter = Limiter(store, clock=fake_clock)
    guard = Guard("EXPORT", limiter=limiter)
    with ExitStack() as stack:
        change = override(overrides={"EXPORT": "3/h"})
        store.interruptions.append(lambda: stack.enter_context(change))
        found = [limiter.check("EXPORT", "u").limit, limiter.check("EXPORT", "u").limit]
    store.interruptions.append(lambda: stack.enter_context(override(overrides={"EXPORT": "2/h"})))
    with stack:
        found += [decision.limit for decision in (guard.at_hand(ANN), guard.at_hand(ANN)) if decision is not None]
    assert found == [5, 3, 10, 4]


def test_a_full_shelf_is_emptied_and_counts_go_on(limiter: Limiter) -> None:
    rate, policy = Rate(9, 60), Policy(Rule("a", "9/m", match={"path": "/"}), Rule("b", "9/h"))
    guard = Guard(rate=rate, group="g", limiter=limiter)

    def left() -> list[int]:
        at_hand = guard.at_hand(ANN)
        assert at_hand is not None
        asked = limiter.check(rate, ANN, group="g"), limiter.check(policy, ANN, attributes={"path": "/"})
        return [at_hand.remaining, *(decision.remaining for decision in asked)]

    assert left() == [8, 7, 8]
    for number in range(MAX_PREPARED):
        assert limiter.check(Rate(9, 60), "u", group=f"room:{number}").remaining == 8
    assert left() == [6, 5, 7]
    limiter.clear(rate, ANN, group="g")
    assert left() == [8, 7, 6]
