"""Rules and policies on fields: what they may look at, what they refuse, and what they leave as it is."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import graphql
import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_graphql import RateLimitExceeded, graphql_ratelimit
from tests.graphql.callers import HERE, THERE, User, info, request
from tests.graphql.schemas import Executor, denied_paths, schema
from tests.wire import CountingProxy

SDL = """
    type Query { version: String, documents: String, pages(book: String): String }
    type Mutation { rename: String, login(account: String): String }
    type Subscription { ticks: Int }
"""
POLICY = Policy(
    Rule("version", action="skip", match={"field": "Query.version"}),
    Rule("writes", "2/m", by=("user_or_ip", "field"), match={"operation": "mutation"}),
    Rule("watched", "1/m", action="log"),
)
ACCOUNT = Rule("account", "2/m", by=("ip", "account"), match={"field": re.compile(r"\.login$")})


def account(root: Any, info: Any, account: str = "", **arguments: Any) -> dict[str, Any]:
    return {"account": account.casefold()}


def limited(executor: Executor, rule: Any = POLICY, **options: Any) -> graphql.GraphQLSchema:
    """A schema all of whose fields are limited by one decorator."""
    limit = graphql_ratelimit(rule, **options)
    resolver = executor.resolver(lambda root, info, **arguments: "done")
    fields = {"Query": ["version", "documents", "pages"], "Mutation": ["rename", "login"]}
    return schema(SDL, {kind: {name: limit(resolver) for name in names} for kind, names in fields.items()})


def denials(executor: Executor, built: graphql.GraphQLSchema, times: int, query: str, context: Any = None) -> list[int]:
    """How many fields each of so many equal operations was denied."""
    return [len(denied_paths(executor.run(built, query, context or request()))) for _ in range(times)]


def test_a_compound_rule_refuses_each_pair_on_its_own(executor: Executor, limiter: Limiter) -> None:
    built = limited(executor)
    assert denials(executor, built, 3, "mutation { rename }") == [0, 0, 1]
    assert denials(executor, built, 3, "mutation { login }") == [0, 0, 1]
    assert denials(executor, built, 1, "mutation { rename }", request(THERE)) == [0]
    assert denials(executor, built, 9, "query Mutation { rename: documents }") == [0] * 9
    assert limiter.peek(Rate.parse("2/m"), f"ip:{HERE}&field:Mutation.rename", group="writes").remaining == 0


def test_a_denial_tells_the_rules_limit_and_wait(executor: Executor, limiter: Limiter, fake_clock: FakeClock) -> None:
    built = limited(executor)
    executor.run(built, "mutation { a: rename b: rename }", request())
    fake_clock.advance(20.5)
    (error,) = executor.run(built, "mutation { rename }", request()).errors or []
    assert error.message == "Limit exceeded: Max 2 requests per minute. Please try again later."
    assert error.extensions == {"code": "RATE_LIMITED", "retry_after": 40, "limit": 2}


def test_arguments_can_be_counted_by(executor: Executor, limiter: Limiter) -> None:
    built = limited(executor, ACCOUNT, attributes=account)
    assert denials(executor, built, 3, 'mutation { login(account: "ann") }') == [0, 0, 1]
    assert denials(executor, built, 1, 'mutation { login(account: "ANN") }') == [1]
    assert denials(executor, built, 1, 'mutation { login(account: "bob") }') == [0]
    assert denials(executor, built, 9, "{ pages }") == [0] * 9


def test_no_argument_overrules_what_the_server_knows(executor: Executor, limiter: Limiter) -> None:
    told = {"field": "Query.version", "operation": "query", "ip": THERE, "user": "1"}
    built = limited(executor, attributes=lambda root, info, **arguments: told)
    assert denials(executor, built, 3, "mutation { rename }") == [0, 0, 1]


def test_a_shadow_rule_refuses_nothing_and_leaves_the_answer_as_it_is(executor: Executor, limiter: Limiter) -> None:
    built = limited(executor, Rule("shadow", "1/m", action="log", ban_for=900))
    results = [executor.run(built, "{ documents }", request()) for _ in range(4)]
    assert [(result.data, result.errors, result.extensions) for result in results] == [
        ({"documents": "done"}, None, None)
    ] * 4


def test_a_shadow_rule_is_seen_by_who_asks(limiter: Limiter) -> None:
    shadow = graphql_ratelimit(Rule("shadow", "1/m", action="log", ban_for=900), block=False)(
        lambda root, info: (info.context.limited, info.context.limit_decision.shadow_denials)
    )
    field = info(request())
    assert [shadow(None, field) for _ in range(3)] == [(False, ()), (False, ("shadow",)), (False, ("shadow",))]


def test_a_skipped_field_touches_no_store(executor: Executor, fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock):
        built = limited(executor, Policy(POLICY, Rule("closed", "0/m")))
        assert denials(executor, built, 5, "{ alias: version }") == [0] * 5
        assert len(store) == 0
        assert denials(executor, built, 1, "{ version: documents }") == [1]


def test_a_ban_is_answered_with_its_wait_and_outlives_the_window(
    executor: Executor, limiter: Limiter, fake_clock: FakeClock
) -> None:
    built = limited(executor, Rule("guess", "2/m", by="ip", ban_for=900))

    def waits(times: int) -> list[Any]:
        results = [executor.run(built, "mutation { login }", request()) for _ in range(times)]
        return [result.errors and result.errors[0].extensions["retry_after"] for result in results]  # type: ignore[index]

    assert waits(4) == [None, None, 900, 900]
    fake_clock.advance(899)
    assert waits(1) == [1]
    fake_clock.advance(1)
    assert waits(1) == [None]


def test_a_ban_is_known_to_a_resolver_that_is_not_blocked(limiter: Limiter) -> None:
    guess = graphql_ratelimit(Rule("guess", "1/m", by="ip", ban_for=900), block=False)(
        lambda root, info: (info.context.limited, info.context.limit_decision.banned)
    )
    field = info(request())
    assert [guess(None, field) for _ in range(3)] == [(False, False), (True, True), (True, True)]


async def test_a_subscription_is_one(limiter: Limiter) -> None:
    @graphql_ratelimit(Rule("streams", "1/m", match={"operation": "subscription", "field": "Subscription.ticks"}))
    async def ticks(root: Any, info: Any) -> AsyncIterator[int]:
        yield 1

    built = schema(SDL, {"Subscription": {"ticks": ticks}})
    document = graphql.parse("subscription { ticks }")

    async def subscribed() -> Any:
        stream = graphql.subscribe(built, document, context_value=request())
        return await stream if hasattr(stream, "__await__") else stream  # type: ignore[union-attr]

    assert not isinstance(await subscribed(), graphql.ExecutionResult)
    assert denied_paths(await subscribed()) == [["ticks"]]


def test_a_function_of_the_caller_sees_the_facts_too(limiter: Limiter) -> None:
    seen = []

    def rate(identity: Identity) -> str:
        seen.append(dict(identity.attributes))
        return "1/m"

    resolver = graphql_ratelimit(Rule("r", rate), attributes={"plan": "free"})(lambda root, info: 1)
    resolver(None, info(request()))
    assert seen == [{"plan": "free", "field": "Query.items"}]


def test_an_info_that_tells_nothing_matches_nothing(limiter: Limiter) -> None:
    stand_in = SimpleNamespace(context=request())
    resolver = graphql_ratelimit(Policy(Rule("a", "0/m", match={"field": re.compile("")}), Rule("b", "1/m")))(
        lambda root, info: 1
    )
    assert resolver(None, stand_in) == 1
    with pytest.raises(RateLimitExceeded):
        resolver(None, stand_in)


def test_plain_limits_look_at_no_facts(limiter: Limiter) -> None:
    class Info(SimpleNamespace):
        @property
        def operation(self) -> Any:
            raise AssertionError("asked")

    for options in ({"rule": "AI_QUERY"}, {"rate": "9/m"}, {"rate": lambda root, info: "9/m"}):
        assert graphql_ratelimit(**options)(lambda root, info: 1)(None, Info(context=request())) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["rule", "rate"])
def test_a_rule_is_one_budget_wherever_it_is_named(place: str, executor: Executor, limiter: Limiter) -> None:
    rule = Rule("api", "3/m", by="user")
    built = limited(executor, **{"rule": None, place: rule})
    assert denials(executor, built, 1, "{ documents version pages }", request(user=User(1))) == [0]
    assert denials(executor, built, 1, "{ documents }", request(THERE, user=User(1))) == [1]
    assert limiter.peek(rule, Identity(user="1")).remaining == 0


# The caller's key


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"rate": "1/m"}, f"ip:{HERE}"),
        ({"rule": "AI_QUERY", "key": "global"}, "global"),
        ({"rule": Rule("pair", "1/m", by=("ip", "device")), "attributes": {"device": "a"}}, f"ip:{HERE}&device:a"),
        ({"rule": Rule("nothing", action="skip")}, None),
        ({"rate": lambda root, info: None}, None),
    ],
)
def test_the_request_knows_whose_budget_was_spent(options: Any, key: str | None, block: bool, limiter: Limiter) -> None:
    resolver = graphql_ratelimit(**options, block=block)(lambda root, info: info.context.limit_key)
    assert resolver(None, info(context := request())) == key
    assert context.limit_key == key


def test_the_key_is_there_when_the_field_is_denied(limiter: Limiter) -> None:
    context: dict[str, Any] = {"user": 42}
    with pytest.raises(RateLimitExceeded):
        graphql_ratelimit(rate="0/m")(lambda root, info: 1)(None, info(context))
    assert context == {"user": 42, "limit_key": "user:42"}


class Closed:
    """A context that minds what is put on it, in its own way."""

    user = 42

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(name)


@pytest.mark.parametrize("context", [None, 5, MappingProxyType({"user": 42}), Closed()])
def test_a_context_that_can_hold_no_key_is_limited_all_the_same(context: Any, limiter: Limiter) -> None:
    resolver = graphql_ratelimit(rate="1/m")(lambda root, info: 1)
    assert resolver(None, info(context)) == 1
    with pytest.raises(RateLimitExceeded):
        resolver(None, info(context))


def test_of_two_limits_on_a_field_the_key_is_that_of_the_refusal(limiter: Limiter) -> None:
    @graphql_ratelimit(rate="0/m", key="global", group="outer", block=False)
    @graphql_ratelimit(rate="9/m", group="inner")
    def resolver(root: Any, info: Any) -> Any:
        return info.context.limit_decision.key, info.context.limit_key

    assert resolver(None, info(request())) == ("global", "global")


# Mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "ip"}, "key='ip' has no effect on 'version, writes, watched'"),
        ({"key": lambda root, info: "k"}, "has no effect on 'version, writes, watched'"),
        ({"group": "g"}, "group 'g' with a policy"),
        ({"attributes": "device"}, "attributes 'device' is neither"),
    ],
)
def test_what_cannot_be_meant_is_an_error_at_the_decorator(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        graphql_ratelimit(POLICY, **options)


def test_one_round_trip_for_a_whole_policy(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    four = Policy(
        Rule("everybody", "90/m", by="global"),
        Rule("address", "50/m; 80/h", by="ip", ban_for=60),
        Rule("field", "5/m", by=("ip", "field")),
        Rule("watched", "1/m", by="ip", action="log"),
    )
    resolver = graphql_ratelimit(four, limiter=limiter)(lambda root, info: 1)
    field = info(request())
    resolver(None, field)
    proxy.reset()
    for _ in range(4):
        resolver(None, field)
    with pytest.raises(RateLimitExceeded):
        resolver(None, field)
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 5}, 5)
    limiter.close()
