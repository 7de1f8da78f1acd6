"""What rules may look at beside the caller: what the place knows, and what its author gives."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rule
from ratelimit.guard import Guard
from ratelimit.settings import Settings

USER = Identity("42", "203.0.113.7", attributes={"device": "d1", "path": "/theirs"})
PATH = Rule("path", "1/m", by=("ip", "path"))


def facts(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"path": args[0] if args else kwargs.get("path", "/")}


@pytest.mark.parametrize("options", [{"rule": PATH}, {"rate": PATH}, {"rate": lambda path: Policy(PATH)}])
def test_a_rule_sees_the_facts_of_the_place(limiter: Limiter, options: dict[str, Any]) -> None:
    guard = Guard(**options, facts=facts)
    found = [guard.check(USER, "group", path) for path in ("/a", "/a", "/b")]
    assert [(decision.allowed, decision.key) for decision in found] == [
        (True, "ip:203.0.113.7&path:/a"),
        (False, "ip:203.0.113.7&path:/a"),
        (True, "ip:203.0.113.7&path:/b"),
    ]


@pytest.mark.parametrize("attributes", [{"device": "d2"}, lambda *args, **kwargs: {"device": kwargs["device"]}])
def test_attributes_are_given_as_they_are_or_by_a_function(limiter: Limiter, attributes: Any) -> None:
    guard = Guard(Rule("r", "1/m", by=("device", "path")), attributes=attributes, facts=facts)
    assert guard.check(USER, "group", device="d2", path="/a").key == "device:d2&path:/a"


def test_facts_overrule_attributes_and_those_of_the_caller(limiter: Limiter) -> None:
    guard = Guard(PATH, attributes={"path": "/mine", "ip": "192.0.2.1", "self": 1}, facts=facts)
    assert guard.check(USER, "group", "/a").key == "ip:203.0.113.7&path:/a"


@pytest.mark.parametrize("options", [{"rule": "AI_QUERY"}, {"rate": "1/m"}, {"rate": lambda: "1/m", "key": "ip"}])
def test_facts_are_looked_up_for_rules_alone(limiter: Limiter, options: dict[str, Any]) -> None:
    assert Guard(**options, facts=lambda: 1 / 0).check(USER, "group")


def test_a_function_of_the_caller_is_given_attributes_at_a_category_too() -> None:
    factors = {"d1": 1, "d2": 3}
    limiter = Limiter(
        MemoryStore(), settings=Settings(), multiplier=lambda identity: factors[identity.attributes["device"]]
    )
    assert Guard("AI_QUERY", limiter=limiter).check(USER, "group").limit == 40
    assert Guard("AI_QUERY", attributes={"device": "d2"}, limiter=limiter).check(USER, "group").limit == 120


def test_a_key_function_keeps_the_attributes(limiter: Limiter) -> None:
    call = Guard(rate="1/m", key=lambda: "k", attributes={"plan": "free"}).call(USER, "group")
    assert call is not None
    assert isinstance(call.identity, Identity)
    assert (call.identity.name, call.identity.attributes["plan"]) == ("key:k", "free")


@pytest.mark.parametrize("attributes", [5, "device", [("device", "a")]])
def test_what_cannot_be_attributes_is_an_error_when_the_guard_is_made(attributes: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Guard(PATH, attributes=attributes)
    assert f"attributes {attributes!r} is neither a mapping nor a callable" in str(caught.value)


def test_a_coroutine_function_gives_no_attributes() -> None:
    async def attributes() -> dict[str, Any]:
        return {}

    with pytest.raises(ConfigurationError, match=r"attributes=.* is a coroutine function"):
        Guard(PATH, attributes=attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, "device", {5: "a"}, [("device", "a")]])
def test_a_function_that_gives_none_is_an_error(limiter: Limiter, given: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Guard(PATH, attributes=lambda: given).check(USER, "group")
    assert f"an attributes callable gave {given!r}; it must give a mapping of names to values" in str(caught.value)


@pytest.mark.parametrize("rule", [PATH, Policy(PATH)])
def test_a_key_beside_a_rule_that_a_function_gives_is_an_error_when_it_does(limiter: Limiter, rule: Any) -> None:
    with pytest.raises(ConfigurationError, match="key='ip' has no effect on 'path', whose rules say by="):
        Guard(rate=lambda: rule, key="ip").check(USER, "group")
