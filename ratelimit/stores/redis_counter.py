"""Plain charges of one rate, prepared: what an event loop's checks have in common goes out as one command.

Rules:
- A check that comes while something is on the way joins the parcel of its counter, until that is sent or full.
- In a parcel every check is judged on its own, in the order in which they came.
- An error of the server reaches the checks of its parcel alone; one about a single key reaches that check alone.
- A server that does not know the script has done nothing: it is given the script, and asked the same again, once.
- Every error arrives as `StoreError`.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ratelimit.stores.base import Taken
from ratelimit.stores.redis_pipe import Pipe, Question, Single, refusal
from ratelimit.stores.redis_plain import Ask, AsyncAsk, Keys, Plain, command, errors, question
from ratelimit.stores.redis_script import packed
from ratelimit.stores.redis_wire import store_error

MOST_CHECKS: Final = 64
"""Checks in one parcel: the server does nothing else while it judges them."""

DIVIDED: Final = 8
"""So many are two parcels when they would be the only one on the way."""

Asked = tuple[Future[Taken], str, int, int]
"""A check: who waits for it, its packed key, its cost and its time."""


class RedisCounter:
    """One rate, counted under one head, ready for any caller. See `Store.counter`.

    `pipe` gives the running loop's connection if it is open; when it is not, `aask` opens it.
    """

    def __init__(self, of: Plain, ask: Ask, aask: AsyncAsk, pipe: Callable[[], Pipe | None]) -> None:
        self._plain, self._ask, self._aask, self._pipe = of, ask, aask, pipe
        self._open: dict[AbstractEventLoop, Parcel] = {}

    def take(self, caller: str, cost: int, now_us: int) -> Taken:
        """Takes `cost` units for `caller` if they fit; one EVALSHA."""
        of = self._plain
        return of.one_taken(self._ask(of, caller, cost, now_us), cost, now_us)

    def atake(self, caller: str, cost: int, now_us: int) -> Awaitable[Taken]:
        """`take` for an event loop; one EVALSHA for all checks that come while another trip is on the way."""
        keys = self._plain.keys(now_us)
        parcel = self._open.get(get_running_loop())
        if parcel is None or parcel.keys is not keys or parcel.pipe.room < 1:
            return self._begin(keys, caller, cost, now_us)
        parcel.pipe.room -= 1
        future: Future[Taken] = parcel.new_future()
        parcel.asked.append((future, keys[caller], cost, now_us))
        if len(parcel.asked) >= MOST_CHECKS:
            parcel.leave()
        return future

    def _begin(self, keys: Keys, caller: str, cost: int, now_us: int) -> Awaitable[Taken]:
        """A check that begins a parcel, or that no connection can take."""
        pipe = self._pipe()
        if pipe is None:
            return self._alone(caller, cost, now_us)
        future: Future[Taken] = pipe.loop.create_future()
        if pipe.room < 1:
            future.set_exception(store_error(refusal()))
            return future
        pipe.room -= 1
        parcel = Parcel(self._plain, self._open, pipe, keys, (future, keys[caller], cost, now_us))
        pipe.put(parcel)
        return future

    async def _alone(self, caller: str, cost: int, now_us: int) -> Taken:
        of = self._plain
        return of.one_taken(await self._aask(*question(of, caller, cost, now_us)), cost, now_us)


class Parcel:
    """Checks that go out as one command. Until then it is found in `open`, by its loop."""

    __slots__ = ("_again", "_open", "_plain", "asked", "keys", "new_future", "pipe")

    def __init__(
        self, of: Plain, open_ones: dict[AbstractEventLoop, Parcel], pipe: Pipe, keys: Keys, first: Asked
    ) -> None:
        self._plain, self._open, self.pipe, self.keys = of, open_ones, pipe, keys
        self.asked = [first]
        self.new_future = pipe.loop.create_future
        self._again = False

    def wait(self) -> None:
        """Lets further checks join."""
        waiting = self._open
        if waiting:  # a loop that ended before its parcel was sent would be kept with its connection
            for loop in [loop for loop in list(waiting) if loop.is_closed()]:
                waiting.pop(loop, None)
        waiting[self.pipe.loop] = self

    def leave(self) -> None:
        """Lets no further checks join."""
        if self._open.get(self.pipe.loop) is self:
            del self._open[self.pipe.loop]

    def divided(self) -> list[Question]:
        """See `Question.divided`."""
        if len(self.asked) < DIVIDED:
            return []
        half = Parcel(self._plain, self._open, self.pipe, self.keys, self.asked.pop())
        middle = len(self.asked) // 2 + 1
        half.asked, self.asked = self.asked[middle:] + half.asked, self.asked[:middle]
        return [half]

    def packed(self) -> bytes:
        """The command."""
        if len(self.asked) == 1:
            ((_, key, cost, now_us),) = self.asked
            return self._plain.asked(key, cost, now_us)
        _, keys, costs, times = zip(*self.asked, strict=True)
        return command(self._plain, keys, costs, times)

    def answer(self, reply: Any) -> int:
        """Tells those who wait. Returns how many checks that were."""
        if isinstance(reply, Exception):
            return self._failed(reply)
        checks = len(self.asked)
        if checks == 1:
            ((future, _, cost, now_us),) = self.asked
            if not future.done():  # else cancelled
                future.set_result(self._plain.one_taken(reply, cost, now_us))
            return 1
        try:
            taken = self._plain.taken(reply, [now_us for _, _, _, now_us in self.asked])
        except TypeError:
            return self._partly_failed(reply)
        for (future, *_), one in zip(self.asked, taken, strict=True):
            if not future.done():
                future.set_result(one)
        return checks

    def _partly_failed(self, reply: list[Any]) -> int:
        failed = errors(self._plain, reply, len(self.asked))
        for error in failed.values():
            self.pipe.heed(error)
        taken = self._plain.taken(reply, [now_us for _, _, _, now_us in self.asked])
        for place, (future, *_) in enumerate(self.asked):
            if not future.done():
                if place in failed:
                    future.set_exception(store_error(failed[place]))
                else:
                    future.set_result(taken[place])
        return len(self.asked)

    def _failed(self, error: Exception) -> int:
        if str(error).startswith("NOSCRIPT") and not self._again:
            self._again = True
            self.pipe.put(Single(packed("SCRIPT", "LOAD", self._plain.script.source)))
            self.pipe.put(self)
            return 0
        self.leave()
        for future, *_ in self.asked:
            if not future.done():
                future.set_exception(store_error(error))
        return len(self.asked)
