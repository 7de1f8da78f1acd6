"""What one unit of a field's budget is: an execution of the field, however the document spells it."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import Limiter, RateLimits
from ratelimit.testing import FakeClock
from ratelimit_graphql import graphql_ratelimit
from tests.graphql.callers import HERE, THERE, User, request
from tests.graphql.schemas import Executor, denied_paths, schema

pytestmark = pytest.mark.usefixtures("limiter")

PING = "type Query { ping: String, pong: String }"


def ping_schema(executor: Executor, **limit: Any) -> Any:
    ping = executor.resolver(lambda root, info: "pong")
    return schema(PING, {"Query": {"ping": graphql_ratelimit(**limit)(ping)}})


def test_the_error_says_what_happened_and_where(executor: Executor) -> None:
    built = ping_schema(executor, rate="10/m")
    query = "{ ping }"
    for _ in range(10):
        assert executor.run(built, query, request()).data == {"ping": "pong"}
    result = executor.run(built, "{ again: ping }", request())
    assert result.data == {"again": None}
    assert [error.formatted for error in result.errors or []] == [
        {
            "message": "Limit exceeded: Max 10 requests per minute. Please try again later.",
            "locations": [{"line": 1, "column": 3}],
            "path": ["again"],
            "extensions": {"code": "RATE_LIMITED", "retry_after": 60, "limit": 10},
        }
    ]


@pytest.mark.parametrize(("left", "told"), [(0.6, 1), (0.001, 1), (1.9, 2), (59.0, 59)])
def test_the_wait_is_rounded_up_and_long_enough(
    executor: Executor, fake_clock: FakeClock, left: float, told: int
) -> None:
    built = ping_schema(executor, rate="1/m")
    fake_clock.advance(60 - left)
    assert executor.run(built, "{ ping }", request()).errors is None
    errors = executor.run(built, "{ ping }", request()).errors
    assert errors is not None
    assert errors[0].extensions is not None
    assert errors[0].extensions["retry_after"] == told
    fake_clock.advance(told)
    assert executor.run(built, "{ ping }", request()).errors is None


def test_a_wait_that_never_ends_is_null(executor: Executor) -> None:
    result = executor.run(ping_schema(executor, rate="3/m", cost=4), "{ ping }", request())
    assert result.errors is not None
    assert result.errors[0].extensions == {"code": "RATE_LIMITED", "retry_after": None, "limit": 3}


def test_each_alias_counts(executor: Executor) -> None:
    result = executor.run(ping_schema(executor, rate="1/s"), "{ a: ping b: ping }", request())
    assert result.data is not None
    assert sorted(result.data.values(), key=str) == [None, "pong"]
    (denied,) = denied_paths(result)
    assert result.data[denied[0]] is None  # type: ignore[index]


def test_a_hundred_aliases_reach_the_resolver_as_often_as_the_limit_says(executor: Executor) -> None:
    attempts: list[str] = []
    login = graphql_ratelimit("AUTH_LOGIN")(executor.resolver(lambda root, info, name: attempts.append(name) or True))
    built = schema(
        "type Query { x: Int } type Mutation { login(name: String!): Boolean }", {"Mutation": {"login": login}}
    )
    aliases = " ".join(f'a{n}: login(name: "{n}")' for n in range(100))
    result = executor.run(built, f"mutation {{ {aliases} }}", request())
    assert attempts == ["0", "1", "2", "3", "4"]
    assert denied_paths(result) == [[f"a{n}"] for n in range(5, 100)]


def test_a_field_mentioned_twice_is_executed_and_counted_once(executor: Executor) -> None:
    built = ping_schema(executor, rate="2/m")
    query = "{ ping ...once ...twice } fragment once on Query { ping } fragment twice on Query { ping }"
    assert [denied_paths(executor.run(built, query, request())) for _ in range(3)] == [[], [], [["ping"]]]


def test_a_fragment_used_under_two_fields_counts_for_each(executor: Executor) -> None:
    sdl = "type Query { left: Side, right: Side } type Side { ping: String }"
    ping = graphql_ratelimit(rate="3/m")(executor.resolver(lambda root, info: "pong"))
    side = executor.resolver(lambda root, info: {})
    built = schema(sdl, {"Query": {"left": side, "right": side}, "Side": {"ping": ping}})
    query = "{ left { ...ping } right { ...ping } } fragment ping on Side { ping }"
    assert denied_paths(executor.run(built, query, request())) == []
    assert len(denied_paths(executor.run(built, query, request()))) == 1


def test_a_limited_list_counts_once_and_a_limited_field_in_it_for_each_object(executor: Executor) -> None:
    sdl = "type Query { items: [Item] } type Item { name: String, price: Int }"
    items = executor.resolver(lambda root, info: [{"name": "n"}] * 20)
    price = executor.resolver(lambda root, info: 1)
    built = schema(
        sdl,
        {
            "Query": {"items": graphql_ratelimit(rate="1/m")(items)},
            "Item": {"price": graphql_ratelimit(rate="15/m")(price)},
        },
    )
    assert denied_paths(executor.run(built, "{ items { name } }", request())) == []
    assert denied_paths(executor.run(built, "{ items { name } }", request())) == [["items"]]
    other = executor.run(built, "{ items { price } }", request(THERE))
    assert sorted(path[1] for path in denied_paths(other)) == [15, 16, 17, 18, 19]  # type: ignore[index]


def test_introspection_of_names_is_not_limited(executor: Executor) -> None:
    built = ping_schema(executor, rate="0/m")
    result = executor.run(built, "{ __typename pong }", request())
    assert (result.data, result.errors) == ({"__typename": "Query", "pong": None}, None)


def test_equal_field_names_of_two_types_do_not_share(executor: Executor) -> None:
    sdl = "type Query { a: A, b: B } type A { items: Int } type B { items: Int }"
    node = executor.resolver(lambda root, info: {})
    built = schema(
        sdl,
        {
            "Query": {"a": node, "b": node},
            "A": {"items": graphql_ratelimit(rate="2/m")(executor.resolver(lambda root, info: 1))},
            "B": {"items": graphql_ratelimit(rate="3/m")(executor.resolver(lambda root, info: 1))},
        },
    )

    def denied(query: str) -> list[bool]:
        return [bool(denied_paths(executor.run(built, query, request()))) for _ in range(4)]

    assert denied("{ a { items } }") == [False, False, True, True]
    assert denied("{ b { items } }") == [False, False, False, True]


def test_one_function_on_two_fields_does_not_share(executor: Executor) -> None:
    both = graphql_ratelimit(rate="1/m")(executor.resolver(lambda root, info: "x"))
    built = schema(PING, {"Query": {"ping": both, "pong": both}})
    assert denied_paths(executor.run(built, "{ ping pong }", request())) == []
    assert sorted(denied_paths(executor.run(built, "{ ping pong }", request()))) == [["ping"], ["pong"]]


def test_a_named_group_is_shared(executor: Executor) -> None:
    limit = graphql_ratelimit(rate="1/m", group="search")
    each = executor.resolver(lambda root, info: "x")
    built = schema(PING, {"Query": {"ping": limit(each), "pong": limit(each)}})
    assert len(denied_paths(executor.run(built, "{ ping pong }", request()))) == 1


def test_operation_names_do_not_matter(executor: Executor) -> None:
    built = ping_schema(executor, rate="1/m")
    assert denied_paths(executor.run(built, "query One { ping }", request())) == []
    assert denied_paths(executor.run(built, "query Two { ping }", request())) == [["ping"]]


def test_a_rule_spends_the_budget_that_everybody_naming_it_shares(executor: Executor, limiter: Limiter) -> None:
    built = ping_schema(executor, rule="AI_QUERY")
    for _ in range(19):
        assert limiter.check("AI_QUERY", f"ip:{HERE}")
    assert denied_paths(executor.run(built, "{ ping }", request())) == []
    assert denied_paths(executor.run(built, "{ ping }", request())) == [["ping"]]
    assert not limiter.check(RateLimits.AI_QUERY, f"ip:{HERE}")


def test_a_rate_is_a_budget_of_the_fields_own(executor: Executor, limiter: Limiter) -> None:
    built = ping_schema(executor, rate=RateLimits.AI_ANALYSIS)
    for _ in range(5):
        assert denied_paths(executor.run(built, "{ ping }", request())) == []
    assert denied_paths(executor.run(built, "{ ping }", request())) == [["ping"]]
    assert limiter.peek("AI_ANALYSIS", f"ip:{HERE}").remaining == 5
    assert limiter.peek("AI_ANALYSIS", f"ip:{HERE}", group="graphql:Query.ping").remaining == 0


def test_callers_are_told_apart_by_user_then_by_address(executor: Executor) -> None:
    built = ping_schema(executor, rate="1/m")

    def denied(*args: Any) -> bool:
        return bool(denied_paths(executor.run(built, "{ ping }", request(*args))))

    assert [denied(HERE), denied(HERE), denied(THERE)] == [False, True, False]
    assert [denied(HERE, User(1)), denied(THERE, User(1)), denied(HERE, User(2))] == [False, True, False]


@pytest.mark.parametrize(
    ("user", "allowed"),
    [
        (None, 5),
        (User(1), 10),
        (User(2, is_superuser=True), 50),
        (User(3, is_superuser=True, is_usage_capped=True), 25),
    ],
)
def test_tiers_scale_categories_but_not_exact_rates(executor: Executor, user: Any, allowed: int) -> None:
    category = ping_schema(executor, rate="WRITE_HEAVY")
    results = [executor.run(category, "{ ping }", request(user=user)) for _ in range(allowed + 1)]
    assert [bool(denied_paths(result)) for result in results] == [False] * allowed + [True]
    exact = ping_schema(executor, rate="5/m", group="exact")
    results = [executor.run(exact, "{ ping }", request(user=user)) for _ in range(6)]
    assert [bool(denied_paths(result)) for result in results] == [False] * 5 + [True]


def test_the_window_rolls_over(executor: Executor, fake_clock: FakeClock) -> None:
    built = ping_schema(executor, rate="2/m")
    for _ in range(2):
        assert [denied_paths(executor.run(built, "{ ping }", request())) for _ in range(3)] == [[], [], [["ping"]]]
        fake_clock.advance(60)
