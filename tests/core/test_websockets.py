"""WebSocket connections and messages under limits, in an application that is nothing but ASGI."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, Policy, Rate, RateLimits, Rule, StoreError
from ratelimit.asgi import Message, Scope, denial_frame
from ratelimit.messages import MessageLimit
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from ratelimit.websockets import ConnectionLimit
from tests.core.far import FarStore

pytestmark = pytest.mark.usefixtures("renewed_by_hand")
CALLER = "ip:203.0.113.7"
TEXT = {"type": "websocket.receive", "text": "hello"}
BYTES = {"type": "websocket.receive", "bytes": b"hello"}
PING = {"type": "websocket.receive", "text": "ping"}
CONNECT = {"type": "websocket.connect"}
GONE = {"type": "websocket.disconnect", "code": 1001}
CLOSED = {"type": "websocket.close", "code": 4029}


def text(said: str) -> Message:
    return {"type": "websocket.receive", "text": said}


async def unreached(scope: Any, receive: Any, send: Any) -> None:
    """The application of a limit that is not asked."""
    raise AssertionError


def cap_of(most: int, **options: Any) -> ConnectionLimit:
    return ConnectionLimit(unreached, most, **options)


def limit_of(rule: Any = None, **options: Any) -> MessageLimit:
    return MessageLimit(unreached, rule, **options)


async def run(limit: ConnectionLimit | MessageLimit, app: Any, scope: Scope, receive: Any, send: Any) -> None:
    """One connection to `app`."""
    limit.app = app
    await limit(scope, receive, send)


class Peer:
    """The server's side of one connection: what the client sends, and what is sent to it."""

    def __init__(self, *messages: Message) -> None:
        self.queue: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Any] = []
        self.error: Exception | None = None
        for message in messages:
            self.queue.put_nowait(message)

    async def receive(self) -> Message:
        return await self.queue.get()

    async def send(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(json.loads(message["text"]) if message["type"] == "websocket.send" else message)


SCOPE = {"type": "websocket", "path": "/ws/", "headers": [], "client": ("203.0.113.7", 4711)}


async def seen_by_app(limit: MessageLimit, peer: Peer, **scope: Any) -> list[Message]:
    """What reaches an application that listens until its client has gone."""
    seen: list[Message] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while not seen or seen[-1]["type"] != "websocket.disconnect":
            seen.append(await receive())

    await run(limit, app, {**SCOPE, **scope}, peer.receive, peer.send)
    return seen


class TestMessages:
    async def test_what_is_over_the_limit_does_not_reach_the_application(self, limiter: Limiter) -> None:
        peer = Peer(CONNECT, text("a"), BYTES, text("c"), text("d"), GONE)
        assert await seen_by_app(limit_of(rate="2/m"), peer) == [CONNECT, text("a"), BYTES, GONE]
        denial = {"type": "RATE_LIMITED", "error": "Rate limit exceeded. Max 2 requests per minute.", "retry_after": 60}
        assert peer.sent == [denial, denial]

    async def test_what_comes_later_passes_when_it_may(self, limiter: Limiter, fake_clock: FakeClock) -> None:
        limit = limit_of(rate="1/m")
        assert await seen_by_app(limit, Peer(text("a"), text("b"), GONE)) == [text("a"), GONE]
        fake_clock.advance(60)
        assert await seen_by_app(limit, Peer(text("c"), GONE)) == [text("c"), GONE]

    async def test_connections_of_one_caller_share_and_others_do_not(self, limiter: Limiter) -> None:
        limit = limit_of("WRITE_HEAVY")
        user = {"user": "7"}
        assert len(await seen_by_app(limit, Peer(*[TEXT] * 7, GONE), **user)) == 8  # twice the rate, for a user
        assert len(await seen_by_app(limit, Peer(*[TEXT] * 7, GONE), **user, client=None)) == 4
        assert len(await seen_by_app(limit, Peer(*[TEXT] * 7, GONE))) == 6

    async def test_a_category_has_one_budget_for_all_protocols(self, limiter: Limiter) -> None:
        assert limiter.check("WRITE_HEAVY", CALLER, cost=4)
        assert await seen_by_app(limit_of(RateLimits.WRITE_HEAVY), Peer(TEXT, TEXT, GONE)) == [TEXT, GONE]

    async def test_nothing_is_sent_if_that_is_asked_for(self, limiter: Limiter) -> None:
        peer = Peer(TEXT, TEXT, TEXT, GONE)
        assert await seen_by_app(limit_of(rate="1/m", send_message=False), peer) == [TEXT, GONE]
        assert peer.sent == []

    async def test_what_is_exempt_is_not_counted(self, limiter: Limiter) -> None:
        limit = limit_of(rate="2/m", exempt=lambda message: message.get("text") == "ping")
        seen = await seen_by_app(limit, Peer(PING, TEXT, PING, TEXT, PING, TEXT, PING, GONE))
        assert seen == [PING, TEXT, PING, TEXT, PING, PING, GONE]

    async def test_the_rule_may_depend_on_the_message(self, limiter: Limiter) -> None:
        said = {"ping": "WS_HEARTBEAT", "hello": Rate.parse("1/m"), "rule": Rule("said", "2/m"), "free": None}
        limit = limit_of(lambda message: said[message["text"]])
        words = ["ping", "hello", "hello", "rule", "rule", "rule", "free", "ping"]
        seen = await seen_by_app(limit, Peer(*map(text, words), GONE))
        assert [message.get("text") for message in seen[:-1]] == ["ping", "hello", "rule", "rule", "free", "ping"]
        assert limiter.peek("WS_HEARTBEAT", CALLER).remaining == 118
        assert limiter.peek(Rate.parse("1/m"), CALLER, group="websocket:message").remaining == 0

    async def test_rules_that_are_made_anew_for_every_message_do_not_pile_up(self, limiter: Limiter) -> None:
        made = iter(range(1000))
        limit = limit_of(lambda message: Rule(f"r{next(made)}", "1/m"))
        assert len(await seen_by_app(limit, Peer(*[TEXT] * 100, GONE))) == 101
        assert len(limit._guards) == 36

    async def test_a_message_costs_what_it_weighs(self, limiter: Limiter) -> None:
        limit = limit_of(rate="100/m", group="characters", cost=lambda message: len(message["text"]))
        sizes = [60, 50, 40, 1]
        seen = await seen_by_app(limit, Peer(*[text("x" * size) for size in sizes], GONE))
        assert [len(message["text"]) for message in seen[:-1]] == [60, 40]
        assert limiter.peek(Rate.parse("100/m"), CALLER, group="characters").remaining == 0

    async def test_who_is_counted_and_by_what_is_found_in_the_scope(self, limiter: Limiter) -> None:
        by_room = limit_of(rate="1/m", key=lambda scope: scope["room"])
        assert len(await seen_by_app(by_room, Peer(TEXT, TEXT, GONE), room="a")) == 2
        assert len(await seen_by_app(by_room, Peer(TEXT, TEXT, GONE), room="b")) == 2
        policy = Policy(
            Rule("status", action="skip", match={"path": "/status/"}), Rule("said", "1/m", by=("user_or_ip", "room"))
        )
        by_rule = limit_of(policy, attributes=lambda scope: {"room": scope["room"]})
        assert len(await seen_by_app(by_rule, Peer(TEXT, TEXT, GONE), room="a")) == 2
        assert len(await seen_by_app(by_rule, Peer(TEXT, TEXT, GONE), room="b")) == 2
        assert len(await seen_by_app(by_rule, Peer(TEXT, TEXT, GONE), room="b", path="/status/")) == 3
        given = limit_of(Rule("given", "1/m", by="room"), attributes={"room": "c"})
        assert len(await seen_by_app(given, Peer(TEXT, TEXT, GONE))) == 2

    async def test_a_connection_is_closed_after_so_many_refusals_in_a_row(
        self, limiter: Limiter, fake_clock: FakeClock
    ) -> None:
        limit = limit_of(rate="1/m", close_after=3)
        peer = Peer(*[TEXT] * 9, GONE)
        seen = await seen_by_app(limit, peer)
        assert seen == [TEXT, {"type": "websocket.disconnect", "code": 4029, "reason": ""}]
        assert [message["type"] for message in peer.sent] == ["RATE_LIMITED"] * 3 + ["websocket.close"]
        assert peer.sent[-1] == CLOSED

    async def test_refusals_that_are_not_in_a_row_close_nothing(self, limiter: Limiter) -> None:
        limit = limit_of(lambda message: {"x": "WRITE_HEAVY", "y": Rate(0, 60)}[message["text"]], close_after=2)
        peer = Peer(*[text(word) for word in "yxyxyx"], GONE)
        assert await seen_by_app(limit, peer) == [text("x")] * 3 + [GONE]
        assert [message["type"] for message in peer.sent] == ["RATE_LIMITED"] * 3

    async def test_after_that_neither_side_says_anything(self, limiter: Limiter) -> None:
        peer = Peer(TEXT, TEXT, GONE)
        heard: list[Message] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.send", "text": "1"})
            heard.append(await receive())
            await send({"type": "websocket.send", "text": "2"})
            heard.append(await receive())

        await run(limit_of(rate="0/m", close_after=1), app, SCOPE, peer.receive, peer.send)
        assert [message["code"] for message in heard] == [4029, 1001]
        assert (peer.sent[0], peer.sent[1]["type"], peer.sent[2:]) == (1, "RATE_LIMITED", [CLOSED])

    async def test_an_application_that_has_closed_is_not_spoken_for(self, limiter: Limiter) -> None:
        peer = Peer(TEXT, TEXT, GONE)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.close", "code": 1000})
            assert await receive() == GONE

        await run(limit_of(rate="0/m", close_after=2), app, SCOPE, peer.receive, peer.send)
        assert peer.sent == [{"type": "websocket.close", "code": 1000}]

    @pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("closed")])
    async def test_a_client_that_has_gone_meanwhile_is_no_error(self, error: Exception, limiter: Limiter) -> None:
        peer = Peer(TEXT, TEXT, GONE)
        peer.error = error
        assert (await seen_by_app(limit_of(rate="0/m", close_after=2), peer))[0]["code"] == 4029

    async def test_other_scopes_pass_untouched(self) -> None:
        seen: list[Any] = []

        async def app(*given: Any) -> None:
            seen.append(given)

        peer = Peer()
        for kind in ("http", "lifespan"):
            await run(limit_of(rate="0/m"), app, {"type": kind}, peer.receive, peer.send)
            assert seen.pop() == ({"type": kind}, peer.receive, peer.send)

    async def test_nothing_is_counted_when_limits_are_off(self, fake_clock: FakeClock) -> None:
        with isolated(clock=fake_clock, disable=True):
            assert len(await seen_by_app(limit_of(rate="0/m"), Peer(TEXT, TEXT, GONE))) == 3

    async def test_a_limiter_of_its_own(self, limiter: Limiter) -> None:
        own = Limiter(settings=Settings(proxies_count=1), clock=FakeClock())
        limit = limit_of("WRITE_HEAVY", limiter=own)
        await seen_by_app(limit, Peer(TEXT, GONE), headers=[(b"x-forwarded-for", b"192.0.2.9")])
        assert own.peek("WRITE_HEAVY", "ip:192.0.2.9").remaining == 4
        assert limiter.peek("WRITE_HEAVY", "ip:192.0.2.9").remaining == 5

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({}, "give either a rule"),
            ({"rule": "AI_QUERRY"}, "AI_QUERRY"),
            ({"rate": "2 per minute"}, "2 per minute"),
            ({"rate": lambda scope: "2/m"}, "give the callable as the rule"),
            ({"rule": lambda message: None, "rate": "2/m"}, "give either a rule"),
            ({"rate": "2/m", "key": "usr"}, "usr"),
            ({"rate": "2/m", "cost": -1}, "cost -1"),
            ({"rate": "2/m", "close_after": 0}, "close_after 0"),
            ({"rate": "2/m", "close_after": True}, "close_after True"),
            ({"rate": "2/m", "exempt": "ping"}, "exempt='ping'"),
        ],
    )
    def test_mistakes_are_told_at_once(self, options: dict[str, Any], told: str) -> None:
        with pytest.raises(ConfigurationError, match=told):
            limit_of(**options)

    @pytest.mark.parametrize("what", ["rule", "key", "cost", "attributes", "exempt"])
    def test_coroutine_functions_are_refused(self, what: str) -> None:
        async def function(*_: Any) -> Any: ...

        options: dict[str, Any] = {"rate": None if what == "rule" else "2/m", what: function}
        with pytest.raises(ConfigurationError, match=f"{what}=.* is a coroutine function"):
            limit_of(**options)


