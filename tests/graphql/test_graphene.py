"""Graphene: its mutations, and graphene-django's view through Django's test client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("graphene_django")

from django.contrib.auth import get_user_model
from django.test import Client
from django.test.utils import override_settings

from ratelimit.testing import isolated
from tests.graphql.callers import HERE, THERE, request

pytestmark = [pytest.mark.usefixtures("limiter"), pytest.mark.urls("tests.graphql.graphene_site")]

DENIED = {
    "message": "Limit exceeded: Max 5 requests per minute. Please try again later.",
    "locations": [{"line": 1, "column": 3}],
    "path": ["documents"],
    "extensions": {"code": "RATE_LIMITED", "retry_after": 60, "limit": 5},
}


def run(query: str, context: Any) -> bool:
    """Whether an operation of one field got through."""
    from tests.graphql.graphene_site import SCHEMA

    result = SCHEMA.execute(query, context_value=context)
    assert [error.extensions["code"] for error in result.errors or []] in ([], ["RATE_LIMITED"]), result.errors
    return not result.errors


def post(client: Client, query: str, address: str = HERE, **headers: str) -> dict[str, Any]:
    response = client.post(
        "/graphql", {"query": query}, content_type="application/json", REMOTE_ADDR=address, headers=headers
    )
    assert response.status_code == 200
    return response.json()  # type: ignore[no-any-return]


def test_mutations_are_all_called_mutate_and_do_not_share() -> None:
    rename, remove = 'mutation { rename(name: "x") { name } }', "mutation { remove { ok } }"
    assert [run(rename, request()) for _ in range(3)] == [True, True, False]
    assert [run(remove, request()) for _ in range(4)] == [True, True, True, False]


def test_a_relay_mutation_limits_its_payload_by_its_input() -> None:
    def bring(name: str) -> bool:
        return run(f'mutation {{ bring(input: {{ name: "{name}" }}) {{ name }} }}', request())

    assert [bring("a"), bring("a"), bring("b")] == [True, False, True]


async def test_graphene_executes_its_async_resolvers() -> None:
    import graphene

    from ratelimit_graphql import graphql_ratelimit

    class Query(graphene.ObjectType):
        ping = graphene.String()

        @graphql_ratelimit(rate="2/m")
        async def resolve_ping(root, info):  # type: ignore[no-untyped-def]
            await asyncio.sleep(0)
            return "pong"

    schema = graphene.Schema(query=Query)
    result = await schema.execute_async("{ a: ping b: ping c: ping }", context_value=request())
    assert sorted(map(str, result.data.values())) == ["None", "pong", "pong"]
    assert [error.extensions["code"] for error in result.errors] == ["RATE_LIMITED"]


async def test_graphene_subscriptions_are_limited_when_the_client_subscribes() -> None:
    import graphene

    from ratelimit_graphql import graphql_ratelimit

    class Query(graphene.ObjectType):
        x = graphene.Int()

    class Subscription(graphene.ObjectType):
        ticks = graphene.Int()

        @graphql_ratelimit(rate="1/m")
        async def subscribe_ticks(root, info):  # type: ignore[no-untyped-def]
            yield 1
            yield 2

    schema = graphene.Schema(query=Query, subscription=Subscription)
    stream = await schema.subscribe("subscription { ticks }", context_value=request())
    assert [event.data async for event in stream] == [{"ticks": 1}, {"ticks": 2}]
    refused = await schema.subscribe("subscription { ticks }", context_value=request())
    assert refused.errors[0].extensions["code"] == "RATE_LIMITED"


def test_a_context_of_none_is_the_unknown_address_for_everybody(caplog: pytest.LogCaptureFixture) -> None:
    assert [run("{ documents }", None) for _ in range(6)] == [True] * 5 + [False]
    assert run("{ documents }", request())


# graphene-django's view


def test_the_view_answers_a_denial_with_the_error(client: Client) -> None:
    for _ in range(5):
        assert post(client, "{ documents }") == {"data": {"documents": ["a", "b"]}}
    assert post(client, "{ documents }") == {"errors": [DENIED], "data": {"documents": None}}
    assert "errors" not in post(client, "{ documents }", THERE)


def test_each_alias_of_a_mutation_counts(client: Client) -> None:
    aliases = " ".join(f'a{n}: rename(name: "{n}") {{ name }}' for n in range(100))
    answer = post(client, f"mutation {{ {aliases} }}")
    assert [field for field, data in answer["data"].items() if data] == ["a0", "a1"]
    assert [error["path"] for error in answer["errors"]] == [[f"a{n}"] for n in range(2, 100)]


def test_each_operation_of_a_batch_counts(client: Client) -> None:
    batch = [{"query": "{ documents }"}] * 7
    response = client.post("/batch", batch, content_type="application/json", REMOTE_ADDR=HERE)
    assert [bool(answer["data"]["documents"]) for answer in response.json()] == [True] * 5 + [False] * 2


@pytest.mark.django_db
def test_a_logged_in_user_is_counted_as_the_user_wherever_it_comes_from(client: Client) -> None:
    client.force_login(get_user_model().objects.create_user("ada"))
    for address in (HERE, THERE) * 5:
        assert "errors" not in post(client, "{ documents }", address)
    assert "errors" in post(client, "{ documents }")
    assert "errors" not in post(Client(), "{ documents }")


@pytest.mark.django_db
def test_a_superuser_has_ten_times_the_category(client: Client) -> None:
    client.force_login(get_user_model().objects.create_superuser("root"))
    answers = [post(client, "{ documents }") for _ in range(51)]
    assert ["errors" in answer for answer in answers] == [False] * 50 + [True]


@pytest.mark.parametrize(
    ("proxies", "chain", "same"),
    [
        (0, ["198.51.100.1", "198.51.100.2"], True),
        (1, ["198.51.100.1", "198.51.100.2"], False),
        (1, ["198.51.100.9, 198.51.100.1", "198.51.100.8, 198.51.100.1"], True),
        (2, ["198.51.100.9, 198.51.100.1", "198.51.100.8, 198.51.100.1"], False),
        (3, ["198.51.100.9, 198.51.100.1", "198.51.100.8, 198.51.100.1"], True),
    ],
)
def test_the_trusted_depth_decides_who_is_behind_a_proxy(
    client: Client, proxies: int, chain: list[str], same: bool
) -> None:
    with isolated(proxies_count=proxies, overrides={"WRITE_HEAVY": "1/m"}):
        first, second = (post(client, "{ documents }", **{"X-Forwarded-For": one}) for one in chain)
    assert "errors" not in first
    assert ("errors" in second) is same


def test_a_shared_category_is_spent_for_other_protocols_too(client: Client, limiter: Any) -> None:
    assert all("errors" not in post(client, "{ answer }") for _ in range(4))
    assert limiter.check("AI_ANALYSIS", f"ip:{HERE}")
    assert "errors" in post(client, "{ answer }")


def test_without_block_the_request_is_flagged(client: Client) -> None:
    assert [post(client, "{ limited }")["data"]["limited"] for _ in range(3)] == [False, True, True]


def test_a_rate_limit_of_the_settings_module_holds_at_once(client: Client) -> None:
    with override_settings(RATELIMIT_WRITE_HEAVY="1/m"):
        assert ["errors" in post(client, "{ documents }") for _ in range(2)] == [False, True]
    assert "errors" not in post(client, "{ documents }")
