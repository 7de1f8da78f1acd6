"""Counts in one of Django's caches: fixed windows, for applications that cannot reach Redis themselves.

Rules:
- The window's number is part of the key, so a backend that loses a key's lifetime still ends its windows.
- Read first: a call that does not fit writes nothing. What fits is taken by `add` or `incr`, whose answer decides; what
  was taken beyond the limit is given back, so it may deny for an instant but never admits too much.
- A backend whose `incr` is a read and a write (database, file) is written under a lock instead: exact in one process,
  not between several.
- Nothing of the medium escapes but `StoreError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeVar

from asgiref.sync import sync_to_async
from django.core.cache import BaseCache

from ratelimit import ConfigurationError, Rate, RateLimitError, StoreError
from ratelimit.algorithms import fixed_window
from ratelimit.keys import stored_key
from ratelimit.outcome import LOOK, TAKE, Charge, Outcome
from ratelimit.stores.base import Share
from ratelimit.transaction import NO_BAN, Verdict, held_back, judge, outcomes
from ratelimit_django.caches import OwnCache, counts_atomically, one_at_a_time, runs_in_process, runs_on_a_database
from ratelimit_django.counters import keyed, put, read, settle, take

T = TypeVar("T")

ATTEMPTS: Final = 8
"""How often a call is judged anew when others took what it had seen free."""


class DjangoCacheStore:
    """A store on the cache that `alias` names in `CACHES`. It is looked up when used, not when this is made."""

    holds = frozenset({"fixed"})

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self._own = OwnCache(alias)

    def counter(self, head: str, rate: Rate) -> None:
        """None: every check goes through `apply`."""

    def joint(self, shares: Sequence[Share], one_caller: bool) -> None:
        """None: every check goes through `apply`."""

    def apply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.apply`. A call that passes costs a read and a write for each charge, a denied one only the read."""
        return self._safely(lambda cache: _apply(cache, charges, now_us, mode))

    async def aapply(self, charges: Sequence[Charge], now_us: int, mode: int = TAKE) -> list[Outcome]:
        """See `Store.aapply`. In a thread, unless the cache is in this process's memory: Django's own async operations
        are not atomic."""
        cache = self._cache()
        if runs_in_process(cache):
            return self.apply(charges, now_us, mode)
        return await sync_to_async(self.apply, thread_sensitive=runs_on_a_database(cache))(charges, now_us, mode)

    def settle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """See `Store.settle`; a read and a write for each charge."""
        self._safely(lambda cache: settle(cache, keyed(cache, charges, taken_us)))

    async def asettle(self, charges: Sequence[Charge], now_us: int, taken_us: int) -> None:
        """`settle` in a thread."""
        thread_sensitive = runs_on_a_database(self._cache())
        await sync_to_async(self.settle, thread_sensitive=thread_sensitive)(charges, now_us, taken_us)

    def clear(self, charges: Sequence[Charge], now_us: int) -> None:
        """See `Store.clear`; forgets the windows that hold `now_us`."""
        cache = self._cache()
        try:
            cache.delete_many([counter.key for counter in keyed(cache, charges, now_us)])
        except Exception as error:
            raise self._failed(error) from error

    async def aclear(self, charges: Sequence[Charge], now_us: int) -> None:
        """`clear` in a thread."""
        await sync_to_async(self.clear, thread_sensitive=runs_on_a_database(self._cache()))(charges, now_us)

    def clear_caller(self, prefix: str, caller: str) -> None:
        """Always a `ConfigurationError`: Django's caches cannot list keys."""
        raise ConfigurationError("a Django cache cannot list a caller's keys: name the rule (and the group) to clear")

    async def aclear_caller(self, prefix: str, caller: str) -> None:
        """The same."""
        self.clear_caller(prefix, caller)

    def close(self) -> None:
        """Closes this thread's cache object; those of other threads go with their threads."""
        self._own.close()

    async def aclose(self) -> None:
        """The same."""
        self.close()

    def _safely(self, work: Callable[[BaseCache], T]) -> T:
        """Does `work`, under a lock where the cache itself does not count atomically."""
        cache = self._cache()
        try:
            with nullcontext() if counts_atomically(cache) else one_at_a_time():
                return work(cache)
        except RateLimitError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _cache(self) -> BaseCache:
        try:
            return self._own.get()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(f"Django cache {self.alias!r}: {type(error).__name__}: {error}")


def _apply(cache: BaseCache, charges: Sequence[Charge], now_us: int, mode: int) -> list[Outcome]:
    counters = keyed(cache, charges, now_us)
    write = take if counts_atomically(cache) else put
    verdicts: list[Verdict] = []
    for _ in range(ATTEMPTS):
        counted = dict(zip((stored_key(charge, now_us) for charge in charges), read(cache, counters), strict=True))
        verdicts, every = judge(charges, now_us, partial(_state, now_us=now_us, counted=counted), lambda _: NO_BAN)
        if not every or mode == LOOK:
            break
        silent = held_back(charges, [verdict.passes for verdict in verdicts])
        passing = [i for i, charge in enumerate(charges) if charge.enforce or charge.rule not in silent]
        used, taken = write(cache, [counters[i] for i in passing], [verdicts[i].before[0] for i in passing])
        for i, before in zip(passing, used, strict=True):
            passes = fixed_window.passes((before,), charges[i].rate, charges[i].cost, now_us)
            verdicts[i] = verdicts[i]._replace(before=(before,), passes=passes)
        if taken:
            return outcomes(charges, verdicts, True, True, now_us, now_us)
    return outcomes(charges, verdicts, False, False, now_us, now_us)


def _state(charge: Charge, now_us: int, counted: Mapping[str, int]) -> tuple[int, ...]:
    return (counted[stored_key(charge, now_us)],)


def open_cache(url: str) -> DjangoCacheStore:
    """The store of `django://alias`; `django://` is the cache called `default`."""
    alias = url.removeprefix("django://")
    if "/" in alias or "?" in alias:
        raise ConfigurationError(f"store {url!r}: expected 'django://' and the alias of a cache in CACHES")
    return DjangoCacheStore(alias or "default")
