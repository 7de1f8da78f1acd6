"""Several charges on one budget, as a store is asked: each needs room beside those before it."""

from __future__ import annotations

from collections.abc import Sequence

from ratelimit import MemoryStore, Rate
from ratelimit.outcome import Charge, Outcome

MINUTE = 30_000_000 * 60_000_000


def values(*members: str, cost: int = 1) -> list[Charge]:
    return [Charge("names", "u", Rate(2, 60), cost, "names", member=member) for member in members]


def costs(*costs: int) -> list[Charge]:
    return [Charge("calls", "u", Rate(6, 60, 6, "token_bucket"), cost, "calls") for cost in costs]


def figures(outcomes: Sequence[Outcome]) -> list[tuple[bool, int, int]]:
    return [(outcome.allowed, outcome.remaining, outcome.retry_after_us) for outcome in outcomes]


def test_values_of_one_call_count_together() -> None:
    store = MemoryStore()
    assert figures(store.apply(values("a", "b", "a"), MINUTE)) == [(True, 1, 0), (True, 0, 0), (True, 0, 0)]
    assert not store.apply(values("c"), MINUTE)[0].allowed


def test_a_refused_call_remembers_none_of_its_values() -> None:
    store = MemoryStore()
    refused = figures(store.apply(values("a", "a", "b", "c"), MINUTE))
    assert refused == [(True, 2, 0), (True, 2, 0), (True, 2, 0), (False, 2, -1)]
    assert all(outcome.allowed for outcome in store.apply(values("d", "e"), MINUTE))
    assert figures(store.apply(values("d", "f"), MINUTE)) == [(True, 0, 0), (False, 0, 60_000_000)]


def test_a_cost_of_0_remembers_no_value() -> None:
    store = MemoryStore()
    assert figures(store.apply(values("a", "b", "c", cost=0), MINUTE)) == [(True, 2, 0)] * 3
    store.apply(values("d", "e"), MINUTE)
    assert figures(store.apply(values("a", "d", cost=0), MINUTE)) == [(True, 0, 0)] * 2


def test_what_a_refused_call_waits_for_is_room_for_all_of_it() -> None:
    store = MemoryStore()
    assert store.apply(costs(6), MINUTE)[0].allowed
    assert figures(store.apply(costs(3, 3), MINUTE)) == [(False, 0, 30_000_000), (False, 0, 60_000_000)]
    assert figures(store.apply(costs(6, 3), MINUTE)) == [(False, 0, 60_000_000), (False, 0, -1)]
