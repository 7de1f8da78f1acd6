"""Rules and policies on sockets: what they may look at, what they refuse, and what they leave as it is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_channels import WS_CLOSE_RATE_LIMITED, WebsocketHandshakeLimit, check_ws_rate_limit
from tests.channels.consumers import Json, Sync
from tests.channels.sockets import ADDRESS, EXTENSIONS, ask, ask_all, opened, scope_of, socket, user
from tests.wire import CountingProxy

KINDS = [Json, Sync]
ALLOWED, DENIED = "ANSWER", "RATE_LIMITED"
THERE = "198.51.100.1"
POLICY = Policy(
    Rule("health", action="skip", match={"path": "/health/"}),
    Rule("rooms", "2/m", by=("user_or_ip", "room"), match={"path": re.compile(r"^/ws/")}),
    Rule("watched", "1/m", by="ip", action="log"),
)


def room(consumer: Any) -> dict[str, Any]:
    """The room that the application has let the connection into."""
    return {"room": consumer.scope.get("room")}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_compound_rule_refuses_each_pair_on_its_own(kind: Any, limiter: Limiter) -> None:
    app = kind.as_asgi(rule=POLICY, attributes=room)
    async with opened(app, room="a") as one, opened(app, room="b") as other, opened(app, THERE, room="a") as elsewhere:
        assert await ask_all(one, 3) == [ALLOWED, ALLOWED, DENIED]
        assert await ask_all(other, 1) + await ask_all(elsewhere, 1) == [ALLOWED, ALLOWED]
    async with opened(app, room="a", user=user(7)) as one, opened(app, THERE, room="a", user=user(7)) as same:
        assert await ask_all(one, 1) + await ask_all(same, 2) == [ALLOWED, ALLOWED, DENIED]
    assert limiter.peek(Rate.parse("2/m"), "user:7&room:a", group="rooms").remaining == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_the_denial_names_the_rules_limit_and_wait(kind: Any, limiter: Limiter, fake_clock: FakeClock) -> None:
    async with opened(kind.as_asgi(rule=POLICY, attributes={"room": "a"})) as one:
        await ask_all(one, 2)
        fake_clock.advance(20.5)
        assert await ask(one) == {
            "type": DENIED,
            "error": "Rate limit exceeded. Max 2 requests per minute.",
            "retry_after": 40,
        }


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shadow_rule_refuses_nothing_and_sends_nothing(kind: Any, limiter: Limiter) -> None:
    shadow = Rule("shadow", "1/m", action="log", ban_for=900)
    async with opened(kind.as_asgi(rule=shadow)) as one:
        assert await ask_all(one, 4) == [ALLOWED] * 4
        assert await one.receive_nothing()
    assert limiter.peek(shadow, f"ip:{ADDRESS}").shadow_denials == ("shadow",)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_skipped_path_touches_no_store(kind: Any, fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock):
        app = kind.as_asgi(rule=Policy(POLICY, Rule("closed", "0/m")))
        async with opened(app, path="/health/") as one:
            assert await ask_all(one, 5) == [ALLOWED] * 5
            assert len(store) == 0
        async with opened(app) as one:
            assert await ask_all(one, 1) == [DENIED]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_ban_is_answered_with_its_wait_and_outlives_the_window(
    kind: Any, limiter: Limiter, fake_clock: FakeClock
) -> None:
    async with opened(kind.as_asgi(rule=Rule("flood", "2/m", ban_for=900))) as one:
        answers = [await ask(one) for _ in range(4)]
        assert [answer.get("retry_after") for answer in answers] == [None, None, 900, 900]
        fake_clock.advance(899)
        assert (await ask(one))["retry_after"] == 1
        fake_clock.advance(1)
        assert await ask_all(one, 1) == [ALLOWED]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"path": "/app/ws/", "root_path": "/app"}, [ALLOWED, DENIED]),
        ({"path": "/ws/", "root_path": ""}, [ALLOWED, DENIED]),
        ({"path": "/ws/", "path_remaining": "", "headers": [(b"x-original-url", b"/other/")]}, [ALLOWED, DENIED]),
        ({"path": "/ws/more/"}, [ALLOWED, ALLOWED]),
    ],
)
async def test_the_path_is_the_one_that_the_router_sees(scope: Any, expected: list[str], limiter: Limiter) -> None:
    async with opened(Json.as_asgi(rule=Rule("r", "1/m", match={"path": "/ws/"})), **scope) as one:
        assert await ask_all(one, 2) == expected


async def test_a_scope_without_a_path_matches_no_path(limiter: Limiter) -> None:
    consumer = Json()
    consumer.scope = {"type": "test"}  # type: ignore[typeddict-item]
    closed = Rule("closed", "0/m", match={"path": re.compile("")})
    assert await check_ws_rate_limit(consumer, closed, send_message=False) is False


async def test_a_rule_is_one_budget_for_all_consumers(limiter: Limiter) -> None:
    rule = Rule("api", "3/m")
    async with opened(Json.as_asgi(rule=rule)) as one, opened(Sync.as_asgi(rate=rule)) as other:
        assert await ask_all(one, 2) + await ask_all(other, 2) == [ALLOWED] * 3 + [DENIED]
    assert limiter.peek(rule, Identity(ip=ADDRESS)).remaining == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "ip"}, "key='ip' has no effect on 'health, rooms, watched'"),
        ({"key": lambda consumer: "k"}, "has no effect on 'health, rooms, watched'"),
        ({"group": "g"}, "group 'g' with a policy"),
        ({"attributes": 5}, "attributes 5 is neither"),
        ({"attributes": lambda consumer: None}, "an attributes callable gave None"),
    ],
)
async def test_what_cannot_be_meant_is_an_error(options: dict[str, Any], text: str, limiter: Limiter) -> None:
    consumer = Json()
    consumer.scope = scope_of()  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match=text):
        await check_ws_rate_limit(consumer, POLICY, **options)


# The handshake


async def refused(app: Any, **scope: Any) -> tuple[dict[bytes, bytes], Any]:
    """Headers and body of the answer to a handshake that is turned down."""
    one = socket(app, extensions=EXTENSIONS, **scope)
    await one.send_input({"type": "websocket.connect"})
    start, body = await one.receive_output(), await one.receive_output()
    await one.wait()
    assert start["status"] == 429
    return dict(start["headers"]), json.loads(body["body"])


async def test_a_policy_at_the_handshake(limiter: Limiter, fake_clock: FakeClock) -> None:
    policy = Policy(
        Rule("health", action="skip", match={"path": "/health/"}),
        Rule("connect", "2/m", by=("ip", "room"), ban_for=900),
        Rule("watched", "1/m", action="log"),
    )
    app = WebsocketHandshakeLimit(
        Json.as_asgi(rule="WS_HEARTBEAT"), policy, attributes=lambda scope: {"room": scope["room"]}
    )
    for name in "aab":
        async with opened(app, room=name):
            pass
    assert await socket(app, room="a").connect() == (False, WS_CLOSE_RATE_LIMITED)
    fake_clock.advance(60)
    headers, body = await refused(app, room="a")
    assert headers[b"retry-after"] == b"840"
    assert body["error"]["details"] == {"retry_after_ms": 840_000}
    for _ in range(5):
        async with opened(app, room="a", path="/health/"):
            pass


async def test_shadow_headers_are_not_sent_with_a_refusal(fake_clock: FakeClock) -> None:
    policy = Policy(Rule("closed", "0/m"), Rule("shadow", "0/m", action="log"))
    with isolated(clock=fake_clock, headers="ietf"):
        headers, _ = await refused(WebsocketHandshakeLimit(Json.as_asgi(), policy))
    assert headers[b"ratelimit-policy"] == b'"closed";q=0;w=60'


def test_a_key_beside_a_policy_is_an_error_when_the_application_is_put_together() -> None:
    with pytest.raises(ConfigurationError, match="key='ip' has no effect on"):
        WebsocketHandshakeLimit(Json.as_asgi(), POLICY, key="ip")


async def test_one_round_trip_for_a_whole_policy(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    four = Policy(
        Rule("everybody", "90/m", by="global"),
        Rule("address", "50/m; 80/h", by="ip", ban_for=60),
        Rule("path", "40/m", by=("ip", "path")),
        Rule("watched", "1/m", by="ip", action="log"),
    )
    consumer = Json()
    consumer.scope = scope_of()  # type: ignore[assignment]
    assert not await check_ws_rate_limit(consumer, four, limiter=limiter)
    proxy.reset()
    assert [await check_ws_rate_limit(consumer, four, limiter=limiter) for _ in range(5)] == [False] * 5
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 5}, 5)
    await limiter.aclose()
