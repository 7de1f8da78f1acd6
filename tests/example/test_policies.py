"""The policies of examples/policies, loaded as an application loads them and driven to the call."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratelimit import Decision, Identity, Limiter, MemoryStore
from ratelimit.policy_file import load_policies
from ratelimit.settings import override
from ratelimit.testing import FakeClock, isolated

POLICIES = Path(__file__).parents[2] / "examples" / "policies"
HERE, THERE = "203.0.113.7", "198.51.100.9"
ANN, BOB = Identity("ann", HERE), Identity("bob", HERE)


@contextmanager
def limited(file: str, clock: FakeClock) -> Iterator[Limiter]:
    with isolated(clock=clock, policy_file=POLICIES / file) as limiter:
        yield limiter


class Driver:
    """Asks one policy for many calls."""

    def __init__(self, limiter: Limiter, policy: str) -> None:
        self.limiter = limiter
        self.policy = policy

    def ask(self, identity: Identity | str, **attributes: Any) -> Decision:
        return self.limiter.check(self.policy, identity, attributes=attributes)

    def passed(self, times: int, identity: Identity | str, **attributes: Any) -> int:
        return sum(bool(self.ask(identity, **attributes)) for _ in range(times))

    def left(self, rule: str, identity: Identity | str, **attributes: Any) -> int:
        """What is left of one rule, whatever it matches."""
        found = replace(self.limiter.policies[self.policy][rule], match={})
        return self.limiter.peek(found, identity, attributes=attributes).remaining


def test_every_file_is_tested_and_listed() -> None:
    files = {path.name for path in POLICIES.iterdir() if path.suffix in (".py", ".toml")}
    assert files == {"plans.py", "mobile_api.toml", "login.toml", "paths.toml", "mcp.toml"}
    readme = (POLICIES / "README.md").read_text()
    assert all(f"[{name}]({name})" in readme for name in files)


@pytest.mark.parametrize("path", sorted(POLICIES.glob("*.toml")), ids=lambda path: path.name)
def test_no_two_policies_share_a_rule_by_accident(path: Path) -> None:
    others = [load_policies(other) for other in sorted(POLICIES.glob("*.toml")) if other != path]
    names = {rule.name for policies in others for policy in policies.values() for rule in policy}
    assert names.isdisjoint(rule.name for policy in load_policies(path).values() for rule in policy)


class TestPlans:
    plans = importlib.import_module("examples.policies.plans")

    @pytest.fixture
    def limiter(self, fake_clock: FakeClock) -> Limiter:
        return Limiter(MemoryStore(), clock=fake_clock)

    def passed(self, limiter: Limiter, times: int, *who: Any) -> int:
        identity = self.plans.identify(*who)
        return sum(bool(limiter.check(self.plans.API, identity)) for _ in range(times))

    @pytest.mark.parametrize(
        ("token", "burst", "a_minute"),
        [(None, 60, 60), ("tok-ann", 120, 60), ("tok-bob", 1200, 600), ("tok-eve", 12_000, 6000)],
    )
    def test_each_has_its_burst_and_its_rate(
        self, limiter: Limiter, fake_clock: FakeClock, token: str | None, burst: int, a_minute: int
    ) -> None:
        assert self.passed(limiter, burst + 1, HERE, token) == burst
        fake_clock.advance(60)
        assert self.passed(limiter, a_minute + 1, HERE, token) == a_minute

    def test_each_token_and_environment_has_its_own(self, limiter: Limiter) -> None:
        assert self.passed(limiter, 121, HERE, "tok-ann") == 120
        assert self.passed(limiter, 121, HERE, "tok-ann", "test") == 120
        assert self.passed(limiter, 1201, HERE, "tok-bob") == 1200
        assert self.passed(limiter, 61, HERE) == 60
        assert self.passed(limiter, 1, THERE, "tok-ann") == 0

    def test_nothing_invented_makes_a_budget(self, limiter: Limiter) -> None:
        assert self.passed(limiter, 60, HERE) == 60
        assert [self.passed(limiter, 1, HERE, f"tok-{n}", f"e{n}") for n in range(5)] == [0] * 5
        assert self.passed(limiter, 120, HERE, "tok-ann") == 120
        assert [self.passed(limiter, 1, HERE, "tok-ann", f"e{n}") for n in range(5)] == [0] * 5

    def test_no_token_stands_in_a_key(self, limiter: Limiter) -> None:
        decision = limiter.check(self.plans.API, self.plans.identify(HERE, "tok-ann", "test"))
        assert decision.key.startswith("tok:")
        assert decision.key.endswith("&environment:test")
        assert "tok-ann" not in decision.key


class TestMobileApi:
    @pytest.fixture
    def api(self, fake_clock: FakeClock) -> Iterator[Driver]:
        with limited("mobile_api.toml", fake_clock) as limiter:
            yield Driver(limiter, "mobile-api")

    read = {"path": "/v1/feed", "method": "GET"}
    write = {"path": "/v1/posts", "method": "POST"}

    def test_strangers_have_60_calls_a_minute_from_an_address(self, api: Driver) -> None:
        assert api.passed(70, Identity(ip=HERE), **self.read) == 60
        assert api.ask(Identity(ip=HERE), **self.read).rule == "mobile-address-anonymous"
        assert api.passed(70, Identity(ip=THERE), **self.read) == 60
        assert api.passed(1, ANN, **self.read) == 1

    def test_a_user_has_300_reads_and_60_writes(self, api: Driver) -> None:
        assert api.passed(310, ANN, **self.read) == 300
        assert api.ask(ANN, **self.read).rule == "mobile-reads"
        assert api.passed(70, ANN, **self.write) == 60
        assert api.ask(ANN, **self.write).rule == "mobile-writes"
        assert api.left("mobile-address", ANN) == 240
        assert api.left("mobile-all", ANN) == 50_000 - 360

    def test_users_of_one_address_have_600_together(self, api: Driver) -> None:
        callers = [Identity(name, HERE) for name in ("ann", "bob", "cat")]
        assert [api.passed(300, caller, **self.read) for caller in callers] == [300, 300, 0]
        refused = api.ask(callers[2], **self.read)
        assert (refused.rule, refused.key) == ("mobile-address", f"ip:{HERE}")
        assert api.left("mobile-reads", callers[2]) == 300
        assert api.passed(1, Identity("cat", THERE), **self.read) == 1

    def test_one_phone_behind_a_shared_address_has_120(self, api: Driver) -> None:
        assert api.passed(130, ANN, **self.read, device="d1") == 120
        assert api.ask(ANN, **self.read, device="d1").key == f"ip:{HERE}&device:d1"
        assert api.passed(130, ANN, **self.read, device="d2") == 120
        assert api.passed(10, BOB, **self.read, device="d3") == 10
        assert api.passed(10, Identity("bob", THERE), **self.read, device="d1") == 10

    def test_a_login_has_5_tries_from_an_address_and_5_for_an_account(self, api: Driver) -> None:
        login = {"path": "/v1/login", "method": "POST"}
        assert [api.passed(1, Identity(ip=HERE), **login, account=f"a{n}") for n in range(6)] == [1] * 5 + [0]
        assert api.ask(Identity(ip=HERE), **login, account="x").rule == "mobile-login-address"
        addresses = [Identity(ip=f"198.51.100.{n}") for n in range(5)]
        assert [api.passed(1, address, **login, account="a0") for address in addresses] == [1] * 4 + [0]
        assert api.ask(addresses[4], **login, account="a0").rule == "mobile-login-account"
        assert api.left("mobile-login-address", addresses[4]) == 5

    def test_a_refused_call_spends_nothing_anywhere(self, api: Driver) -> None:
        assert api.passed(500, ANN, **self.write, device="d1") == 60
        assert [
            *(api.left("mobile-all", ANN), api.left("mobile-address", ANN)),
            *(api.left("mobile-device", ANN, device="d1"), api.left("mobile-reads", ANN)),
        ] == [49_940, 540, 60, 300]

    def test_the_whole_service_has_its_cap(self, api: Driver) -> None:
        cap = api.limiter.policies["mobile-api"]["mobile-all"]
        assert api.limiter.check(cap, ANN, cost=49_999)
        assert [api.passed(1, caller, **self.read) for caller in (ANN, BOB)] == [1, 0]
        assert api.ask(BOB, path="/health").allowed

    def test_health_asks_nothing(self, api: Driver) -> None:
        assert api.passed(100, Identity(ip=HERE), path="/health", method="GET") == 100
        assert api.left("mobile-address-anonymous", Identity(ip=HERE)) == 60


class TestLogin:
    @pytest.fixture
    def limiter(self, fake_clock: FakeClock) -> Iterator[Limiter]:
        with limited("login.toml", fake_clock) as limiter:
            yield limiter

    def attempt(self, limiter: Limiter, account: str, right: bool, ip: str = HERE) -> Decision:
        """A login as the file's first lines say."""
        identity = Identity(ip=ip).having(account=account)
        reserved = limiter.reserve("login", identity)
        if reserved.decision and right:
            reserved.cancel()
            limiter.clear(limiter.policies["login"]["login-pair"], identity)
        return reserved.decision

    def test_the_sixth_try_after_five_failures_is_locked_out(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        assert [bool(self.attempt(limiter, "ann", False)) for _ in range(6)] == [True] * 5 + [False]
        locked = self.attempt(limiter, "ann", True)
        assert (locked.allowed, locked.banned, locked.rule, locked.retry_after) == (False, True, "login-pair", 900.0)
        fake_clock.advance(899.999999)
        assert not self.attempt(limiter, "ann", True)
        fake_clock.advance(0.000001)
        assert self.attempt(limiter, "ann", True)

    def test_lockouts_grow(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        lengths = []
        for _ in range(4):
            for _ in range(5):
                assert self.attempt(limiter, "ann", False)
            lengths.append(self.attempt(limiter, "ann", False).retry_after)
            fake_clock.advance(lengths[-1] or 0)
            limiter.clear(limiter.policies["login"]["login-address"], Identity(ip=HERE))
        assert lengths == [900.0, 3600.0, 86_400.0, 86_400.0]

    def test_nobody_can_lock_out_another(self, limiter: Limiter) -> None:
        for _ in range(6):
            self.attempt(limiter, "ann", False, ip=THERE)
        assert not self.attempt(limiter, "ann", True, ip=THERE)
        assert self.attempt(limiter, "ann", True)
        assert self.attempt(limiter, "bob", True, ip=THERE)

    def test_ones_own_success_does_not_wipe_the_slate(self, limiter: Limiter) -> None:
        tries = []
        for number in range(25):
            tries.append(bool(self.attempt(limiter, f"victim{number % 6}", False)))
            self.attempt(limiter, "own", True)
        assert tries == [True] * 20 + [False] * 5
        assert self.attempt(limiter, "own", True).rule == "login-address"

    def test_it_clears_its_own_pair(self, limiter: Limiter) -> None:
        for _ in range(3):
            for _ in range(4):
                assert self.attempt(limiter, "ann", False)
            assert self.attempt(limiter, "ann", True)

    def test_successes_lock_nobody_out(self, limiter: Limiter) -> None:
        assert all(self.attempt(limiter, "ann", True) for _ in range(50))
        assert limiter.peek("login", Identity(ip=HERE).having(account="ann")).remaining == 5

    def test_failures_at_once_count_each(self, limiter: Limiter) -> None:
        identity = Identity(ip=HERE).having(account="ann")
        waiting = [limiter.reserve("login", identity) for _ in range(8)]
        assert [bool(one.decision) for one in waiting] == [True] * 5 + [False] * 3

    def test_one_address_tries_ten_different_accounts_an_hour(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        names = Driver(limiter, "login-names")
        assert [names.passed(2, Identity(ip=HERE), account=f"a{n}") for n in range(12)] == [2] * 10 + [0] * 2
        assert names.passed(1, Identity(ip=HERE), account="a3") == 1
        assert names.passed(1, Identity(ip=THERE), account="a11") == 1
        fake_clock.advance(3600)
        assert names.passed(1, Identity(ip=HERE), account="a11") == 1


class TestPaths:
    @pytest.fixture
    def paths(self, fake_clock: FakeClock) -> Iterator[Driver]:
        with limited("paths.toml", fake_clock) as limiter:
            yield Driver(limiter, "paths")

    def test_an_api_call_is_one_of_300_and_a_write_one_of_60(self, paths: Driver) -> None:
        assert paths.passed(70, ANN, path="/api/items", method="POST") == 60
        assert paths.ask(ANN, path="/api/items", method="POST").rule == "api-writes"
        assert paths.passed(250, ANN, path="/api", method="GET") == 240
        assert paths.ask(ANN, path="/api", method="GET").rule == "api"
        assert paths.passed(300, BOB, path="/api/", method="GET") == 300

    def test_five_exports_an_hour_from_the_first(self, paths: Driver, fake_clock: FakeClock) -> None:
        fake_clock.advance(1800)
        assert paths.passed(6, ANN, path="/api/export/all", method="GET") == 5
        assert paths.ask(ANN, path="/api/export", method="GET").retry_after == 3600.0
        assert paths.left("api", ANN) == 295
        fake_clock.advance(3600)
        assert paths.passed(6, ANN, path="/api/export", method="GET") == 5

    def test_searches_have_two_rates(self, paths: Driver, fake_clock: FakeClock) -> None:
        passed = 0
        for _ in range(20):
            passed += paths.passed(2, ANN, path="/search", method="GET")
            passed += paths.passed(1, ANN, path="/suggest", method="GET")
            fake_clock.advance(1)
        assert passed == 30

    @pytest.mark.parametrize("path", ["/static/app.js", "/media", "/health", "/health/db", "/favicon.ico"])
    def test_exempt_paths_ask_nothing(self, paths: Driver, path: str) -> None:
        assert paths.passed(500, ANN, path=path, method="GET") == 500
        assert paths.ask(ANN, path=path, method="GET").rule == "unlimited"

    @pytest.mark.parametrize("path", ["/apiary", "/apia/x", "/statics", "/x/static/", "/healthy", "/faviconxico"])
    def test_a_pattern_means_whole_segments(self, paths: Driver, path: str) -> None:
        assert [part.rule for part in paths.ask(ANN, path=path, method="GET").parts] == ["pages"]

    def test_pages_are_only_watched(self, paths: Driver, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        asked = [paths.ask(ANN, path="/", method="GET") for _ in range(125)]
        assert all(asked)
        assert [decision.shadow_denials for decision in asked] == [()] * 120 + [("pages",)] * 5
        assert (
            caplog.messages
            == [f"rate limit would be exceeded: rule=pages key=ip:{HERE} rate=120/m sliding protocol=-"] * 5
        )


class TestMcp:
    @pytest.fixture
    def mcp(self, fake_clock: FakeClock) -> Iterator[Driver]:
        with limited("mcp.toml", fake_clock) as limiter:
            yield Driver(limiter, "mcp")

    stranger = Identity(ip=HERE)
    call = {"method": "tools/call"}

    def test_a_stranger_has_100_calls_and_a_user_200(self, mcp: Driver) -> None:
        assert mcp.passed(110, self.stranger, **self.call, tool="add") == 100
        assert mcp.ask(self.stranger, **self.call, tool="add").rule == "mcp-all"
        assert mcp.passed(210, ANN, **self.call, tool="add") == 200

    def test_a_tool_has_its_own_limit_within_the_cap(self, mcp: Driver) -> None:
        asked = [mcp.passed(1, self.stranger, **self.call, tool=("ask", "search")[n % 2]) for n in range(25)]
        assert asked == [1] * 20 + [0] * 5
        assert mcp.ask(self.stranger, **self.call, tool="ask").rule == "mcp-ask"
        assert [mcp.passed(1, self.stranger, **self.call, tool=f"analy{c}e_x") for c in "szszsz"] == [1] * 5 + [0]
        assert mcp.left("mcp-all", self.stranger) == 75
        assert mcp.passed(80, self.stranger, **self.call, tool="add") == 75

    def test_the_environment_changes_the_categories(self, mcp: Driver) -> None:
        with override(policy_file=POLICIES / "mcp.toml", overrides={"AI_QUERY": "3/m", "MCP_GLOBAL": "5/m"}):
            assert mcp.passed(5, self.stranger, **self.call, tool="ask") == 3
            assert mcp.passed(5, self.stranger, **self.call, tool="add") == 2

    def test_what_clients_send_on_their_own_is_free(self, mcp: Driver) -> None:
        for method in ("initialize", "ping", "tools/list"):
            assert mcp.passed(200, self.stranger, method=method) == 200
        assert mcp.left("mcp-all", self.stranger) == 100

    def test_an_expensive_tool_is_shared_by_all(self, mcp: Driver, fake_clock: FakeClock) -> None:
        callers = [Identity(f"u{n}", HERE) for n in range(25)]
        assert sum(mcp.passed(1, caller, **self.call, tool="generate_image") for caller in callers) == 20
        assert mcp.ask(ANN, **self.call, tool="generate_image").retry_after == 6.0
        fake_clock.advance(6)
        assert mcp.passed(2, ANN, **self.call, tool="generate_image") == 1
