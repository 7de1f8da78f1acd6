"""A cap on what a caller may have open at once: connections, streams, jobs.

    cap = ConnectionCap(most=5)
    async with cap.hold(identity) as decision:
        if decision.allowed: ...

Rules:
- Each holder has a lease on a place of its caller's. It is renewed while the block lasts and given back at its end, however
  that comes; a process that crashes renews nothing, so its places are free after one lease.
- What was refused never gives anything back.
- A lease that was lost (the process stood still for longer than it lasts) is taken again where there is a place. Where there
  is none the holder is told, and it is tried again at every renewal.
- A store that fails is the outage policy's matter. Who was let in meanwhile gets a place when the store is back, if there is one.
"""

from __future__ import annotations

import os
import threading
import weakref
from asyncio import AbstractEventLoop, Task, get_running_loop, shield
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import Context
from inspect import iscoroutinefunction
from typing import Final

from ratelimit import events
from ratelimit.decision import Decision, Part, decided
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.holds import Hold
from ratelimit.identity import STRATEGIES, Identity, unknown_strategy
from ratelimit.keys import head, keyed
from ratelimit.outage import CLOSED_RETRY_US, OutageLog
from ratelimit.outcome import NEVER, Outcome
from ratelimit.plan import not_a_caller
from ratelimit.process import get_limiter
from ratelimit.rates import AtOnce
from ratelimit.renewals import Renewals
from ratelimit.rules import ON_OUTAGE
from ratelimit.stores.places import Claimed, HasPlaces, Places, Room

DEFAULT_LEASE: Final = 60
MAX_LEASE: Final = 86_400
MAX_MOST: Final = 1_000_000

Most = int | Callable[[Identity], "int | None"]
"""How many at once: for everybody, or a function of the caller that gives it, None for no cap."""


