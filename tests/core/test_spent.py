from __future__ import annotations

from typing import Any

import pytest

from ratelimit import Identity, Limiter, Policy, Rate, RateLimits, Rule
from ratelimit.guard import Guard
from ratelimit.spent import note_spent, spent

USER = Identity("42", "203.0.113.7")
API = Rule("api", "9/m")
POLICY = Policy(API, Rule("other", "9/m", by="ip"))

pytestmark = pytest.mark.usefixtures("limiter")


def facts() -> dict[str, Any]:
    return {}


def stands_in(one: Guard, other: Guard, caller: Identity = USER, also: Identity | None = None) -> bool:
    """Whether what `one` spent for a caller is taken for what `other` would spend."""
    request: dict[str, Any] = {}
    decision = one.check(caller, "place")
    note_spent(request, one, caller, decision)
    found = spent(request, other, also or caller)
    assert found in (None, decision)
    return found is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rule": "AI_QUERY"}, {"rule": RateLimits.AI_QUERY}),
        ({"rule": "AI_QUERY", "key": "ip"}, {"rule": "AI_QUERY", "key": "ip"}),
        ({"rule": "AI_QUERY", "group": "g"}, {"rate": "AI_QUERY", "group": "g"}),
        ({"rule": "AI_QUERY", "cost": 3}, {"rule": "AI_QUERY", "cost": 2}),
        ({"rate": "9/m", "group": "g"}, {"rate": Rate(9, 60), "group": "g"}),
        ({"rule": API}, {"rule": API}),
        ({"rule": API}, {"rate": API}),
        ({"rule": POLICY, "facts": facts, "protocol": "http"}, {"rule": POLICY, "facts": facts, "protocol": "http"}),
    ],
)
def test_the_same_rule_is_spent_once(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert stands_in(Guard(**one), Guard(**other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"rule": "AI_QUERY"}, {"rule": "READ_LIGHT"}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "key": "ip"}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "group": "g"}),
        ({"rule": "AI_QUERY"}, {"rate": "AI_QUERY"}),
        ({"rule": "AI_QUERY", "cost": 2}, {"rule": "AI_QUERY", "cost": 3}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "cost": lambda: 1}),
        ({"rule": "AI_QUERY", "cost": lambda: 1}, {"rule": "AI_QUERY"}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "attributes": {"a": 1}}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "key": lambda: "k"}),
        ({"rate": "9/m"}, {"rate": "9/m"}),
        ({"rule": Rate(9, 60)}, {"rule": Rate(9, 60)}),
        ({"rate": lambda: "9/m", "group": "g"}, {"rate": lambda: "9/m", "group": "g"}),
        ({"rate": "9/m", "group": "g"}, {"rate": "9/h", "group": "g"}),
        ({"rate": "9/m", "group": "g"}, {"rate": "9/m", "group": "h"}),
        ({"rule": API}, {"rule": Rule("api", "9/m")}),
        ({"rule": API, "facts": facts}, {"rule": API}),
        ({"rule": API, "protocol": "http"}, {"rule": API, "protocol": "graphql"}),
        ({"rule": "AI_QUERY"}, {"rule": "AI_QUERY", "limiter": Limiter()}),
    ],
)
def test_another_rule_group_key_place_or_limiter_is_counted(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert not stands_in(Guard(**one), Guard(**other))


def test_a_policy_of_the_file_is_the_same_by_its_name(tmp_path: Any) -> None:
    from ratelimit.settings import override

    file = tmp_path / "policies.toml"
    file.write_text('[[api.rules]]\nname = "address"\nrate = "9/m"\nby = "ip"\n')
    with override(policy_file=str(file)):
        assert stands_in(Guard("api"), Guard("api"))
        assert not stands_in(Guard("api", protocol="http"), Guard("api"))


@pytest.mark.parametrize(
    ("rule", "key", "also", "same"),
    [
        ("AI_QUERY", "user", USER, True),
        ("AI_QUERY", "user", Identity("42", "203.0.113.8"), True),
        ("AI_QUERY", "user", Identity("42", "203.0.113.7", token="t"), True),
        ("AI_QUERY", "user", Identity("43", "203.0.113.7"), False),
        ("AI_QUERY", "ip", Identity(None, "203.0.113.7"), False),  # another tier
        ("AI_QUERY", "user", Identity("42", "203.0.113.7", superuser=True), False),
        ("AI_QUERY", "user", Identity("42", "203.0.113.7", capped=True), False),
        (API, "user_or_ip", USER, True),
        (API, "user_or_ip", Identity("42", "203.0.113.8"), False),  # rules may count by anything
    ],
)
def test_the_caller_is_the_same_if_that_makes_no_difference(rule: Any, key: str, also: Identity, same: bool) -> None:
    assert stands_in(Guard(rule, key=key), Guard(rule, key=key), USER, also) is same


def test_rules_look_at_attributes_which_have_to_be_the_same() -> None:
    one, other = (Guard(API) for _ in range(2))
    assert stands_in(one, other, USER.having(tenant="a"), USER.having(tenant="a"))
    assert not stands_in(one, other, USER.having(tenant="a"), USER.having(tenant="b"))
    assert not stands_in(one, other, USER, USER.having(tenant="b"))
    assert stands_in(Guard("AI_QUERY"), Guard("AI_QUERY"), USER.having(tenant="a"), USER)


def test_rules_look_at_the_call_as_it_was_when_it_was_counted() -> None:
    """Below a mount the path is another one, and whatever stands between may change path and method."""

    def path_of(call: dict[str, Any]) -> dict[str, Any]:
        return {"path": call["path"]}

    def both(rule: Any, then: str) -> bool:
        request: dict[str, Any] = {}
        call = {"path": "/api/x"}
        one, other = (Guard(rule, facts=path_of, protocol="http") for _ in range(2))
        note_spent(request, one, USER, one.check(USER, "", call), (call,))
        call["path"] = then
        return spent(request, other, USER, (call,)) is not None

    assert both(POLICY, "/api/x")
    assert not both(POLICY, "/x")
    assert both("AI_QUERY", "/x")  # which looks at nothing


def test_a_refusal_is_not_for_what_costs_less() -> None:
    dear, cheap, other = (
        Guard(rate="4/m", group="g", cost=9),
        Guard(rate="4/m", group="g"),
        Guard(rate="4/m", group="g", cost=9),
    )
    request: dict[str, Any] = {}
    refused = dear.check(USER, "")
    note_spent(request, dear, USER, refused)
    assert not refused
    assert spent(request, cheap, USER) is None
    assert spent(request, other, USER) is refused


def test_a_rate_looks_at_what_it_counts_by_alone() -> None:
    one, other = (Guard(rate="9/m", group="g", key="ip") for _ in range(2))
    assert stands_in(one, other, USER, Identity(None, "203.0.113.7"))
    assert not stands_in(one, other, USER, Identity("42", "203.0.113.8"))


def test_each_other_place_is_spared_once_and_its_own_never() -> None:
    one, other, third = (Guard("AI_QUERY") for _ in range(3))
    request: dict[str, Any] = {}
    assert spent(request, other, USER) is None
    first = one.check(USER, "")
    note_spent(request, one, USER, first)
    assert spent(request, one, USER) is None
    assert spent(request, other, USER) is first
    assert spent(request, other, USER) is None
    assert spent(request, third, USER) is first
    second = one.check(USER, "")
    note_spent(request, one, USER, second)
    assert spent(request, other, USER) is second
    assert spent(request, Guard("READ_LIGHT"), USER) is None


def test_a_loop_that_makes_its_limits_anew_is_counted() -> None:
    request: dict[str, Any] = {}
    one = Guard("AI_QUERY")
    note_spent(request, one, USER, one.check(USER, ""))
    assert sum(spent(request, Guard("AI_QUERY"), USER) is not None for _ in range(1000)) == 7


def test_what_is_noted_is_bounded_and_the_latest(limiter: Limiter) -> None:
    request: dict[str, Any] = {}
    one, other = Guard(rate="900/m", group="g"), Guard(rate="900/m", group="g")
    for _ in range(500):
        note_spent(request, one, USER, one.check(USER, ""))
    assert [decision.remaining for _, _, decision in request["ratelimit.spent"]] == list(range(431, 399, -1))
    assert sum(spent(request, other, USER) is not None for _ in range(100)) == 32


def test_what_asks_a_callable_leaves_no_note() -> None:
    request: dict[str, Any] = {}
    guard = Guard("AI_QUERY", key=lambda: "k")
    note_spent(request, guard, USER, guard.check(USER, ""))
    assert request == {}