class TestWaiting:
    """A receive may be cancelled at any moment, and the store may take its time."""

    @asynccontextmanager
    async def far(self, peer: Peer, **options: Any) -> AsyncIterator[tuple[FarStore, Callable[[], Any]]]:
        store = FarStore()
        store.held = []
        given: list[Callable[[], Any]] = []
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            given.append(receive)
            await ended.wait()

        limit = limit_of(rate="2/m", limiter=Limiter(store, clock=FakeClock()), **options)
        running = asyncio.create_task(run(limit, app, SCOPE, peer.receive, peer.send))
        await asyncio.sleep(0)
        yield store, given[0]
        ended.set()
        await running

    async def test_whoever_is_cancelled_while_a_message_is_judged_leaves_it_to_the_next(self) -> None:
        async with self.far(Peer(text("a"), text("b"))) as (store, receive):
            for _ in range(3):
                waiting = asyncio.create_task(receive())
                for _ in range(4):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait([waiting])
            assert store.trips == [1]  # counted once
            after = asyncio.create_task(receive())
            await store.land()
            assert await after == text("a")
            last = asyncio.create_task(receive())
            for _ in range(4):
                await asyncio.sleep(0)
            await store.land()
            assert await last == text("b")

    async def test_whoever_is_cancelled_while_nothing_comes_loses_nothing(self) -> None:
        peer = Peer()
        async with self.far(peer) as (store, receive):
            waiting = asyncio.create_task(receive())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            peer.queue.put_nowait(GONE)
            assert await receive() == GONE
            assert store.trips == []

    async def test_each_of_several_that_wait_at_once_gets_another_message(self) -> None:
        async with self.far(Peer(text("a"), text("b"))) as (store, receive):
            waiting = [asyncio.create_task(receive()) for _ in range(2)]
            for said in "ab":
                for _ in range(10):
                    await asyncio.sleep(0)
                await store.land()
                assert await waiting.pop(0) == text(said)
            assert store.trips == [1, 1]

    async def test_what_is_under_way_ends_with_the_application(self) -> None:
        async with self.far(Peer(text("a"))) as (store, receive):
            waiting = asyncio.create_task(receive())
            for _ in range(4):
                await asyncio.sleep(0)
            assert store.held is not None
            assert len(store.held) == 1
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_one_message_is_asked_about_at_a_time(self) -> None:
        peer = Peer(text("a"), text("b"))
        async with self.far(peer) as (store, receive):
            waiting = asyncio.create_task(receive())
            for _ in range(10):
                await asyncio.sleep(0)
            assert (store.trips, peer.queue.qsize()) == ([1], 1)
            await store.land()
            await waiting

    async def test_a_mistake_in_a_callable_reaches_the_application_as_an_error(self, limiter: Limiter) -> None:
        limit = limit_of(rate="2/m", cost=lambda message: message["size"])
        with pytest.raises(KeyError):
            await seen_by_app(limit, Peer(TEXT, GONE))

    async def test_an_error_that_nobody_waits_for_is_nobodys(self) -> None:
        async with self.far(Peer(text("a"))) as (store, receive):
            waiting = asyncio.create_task(receive())
            for _ in range(4):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert store.held is not None
            store.held[0][0].set_exception(ConfigurationError("a mistake"))
            for _ in range(4):
                await asyncio.sleep(0)

    async def test_a_store_that_fails_is_the_outage_policys_matter(self) -> None:
        store = FarStore()
        store.error = StoreError("down")
        limiter = Limiter(store, settings=Settings(fail_open=False), clock=FakeClock())
        peer = Peer(TEXT, GONE)
        assert await seen_by_app(limit_of(rate="2/m", limiter=limiter), peer) == [GONE]
        assert peer.sent[0]["retry_after"] == 1


