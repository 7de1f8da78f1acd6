"""`@ws_ratelimit` on a consumer's methods: which run, what the client is told, and whose budget is spent."""

from __future__ import annotations

import asyncio
import inspect
import json
from typing import Any

import pytest
from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from channels.generic.websocket import (
    AsyncJsonWebsocketConsumer,
    AsyncWebsocketConsumer,
    JsonWebsocketConsumer,
    WebsocketConsumer,
)
from channels.layers import get_channel_layer
from django.test import override_settings

from ratelimit import ConfigurationError, Limiter, Policy, Rate, Rule
from ratelimit.testing import FakeClock
from ratelimit_channels import ws_ratelimit
from tests.channels.sockets import ADDRESS, ask, ask_all, opened, socket, user

ANSWER = {"type": "ANSWER"}
ALLOWED, DENIED = "ANSWER", "RATE_LIMITED"
DENIAL = {"type": DENIED, "error": "Rate limit exceeded. Max 20 requests per minute.", "retry_after": 60}


class Json(AsyncJsonWebsocketConsumer):
    @ws_ratelimit("AI_QUERY")
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        """Answers."""
        await self.send_json(ANSWER)


class Text(AsyncWebsocketConsumer):
    @ws_ratelimit("AI_QUERY")
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answers."""
        await self.send(text_data=json.dumps(ANSWER))


class Sync(WebsocketConsumer):
    @ws_ratelimit("AI_QUERY")
    def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Answers."""
        self.send(text_data=json.dumps(ANSWER))


class SyncJson(JsonWebsocketConsumer):
    @ws_ratelimit("AI_QUERY")
    def receive_json(self, content: Any, **kwargs: Any) -> None:
        """Answers."""
        self.send_json(ANSWER)


class Raw(AsyncConsumer):
    connects = 0

    @ws_ratelimit(rate="2/m")
    async def websocket_connect(self, message: Any) -> None:
        type(self).connects += 1
        await self.send({"type": "websocket.accept"})

    @ws_ratelimit("AI_QUERY")
    async def websocket_receive(self, message: Any) -> None:
        """Answers."""
        await self.send({"type": "websocket.send", "text": json.dumps(ANSWER)})

    async def websocket_disconnect(self, message: Any) -> None:
        raise StopConsumer


@pytest.mark.parametrize("kind", [Json, Text, Sync, SyncJson, Raw])
async def test_of_21_messages_20_are_answered_and_the_connection_stays_open(kind: Any, limiter: Limiter) -> None:
    async with opened(kind.as_asgi()) as one:
        assert await ask_all(one, 20) == [ALLOWED] * 20
        assert [await ask(one) for _ in range(2)] == [DENIAL] * 2


class Guarded(AsyncJsonWebsocketConsumer):
    connects = 0

    @ws_ratelimit(rate="2/m")
    async def connect(self) -> None:
        type(self).connects += 1
        await self.accept()


class SyncGuarded(WebsocketConsumer):
    connects = 0

    @ws_ratelimit(rate="2/m")
    def connect(self) -> None:
        type(self).connects += 1
        self.accept()


@pytest.mark.parametrize("kind", [Guarded, SyncGuarded, Raw])
async def test_a_connection_too_many_is_closed_before_it_is_accepted(
    kind: Any, limiter: Limiter, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "connects", 0)
    for _ in range(2):
        async with opened(kind.as_asgi()):
            pass
    refused = socket(kind.as_asgi())
    assert await refused.connect() == (False, 4029)
    assert await refused.receive_nothing()
    await refused.disconnect()
    assert kind.connects == 2
    fake_clock.advance(60)
    async with opened(kind.as_asgi()):
        pass


async def test_a_handler_of_channel_layer_messages(limiter: Limiter) -> None:
    class Chat(AsyncJsonWebsocketConsumer):
        groups = ["chat"]

        @ws_ratelimit(rate="1/m")
        async def chat_message(self, event: Any) -> None:
            await self.send_json(event["content"])

    layers = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    with override_settings(CHANNEL_LAYERS=layers):
        async with opened(Chat.as_asgi()) as one:
            layer = get_channel_layer()
            for n in range(2):
                await layer.group_send("chat", {"type": "chat.message", "content": {"n": n}})
            assert await one.receive_json_from() == {"n": 0}
            assert (await one.receive_json_from())["type"] == DENIED


async def test_nothing_is_sent_if_that_is_asked_for(limiter: Limiter) -> None:
    class Silent(AsyncJsonWebsocketConsumer):
        @ws_ratelimit(rate="1/m", send_message=False)
        async def receive_json(self, content: Any, **kwargs: Any) -> None:
            await self.send_json(ANSWER)

    class SyncSilent(JsonWebsocketConsumer):
        @ws_ratelimit(rate="1/m", send_message=False)
        def receive_json(self, content: Any, **kwargs: Any) -> None:
            self.send_json(ANSWER)

    for kind in (Silent, SyncSilent):
        async with opened(kind.as_asgi()) as one:
            assert await ask(one) == ANSWER
            await one.send_json_to({})
            assert await one.receive_nothing()


class Two(AsyncJsonWebsocketConsumer):
    @ws_ratelimit(rate="1/m")
    async def receive_json(self, content: Any, **kwargs: Any) -> None:
        await (self.other if content.get("other") else self.answer)(content)

    @ws_ratelimit(rate="1/m")
    async def other(self, content: Any) -> None:
        await self.answer(content)

    async def answer(self, content: Any) -> None:
        await self.send_json(ANSWER)


class Heir(Two):
    pass


