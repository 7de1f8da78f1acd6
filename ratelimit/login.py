"""Login protection: failures are counted, per (account, address) and per address; bans grow when guessing goes on.

Rules:
- Nobody can lock another's account out: the address is part of every key.
- One's own success clears that pair of account and address, and nothing else: a guesser who logs into an own account
  every few tries keeps the count of the address.
- Only failures count, so any number of successes is fine. While a ban holds nothing counts, so it cannot be prolonged.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ratelimit import events
from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.identity import Identity
from ratelimit.process import get_limiter
from ratelimit.rates import Rate
from ratelimit.rules import Policy, Rule

QUARTER_HOUR: Final = 900


class LoginProtection:
    """Asks before an attempt, counts failures, clears after success. Each has an asyncio twin.

        login = LoginProtection()
        if not login.check(account, identity): ...      # refused: answer it, do not look at the password
        login.failed(account, identity)                 # or login.succeeded(account, identity)

    After `failures` failures of one account from one address within `window` seconds, or `address_failures` of an address,
    the next attempt is refused for `bans[0]` seconds; when it happens again soon after, for `bans[1]`, and so on.
    `identity` is the caller; its address is what counts, be it logged in or not. Account names are compared without
    regard to letter case, surrounding blanks and compatibility characters.

    Needs a store that holds bans: memory or Redis. Raises `ConfigurationError` for numbers that cannot be used.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        address_failures: int = 20,
        window: int = QUARTER_HOUR,
        bans: Sequence[int] = (QUARTER_HOUR, 3_600, 86_400),
        limiter: Limiter | None = None,
    ) -> None:
        self.pair = _rule("login-pair", ("account", "ip"), failures, window, bans)
        address = _rule("login-address", "ip", address_failures, window, bans)
        self.policy = Policy(self.pair, address)
        # A failure has happened: it counts for both rules, also when it is the one that makes a ban. That is what rules in
        # shadow do, under the same names and so on the same counts.
        self._counting = Policy(replace(self.pair, action="log"), replace(address, action="log"))
        self._limiter = limiter

    @property
    def limiter(self) -> Limiter:
        """The limiter this was given, else the process's one."""
        return self._limiter or get_limiter()

    def check(self, account: str, identity: Identity) -> Decision:
        """Whether an attempt may be made; writes nothing. One round trip."""
        return _told(self.limiter.peek(self.policy, _about(account, identity), cost=0, protocol="login"))

    async def acheck(self, account: str, identity: Identity) -> Decision:
        """`check` for an event loop."""
        return _told(await self.limiter.apeek(self.policy, _about(account, identity), cost=0, protocol="login"))

    def failed(self, account: str, identity: Identity) -> None:
        """Counts a failed attempt, and writes the ban when it is one too many; nothing while a ban holds. Two round trips."""
        if self.limiter.peek(self.policy, _about(account, identity), cost=0):
            self.limiter.check(self._counting, _about(account, identity), protocol="login")

    async def afailed(self, account: str, identity: Identity) -> None:
        """`failed` for an event loop."""
        if await self.limiter.apeek(self.policy, _about(account, identity), cost=0):
            await self.limiter.acheck(self._counting, _about(account, identity), protocol="login")

    def succeeded(self, account: str, identity: Identity) -> None:
        """Forgets the failures and the ban of this account from this address. One round trip."""
        self.limiter.clear(self.pair, _about(account, identity))

    async def asucceeded(self, account: str, identity: Identity) -> None:
        """`succeeded` for an event loop."""
        await self.limiter.aclear(self.pair, _about(account, identity))


def _told(decision: Decision) -> Decision:
    """`decision`, once the log has been told of a refusal: a mere look is not logged."""
    events.decided(decision, "login")
    return decision


def normalised(account: str) -> str:
    """An account name as it is counted: NFKC, case-folded, without surrounding blanks (Unicode Standard Annex 15)."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", account).casefold()).strip()


def _about(account: str, identity: Identity) -> Identity:
    return replace(identity, name=None).having(account=normalised(account))


def _rule(name: str, by: str | tuple[str, ...], failures: int, window: int, bans: Sequence[int]) -> Rule:
    if type(failures) is not int or failures < 2:
        raise ConfigurationError(f"{name}: {failures!r} failures is not a whole number of at least 2")
    # The last failure crosses the limit and writes the ban, so the limit is one less than the failures it takes.
    return Rule(name, Rate(failures - 1, window, algorithm="anchored"), by=by, ban_for=bans)
