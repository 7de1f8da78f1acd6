"""Random sequences of calls, each with the answer of the reference model.

    steps = sequence(random.Random(7), "caller")
    play(store, steps)                         # raises AssertionError, and tells the way there, at the first difference

The generator looks at the model while it goes, so that it finds the places where a mistake would show: edges of windows,
the last microsecond of a wait, the last unit of a budget.

A store may let go of what has ended. That would show only if the clock then stepped back, or if a bucket's rate became
slower: what may be gone is cleared before that, in the store and in the model alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ratelimit.outcome import LOOK, MAX_SKEW_US, TAKE, Charge, Outcome
from ratelimit.rates import MAX_LIMIT, MAX_WINDOW, Rate
from ratelimit.stores.base import Store
from ratelimit.testing import START
from tests.model.budgets import Bucket
from tests.model.reference import Model, budget_name

SECOND = 1_000_000
LATEST_US = 2**52
LIMITS = (*range(1, 11), 13, 97, 997, 10**6, 10**6 + 3, 10**12 - 11, MAX_LIMIT)
WINDOWS = (1, 1, 2, 7, 10, 59, 60, 61, 3600, 86_400, 30 * 86_400, 366 * 86_400, MAX_WINDOW)
BANS = ((), (), (), (5,), (300,), (1, 60), (10, 3600, 60), (MAX_WINDOW,))
STEPS_BACK = (1, SECOND, MAX_SKEW_US - 1, MAX_SKEW_US, MAX_SKEW_US + 1, 3600 * SECOND)
ALGORITHMS = ("fixed", "anchored", "sliding", "token_bucket", "leaky_bucket")


class Step(NamedTuple):
    """One question to a store. `expected` is empty for those that are not answered."""

    what: str
    charges: tuple[Charge, ...]
    at_us: int
    taken_us: int = 0
    expected: tuple[Outcome, ...] = ()


@dataclass
class Meter:
    """One rate of a rule, whose limit and burst may change."""

    head: str
    rate: Rate


@dataclass
class Ruled:
    """One rule for one caller."""

    name: str
    meters: list[Meter]
    enforce: bool
    bans_us: tuple[int, ...]
    caller: str
    ban_head: str
    distinct: bool

    def charges(self, cost: int, member: str | None) -> list[Charge]:
        more = (self.enforce, self.bans_us, self.ban_head, member if self.distinct else None)
        return [Charge(meter.head, self.caller, meter.rate, cost, self.name, *more) for meter in self.meters]


def random_rate(random: Random, algorithm: str, window: int) -> Rate:
    """Any limit, now and then 0; a burst far below it, far above it, or like it."""
    limit = random.choice(LIMITS) if random.random() < 0.97 else 0
    if algorithm not in ("token_bucket", "leaky_bucket"):
        return Rate(limit, window, None, algorithm)
    burst = random.choice((1, limit, random.choice(LIMITS), 2 * limit, limit // 3, 60))
    most = limit * MAX_WINDOW // window if limit else MAX_LIMIT
    return Rate(limit, window, min(max(1, burst), most, MAX_LIMIT), algorithm)


@dataclass
class World:
    """Some rules, the model of what they have counted, and the clock. Plain rules enforce one rate, without bans."""

    random: Random
    caller: str
    plain: bool = False
    model: Model = field(default_factory=Model)
    now_us: int = 0
    rules: list[Ruled] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    reserved: list[tuple[Charge, int]] = field(default_factory=list)
    instants: list[int] = field(default_factory=list)

    def start(self, algorithms: Sequence[str], rules: int) -> None:
        self.now_us = START * SECOND + self.random.randrange(86_400 * SECOND)
        for number in range(rules):
            make = self._plain_rule if self.plain else self._rule
            self.rules.append(make(f"r{number}", algorithms))
        if self.random.random() < 0.5:
            self._move(self._edge())

    def step(self) -> None:
        if self.random.random() < 0.1:
            meter = self._meter()
            meter.rate = random_rate(self.random, meter.rate.algorithm, meter.rate.window)
        self._move(self._moment())
        what = self.random.choice((*("take",) * 14, *("look",) * 3, *("settle",) * 3, "clear"))
        if what == "settle" and self.reserved:
            self._settle()
        elif what == "clear":
            self._clear(self.random.choice(self.rules).charges(1, "a"), self.now_us)
        else:
            self._apply("look" if what == "look" else "take", self._call())

    def _rule(self, name: str, algorithms: Sequence[str]) -> Ruled:
        head = f"rl:{name}"
        distinct = "fixed" in algorithms and self.random.random() < 0.15
        windows = self.random.sample(sorted(set(WINDOWS)), self.random.choice((1, 1, 1, 2)))
        windows = windows if len(windows) > 1 else [self.random.choice(WINDOWS)]
        kinds = ["fixed" if distinct else self.random.choice(algorithms) for _ in windows]
        meters = [
            Meter(f"{head}~{window}s", random_rate(self.random, kind, window))
            for kind, window in zip(kinds, windows, strict=True)
        ]
        bans_us = () if distinct else tuple(seconds * SECOND for seconds in self.random.choice(BANS))
        ban_head = head if bans_us else ""
        return Ruled(name, meters, self.random.random() < 0.75, bans_us, self.caller, ban_head, distinct)

    def _plain_rule(self, name: str, algorithms: Sequence[str]) -> Ruled:
        window = self.random.choice(WINDOWS)
        rate = random_rate(self.random, self.random.choice(algorithms), window)
        return Ruled(name, [Meter(f"rl:{name}~{window}s", rate)], True, (), self.caller, "", False)

    def _meter(self) -> Meter:
        return self.random.choice(self.random.choice(self.rules).meters)

    def _edge(self) -> int:
        window_us = self._meter().rate.window_us
        return (self.now_us // window_us + self.random.randrange(3)) * window_us + self.random.choice((-1, 0, 1))

    def _moment(self) -> int:
        window_us = self._meter().rate.window_us
        way = self.random.randrange(20)
        if way < 7:
            return self.now_us
        if way < 11 and self.instants:
            return self.random.choice(self.instants[-6:]) + self.random.choice((-1, 0, 0, 1))
        if way < 13:
            return self._edge()
        if way < 16:
            return self.now_us + self.random.choice(
                (1, self.random.randrange(window_us), self.random.randrange(SECOND))
            )
        if way < 18:
            return self.now_us + self.random.randrange(4) * window_us
        since_us = self.random.choice((self.now_us, self.now_us // window_us * window_us))
        return since_us - self.random.choice((*STEPS_BACK, self.random.randrange(window_us), window_us))

    def _move(self, at_us: int) -> None:
        at_us = at_us if SECOND <= at_us <= LATEST_US else self.now_us
        if at_us < self.now_us:
            for charge in self._every_charge():
                for ended_us in self.model.budget(charge).ended(self.now_us):
                    self._clear([charge._replace(ban_head="")], ended_us)
                ban = self.model.bans.get(charge.ban_key)
                if ban and ban.forgotten_us <= self.now_us:
                    self._clear([charge._replace(head="none")], self.now_us)
        self.now_us = at_us

    def _every_charge(self) -> list[Charge]:
        return [charge for rule in self.rules for charge in rule.charges(1, "a")]

    def _call(self) -> list[Charge]:
        rules = self.random.sample(self.rules, self.random.randint(1, len(self.rules)))
        if self.random.random() < 0.1:
            rules.append(self.random.choice(rules))
        return [charge for rule in rules for charge in rule.charges(self._cost(rule), self.random.choice("abcde"))]

    def _cost(self, rule: Ruled) -> int:
        rate = self.random.choice(rule.meters).rate
        charge = rule.charges(1, "a")[0]
        left = self.model.room(charge, self.now_us)
        costs = (0, 1, 1, 1, 2, 3, left - 1, left, left, left + 1, rate.capacity, rate.capacity + 1, rate.capacity + 2)
        return min(max(0, self.random.choice((*costs, self.random.randint(0, rate.capacity)))), MAX_LIMIT)

    def _apply(self, what: str, charges: Sequence[Charge]) -> None:
        self._let_go_of_slower(charges)
        found = self.model.apply(charges, self.now_us, TAKE if what == "take" else LOOK)
        self.steps.append(Step(what, tuple(charges), self.now_us, 0, tuple(found)))
        for outcome in found:
            self.instants += [self.now_us + us for us in (outcome.retry_after_us, outcome.reset_after_us) if us > 0]
        refused = {charge.rule for charge, outcome in zip(charges, found, strict=True) if not outcome.allowed}
        if what == "take" and not any(charge.enforce and charge.rule in refused for charge in charges):
            taken = [one for one in charges if one.rule not in refused and one.cost and one.member is None]
            self.reserved += [(charge, self.now_us) for charge in taken]

    def _settle(self) -> None:
        charge, taken_us = self.random.choice(self.reserved)
        less = (-charge.cost, -self.random.randint(1, charge.cost))
        difference = self.random.choice((*less, 1, self.random.choice(LIMITS)))
        charges = [charge._replace(cost=difference)]
        self._let_go_of_slower(charges)
        self.model.settle(charges, self.now_us, taken_us)
        self.steps.append(Step("settle", tuple(charges), self.now_us, taken_us))

    def _clear(self, charges: Sequence[Charge], at_us: int) -> None:
        self.model.clear(charges, at_us)
        self.steps.append(Step("clear", tuple(charges), at_us))

    def _let_go_of_slower(self, charges: Sequence[Charge]) -> None:
        for charge in charges:
            budget = self.model.budgets.get(budget_name(charge))
            slower = isinstance(budget, Bucket) and budget.rate and budget.rate.limit > charge.rate.limit
            if budget and slower and budget.ended(self.now_us):
                self._clear([charge._replace(ban_head="")], self.now_us)


def sequence(
    random: Random, caller: str, algorithms: Sequence[str] = ALGORITHMS, rules: int | None = None, plain: bool = False
) -> list[Step]:
    """Eight to thirty calls for one caller, on one to four rules."""
    world = World(random, caller, plain)
    world.start(algorithms, rules or random.choice((1, 1, 2, 3, 4)))
    for _ in range(random.randint(8, 30)):
        world.step()
    return world.steps


def play(store: Store, steps: Sequence[Step]) -> Iterator[tuple[Step, list[Outcome]]]:
    """Asks `store` step by step; gives what it answered."""
    for step in steps:
        if step.what == "settle":
            store.settle(step.charges, step.at_us, step.taken_us)
        elif step.what == "clear":
            store.clear(step.charges, step.at_us)
        else:
            yield step, store.apply(step.charges, step.at_us, TAKE if step.what == "take" else LOOK)


def compare(store: Store, steps: Sequence[Step], name: str) -> None:
    """Raises AssertionError at the first answer that is not the model's, with everything that led to it."""
    for step, found in play(store, steps):
        if tuple(found) != step.expected:
            way = "\n".join(map(str, steps[: steps.index(step) + 1]))
            raise AssertionError(f"{name}\n{way}\nfound {found}")
