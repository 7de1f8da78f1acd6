"""The denial frame: sent in the consumer's own way, and never the reason for an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ratelimit import Limiter
from ratelimit_channels import check_ws_rate_limit, check_ws_rate_limit_sync
from tests.channels.consumers import Enveloped, Json, Raw, Sync, SyncJson, Text
from tests.channels.sockets import ask_all, opened, scope_of


async def test_a_json_consumer_encodes_the_frame_itself(limiter: Limiter) -> None:
    async with opened(Enveloped.as_asgi(rate="0/m")) as one:
        await one.send_json_to({})
        received = await one.receive_json_from()
    assert received["v"] == 1
    assert received["payload"]["type"] == "RATE_LIMITED"


async def test_an_overridden_send_is_used(limiter: Limiter) -> None:
    class Shouting(Text):
        async def send(self, text_data: str | None = None, **kwargs: Any) -> None:
            await super().send(text_data=(text_data or "").replace("RATE_LIMITED", "SLOW_DOWN"), **kwargs)

    async with opened(Shouting.as_asgi(rate="1/m")) as one:
        assert await ask_all(one, 2) == ["ANSWER", "SLOW_DOWN"]


class Gone(OSError):
    """As servers raise when the client has left."""


CLOSED = RuntimeError("Unexpected ASGI message 'websocket.send', after sending 'websocket.close'.")


@pytest.mark.parametrize("kind", [Json, Text, Raw])
@pytest.mark.parametrize("error", [Gone(), CLOSED], ids=["client left", "closed"])
async def test_a_socket_that_is_gone_is_still_limited(kind: Any, error: Exception, limiter: Limiter) -> None:
    async def send(message: Any) -> None:
        raise error

    consumer = kind()
    consumer.scope, consumer.base_send = scope_of(), send
    assert await check_ws_rate_limit(consumer, rate="0/m") is True


@pytest.mark.parametrize("kind", [Sync, SyncJson])
@pytest.mark.parametrize("error", [Gone(), CLOSED], ids=["client left", "closed"])
def test_a_socket_that_is_gone_is_still_limited_in_a_thread(kind: Any, error: Exception, limiter: Limiter) -> None:
    def send(message: Any) -> None:
        raise error

    consumer = kind()
    consumer.scope, consumer.base_send = scope_of(), send
    assert check_ws_rate_limit_sync(consumer, rate="0/m") is True


async def test_a_frame_that_could_not_be_sent_is_logged(limiter: Limiter, caplog: pytest.LogCaptureFixture) -> None:
    async def send(message: Any) -> None:
        raise CLOSED

    consumer = Json()
    consumer.scope, consumer.base_send = scope_of(), send
    await check_ws_rate_limit(consumer, rate="0/m")
    logged = [record for record in caplog.records if record.name == "ratelimit.channels"]
    assert [(record.levelname, "after sending 'websocket.close'" in record.getMessage()) for record in logged] == [
        ("WARNING", True)
    ]


async def test_an_application_error_while_sending_is_not_hidden(limiter: Limiter) -> None:
    class Broken(Json):
        @classmethod
        async def encode_json(cls, content: Any) -> str:
            return json.dumps(object())

    consumer = Broken()
    consumer.scope = scope_of()
    with pytest.raises(TypeError, match="not JSON serializable"):
        await check_ws_rate_limit(consumer, rate="0/m")
