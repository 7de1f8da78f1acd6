from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, RateLimits, Rule, settings
from ratelimit import kept as module
from ratelimit.guard import Guard
from ratelimit.kept import kept_guard
from ratelimit.settings import Settings, override
from ratelimit.testing import FakeClock, isolated
from tests.core.far import FarStore

USER = Identity("42", "203.0.113.7")
OTHER = Identity("43", "203.0.113.7")


def allowed(guard: Guard, times: int, identity: Identity = USER, group: str = "Type.field", *args: Any) -> int:
    return sum(bool(guard.check(identity, group, *args)) for _ in range(times))


def test_a_rule_spends_the_budget_shared_by_all_that_name_it(limiter: Limiter) -> None:
    one, other = Guard("WRITE_HEAVY"), Guard(RateLimits.WRITE_HEAVY)
    assert allowed(one, 6, group="a") + allowed(other, 6, group="b") == 10
    assert limiter.peek("WRITE_HEAVY", USER).remaining == 0


def test_a_rate_is_a_budget_of_its_own_in_each_group(limiter: Limiter) -> None:
    guard = Guard(rate="2/m")
    assert [allowed(guard, 3, group=group) for group in ("a", "b")] == [2, 2]
    assert allowed(Guard(rate="2/m", group="a"), 3, group="c") == 0


@pytest.mark.parametrize(
    ("rate", "limit"),
    [
        ("3/m", 3),
        (Rate(3, 60), 3),
        ("WRITE_HEAVY", 10),
        (RateLimits.WRITE_HEAVY, 10),
        (lambda: "4/m", 4),
        (lambda: Rate(4, 60), 4),
        (lambda: "WRITE_HEAVY", 10),
        (lambda: RateLimits.WRITE_HEAVY, 10),
    ],
)
async def test_forms_of_a_rate(limiter: Limiter, rate: Any, limit: int) -> None:
    assert Guard(rate=rate).check(USER, "a").limit == limit
    assert (await Guard(rate=rate).acheck(USER, "a")).limit == limit
    assert limiter.peek("WRITE_HEAVY", USER).remaining == 10


def test_a_rule_that_is_a_rate_counts_in_the_place(limiter: Limiter) -> None:
    assert [allowed(Guard(Rate(2, 60)), 3, group=group) for group in ("a", "b")] == [2, 2]
    assert allowed(Guard(Rate(2, 60), group="a"), 3) == 0


@pytest.mark.parametrize("rule", [Rule("r", "2/m"), Policy(Rule("r", "2/m"), Rule("s", "9/m"))])
def test_a_rule_object_counts_under_its_own_name_and_by_its_own_characteristics(limiter: Limiter, rule: Any) -> None:
    assert allowed(Guard(rule), 2, group="a") + allowed(Guard(rule), 2, group="b") == 2
    assert limiter.peek(Rule("r", "2/m"), USER).remaining == 0
    assert allowed(Guard(rule), 3, OTHER) == 2


def test_one_rule_may_count_in_a_group(limiter: Limiter) -> None:
    by_ip = Rule("r", "2/m", by="ip")
    assert [allowed(Guard(by_ip, group=group), 3) for group in ("a", "b")] == [2, 2]
    assert Guard(by_ip, cost=2).check(USER, "a").remaining == 0