async def test_a_rate_is_each_classs_and_methods_own(limiter: Limiter) -> None:
    async with opened(Two.as_asgi()) as one, opened(Heir.as_asgi()) as heir:
        await one.send_json_to({"other": 1})
        assert await one.receive_json_from() == ANSWER
        assert await ask_all(heir, 2) == [ALLOWED, DENIED]
    module = "websocket:tests.channels.test_decorator"
    left = {
        group: limiter.peek(Rate.parse("1/m"), f"ip:{ADDRESS}", group=f"{module}.{group}").remaining
        for group in ("Two.receive_json", "Two.other", "Heir.receive_json", "Heir.other")
    }
    assert left == {"Two.receive_json": 0, "Two.other": 0, "Heir.receive_json": 0, "Heir.other": 1}


async def test_callables_get_what_the_method_gets(limiter: Limiter) -> None:
    class Search(AsyncJsonWebsocketConsumer):
        @ws_ratelimit(
            rate=lambda consumer, content: content.get("rate"),
            key=lambda consumer, content: consumer.scope["room"],
            cost=lambda consumer, content: content["pages"],
            group="search",
        )
        async def receive_json(self, content: Any, **kwargs: Any) -> None:
            await self.send_json(ANSWER)

    async with opened(Search.as_asgi(), room="7") as one:
        for content, answered in [({"rate": "5/m", "pages": 4}, ALLOWED), ({"rate": "5/m", "pages": 2}, DENIED)]:
            await one.send_json_to(content)
            assert (await one.receive_json_from())["type"] == answered
        await one.send_json_to({"pages": 99})
        assert await one.receive_json_from() == ANSWER
    assert limiter.peek(Rate.parse("5/m"), "key:7", group="search").remaining == 1


async def test_rules_and_policies(limiter: Limiter) -> None:
    class Chat(AsyncJsonWebsocketConsumer):
        @ws_ratelimit(
            Policy(
                Rule("status", action="skip", match={"path": "/status/"}),
                Rule("said", "1/m", by=("user_or_ip", "room")),
            ),
            attributes=lambda consumer, content: {"room": content.get("room")},
        )
        async def receive_json(self, content: Any, **kwargs: Any) -> None:
            await self.send_json(ANSWER)

    async with opened(Chat.as_asgi()) as one, opened(Chat.as_asgi(), path="/status/") as status:
        for room, answered in [("a", ALLOWED), ("a", DENIED), ("b", ALLOWED)]:
            await one.send_json_to({"room": room})
            assert (await one.receive_json_from())["type"] == answered
        assert await ask_all(status, 3) == [ALLOWED] * 3


async def test_two_limits_on_one_method(limiter: Limiter) -> None:
    class Twice(AsyncJsonWebsocketConsumer):
        @ws_ratelimit("AI_QUERY")
        @ws_ratelimit(rate="2/m", group="inner")
        async def receive_json(self, content: Any, **kwargs: Any) -> None:
            await self.send_json(ANSWER)

    async with opened(Twice.as_asgi(), user=user(7)) as one:
        assert await ask_all(one, 3) == [ALLOWED, ALLOWED, DENIED]


def test_the_method_keeps_what_it_is() -> None:
    for method in (Json.receive_json, Text.receive, SyncJson.receive_json):
        assert method.__doc__ == "Answers."
        assert method.__module__ == __name__
    assert Json.receive_json.__qualname__ == "Json.receive_json"
    assert list(inspect.signature(Json.receive_json).parameters) == ["self", "content", "kwargs"]
    assert (inspect.iscoroutinefunction(Json.receive_json), inspect.iscoroutinefunction(Sync.receive)) == (True, False)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({}, "give either a rule"),
            ({"rule": "AI_QUERRY"}, "AI_QUERRY"),
            ({"rate": "2 per minute"}, "2 per minute"),
            ({"rate": "2/m", "key": "usr"}, "usr"),
            ({"rate": "2/m", "cost": -1}, "cost -1"),
        ],
    )
    def test_are_told_when_the_class_is_made(self, arguments: dict[str, Any], told: str) -> None:
        with pytest.raises(ConfigurationError, match=told):
            ws_ratelimit(**arguments)

    @pytest.mark.parametrize("name", ["disconnect", "websocket_disconnect"])
    def test_what_must_run_when_a_connection_ends_is_not_limited(self, name: str) -> None:
        async def method(self: Any, code: int) -> None: ...

        method.__name__ = name
        with pytest.raises(ConfigurationError, match="must run whenever a connection ends"):
            ws_ratelimit("AI_QUERY")(method)

    @pytest.mark.parametrize("what", [Json, staticmethod(len), "receive"])
    def test_only_methods_are_limited(self, what: Any) -> None:
        with pytest.raises(ConfigurationError, match="is not a method"):
            ws_ratelimit("AI_QUERY")(what)

    def test_a_plain_function_in_an_asynchronous_consumer(self, limiter: Limiter) -> None:
        class Wrong(AsyncJsonWebsocketConsumer):
            @ws_ratelimit("AI_QUERY")
            def receive_json(self, content: Any) -> None: ...

        with pytest.raises(ConfigurationError, match="Wrong is asynchronous, and receive_json is not: write async def"):
            Wrong().receive_json({})


async def test_200_at_once(limiter: Limiter) -> None:
    answered = 0

    class Counting(AsyncJsonWebsocketConsumer):
        @ws_ratelimit("AI_QUERY", send_message=False)
        async def receive_json(self, content: Any, **kwargs: Any) -> None:
            nonlocal answered
            answered += 1

    async def one() -> None:
        consumer = Counting()
        consumer.scope = {"type": "websocket", "path": "/", "user": user(7)}
        await consumer.receive_json({})

    await asyncio.gather(*(one() for _ in range(200)))
    assert answered == 40
