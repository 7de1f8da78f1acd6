from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest

from ratelimit import (
    ConfigurationError,
    Decision,
    Limiter,
    MemoryStore,
    Policy,
    Rate,
    Rule,
    StoreError,
    ais_rate_limited,
    is_rate_limited,
)
from ratelimit.outage import OutageLog, policy_outcomes
from ratelimit.outcome import NEVER, TAKE, Charge, Outcome
from ratelimit.plan import Ask
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated

TWO = Rate.parse("2/m")
FAILURES = [StoreError("down"), OSError("refused"), TimeoutError(), KeyError("x"), RuntimeError("bug"), ValueError("v")]


class FailingStore(MemoryStore):
    """Fails while it has an `error`."""

    error: Exception | None = None

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        if self.error is not None:
            raise self.error
        return super().apply(charges, now_us, mode)

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


def limiter_on(store: FailingStore, fail_open: bool) -> Limiter:
    return Limiter(store, clock=FakeClock(), settings=Settings(fail_open=fail_open))


async def asked(limiter: Limiter) -> list[Decision]:
    """What every way to ask says."""
    return [
        limiter.check(TWO, "u"),
        await limiter.acheck(TWO, "u"),
        limiter.peek(TWO, "u"),
        await limiter.apeek(TWO, "u"),
    ]


@pytest.mark.parametrize("error", FAILURES, ids=repr)
async def test_open_allows_and_says_degraded(store: FailingStore, error: Exception) -> None:
    limiter, store.error = limiter_on(store, fail_open=True), error
    for decision in await asked(limiter):
        assert (decision.allowed, decision.degraded) == (True, True)
        assert (decision.limit, decision.remaining, decision.retry_after, decision.headers()) == (2, 2, 0.0, {})


@pytest.mark.parametrize("error", FAILURES, ids=repr)
async def test_closed_denies_for_a_second_and_says_degraded(store: FailingStore, error: Exception) -> None:
    limiter, store.error = limiter_on(store, fail_open=False), error
    for decision in await asked(limiter):
        assert (decision.allowed, decision.degraded) == (False, True)
        assert (decision.remaining, decision.retry_after, decision.headers()) == (0, 1.0, {"Retry-After": "1"})


@pytest.mark.parametrize("fail_open", [True, False])
async def test_a_configuration_error_is_no_outage(store: FailingStore, fail_open: bool) -> None:
    limiter, store.error = limiter_on(store, fail_open), ConfigurationError("no such cache")
    for call in (limiter.check, limiter.peek):
        with pytest.raises(ConfigurationError, match="no such cache"):
            call(TWO, "u")
    for acall in (limiter.acheck, limiter.apeek):
        with pytest.raises(ConfigurationError, match="no such cache"):
            await acall(TWO, "u")
    store.error = StoreError("down")
    with pytest.raises(ConfigurationError, match="unknown category 'AI_QERY'"):
        limiter.check("AI_QERY", "u")


async def test_the_shortest_form_follows_the_policy(store: FailingStore) -> None:
    store.error = StoreError("down")
    for fail_open in (True, False):
        with isolated(store, fail_open=fail_open):
            assert is_rate_limited("g", "u", "2/m") is not fail_open
            assert await ais_rate_limited("g", "u", "2/m", increment=False) is not fail_open


@pytest.mark.parametrize("fail_open", [True, False])
async def test_an_undone_clear_does_not_pass_for_a_done_one(store: FailingStore, fail_open: bool) -> None:
    limiter, store.error = limiter_on(store, fail_open), StoreError("down")
    with pytest.raises(StoreError):
        limiter.clear(TWO, "u")
    with pytest.raises(StoreError):
        await limiter.aclear(TWO, "u")


def test_counting_goes_on_where_it_was(store: FailingStore) -> None:
    limiter = limiter_on(store, fail_open=True)
    assert limiter.check(TWO, "u").remaining == 1
    store.error = StoreError("down")
    assert all(limiter.check(TWO, "u") for _ in range(5))
    store.error = None
    after = [limiter.check(TWO, "u") for _ in range(2)]
    assert [(decision.allowed, decision.degraded) for decision in after] == [(True, False), (False, False)]