async def test_attributes_of_the_caller_reach_the_rules(limiter: Limiter) -> None:
    guard = Guard(Policy(Rule("r", "1/m", match={"path": "/a", "protocol": "ws"}, by="device")), protocol="ws")
    device = USER.having(path="/a", device="d1")
    assert [guard.check(device, "a").key, (await guard.acheck(device, "a")).allowed] == ["device:d1", False]
    assert guard.check(device.having(device="d2"), "a").key == "device:d2"
    assert guard.check(device.having(path="/b"), "a").rule == "unlimited"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        *(({}, "either a rule"), ({"rule": "AI_QUERY", "rate": "1/m"}, "either a rule")),
        *(({"rule": rule}, repr(rule)) for rule in ("AI_QERY", "10/m", "", 5, True, len)),
        *(({"rate": rate}, repr(rate)) for rate in ("10/mm", "AI_QERY", "", 5, 0, True, ["10/m"], "10/m;", "١/m")),
        *(({"key": key}, repr(key)) for key in ("users", "", None, 5, ["ip"], "header:x")),
        *(({"cost": cost}, repr(cost)) for cost in (-1, 1.0, True, "1", None, 10**13)),
        *(({"group": group}, repr(group)) for group in ("", 5, b"g", ["g"])),
        *(
            ({"rule": rule, "key": key}, f"key={key!r} has no effect on")
            for rule in ("login", Rule("r", "1/m"), Policy(Rule("r", "1/m")))
            for key in ("ip", len)
        ),
        ({"rule": Policy(Rule("r", "1/m"), Rule("s", "1/m")), "group": "g"}, "group 'g' with a policy"),
        ({"rate": "login"}, "unknown category 'login'"),
    ],
)
def test_a_mistake_is_an_error_when_the_guard_is_made(arguments: dict[str, Any], named: str) -> None:
    rule = {} if {"rule", "rate"} & set(arguments) or not arguments else {"rule": "AI_QUERY"}
    with pytest.raises(ConfigurationError) as caught:
        Guard(**rule, **arguments)
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("key", "counted"),
    [
        ("ip", "ip:203.0.113.7"),
        ("user", "user:42"),
        ("global", "global"),
        (lambda name: name.upper(), "key:ADA"),
        (lambda name: len(name), "key:3"),
        (lambda name: "", "key:"),
        (lambda name: Identity(ip="198.51.100.1"), "ip:198.51.100.1"),
        (lambda name: USER.named(f"team:{name}"), "team:ada"),
    ],
)
def test_keys(limiter: Limiter, key: Any, counted: str) -> None:
    assert Guard(rate="1/m", key=key).check(USER, "a", "ada").key == counted


def test_a_callable_key_keeps_the_callers_tier(limiter: Limiter) -> None:
    guard = Guard("AI_QUERY", key=lambda: "x")
    assert [guard.check(identity, "a").limit for identity in (USER, Identity())] == [40, 20]


