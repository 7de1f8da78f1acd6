"""A consumer's check: how many pass, whose budget is spent, and what is refused as a mistake."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from channels.auth import UserLazyObject
from django.utils.functional import SimpleLazyObject

from ratelimit import ConfigurationError, Limiter, MemoryStore, Rate, RateLimits
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from ratelimit_channels import check_ws_rate_limit, check_ws_rate_limit_sync
from tests.channels.consumers import Json, OtherJson, Raw, Sync, SyncJson, Text
from tests.channels.sockets import ADDRESS, ANONYMOUS, ask, ask_all, opened, scope_of, user

KINDS = [Json, Text, Raw, Sync, SyncJson]
ALLOWED, DENIED = "ANSWER", "RATE_LIMITED"


@pytest.mark.parametrize("kind", KINDS)
async def test_of_21_messages_exactly_20_are_answered(kind: Any, limiter: Limiter) -> None:
    async with opened(kind.as_asgi()) as one:
        assert await ask_all(one, 21) == [ALLOWED] * 20 + [DENIED]


@pytest.mark.parametrize("kind", KINDS)
async def test_the_denial_names_limit_and_wait_and_the_connection_stays_open(
    kind: Any, limiter: Limiter, fake_clock: FakeClock
) -> None:
    async with opened(kind.as_asgi()) as one:
        await ask_all(one, 20)
        denial = {"type": DENIED, "error": "Rate limit exceeded. Max 20 requests per minute.", "retry_after": 60}
        assert await ask(one) == denial
        fake_clock.advance(59.4)
        assert await ask(one) == {**denial, "retry_after": 1}
        fake_clock.advance(0.6)
        assert await ask(one) == {"type": ALLOWED}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_silent_denial_sends_nothing_and_keeps_the_connection_open(
    kind: Any, limiter: Limiter, fake_clock: FakeClock
) -> None:
    async with opened(kind.as_asgi(rate="1/m", send_message=False)) as one:
        assert await ask_all(one, 1) == [ALLOWED]
        await one.send_to(text_data="{}")
        assert await one.receive_nothing()
        fake_clock.advance(60)
        assert await ask_all(one, 1) == [ALLOWED]


async def test_a_wait_that_never_ends_is_null(limiter: Limiter) -> None:
    async with opened(Json.as_asgi(rate="5/m", cost=6)) as one:
        assert (await ask(one))["retry_after"] is None


async def test_connections_of_one_user_share_the_budget(limiter: Limiter) -> None:
    app = Json.as_asgi()
    async with opened(app, user=user(7)) as one, opened(app, "198.51.100.1", user=user(7)) as other:
        assert await ask_all(one, 30) == [ALLOWED] * 30
        assert await ask_all(other, 11) == [ALLOWED] * 10 + [DENIED]
        assert await ask_all(one, 1) == [DENIED]


async def test_two_users_at_one_address_do_not_share(limiter: Limiter) -> None:
    app = Json.as_asgi()
    async with opened(app, user=user(7)) as one, opened(app, user=user(8)) as other:
        assert await ask_all(one, 41) == [ALLOWED] * 40 + [DENIED]
        assert await ask_all(other, 41) == [ALLOWED] * 40 + [DENIED]


@pytest.mark.parametrize("who", [{}, {"user": None}, {"user": ANONYMOUS}], ids=["absent", "none", "anonymous"])
async def test_anonymous_connections_count_by_address(who: dict[str, Any], limiter: Limiter) -> None:
    app = Json.as_asgi(rate="2/m")
    async with opened(app, **who) as one, opened(app, **who) as same, opened(app, "198.51.100.1", **who) as other:
        assert await ask_all(one, 1) + await ask_all(same, 2) == [ALLOWED, ALLOWED, DENIED]
        assert await ask_all(other, 3) == [ALLOWED, ALLOWED, DENIED]


@pytest.mark.parametrize("client", [{}, {"client": None}, {"client": ("testclient", 50_000)}, {"client": ("", 0)}])
async def test_without_a_peer_address_the_limit_holds_and_headers_do_not_count(
    client: dict[str, Any], limiter: Limiter
) -> None:
    app = Json.as_asgi(rate="1/m")
    forwarded = [(b"x-forwarded-for", b"203.0.113.5")]
    async with opened(app, None, **client) as one, opened(app, None, headers=forwarded, **client) as other:
        assert await ask_all(one, 1) == [ALLOWED]
        assert await ask_all(other, 1) == [DENIED]


@pytest.mark.parametrize(("count", "caller"), [(0, ADDRESS), (1, "192.0.2.3"), (2, "192.0.2.2"), (9, ADDRESS)])
async def test_forwarded_addresses_count_as_far_as_the_proxies_are_trusted(count: int, caller: str) -> None:
    headers = [(b"x-forwarded-for", b"192.0.2.1, 192.0.2.2"), (b"x-forwarded-for", b"192.0.2.3")]
    with isolated(clock=FakeClock(), proxies_count=count) as limiter:
        async with opened(Json.as_asgi(), headers=headers) as one:
            await ask_all(one, 3)
        assert limiter.peek("AI_QUERY", f"ip:{caller}").remaining == 17


async def test_a_lazy_user_is_the_user_behind_it(limiter: Limiter) -> None:
    lazy = UserLazyObject()
    lazy._wrapped = user(7)
    async with opened(Json.as_asgi(), user=lazy) as one:
        await ask_all(one, 3)
    assert limiter.peek(Rate.parse("40/m"), "user:7", group="AI_QUERY").remaining == 37


@pytest.mark.parametrize("kind", [Json, Sync])
async def test_a_user_that_is_a_query_away_is_loaded_outside_the_event_loop(kind: Any, limiter: Limiter) -> None:
    def load() -> Any:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return user(7)

    async with opened(kind.as_asgi(), user=SimpleLazyObject(load)) as one:
        await ask_all(one, 3)
    assert limiter.peek(Rate.parse("40/m"), "user:7", group="AI_QUERY").remaining == 37


async def test_a_user_that_is_not_loaded_yet_is_an_error_and_not_a_stranger(limiter: Limiter) -> None:
    consumer = Json()
    consumer.scope = scope_of(user=UserLazyObject())
    with pytest.raises(ValueError, match="before it is ready"):
        await check_ws_rate_limit(consumer, "AI_QUERY")


@pytest.mark.parametrize(
    ("facts", "allowed"),
    [({}, 40), ({"is_superuser": True}, 200), ({"is_usage_capped": True}, 20)],
    ids=["user", "superuser", "capped"],
)
async def test_a_category_scales_with_the_tier(facts: dict[str, Any], allowed: int, limiter: Limiter) -> None:
    async with opened(Json.as_asgi(), user=user(7, **facts)) as one:
        assert await ask_all(one, allowed + 1) == [ALLOWED] * allowed + [DENIED]


async def test_a_category_has_one_budget_for_all_protocols(limiter: Limiter) -> None:
    for _ in range(15):
        await limiter.acheck(RateLimits.AI_QUERY, f"ip:{ADDRESS}", protocol="graphql")
    async with opened(Json.as_asgi()) as one, opened(OtherJson.as_asgi(rule=RateLimits.AI_QUERY)) as other:
        assert await ask_all(one, 4) + await ask_all(other, 2) == [ALLOWED] * 5 + [DENIED]
    assert not limiter.check("AI_QUERY", f"ip:{ADDRESS}", protocol="mcp")


async def test_a_rate_is_each_consumer_class_own(limiter: Limiter) -> None:
    async with opened(Json.as_asgi(rate="1/m")) as one, opened(OtherJson.as_asgi(rate="1/m")) as other:
        assert await ask_all(one, 2) == [ALLOWED, DENIED]
        assert await ask_all(other, 2) == [ALLOWED, DENIED]
    peeked = limiter.peek(Rate.parse("1/m"), f"ip:{ADDRESS}", group="websocket:tests.channels.consumers.Json")
    assert not peeked.allowed


async def test_a_group_joins_consumers(limiter: Limiter) -> None:
    async with (
        opened(Json.as_asgi(rate="2/m", group="room")) as one,
        opened(Sync.as_asgi(rate="2/m", group="room")) as other,
    ):
        assert await ask_all(one, 1) + await ask_all(other, 2) == [ALLOWED, ALLOWED, DENIED]


@pytest.mark.parametrize(
    ("key", "caller"),
    [("ip", f"ip:{ADDRESS}"), ("user", "user:7"), ("token_or_ip", f"ip:{ADDRESS}"), ("global", "global")],
)
async def test_key_strategies(key: str, caller: str, limiter: Limiter) -> None:
    async with opened(Json.as_asgi(rate="5/m", group="g", key=key), user=user(7)) as one:
        await ask_all(one, 2)
    assert limiter.peek(Rate.parse("5/m"), caller, group="g").remaining == 3


async def test_a_token_counts_once_the_application_has_accepted_it(limiter: Limiter) -> None:
    app = Json.as_asgi(rate="1/m", key="token_or_ip")
    sent = [(b"authorization", b"Bearer secret")]
    async with opened(app, limit_token="secret") as one, opened(app, "198.51.100.1", limit_token="secret") as same:
        assert await ask_all(one, 1) + await ask_all(same, 1) == [ALLOWED, DENIED]
    async with opened(app, headers=sent) as unchecked, opened(app, headers=[]) as none:
        assert await ask_all(unchecked, 1) + await ask_all(none, 1) == [ALLOWED, DENIED]


async def test_callables_are_given_the_consumer(limiter: Limiter) -> None:
    options = {
        "rate": lambda consumer: consumer.scope["rate"],
        "key": lambda consumer: consumer.scope["room"],
        "cost": lambda consumer: consumer.scope["cost"],
        "group": "g",
    }
    async with opened(Json.as_asgi(**options), rate="5/m", room="blue", cost=2) as one:
        assert await ask_all(one, 3) == [ALLOWED, ALLOWED, DENIED]
    assert limiter.peek(Rate.parse("5/m"), "key:blue", group="g").remaining == 1
    async with opened(Json.as_asgi(**options), rate=None, room="blue", cost=2) as one:
        assert await ask_all(one, 3) == [ALLOWED] * 3


async def test_a_limiter_of_its_own_is_used(limiter: Limiter) -> None:
    own = Limiter(MemoryStore(), clock=FakeClock(), settings=Settings(overrides={"AI_QUERY": "1/m"}))
    async with opened(Json.as_asgi(limiter=own)) as one:
        assert await ask_all(one, 2) == [ALLOWED, DENIED]
    assert limiter.peek("AI_QUERY", f"ip:{ADDRESS}").remaining == 20


async def test_disabled_limits_nothing() -> None:
    with isolated(disable=True):
        async with opened(Json.as_asgi(rate="0/m")) as one:
            assert await ask_all(one, 3) == [ALLOWED] * 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rule": "AI_QUERRY"}, "AI_QUERRY"),
        ({"rule": "10/m"}, "10/m"),
        ({"rule": None}, "rate="),
        ({"rule": "AI_QUERY", "rate": "10/m"}, "rate="),
        ({"rate": "ten a minute"}, "ten a minute"),
        ({"rate": "AI_QUERRY"}, "AI_QUERRY"),
        ({"rule": "AI_QUERY", "key": "usr"}, "usr"),
        ({"rule": "AI_QUERY", "cost": -1}, "-1"),
        ({"rule": "AI_QUERY", "group": ""}, "group"),
    ],
)
async def test_a_mistake_is_an_error_that_names_it(arguments: dict[str, Any], named: str, limiter: Limiter) -> None:
    consumer, sync = Json(), Sync()
    consumer.scope = sync.scope = scope_of()
    with pytest.raises(ConfigurationError, match=named):
        await check_ws_rate_limit(consumer, **arguments)
    with pytest.raises(ConfigurationError, match=named):
        check_ws_rate_limit_sync(sync, **arguments)


async def test_each_check_refuses_the_other_kind_of_consumer(limiter: Limiter) -> None:
    with pytest.raises(ConfigurationError, match="Sync is synchronous: use check_ws_rate_limit_sync"):
        await check_ws_rate_limit(Sync(), "AI_QUERY")
    with pytest.raises(ConfigurationError, match="Json is asynchronous: use await check_ws_rate_limit"):
        check_ws_rate_limit_sync(Json(), "AI_QUERY")


@pytest.mark.parametrize("kind", [Json, Sync])
async def test_every_denial_is_logged_as_a_warning(
    kind: Any, limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(kind.as_asgi(), user=user(7)) as one:
        await ask_all(one, 40)
        assert not [record for record in caplog.records if record.name.startswith("ratelimit")]
        await ask_all(one, 2)
    logged = [record for record in caplog.records if record.name.startswith("ratelimit")]
    assert [record.levelno for record in logged] == [logging.WARNING] * 2
    for word in ("AI_QUERY", "user:7", "40/m", "websocket"):
        assert word in logged[0].getMessage()


async def test_a_stand_in_with_scope_and_send_is_enough(limiter: Limiter) -> None:
    class StandIn:
        scope = scope_of()

        def __init__(self) -> None:
            self.sent: list[str] = []

        async def send(self, text_data: str) -> None:
            self.sent.append(text_data)

    one = StandIn()
    limited = [await check_ws_rate_limit(one, rate="1/m") for _ in range(2)]
    assert limited == [False, True]
    assert [json.loads(text)["type"] for text in one.sent] == [DENIED]