def test_one_line_tells_the_beginning_and_one_the_end(store: FailingStore, caplog: pytest.LogCaptureFixture) -> None:
    limiter = limiter_on(store, fail_open=True)
    for error, calls in ((None, 1), (OSError("refused"), 3), (None, 2), (TimeoutError("slow"), 1), (None, 1)):
        store.error = error
        for number in range(calls):
            limiter.check("AI_QUERY", f"u{number}")
    began = "rate limit store failed; until it answers, calls pass (RATELIMIT_FAIL_OPEN is on) unless their rule says otherwise: "
    ended = "rate limit store answers again; {} checks were decided without it"
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, began + "OSError: refused"),
        (logging.WARNING, ended.format(3)),
        (logging.ERROR, began + "TimeoutError: slow"),
        (logging.WARNING, ended.format(1)),
    ]


def test_denials_of_an_outage_are_logged_and_looks_are_not(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    limiter, store.error = limiter_on(store, fail_open=False), StoreError("down")
    limiter.peek(TWO, "u")
    assert caplog.messages == [
        (
            "rate limit store failed; until it answers, calls are refused (RATELIMIT_FAIL_OPEN is off) unless their rule says "
            "otherwise: StoreError: down"
        )
    ]
    limiter.check(TWO, "u", protocol="http")
    assert caplog.messages[1:] == ["rate limit exceeded: rule=default key=u rate=2/m protocol=http"]


def test_the_end_is_told_by_the_check_that_sees_it_even_a_denied_one(
    store: FailingStore, caplog: pytest.LogCaptureFixture
) -> None:
    limiter, store.error = limiter_on(store, fail_open=True), StoreError("down")
    limiter.check(TWO, "u")
    store.error = None
    assert not limiter.peek(Rate.parse("0/m"), "u")
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_threads_tell_an_outage_once(eager_threads: None, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        log, start = OutageLog(), threading.Barrier(8)

        def fail(log: OutageLog = log, start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(20):
                log.failed(StoreError("down"), True)

        threads = [threading.Thread(target=fail) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.answered()
        log.answered()
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"] * 20
    assert caplog.messages[1] == "rate limit store answers again; 160 checks were decided without it"


def ask(on_outage: str | None, cost: int = 1, rate: str = "10/m", enforce: bool = True) -> Ask:
    return Ask(Charge("rl:r", "u", Rate.parse(rate), cost, "r", enforce), "u", on_outage)


@pytest.mark.parametrize(
    ("asked", "fail_open", "outcome"),
    [
        (ask("open"), False, Outcome(True, 10, 10, 0, 0)),
        (ask(None), True, Outcome(True, 10, 10, 0, 0)),
        (ask("open", rate="10/m burst 20"), False, Outcome(True, 20, 20, 0, 0)),
        (ask("closed"), True, Outcome(False, 10, 0, 1_000_000, 1_000_000)),
        (ask(None), False, Outcome(False, 10, 0, 1_000_000, 1_000_000)),
        (ask("open", rate="0/m"), True, Outcome(False, 0, 0, NEVER, 0)),
        (ask("open", cost=11), True, Outcome(False, 10, 10, NEVER, 0)),
        (ask("closed", rate="0/m"), True, Outcome(False, 0, 0, 1_000_000, 1_000_000)),
        (ask("local", cost=4), False, Outcome(True, 10, 6, 0, 60_000_000)),
    ],
)
def test_outcomes_of_the_policy(asked: Ask, fail_open: bool, outcome: Outcome) -> None:
    assert policy_outcomes([asked], fail_open, FakeClock()(), TAKE, MemoryStore()) == [outcome]


def test_outcomes_keep_the_order_of_their_charges() -> None:
    asks = [ask("local", 3), ask("open"), ask("local", 2), ask(None)]
    found = policy_outcomes(asks, True, FakeClock()(), TAKE, MemoryStore())
    assert [outcome.remaining for outcome in found] == [7, 10, 5, 10]


class TestEachRuleHasItsOwn:
    """`on_outage` wins over the settings; without one they decide."""

    @pytest.fixture
    def down(self, store: FailingStore) -> FailingStore:
        store.error = StoreError("down")
        return store

    @pytest.mark.parametrize("fail_open", [True, False])
    async def test_open_closed_or_the_settings(self, down: FailingStore, fail_open: bool) -> None:
        limiter = limiter_on(down, fail_open)
        rules = [Rule("r", "2/m", on_outage=policy) for policy in ("open", "closed", None)]
        seen = [[bool(limiter.check(rule, "u")) for _ in range(3)] for rule in rules]
        assert seen == [[True] * 3, [False] * 3, [fail_open] * 3]
        assert [(await limiter.acheck(rule, "u")).degraded for rule in rules] == [True] * 3

    async def test_an_in_process_limiter_takes_over(self, down: FailingStore) -> None:
        clock = FakeClock()
        limiter = Limiter(down, clock=clock, settings=Settings(fail_open=False))
        rule = Rule("r", "2/m", by="ip", on_outage="local")
        seen = [limiter.check(rule, "u"), await limiter.acheck(rule, "u"), limiter.check(rule, "u")]
        assert [(d.allowed, d.remaining, d.degraded, d.retry_after) for d in seen] == [
            (True, 1, True, 0.0),
            (True, 0, True, 0.0),
            (False, 0, True, 60.0),
        ]
        assert limiter.check(rule, "v")
        assert not limiter.peek(rule, "u")
        clock.advance(60)
        assert limiter.peek(rule, "u").remaining == 2
        assert limiter.check(rule, "u").remaining == 1
        assert len(down) == 0

    def test_the_store_goes_on_where_it_was_after_the_local_one(self, store: FailingStore) -> None:
        limiter, rule = limiter_on(store, fail_open=True), Rule("r", "3/m", on_outage="local")
        assert limiter.check(rule, "u").remaining == 2
        store.error = StoreError("down")
        assert [bool(limiter.check(rule, "u")) for _ in range(4)] == [True, True, True, False]
        store.error = None
        assert (limiter.check(rule, "u").remaining, limiter.check(rule, "u").degraded) == (1, False)

    def test_bans_are_local_too(self, down: FailingStore) -> None:
        limiter, rule = limiter_on(down, fail_open=True), Rule("r", "1/m", ban_for=300, on_outage="local")
        limiter.check(rule, "u")
        assert (limiter.check(rule, "u").retry_after, limiter.peek(rule, "u").banned) == (300.0, True)

    def test_a_call_that_a_closed_rule_refuses_spends_nothing_locally(self, down: FailingStore) -> None:
        limiter = limiter_on(down, fail_open=True)
        local = Rule("l", "2/m", on_outage="local")
        for _ in range(5):
            refused = limiter.check(Policy(local, Rule("c", "9/m", on_outage="closed")), "u")
            assert (refused.allowed, refused.rule, refused.retry_after) == (False, "c", 1.0)
        assert limiter.check(local, "u").remaining == 1
        assert limiter.check(Policy(local, Rule("c", "9/m", on_outage="closed", action="log")), "u").remaining == 0

    def test_shadow_refuses_nothing_in_an_outage_either(self, down: FailingStore) -> None:
        limiter = limiter_on(down, fail_open=False)
        decision = limiter.check(Rule("r", "2/m", action="log"), "u")
        assert (decision.allowed, decision.degraded, decision.shadow_denials) == (True, True, ("r",))

    def test_a_policy_mixes_them(self, down: FailingStore) -> None:
        limiter = limiter_on(down, fail_open=True)
        policy = Policy(
            Rule("open", "1/m", on_outage="open"), Rule("local", "2/m", on_outage="local"), Rule("set", "1/m")
        )
        assert [bool(limiter.check(policy, "u")) for _ in range(3)] == [True, True, False]
        assert limiter.check(policy, "u").rule == "local"