class TestConnections:
    async def test_a_place_from_the_handshake_to_the_end(self, limiter: Limiter) -> None:
        limit = cap_of(1)
        peer, seen = Peer(CONNECT), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(limit.cap.taken(CALLER))
            await run(limit, app, SCOPE, receive, send)

        await run(limit, app, SCOPE, peer.receive, peer.send)
        assert (seen, peer.sent, limit.cap.taken(CALLER)) == ([1], [CLOSED], 0)

    async def test_an_answer_where_the_server_can_send_one(self, limiter: Limiter) -> None:
        limit = cap_of(0)
        peer = Peer(CONNECT)
        scope = {**SCOPE, "extensions": {"websocket.http.response": {}}}
        await limit(scope, peer.receive, peer.send)
        assert [message["type"] for message in peer.sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]

    async def test_a_key_of_the_applications_own(self, limiter: Limiter) -> None:
        limit = cap_of(1, key=lambda scope: scope["path"])

        async def app(scope: Any, receive: Any, send: Any) -> None:
            assert limit.cap.taken("key:/ws/") == 1

        await run(limit, app, SCOPE, Peer().receive, Peer().send)

    async def test_other_scopes_pass_untouched(self) -> None:
        limit = cap_of(0)
        seen: list[Any] = []

        async def app(*given: Any) -> None:
            seen.append(given)

        peer = Peer()
        await run(limit, app, {"type": "http"}, peer.receive, peer.send)
        assert seen == [({"type": "http"}, peer.receive, peer.send)]

    @pytest.mark.parametrize("hanging", [False, True])
    async def test_a_lost_place_closes_the_connection_by_choice(
        self, hanging: bool, limiter: Limiter, fake_clock: FakeClock
    ) -> None:
        limit = cap_of(1, close_lost=True)
        ended, peer = asyncio.Event(), Peer()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await ended.wait()
            await send({"type": "websocket.send", "text": "{}"})

        async def send(message: Message) -> None:
            await peer.send(message)
            if hanging:
                await asyncio.Event().wait()

        running = asyncio.create_task(run(limit, app, SCOPE, peer.receive, send))
        await asyncio.sleep(0)
        fake_clock.advance(60)
        await type(limit.cap)(1).hold(CALLER).__aenter__()
        for _ in range(10):
            await limit.cap._loops[asyncio.get_running_loop()].turn()
        await asyncio.sleep(0)
        ended.set()
        await running
        assert peer.sent == [CLOSED]

    def test_a_coroutine_function_is_no_key(self) -> None:
        async def key(scope: Any) -> str:
            return ""

        with pytest.raises(ConfigurationError, match="coroutine function"):
            cap_of(1, key=key)


def test_the_denial_frame(limiter: Limiter) -> None:
    assert denial_frame(limiter.check(Rate.parse("0/m"), "u")) == {
        "type": "RATE_LIMITED",
        "error": "Rate limit exceeded. Max 0 requests per minute.",
        "retry_after": None,
    }