class ConnectionCap:
    """At most `most` at once for each caller, in all processes that share the store.

    `most` may be a function of the caller (its plan, say) that gives a number, or None for no cap. `name` is what the cap is
    called in keys, decisions and logs: caps of one name share their places. `key` says who is one caller, as in
    `Identity.key`. `lease` is how many seconds the places of a crashed process stay taken. `on_outage` is `"open"`,
    `"closed"` or `"local"` (this process counts for itself); None leaves it to the settings.

    Raises `ConfigurationError` for what cannot be used; for a store that keeps no places, when it is first asked.
    """

    def __init__(
        self,
        most: Most = 5,
        *,
        name: str = "connections",
        key: str = "user_or_ip",
        lease: int = DEFAULT_LEASE,
        on_outage: str | None = None,
        protocol: str = "",
        limiter: Limiter | None = None,
    ) -> None:
        if iscoroutinefunction(most):
            raise ConfigurationError(f"most={most!r} is a coroutine function; it must be a plain one")
        if not callable(most):
            _check_most(most)
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"name {name!r} is not a name")
        if key not in STRATEGIES:
            raise unknown_strategy(key)
        if type(lease) is not int or not 1 <= lease <= MAX_LEASE:
            raise ConfigurationError(f"lease {lease!r} is not a whole number of seconds from 1 to {MAX_LEASE}")
        if on_outage is not None and on_outage not in ON_OUTAGE:
            raise ConfigurationError(f"on_outage {on_outage!r} is not one of {', '.join(ON_OUTAGE)}")
        self.most, self.name, self.key, self.lease = most, name, key, lease
        self.on_outage, self.protocol = on_outage, protocol
        self._limiter = limiter
        self._outage = OutageLog()
        self.begin_anew()
        _CAPS.add(self)

    @property
    def limiter(self) -> Limiter:
        """The limiter this cap was given, else the process's one: its store keeps the places."""
        return self._limiter or get_limiter()

    def hold(self, identity: Identity | str, on_lost: Callable[[], object] | None = None) -> Hold:
        """A place for the caller, to be entered by `async with`, which gives the decision. One round trip, and one to leave.

        `on_lost` is called when the place was lost and there is none to take again; see `Hold.lost`.
        """
        most = self._most(identity)
        caller = identity if isinstance(identity, str) else identity.key(self.key)
        room = None if most is None or self.limiter.settings.disable else self._room(caller, most)
        return Hold(self, room, identity, caller, on_lost)

    def taken(self, identity: Identity | str) -> int:
        """How many places the caller has taken, everywhere; writes nothing. One round trip. Raises `StoreError`."""
        return self.places().count(self._known_room(identity), self.limiter.now())

    async def ataken(self, identity: Identity | str) -> int:
        """`taken` for an event loop."""
        return await self.places().acount(self._known_room(identity), self.limiter.now())

    @property
    def held(self) -> int:
        """How many this process holds, for all callers."""
        return sum(self._here.values())

    def places(self) -> Places:
        """Where the places are kept. Raises `ConfigurationError` if the limiter's store keeps none."""
        store = self.limiter.store
        if not isinstance(store, HasPlaces):
            raise ConfigurationError(
                f"cap {self.name!r}: {type(store).__name__} keeps no places; use MemoryStore, RedisStore, a Django cache "
                "that counts atomically, or give the store `places` (see ratelimit.stores.places)"
            )
        return store.places

    def begin_anew(self) -> None:
        """Forgets what this process holds: in a forked child, all of it is the parent's."""
        self._lock = threading.Lock()
        self._here: Counter[str] = Counter()
        self._loops: dict[AbstractEventLoop, Renewals[Hold]] = {}
        self._releases: set[Task[None]] = set()  # a loop keeps tasks only weakly

    async def take(self, hold: Hold) -> Decision:
        """The decision on one holder, who has a place then if it is allowed."""
        room = hold.room
        if room is None:
            return self.limiter.unlimited(hold.identity)
        try:
            (found,) = await self.places().ahold([hold.claim], self.limiter.now())
        except ConfigurationError:  # no outage: the store says what to mend
            raise
        except Exception as error:
            return self._degraded(hold, room, error)
        except BaseException:  # cancelled: nobody knows whether it was taken
            self._release(hold)
            raise
        self._outage.answered()
        if found.held:
            self._keep(hold, room)
        return self._decision(hold, room, _outcome(room, found))

    async def give_back(self, hold: Hold) -> None:
        """Lets go of the place of a holder who was let in."""
        key = hold.claim.room.key
        with self._lock:
            self._here[key] -= 1
            if not self._here[key]:
                del self._here[key]
        self._renewals().discard(hold)
        # A task of its own: who is cancelled once more while it waits has given the place back all the same.
        await shield(self._release(hold))

    def _release(self, hold: Hold) -> Task[None]:
        task = get_running_loop().create_task(self._released(hold), context=Context())
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)
        return task

    async def _released(self, hold: Hold) -> None:
        try:
            await self.places().arelease(hold.claim)
        except Exception as error:  # the lease will end
            self._outage.failed(error, self.limiter.settings.fail_open)

    async def renew(self, holds: Sequence[Hold]) -> Sequence[Hold]:
        """Renews these, and gives back those of which nobody knows."""
        try:
            found = await self.places().ahold([hold.claim for hold in holds], self.limiter.now())
        except Exception as error:
            self._outage.failed(error, self.limiter.settings.fail_open)
            return holds
        self._outage.answered()
        for hold, claimed in zip(holds, found, strict=True):
            if hold.ended:  # while it was renewed, perhaps after it was released
                self._release(hold)
            else:
                hold.tell(lost=not claimed.held)
        return ()

    def _keep(self, hold: Hold, room: Room, at_most: int = MAX_MOST) -> bool:
        """Whether this process may hold one more for the caller, and does now."""
        with self._lock:
            if self._here[room.key] >= at_most:
                return False
            self._here[room.key] += 1
        self._renewals().add(hold)
        return True

    def _renewals(self) -> Renewals[Hold]:
        loop = get_running_loop()
        renewals = self._loops.get(loop)
        if renewals is None:
            for other in [other for other in list(self._loops) if other.is_closed()]:
                self._loops.pop(other, None)
            renewals = self._loops[loop] = Renewals(self.renew, self.lease)
        return renewals

    def _degraded(self, hold: Hold, room: Room, error: Exception) -> Decision:
        fail_open = self.limiter.settings.fail_open
        self._outage.failed(error, fail_open)
        policy = self.on_outage or ("open" if fail_open else "closed")
        at_most = {"closed": 0, "local": room.most}.get(policy, MAX_MOST if room.most else 0)
        if self._keep(hold, room, at_most):
            outcome = _outcome(room, Claimed(True, self._here[room.key]))
        else:
            outcome = Outcome(False, room.most, 0, CLOSED_RETRY_US, CLOSED_RETRY_US)
        return self._decision(hold, room, outcome, degraded=True)

    def _decision(self, hold: Hold, room: Room, outcome: Outcome, degraded: bool = False) -> Decision:
        decision = decided([Part(self.name, AtOnce(room.most, self.lease), outcome, hold.caller)], degraded)
        if not decision.allowed:
            events.denied(decision, self.protocol)
        return decision

    def _most(self, identity: Identity | str) -> int | None:
        if not isinstance(identity, (str, Identity)):
            raise not_a_caller(identity)
        if not callable(self.most):
            return self.most
        most = self.most(Identity(name=identity) if isinstance(identity, str) else identity)
        return None if most is None else _check_most(most)

    def _room(self, caller: str, most: int) -> Room:
        # A cap with another lease counts for itself, as a rate with another window does. No window's key looks like this, and
        # what clears a caller's counts does not find it: connections are still open then.
        beginning = f"{head(self.limiter.settings.key_prefix, self.name)}~{self.lease}p"
        return Room(keyed(beginning, caller), most, self.lease * 1_000_000)

    def _known_room(self, identity: Identity | str) -> Room:
        most = self._most(identity) or 0
        return self._room(identity if isinstance(identity, str) else identity.key(self.key), most)


def _outcome(room: Room, found: Claimed) -> Outcome:
    """Nobody knows when a place will be free: somebody has to leave."""
    left = max(0, room.most - found.taken)
    return Outcome(found.held, room.most, left, 0 if found.held else NEVER, room.lease_us)


def _check_most(most: object) -> int:
    if type(most) is not int or not 0 <= most <= MAX_MOST:
        raise ConfigurationError(f"most {most!r} is not a whole number from 0 to {MAX_MOST}")
    return most


_CAPS: weakref.WeakSet[ConnectionCap] = weakref.WeakSet()


def _begin_anew() -> None:
    """In a forked child."""
    for cap in list(_CAPS):
        cap.begin_anew()


if hasattr(os, "register_at_fork"):  # pragma: no branch (a system without fork)
    os.register_at_fork(after_in_child=_begin_anew)
