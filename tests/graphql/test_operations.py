"""A limit on whole operations: what is taken, from whom, in how many trips, and what a refusal says. With graphql-core."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import Any

import graphql
import pytest

import ratelimit
from ratelimit import Identity, Limiter, MemoryStore, Policy, Rule
from ratelimit.settings import override
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock
from ratelimit_graphql import Operation, OperationLimit, OperationLimitExceeded, RateLimitExceeded, Verdict
from tests.graphql.callers import HERE, THERE, User, request
from tests.graphql.operations import pings
from tests.wire import CountingProxy

pytestmark = pytest.mark.usefixtures("limiter")

SCHEMA = graphql.build_schema(
    "type Query { ping: String } type Mutation { login: Boolean } type Subscription { x: Int }"
)


class Asking:
    """Asks a limit before an operation of the schema, on the calling thread or from an event loop."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(
        self, limit: OperationLimit, text: str, context: Any = None, variables: Any = None, name: str | None = None
    ) -> Verdict:
        document = graphql.parse(text)
        context = request() if context is None else context
        if self.mode == "sync":
            return limit.check(SCHEMA, document, context, variables, name)
        return asyncio.run(limit.acheck(SCHEMA, document, context, variables, name))

    def invalid(self, limit: OperationLimit, context: Any) -> None:
        if self.mode == "sync":
            limit.count_invalid(context)
        else:
            asyncio.run(limit.acount_invalid(context))


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param)


def test_an_operation_takes_its_cost_from_one_budget(ask: Asking) -> None:
    limit = OperationLimit(rate="10/m")
    assert [bool(ask(limit, pings(n))) for n in (4, 5, 2, 1, 1)] == [True, True, False, True, False]
    assert ask(limit, pings(10), request(THERE))


def test_a_refusal_says_what_the_operation_costs_and_how_long_to_wait(ask: Asking, fake_clock: FakeClock) -> None:
    limit = OperationLimit(rate="10/m")
    ask(limit, pings(8))
    fake_clock.advance(20)
    verdict = ask(limit, pings(3))
    error = verdict.error
    assert error is not None
    assert error.formatted == {
        "message": "Limit exceeded: Max 10 requests per minute. Please try again later.",
        "extensions": {"code": "RATE_LIMITED", "retry_after": 40, "limit": 10, "cost": 3},
    }
    assert (error.cost, error.decision) == (3, verdict.decision)
    assert verdict.decision.rule == "graphql:operations"
    fake_clock.advance(40)
    assert ask(limit, pings(3)).error is None


def test_the_error_is_one_of_the_packages_own(ask: Asking) -> None:
    error = ask(OperationLimit(rate="1/m"), pings(2)).error
    assert isinstance(error, OperationLimitExceeded)
    assert isinstance(error, (RateLimitExceeded, graphql.GraphQLError, ratelimit.RateLimitExceeded))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("options", [{"rate": "10/m"}, {"rate": "50/m", "max_cost": 10}])
def test_what_costs_more_than_there_can_be_is_refused_for_good_and_takes_nothing(ask: Asking, options: Any) -> None:
    limit = OperationLimit(**options)
    error = ask(limit, pings(11)).error
    assert error is not None
    assert error.formatted == {
        "message": "Operation too expensive: it costs 11, the limit is 10.",
        "extensions": {"code": "RATE_LIMITED", "retry_after": None, "limit": 10, "cost": 11},
    }
    assert ask(limit, pings(10))


