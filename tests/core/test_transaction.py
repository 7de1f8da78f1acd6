"""What several charges do together: layers, shadow, skipped calls, bans, different values."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.outcome import TAKE, Charge, Outcome
from ratelimit.testing import START, FakeClock
from ratelimit.transaction import NO_BAN, judge, outcomes

MINUTE = 28_571_428 * 60_000_000
ANN, BOB = Identity("ann", "203.0.113.7"), Identity("bob", "203.0.113.7")


def charge(limit: int, cost: int, key: str = "k", window: int = 60, **more: Any) -> Charge:
    return Charge(key, "u", Rate(limit, window), cost, key, **more)


def judged(charges: Sequence[Charge], counted: Sequence[int]) -> tuple[list[int], list[bool], bool]:
    """What each charge found in use, whether it passes, and whether the call may go on."""
    states = {(c.head, c.rate.window): (used,) for c, used in zip(charges, counted, strict=True)}

    verdicts, every = judge(charges, MINUTE, lambda charge: states[charge.head, charge.rate.window], lambda _: NO_BAN)
    return [verdict.before[0] for verdict in verdicts], [verdict.passes for verdict in verdicts], every


class TestJudging:
    @pytest.mark.parametrize(
        ("charges", "counted", "used", "every"),
        [
            ([charge(5, 2)], [3], [3], True),
            ([charge(5, 2)], [4], [4], False),
            ([charge(5, 2), charge(5, 2)], [0, 0], [0, 2], True),
            ([charge(5, 2), charge(5, 2)], [2, 2], [2, 4], False),
            ([charge(5, 9), charge(5, 2)], [0, 0], [0, 0], False),
            ([charge(5, 0), charge(5, 5)], [0, 0], [0, 0], True),
            ([charge(5, 5, "a"), charge(5, 5, "b")], [0, 0], [0, 0], True),
            ([charge(5, 5, "a", 60), charge(5, 5, "a", 3600)], [0, 0], [0, 0], True),
            ([charge(5, 9, enforce=False)], [0], [0], True),
            ([charge(5, 9, "a", enforce=False), charge(5, 9, "b")], [0, 0], [0, 0], False),
        ],
    )
    def test_charges_on_one_counter_are_taken_in_order(
        self, charges: list[Charge], counted: list[int], used: list[int], every: bool
    ) -> None:
        found, _, all_pass = judged(charges, counted)
        assert (found, all_pass) == (used, every)

    @given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.sampled_from([60, 3600])), max_size=6))
    def test_charges_pass_together_if_their_sums_fit(self, asked: list[tuple[str, int, int]]) -> None:
        charges = [charge(5, cost, key, window) for key, cost, window in asked]
        sums: dict[tuple[str, int], int] = {}
        for key, cost, window in asked:
            sums[key, window] = sums.get((key, window), 0) + cost
        assert judged(charges, [0] * len(charges))[2] is all(total <= 5 for total in sums.values())

    def test_each_charge_has_its_outcome(self) -> None:
        charges = [charge(5, 2, "a"), charge(3, 2, "b")]
        verdicts, every = judge(charges, MINUTE, lambda c: (0,) if c.head == "a" else (2,), lambda _: NO_BAN)
        assert outcomes(charges, verdicts, every, True, MINUTE, MINUTE) == [
            Outcome(True, 5, 5, 0, 0),
            Outcome(False, 3, 1, 60_000_000, 60_000_000),
        ]


class WatchedStore(MemoryStore):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.charges: list[int] = []

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        self.charges.append(len(charges))
        return super().apply(charges, now_us, mode)


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def limiter(store: WatchedStore, fake_clock: FakeClock) -> Limiter:
    return Limiter(store, clock=fake_clock)


def left(limiter: Limiter, rule: Rule, identity: Identity | str = ANN, **attributes: Any) -> int:
    return limiter.peek(rule, identity, attributes=attributes).remaining


class TestLayers:
    everybody = Rule("all", "7/m", by="global")
    address = Rule("address", "5/m", by="ip")
    user = Rule("user", "3/m", by="user")
    device = Rule("device", "2/m", by=("ip", "device"), match={"device": ("d1", "d2", "d3", "d4")})
    policy = Policy(everybody, address, user, device)

    def test_all_are_asked_at_once(self, limiter: Limiter, store: WatchedStore) -> None:
        decision = limiter.check(self.policy, ANN, attributes={"device": "d1"})
        assert store.charges == [4]
        assert [(part.rule, part.key, part.outcome.remaining) for part in decision.parts] == [
            ("all", "global", 6),
            ("address", "ip:203.0.113.7", 4),
            ("user", "user:ann", 2),
            ("device", "ip:203.0.113.7&device:d1", 1),
        ]
        assert (decision.rule, decision.remaining, decision.limit) == ("device", 1, 2)

    def test_a_call_refused_by_one_layer_spends_none_of_the_others(self, limiter: Limiter) -> None:
        device = {"device": "d1"}
        asked = [limiter.check(self.policy, ANN, attributes=device) for _ in range(12)]
        assert [bool(decision) for decision in asked] == [True, True] + [False] * 10
        assert [left(limiter, rule, ANN, **device) for rule in self.policy] == [5, 3, 1, 0]
        assert limiter.check(self.policy, ANN, attributes={"device": "d2"})
        refused = limiter.check(self.policy, ANN, attributes={"device": "d2"})
        assert (refused.allowed, refused.rule, refused.key) == (False, "user", "user:ann")
        assert [bool(limiter.check(self.policy, BOB, attributes={"device": name})) for name in ("d3", "d3", "d4")] == [
            *(True, True, False)
        ]
        assert limiter.check(self.policy, BOB, attributes={"device": "d4"}).rule == "address"
        assert left(limiter, self.everybody) == 2

    def test_of_several_refusals_the_longest_wait_is_told(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        fake_clock.advance(10)
        policy = Policy(Rule("minute", "1/m"), Rule("hour", "1/h"), Rule("second", "1/s"))
        limiter.check(policy, ANN)
        refused = limiter.check(policy, ANN)
        assert (refused.rule, refused.retry_after) == ("hour", 3590.0)
        assert (limiter.check(policy, ANN, cost=2).rule, limiter.check(policy, ANN, cost=2).retry_after) == (
            "minute",
            None,
        )

    def test_weights_and_costs_are_multiplied(self, limiter: Limiter) -> None:
        heavy, light, free = Rule("heavy", "20/m", cost=5), Rule("light", "20/m"), Rule("free", "20/m", cost=0)
        decision = limiter.check(Policy(heavy, light, free), ANN, cost=3)
        assert [part.outcome.remaining for part in decision.parts] == [5, 17, 20]
        assert not limiter.check(Policy(heavy, light, free), ANN, cost=2)
        assert limiter.check(Policy(heavy, light, free), ANN, cost=1).remaining == 0
        assert limiter.check(Policy(heavy, light, free), ANN, cost=0)

    def test_several_rates_of_a_rule_hold_together(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        rule = Rule("r", "2/s; 5/m; 6/h sliding")
        passed = []
        for _ in range(4):
            passed.append(sum(bool(limiter.check(rule, ANN)) for _ in range(3)))
            fake_clock.advance(1)
        assert passed == [2, 2, 1, 0]
        assert [part.outcome.remaining for part in limiter.peek(rule, ANN).parts] == [2, 0, 1]
        assert (limiter.check(rule, ANN).limit, limiter.check(rule, ANN).retry_after) == (5, 56.0)

    def test_window_forms_may_be_mixed(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        fake_clock.advance(30)
        policy = Policy(
            Rule("fixed", "4/m"),
            Rule("anchored", "4/m anchored"),
            Rule("sliding", "4/m sliding"),
            Rule("bucket", "4/m burst 4"),
        )
        assert [bool(limiter.check(policy, ANN)) for _ in range(5)] == [True] * 4 + [False]
        waits = {part.rule: part.outcome.retry_after_us / 1e6 for part in limiter.check(policy, ANN).parts}
        assert waits == {"fixed": 30.0, "anchored": 60.0, "sliding": 45.0, "bucket": 15.0}
        assert limiter.check(policy, ANN).rule == "anchored"


class TestSkipping:
    policy = Policy(
        Rule("health", match={"path": "/health"}, action="skip"),
        Rule("api", "1/m"),
    )

    async def test_asks_no_store(self, limiter: Limiter, store: WatchedStore) -> None:
        health = {"path": "/health"}
        for _ in range(5):
            decision = limiter.check(self.policy, ANN, attributes=health)
            assert (decision.allowed, decision.rule, decision.retry_after) == (True, "unlimited", 0.0)
            assert await limiter.acheck(self.policy, ANN, attributes=health)
            assert limiter.peek(self.policy, ANN, attributes=health)
            assert limiter.reserve(self.policy, ANN, attributes=health).decision
        assert store.charges == []
        assert [bool(limiter.check(self.policy, ANN, attributes={"path": "/"})) for _ in range(2)] == [True, False]
        assert store.charges == [1, 1]

    def test_lets_through_who_is_banned_elsewhere(self, limiter: Limiter) -> None:
        policy = Policy(Rule("probe", "1/m", ban_for=300), *self.policy)
        assert not limiter.check(policy, ANN, cost=2)
        assert limiter.check(policy, ANN, attributes={"path": "/health"})

    def test_a_call_that_no_rule_means_asks_no_store_either(self, limiter: Limiter, store: WatchedStore) -> None:
        assert limiter.check(Rule("r", "0/m", match={"path": "/"}), ANN)
        assert store.charges == []


class TestShadow:
    rule = Rule("new", "2/m", by="ip", action="log", ban_for=300)
    policy = Policy(rule, Rule("old", "9/m"))

    def test_never_refuses_and_is_seen_in_the_decision(self, limiter: Limiter) -> None:
        asked = [limiter.check(self.policy, ANN) for _ in range(9)]
        assert [decision.allowed for decision in asked] == [True] * 9
        assert [decision.shadow_denials for decision in asked] == [()] * 2 + [("new",)] * 7
        assert {decision.rule for decision in asked} == {"old"}
        assert [decision.remaining for decision in asked] == [8, 7, 6, 5, 4, 3, 2, 1, 0]
        refused = limiter.check(self.policy, ANN)
        assert (refused.allowed, refused.rule, refused.shadow_denials) == (False, "old", ("new",))

    def test_is_seen_in_the_log(self, limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        for _ in range(3):
            limiter.check(self.policy, ANN, protocol="http")
        assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
            (
                logging.INFO,
                "rate limit would be exceeded: rule=new key=ip:203.0.113.7 rate=2/m protocol=http",
            )
        ]
        limiter.peek(self.policy, ANN)
        assert len(caplog.records) == 1

    def test_is_told_to_no_client(self, limiter: Limiter) -> None:
        decision = limiter.check(self.policy, ANN)
        assert decision.headers("ietf")["RateLimit"] == '"old";r=8;t=60'
        assert decision.headers("x")["X-RateLimit-Limit"] == "9"
        alone = [limiter.check(self.rule, BOB) for _ in range(3)][-1]
        assert (alone.allowed, alone.banned, alone.shadow_denials) == (True, False, ("new",))
        assert alone.headers("ietf") == alone.headers("x") == {}

    def test_counts_what_enforcing_would_have_counted(self, fake_clock: FakeClock) -> None:
        shadow, real = (Limiter(MemoryStore(), clock=fake_clock) for _ in range(2))
        enforced = Rule("new", "2/m", by="ip", ban_for=300)
        for pause in (0, 0, 0, 10, 200, 89.999999, 0.000001, 0, 0, 0, 299, 1):
            fake_clock.advance(pause)
            (one,), (other,) = shadow.check(self.rule, ANN).parts, real.check(enforced, ANN).parts
            assert one.outcome == other.outcome
            assert shadow.peek(self.rule, ANN).parts[0].outcome == real.peek(enforced, ANN).parts[0].outcome

    def test_turned_to_enforcing_goes_on_from_the_same_counts(self, limiter: Limiter) -> None:
        limiter.check(Rule("new", "2/m", by="ip", action="log"), ANN)
        assert [bool(limiter.check(Rule("new", "2/m", by="ip"), ANN)) for _ in range(2)] == [True, False]


class TestBans:
    probe = Rule("probe", "2/m", by="ip", ban_for=300)
    login = Rule("login", "2/m", by="ip", ban_for=300)

    def test_crossing_the_limit_bans_beyond_the_window(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        limiter.check(self.probe, ANN, cost=2)
        fake_clock.advance(10)
        crossed = limiter.check(self.probe, ANN)
        assert (crossed.allowed, crossed.banned, crossed.remaining) == (False, True, 0)
        assert (crossed.retry_after, crossed.reset_after) == (300.0, 300.0)
        assert limiter.check(self.probe, Identity(ip="198.51.100.9"))

    def test_retrying_never_extends_it_and_the_hits_begin_at_zero_after_it(
        self, limiter: Limiter, fake_clock: FakeClock
    ) -> None:
        for _ in range(2):
            limiter.check(self.probe, ANN)
            limiter.check(self.login, ANN)
        fake_clock.advance(10)
        assert limiter.check(self.probe, ANN).retry_after == 300.0  # the third hit: banned until 310
        for at in range(20, 310, 10):
            fake_clock.advance(10)
            refused = limiter.check(self.probe, ANN)
            assert (refused.allowed, refused.banned, refused.retry_after) == (False, True, 310 - at)
        fake_clock.advance(9.999999)
        assert limiter.check(self.probe, ANN).retry_after == 0.000001
        fake_clock.advance(0.000001)
        assert fake_clock() == (START + 310) * 1_000_000
        assert [limiter.check(self.probe, ANN).remaining for _ in range(2)] == [1, 0]
        assert limiter.check(self.probe, ANN).retry_after == 300.0

    @pytest.mark.parametrize(
        "text", ["2/h", "2/h anchored", "2/h sliding", "2/h burst 2", "1/h leaky burst 2", "9/s; 2/h"]
    )
    def test_hits_begin_at_zero_after_it_whatever_the_window(
        self, limiter: Limiter, fake_clock: FakeClock, text: str
    ) -> None:
        rule = Rule("probe", text, ban_for=60)
        assert [bool(limiter.check(rule, ANN)) for _ in range(3)] == [True, True, False]
        fake_clock.advance(60)
        assert [bool(limiter.check(rule, ANN)) for _ in range(3)] == [True, True, False]
        assert limiter.check(rule, ANN).retry_after == 60.0

    def test_two_rules_share_neither_hits_nor_bans(self, limiter: Limiter) -> None:
        policy = Policy(
            Rule("probe", "2/m", by="ip", ban_for=300, match={"kind": "probe"}),
            Rule("login", "2/m", by="ip", ban_for=60, match={"kind": "login"}),
        )
        kinds = ("probe", "login", "probe", "login")
        assert all(limiter.check(policy, ANN, attributes={"kind": kind}) for kind in kinds)
        assert limiter.check(policy, ANN, attributes={"kind": "probe"}).retry_after == 300.0
        assert left(limiter, policy["login"], kind="login") == 0
        assert limiter.check(policy, ANN, attributes={"kind": "login"}).retry_after == 60.0
        assert limiter.check(policy, ANN, attributes={"kind": "other"})

    def test_in_one_call_each_rule_is_banned_for_itself(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        policy = Policy(Rule("short", "1/m", ban_for=60), Rule("long", "9/m", ban_for=300), Rule("plain", "9/m"))
        limiter.check(policy, ANN)
        refused = limiter.check(policy, ANN)
        assert (refused.rule, refused.retry_after) == ("short", 60.0)
        assert [left(limiter, rule) for rule in policy] == [0, 8, 8]
        fake_clock.advance(60)
        assert limiter.check(policy, ANN)

    def test_while_it_holds_nothing_else_is_spent(self, limiter: Limiter) -> None:
        policy = Policy(self.probe, Rule("all", "9/m", by="global"))
        for _ in range(10):
            limiter.check(policy, ANN)
        assert left(limiter, policy["all"]) == 7

    def test_grow_when_it_happens_again_soon_after(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        rule = Rule("probe", "1/m", ban_for=(60, 300, 3600))

        def banned() -> float | None:
            limiter.check(rule, ANN)
            wait = limiter.check(rule, ANN).retry_after
            fake_clock.advance(wait or 0)
            return wait

        assert [banned() for _ in range(4)] == [60.0, 300.0, 3600.0, 3600.0]
        fake_clock.advance(3599.999999)
        assert banned() == 3600.0
        fake_clock.advance(3600)
        assert [banned(), banned()] == [60.0, 300.0]

    def test_of_a_rule_whose_rates_are_crossed_at_once_is_one_ban(
        self, limiter: Limiter, fake_clock: FakeClock
    ) -> None:
        rule = Rule("probe", "2/s; 2/h", ban_for=(60, 300))
        limiter.check(rule, ANN, cost=2)
        assert [part.outcome.retry_after_us for part in limiter.check(rule, ANN).parts] == [60_000_000] * 2
        fake_clock.advance(60)
        limiter.check(rule, ANN, cost=2)
        assert limiter.check(rule, ANN).retry_after == 300.0

    def test_looking_sees_one_and_writes_none(self, limiter: Limiter) -> None:
        limiter.check(self.probe, ANN, cost=2)
        looks = [limiter.peek(self.probe, ANN) for _ in range(3)]
        assert [(look.allowed, look.banned, look.retry_after) for look in looks] == [(False, False, 60.0)] * 3
        limiter.check(self.probe, ANN)
        look = limiter.peek(self.probe, ANN, cost=0)
        assert (look.allowed, look.banned, look.retry_after, look.remaining) == (False, True, 300.0, 0)
        assert not limiter.check(self.probe, ANN, cost=0)

    async def test_clearing_lifts_it_and_forgets_the_hits(self, limiter: Limiter) -> None:
        for clear in ("sync", "async", "caller"):
            for rule in (self.probe, self.login):
                limiter.check(rule, ANN, cost=2)
                limiter.check(rule, ANN)
            if clear == "sync":
                limiter.clear(self.probe, ANN)
            elif clear == "async":
                await limiter.aclear(self.probe, ANN)
            else:
                limiter.clear(None, ANN, key="ip")
            assert left(limiter, self.probe) == 2
            assert limiter.peek(self.login, ANN).banned is (clear != "caller")
            limiter.clear(None, ANN, key="ip")

    def test_clearing_forgets_how_often_it_happened(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        rule = Rule("probe", "1/m", ban_for=(60, 3600))
        for _ in range(2):
            limiter.check(rule, ANN, cost=1)
            assert limiter.check(rule, ANN).retry_after == 60.0
            limiter.clear(rule, ANN)

    def test_a_policy_is_cleared_whole_and_a_rule_of_it_alone(self, limiter: Limiter) -> None:
        policy = Policy(
            Rule("pair", "1/h", by=("account", "ip"), ban_for=60, match={"failed": True}),
            Rule("address", "9/h", by="ip", match={"failed": True}),
        )
        failed = {"failed": True, "account": "ann"}
        limiter.check(policy, ANN, attributes=failed)
        assert limiter.check(policy, ANN, attributes=failed).banned
        limiter.clear(policy["pair"], ANN, attributes={"account": "ann"})
        assert [left(limiter, rule, **failed) for rule in policy] == [1, 8]
        limiter.check(policy, ANN, attributes=failed)
        limiter.clear(policy, ANN, attributes={"account": "ann"})
        assert [left(limiter, rule, **failed) for rule in policy] == [1, 9]


class TestDifferentValues:
    names = Rule("names", "3/h", by="ip", count_distinct="account")

    def ask(self, limiter: Limiter, *names: str | None, identity: Identity = ANN) -> list[bool]:
        return [bool(limiter.check(self.names, identity, attributes={"account": name})) for name in names]

    def test_a_known_one_is_free_and_a_new_one_uses_a_unit(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        assert self.ask(limiter, "a", "b", "a", "a", "b", "c", "d", "a", "c", "d") == [True] * 6 + [
            *(False, True, True, False)
        ]
        refused = limiter.check(self.names, ANN, attributes={"account": "d"})
        assert (refused.limit, refused.remaining, refused.retry_after) == (3, 0, 3600.0)
        fake_clock.advance(3600)
        assert self.ask(limiter, "d", "e", "f", "a") == [True, True, True, False]

    def test_each_caller_has_its_own(self, limiter: Limiter) -> None:
        other = Identity(ip="198.51.100.9")
        assert self.ask(limiter, "a", "b", "c", "d") == [True, True, True, False]
        assert self.ask(limiter, "d", "e", "f", "a", identity=other) == [True, True, True, False]

    def test_a_call_without_the_attribute_is_one_value(self, limiter: Limiter) -> None:
        assert self.ask(limiter, None, "", None) == [True] * 3
        assert left(limiter, self.names, account="a") == 2
        assert limiter.check(self.names, ANN).remaining == 2

    def test_figures(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        fake_clock.advance(600)
        first = limiter.check(self.names, ANN, attributes={"account": "a"})
        assert (first.limit, first.remaining, first.reset_after) == (3, 2, 3000.0)
        look = limiter.peek(self.names, ANN, attributes={"account": "b"})
        assert (look.allowed, look.remaining) == (True, 2)
        assert limiter.check(self.names, ANN, attributes={"account": "a"}).remaining == 2

    def test_a_cost_of_zero_looks_only(self, limiter: Limiter) -> None:
        for name in "abcde":
            assert limiter.check(self.names, ANN, cost=0, attributes={"account": name}).remaining == 3
        assert self.ask(limiter, "a", "b", "c") == [True] * 3
        assert limiter.check(self.names, ANN, cost=0, attributes={"account": "d"})

    def test_a_refused_call_remembers_no_value(self, limiter: Limiter) -> None:
        policy = Policy(self.names, Rule("calls", "2/h", by="ip"))
        assert [bool(limiter.check(policy, ANN, attributes={"account": name})) for name in "abc"] == [True, True, False]
        assert left(limiter, self.names, account="x") == 1

    def test_a_rate_of_none_denies_the_first(self, limiter: Limiter) -> None:
        denied = limiter.check(Rule("names", "0/h", count_distinct="account"), ANN, attributes={"account": "a"})
        assert (denied.allowed, denied.remaining, denied.retry_after) == (False, 0, None)

    def test_clearing_forgets_the_values(self, limiter: Limiter) -> None:
        self.ask(limiter, "a", "b", "c")
        limiter.clear(self.names, ANN)
        assert self.ask(limiter, "d", "e", "f", "g") == [True, True, True, False]