def test_callables_take_what_the_place_gives(limiter: Limiter) -> None:
    seen = []

    def take(answer: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: (seen.append((args, kwargs)), answer)[1]

    guard = Guard(rate=take("10/m"), key=take("k"), cost=take(3))
    assert guard.check(USER, "a", "root", "info", id=7).remaining == 7
    assert seen == [(("root", "info"), {"id": 7})] * 3


def test_callables_take_arguments_of_any_name(limiter: Limiter) -> None:
    arguments = {"self": 1, "identity": 2, "default_group": 3}
    guard = Guard(rate="10/m", key=lambda **kwargs: str(sorted(kwargs.values())))
    assert guard.check(USER, "a", **arguments).key == "key:[1, 2, 3]"


@pytest.mark.parametrize("what", ["rate", "key", "cost"])
def test_a_coroutine_function_is_no_callable_to_ask(what: str) -> None:
    async def answer() -> str:
        return "10/m"

    with pytest.raises(ConfigurationError, match=f"{what}=.* is a coroutine function; it must be a plain one"):
        Guard(**{"rate": "10/m", what: answer})  # type: ignore[arg-type]


@pytest.mark.parametrize(("cost", "remaining"), [(1, 9), (0, 10), (4, 6), (lambda: 4, 6), (lambda: 0, 10)])
def test_costs(limiter: Limiter, cost: Any, remaining: int) -> None:
    assert Guard(rate="10/m", cost=cost).check(USER, "a").remaining == remaining


@pytest.mark.parametrize(
    "arguments",
    [
        *({"rate": lambda value=value: value} for value in ("", "10", "10/m x", False, 0, 5, b"10/m", "AI_QERY")),
        *(
            {"rate": "1/m", "key": lambda value=value: value}
            for value in (None, True, False, 1.5, b"u", ["u"], object())
        ),
        *({"rate": "1/m", "cost": lambda value=value: value} for value in (True, -1, 1.5, None, "1")),
    ],
)
def test_a_callable_that_answers_nonsense_is_an_error_and_not_unlimited(
    limiter: Limiter, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        Guard(**arguments).check(USER, "a")


async def test_a_callable_rate_that_is_none_means_no_limit(fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock):
        guard = Guard(rate=lambda: None)
        decisions = [guard.check(USER, "a"), await guard.acheck(USER, "a")]
        assert [(d.allowed, d.rule, d.key, d.retry_after) for d in decisions] == [
            (True, "unlimited", "user:42", 0.0)
        ] * 2
        assert len(store) == 0


def test_a_limit_at_another_place_counts_there_and_leaves_the_first_as_it_was(limiter: Limiter) -> None:
    guard = Guard(rate="2/m", cost=2)
    there = guard.placed("there", "websocket")
    assert [allowed(one, 2, group="here") for one in (there, guard)] == [1, 1]
    assert limiter.peek(Rate(2, 60), USER, group="there").remaining == 0
    by_protocol = Guard(Rule("r", "0/m", match={"protocol": "websocket"}))
    assert [allowed(one, 1) for one in (by_protocol.placed(None, "websocket"), by_protocol)] == [0, 1]


def test_a_limit_at_another_place_is_the_same_one(fake_clock: FakeClock) -> None:
    rule = Rule("r", "5/m", by=("colour", "shape"))
    limiter = Limiter(MemoryStore(), clock=fake_clock)
    guard = Guard(rule, attributes={"colour": "red"}, facts=lambda: {"shape": "round"}, limiter=limiter)
    placed = guard.placed(None, "http")
    assert [one.check(USER, "place").key for one in (guard, placed)] == ["colour:red&shape:round"] * 2
    assert (placed.limiter, placed.check(USER, "place").remaining) == (limiter, 2)
    by_address = Guard(rate="5/m", key="ip", limiter=limiter).placed("there", "http")
    assert by_address.check(USER, "place").key == "ip:203.0.113.7"


async def test_sync_and_async_spend_one_budget(limiter: Limiter) -> None:
    guard = Guard(rate="4/m")
    assert [(await guard.acheck(USER, "a")).remaining, guard.check(USER, "a").remaining] == [3, 2]
    assert [(await guard.acheck(USER, "a")).remaining, guard.check(USER, "a").remaining] == [1, 0]
    assert not await guard.acheck(USER, "a")
    assert await guard.acheck(OTHER, "a")


def test_a_limiter_of_its_own_is_used(limiter: Limiter) -> None:
    own = Limiter(MemoryStore(), settings=Settings(overrides={"AI_QUERY": "1/m"}), clock=FakeClock())
    guard = Guard("AI_QUERY", limiter=own)
    assert guard.limiter is own
    assert allowed(guard, 3, Identity()) == 1
    assert limiter.peek("AI_QUERY", Identity()).remaining == 20


def test_the_processs_limiter_is_looked_up_at_each_check() -> None:
    guard = Guard(rate="1/m")
    for _ in range(2):
        with isolated():
            assert allowed(guard, 2) == 1


class TestMadeAtImport:
    """A decorator is made long before the settings that hold when it is asked."""

    guard = Guard("WRITE_HEAVY")
    of_its_own = Guard(rate="WRITE_HEAVY")

    def limits(self) -> tuple[int, int]:
        return self.guard.check(Identity(), "a").limit, self.of_its_own.check(Identity(), "a").limit

    def test_follows_an_override(self, limiter: Limiter) -> None:
        assert self.limits() == (5, 5)
        with override(overrides={"WRITE_HEAVY": "1/m"}):
            assert self.limits() == (1, 1)
            with override(overrides={"WRITE_HEAVY": "2/m"}):
                assert self.limits() == (2, 2)
            assert self.limits() == (1, 1)
        assert self.limits() == (5, 5)

    def test_follows_the_environment_after_a_reload(self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RATELIMIT_WRITE_HEAVY", "50/m")
        settings.reload()
        assert self.limits() == (50, 50)

    def test_follows_disable(self, limiter: Limiter) -> None:
        assert allowed(self.guard, 11) == 10
        with override(disable=True):
            assert allowed(self.guard, 200) == 200
        assert allowed(self.guard, 1) == 0


def kept(rule: Any = None, rate: Any = None, cost: Any = 1, limiter: Any = None, **more: Any) -> Guard:
    given = {"key": "user_or_ip", "attributes": None, "facts": dict, "protocol": "ws", **more}
    return kept_guard(rule, rate=rate, cost=cost, limiter=limiter, **given)


def test_a_place_that_names_its_limit_at_each_call_gets_one_guard_for_the_same_words(limiter: Limiter) -> None:
    assert kept("AI_QUERY") is kept("AI_QUERY")
    assert kept(rate="1/m") is kept(rate="1/m")
    different = [kept("AI_QUERY"), kept("EXPORT"), kept(rate="AI_QUERY"), kept("AI_QUERY", cost=2)]
    different += [kept("AI_QUERY", group="g"), kept("AI_QUERY", key="ip"), kept("AI_QUERY", facts=list)]
    assert len(set(different)) == len(different)
    assert allowed(kept(rate="2/m"), 2) + allowed(kept(rate="2/m"), 2) == 2


def test_what_may_be_of_one_call_alone_is_not_kept(limiter: Limiter) -> None:
    module._kept.cache_clear()
    kept(rate=lambda: "1/m")
    kept("AI_QUERY", key=lambda: "k")
    kept("AI_QUERY", cost=lambda: 1)
    kept("AI_QUERY", attributes={"path": "/"})
    kept("AI_QUERY", limiter=limiter)
    kept(Rule("r", "1/m"))
    for wrong in ({"cost": True}, {"cost": -1}, {"rule": "AI_QERY"}, {"group": ""}, {"key": "users"}):
        for _ in range(2):
            with pytest.raises(ConfigurationError):
                kept(**{"rule": "AI_QUERY", **wrong})
    assert module._kept.cache_info().currsize == 0
    for number in range(300):
        kept("AI_QUERY", group=f"room:{number}")
    assert module._kept.cache_info().currsize == 256


def test_a_kept_guard_follows_settings_and_limiter(limiter: Limiter) -> None:
    assert kept("WRITE_HEAVY").check(USER, "a").limit == 10
    with override(overrides={"WRITE_HEAVY": "3/m"}), isolated():
        assert [kept("WRITE_HEAVY").check(USER, "a").limit, allowed(kept("WRITE_HEAVY"), 9)] == [6, 5]


@pytest.mark.parametrize(
    "arguments", [{"rule": "WRITE_HEAVY"}, {"rule": Rate(10, 60)}, {"rate": "10/m"}, {"rate": "WRITE_HEAVY"}]
)
@pytest.mark.parametrize(
    "more", [{}, {"key": "ip"}, {"cost": 3}, {"group": "g"}, {"key": "global", "cost": 0, "group": "g"}]
)
async def test_a_limit_without_questions_asks_the_same_as_any_other(
    limiter: Limiter, arguments: dict[str, Any], more: dict[str, Any]
) -> None:
    guard = Guard(**arguments, **more)
    call = guard.call(USER, "place")
    assert call is not None
    found = [guard.check(USER, "place"), await guard.acheck(USER, "place"), limiter.check_many([call])]
    assert [decision.remaining for decision in found] == [10 - call.cost * times for times in (1, 2, 3)]
    assert len({(decision.rule, decision.key) for decision in found}) == 1


def test_the_key_of_a_limit_without_questions_is_known(limiter: Limiter) -> None:
    assert Guard("WRITE_HEAVY").known_key(USER) == "user:42"
    assert Guard(rate="10/m", key="ip").known_key(USER) == "ip:203.0.113.7"
    assert Guard(rate="10/m", key=lambda: "k").known_key(USER) is None
    assert Guard(Rule("r", "10/m", by="ip")).known_key(USER) is None


class TestAtHand:
    """What takes no trip is decided without a coroutine, and is what `check` decides."""

    @pytest.mark.parametrize(
        "arguments",
        [
            {"rule": "WRITE_HEAVY"},
            {"rate": "10/m", "group": "g"},
            {"rate": "10/m burst 10", "group": "g", "key": "ip", "cost": 3},
            {"rate": "10/m; 20/h", "group": "g"},
            {"rule": RateLimits.AI_QUERY, "key": "global"},
        ],
    )
    @pytest.mark.parametrize("identity", [USER, Identity(), Identity("1", superuser=True)])
    async def test_is_what_check_decides(
        self, limiter: Limiter, arguments: dict[str, Any], identity: Identity, fake_clock: FakeClock
    ) -> None:
        guard = Guard(**arguments)
        found = [guard.at_hand(identity), guard.check(identity, ""), await guard.acheck(identity, "")]
        first, second, third = [one.remaining for one in found if one is not None]
        assert first - second == second - third == guard.cost
        assert len({(one.rule, one.key, one.limit) for one in found if one is not None}) == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            {"rate": "10/m"},
            {"rate": "10/m", "group": "g", "cost": 0},
            {"rate": "10/m", "group": "g", "cost": lambda *_: 1},
            {"rate": "10/m", "group": "g", "key": lambda *_: "k"},
            {"rate": lambda *_: "10/m", "group": "g"},
            {"rule": "WRITE_HEAVY", "attributes": {"path": "/"}},
            {"rule": Rule("r", "10/m")},
        ],
    )
    def test_what_has_to_be_found_out_is_not(self, limiter: Limiter, arguments: dict[str, Any]) -> None:
        guard = Guard(**arguments)
        assert [guard.at_hand(USER), guard.at_hand(USER)] == [None, None]
        assert guard.check(USER, "place").remaining == (10 if arguments.get("cost") == 0 else 9)

    def test_what_takes_a_trip_is_not(self) -> None:
        store = FarStore()
        guard = Guard(rate="10/m", group="g", limiter=Limiter(store, clock=FakeClock()))
        assert [guard.at_hand(USER), guard.at_hand(USER), store.trips] == [None, None, []]

    @pytest.mark.parametrize(("own", "at_hand"), [("check", False), ("acheck", False), ("peek", True)])
    def test_a_limiter_that_decides_in_a_way_of_its_own_is_asked(self, own: str, at_hand: bool) -> None:
        kind: Any = type("Own", (Limiter,), {own: lambda self, *_, **__: self.unlimited("")})
        guard = Guard("WRITE_HEAVY", limiter=kind(MemoryStore(), clock=FakeClock()))
        assert (guard.at_hand(USER) is not None) is at_hand

    def test_follows_settings_and_limiter(self, limiter: Limiter) -> None:
        guard = Guard("WRITE_HEAVY")
        assert at_hand(guard, Identity()) == (5, 4)
        with override(overrides={"WRITE_HEAVY": "3/m"}):
            assert at_hand(guard, Identity()) == (3, 1)
            with isolated():
                assert at_hand(guard, Identity()) == (3, 2)
            with override(disable=True):
                assert guard.at_hand(Identity()) is None
        assert at_hand(guard, Identity()) == (5, 2)

    def test_denials_are_logged(self, limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
        guard = Guard(rate="1/m", group="g", protocol="http")
        assert [bool(guard.at_hand(USER)) for _ in range(2)] == [True, False]
        assert caplog.messages == ["rate limit exceeded: rule=g key=user:42 rate=1/m protocol=http"]


def at_hand(guard: Guard, identity: Identity) -> tuple[int, int]:
    decision = guard.at_hand(identity)
    assert decision is not None
    return decision.limit, decision.remaining