def test_an_operation_above_the_maximum_is_refused_without_asking_the_store(
    ask: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    class Unasked(Limiter):
        def check(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the store was asked")

        acheck = check

    limit = OperationLimit(rate="50/m", max_cost=10, limiter=Unasked(MemoryStore()))
    with caplog.at_level(logging.WARNING):
        assert not ask(limit, pings(11), request(user=User(7)))
    assert caplog.messages == ["an operation of user:7 costs 11, above max_cost=10"]


def test_nothing_is_refused_when_limits_are_off(ask: Asking) -> None:
    with override(disable=True):
        assert ask(OperationLimit(rate="1/m", max_cost=10), pings(11))


def test_one_round_trip_for_a_whole_operation(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    limit = OperationLimit(rate="100/m", limiter=limiter)
    assert limit.check(SCHEMA, graphql.parse(pings(1)), request())
    proxy.reset()
    assert limit.check(SCHEMA, graphql.parse(pings(99)), request())
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 1}, 1)
    limiter.close()


def test_at_once_no_more_is_let_through_than_there_is(fake_clock: FakeClock) -> None:
    limit = OperationLimit(rate="10/m")
    document = graphql.parse(pings(3))

    async def all_at_once() -> list[Verdict]:
        return await asyncio.gather(*(limit.acheck(SCHEMA, document, request()) for _ in range(20)))

    assert sum(map(bool, asyncio.run(all_at_once()))) == 3


# Which operation


def test_the_operation_that_is_named_is_charged(ask: Asking) -> None:
    limit = OperationLimit(rate="5/m")
    text = "query Small { ping } query Large { a: ping b: ping c: ping }"
    assert [ask(limit, text, name=name).cost for name in ("Small", "Large")] == [1, 3]


@pytest.mark.parametrize(("invalid_cost", "left"), [(0, 3), (1, 2), (2, 1), (9, 3)])
def test_an_operation_that_is_not_there_counts_as_invalid_and_passes(
    ask: Asking, limiter: Limiter, invalid_cost: int, left: int
) -> None:
    """The executor's own error is the answer. What the budget does not have is not taken."""
    limit = OperationLimit("AI_QUERY", invalid_cost=invalid_cost)
    with override(overrides={"AI_QUERY": "3/m"}):
        verdict = ask(limit, "query A { ping }", name="B")
        assert (bool(verdict), verdict.cost, verdict.error) == (True, 0, None)
        assert limiter.peek("AI_QUERY", f"ip:{HERE}").remaining == left


def test_a_flood_of_invalid_documents_uses_up_the_budget(ask: Asking) -> None:
    limit = OperationLimit(rate="5/m")
    for _ in range(7):
        ask.invalid(limit, request())
    assert not ask(limit, "{ ping }")
    assert ask(limit, "{ ping }", request(THERE))


def test_an_operation_that_costs_nothing_passes_when_nothing_is_left(ask: Asking) -> None:
    limit = OperationLimit(rate="1/m")
    assert [bool(ask(limit, text)) for text in ("{ ping }", "{ ping }", "{ __typename }")] == [True, False, True]


# Options


def test_a_cost_of_the_applications_own(ask: Asking) -> None:
    seen: list[Operation] = []

    def cost(operation: Operation) -> int:
        seen.append(operation)
        return operation.cost // 2

    halves = OperationLimit(rate="5/m", cost=cost)
    context = request()
    assert ask(halves, "query Q { a: ping b: ping c: ping d: ping }", context, {"x": 1}).cost == 2
    assert seen == [Operation(context, "query", "Q", {"x": 1}, 4)]
    ask.invalid(halves, context)
    assert len(seen) == 1
    flat = OperationLimit(rate="5/m", group="flat", cost=1)
    assert [bool(ask(flat, pings(100))) for _ in range(6)] == [True] * 5 + [False]


def test_callables_get_the_operation(ask: Asking) -> None:
    limit = OperationLimit(
        rate=lambda operation: None if operation.kind == "mutation" else f"{operation.context.plan}/m",
        key=lambda operation: Identity(name=f"project:{operation.variables['project']}"),
    )
    context = request()
    context.plan = 2
    answers = [bool(ask(limit, "{ ping }", context, {"project": one})) for one in "aaab"]
    assert answers == [True, True, False, True]
    assert all(ask(limit, "mutation { login }", context, {"project": "a"}) for _ in range(5))


def test_rules_may_look_at_the_kind_of_operation_and_at_attributes(ask: Asking) -> None:
    limit = OperationLimit(
        Policy(
            Rule("reads", "6/m", match={"operation": "query"}),
            Rule("writes", "1/m", by=("ip", "team"), match={"operation": "mutation"}),
            Rule("invalid", "2/m", match={"operation": "invalid"}),
        ),
        attributes=lambda operation: {"team": operation.context.team},
    )

    def of_team(team: str) -> Any:
        context = request()
        context.team = team
        return context

    assert [bool(ask(limit, "mutation { login }", of_team(team))) for team in "aab"] == [True, False, True]
    assert [bool(ask(limit, pings(3), of_team("a"))) for _ in range(3)] == [True, True, False]
    assert ask(limit, "subscription { x }", of_team("a"))


def test_a_category_is_one_budget_with_whatever_else_names_it(ask: Asking, limiter: Limiter) -> None:
    with override(overrides={"AI_QUERY": "5/m"}):
        assert ask(OperationLimit("AI_QUERY"), pings(3))
        assert limiter.peek("AI_QUERY", f"ip:{HERE}").remaining == 2


def test_a_group_keeps_budgets_apart(ask: Asking) -> None:
    one, other = OperationLimit(rate="1/m"), OperationLimit(rate="1/m", group="other")
    assert [bool(ask(limit, "{ ping }")) for limit in (one, other, one, other)] == [True, True, False, False]


def test_a_category_grows_with_the_tier(ask: Asking) -> None:
    with override(overrides={"AI_QUERY": "5/m"}):
        assert ask(OperationLimit("AI_QUERY"), pings(50), request(user=User(1, is_superuser=True)))
        assert not ask(OperationLimit("AI_QUERY"), pings(50), request())


@pytest.mark.parametrize("variables", [None, [], "x", 5])
def test_variables_that_are_none(ask: Asking, variables: Any) -> None:
    assert ask(OperationLimit(rate="5/m"), "query ($x: Boolean!) { ping @skip(if: $x) }", None, variables).cost == 1


def test_as_the_page_has_it_before_an_execution() -> None:
    limit = OperationLimit(rate="2/m")

    def execute(text: str) -> graphql.ExecutionResult:
        document = graphql.parse(text)
        errors = graphql.validate(SCHEMA, document)
        if errors:
            limit.count_invalid(request())
            return graphql.ExecutionResult(None, errors)
        verdict = limit.check(SCHEMA, document, request())
        if verdict.error:
            return graphql.ExecutionResult(None, [verdict.error])
        return graphql.execute_sync(SCHEMA, document, {"ping": "pong"})

    assert execute("{ ping }").data == {"ping": "pong"}
    assert execute("{ what }").errors
    refused = execute("{ ping }")
    assert refused.data is None
    assert refused.errors is not None
    assert refused.errors[0].extensions == {"code": "RATE_LIMITED", "retry_after": 60, "limit": 2, "cost": 1}
