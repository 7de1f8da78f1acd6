"""Login protection: who is counted, when a ban begins and ends, what a success clears."""

from __future__ import annotations

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore
from ratelimit.login import LoginProtection, normalised
from ratelimit.testing import FakeClock

HERE, THERE = Identity(ip="203.0.113.7"), Identity(ip="198.51.100.9")


@pytest.fixture
def login(fake_clock: FakeClock) -> LoginProtection:
    limiter = Limiter(MemoryStore(), clock=fake_clock)
    return LoginProtection(failures=3, address_failures=5, bans=(900, 3600), limiter=limiter)


def fail(login: LoginProtection, times: int, account: str = "ann", caller: Identity = HERE) -> None:
    for _ in range(times):
        assert login.check(account, caller)
        login.failed(account, caller)


def test_the_attempt_after_the_last_failure_is_refused(login: LoginProtection, fake_clock: FakeClock) -> None:
    fail(login, 3)
    refused = login.check("ann", HERE)
    assert (refused.allowed, refused.banned, refused.rule, refused.retry_after) == (False, True, "login-pair", 900.0)
    fake_clock.advance(899.999999)
    assert login.check("ann", HERE).retry_after == 0.000001
    fake_clock.advance(0.000001)
    assert login.check("ann", HERE)


def test_nobody_can_lock_out_an_account_from_elsewhere(login: LoginProtection) -> None:
    fail(login, 3)
    assert login.check("ann", THERE)
    assert login.check("bob", HERE)


def test_guesses_spread_over_accounts_meet_the_address(login: LoginProtection) -> None:
    for account in ("ann", "bob", "cat", "dan", "eve"):
        fail(login, 1, account)
    refused = login.check("fay", HERE)
    assert (refused.allowed, refused.rule) == (False, "login-address")
    assert login.check("fay", THERE)


def test_ones_own_success_between_guesses_does_not_wipe_the_slate(login: LoginProtection) -> None:
    for _ in range(2):
        fail(login, 1, "victim")
        login.succeeded("own", HERE)
    fail(login, 1, "victim")
    login.succeeded("own", HERE)
    assert not login.check("victim", HERE)


def test_a_success_forgets_the_failures_of_its_pair_only(login: LoginProtection) -> None:
    fail(login, 2)
    fail(login, 2, caller=THERE)
    login.succeeded("ann", HERE)
    fail(login, 2)
    assert login.check("ann", HERE)
    fail(login, 1, caller=THERE)
    assert not login.check("ann", THERE)


def test_successes_lock_nobody_out(login: LoginProtection) -> None:
    for _ in range(50):
        assert login.check("ann", HERE)
        login.succeeded("ann", HERE)
    assert login.check("ann", HERE)


def test_bans_grow_when_guessing_goes_on_and_begin_anew_after_a_pause(
    login: LoginProtection, fake_clock: FakeClock
) -> None:
    lengths = []
    for pause in (0, 0, 0, 3600):
        fake_clock.advance(pause)
        fail(login, 3)
        lengths.append(login.check("ann", HERE).retry_after)
        fake_clock.advance(lengths[-1] or 0)
        login.limiter.clear(login.policy.rules[1], HERE)
    assert lengths == [900.0, 3600.0, 3600.0, 900.0]


def test_attempts_while_banned_do_not_prolong_it(login: LoginProtection, fake_clock: FakeClock) -> None:
    fail(login, 3)
    for left in range(900, 0, -100):
        assert login.check("ann", HERE).retry_after == left
        login.failed("ann", HERE)
        fake_clock.advance(100)
    assert login.check("ann", HERE)


@pytest.mark.parametrize("spelling", ["ann", "ANN", " Ann ", "ＡＮＮ"])
def test_an_account_has_one_count_however_it_is_spelled(spelling: str, login: LoginProtection) -> None:
    fail(login, 3)
    assert not login.check(spelling, HERE)
    assert normalised(spelling) == "ann"


async def test_the_asyncio_twins(login: LoginProtection) -> None:
    for _ in range(3):
        assert await login.acheck("ann", HERE)
        await login.afailed("ann", HERE)
    assert not await login.acheck("ann", HERE)
    await login.afailed("ann", HERE)
    assert (await login.acheck("ann", HERE)).retry_after == 900.0
    await login.asucceeded("ann", HERE)
    assert await login.acheck("ann", HERE)


def test_the_callers_own_name_and_user_do_not_matter(login: LoginProtection) -> None:
    fail(login, 3)
    assert not login.check("ann", Identity(user="7", ip="203.0.113.7", name="key:x"))


@pytest.mark.parametrize("options", [{"failures": 1}, {"address_failures": True}, {"bans": (0,)}, {"window": 0}])
def test_numbers_that_cannot_be_used_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        LoginProtection(**options)  # type: ignore[arg-type]
