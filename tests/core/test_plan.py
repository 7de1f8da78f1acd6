from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ratelimit import Call, Category, ConfigurationError, Identity, Policy, Rate, RateLimits, Rule
from ratelimit.identity import hashed
from ratelimit.outcome import Charge
from ratelimit.plan import Ask, Planner, kept_rule, named_category, named_rule
from ratelimit.rates import MAX_LIMIT
from ratelimit.settings import Settings
from ratelimit.tiers import default_tiers

USER = Identity("42", "203.0.113.7", "t")
SETTINGS = Settings(overrides={"EXPORT": "9/h"})
PLANNER = Planner(default_tiers, None)


def planned(rule: Any, identity: Identity | str = USER, protocol: str = "", **call: Any) -> list[Ask]:
    return PLANNER.asks(Call(rule, identity, **call), SETTINGS, protocol)


def charges(rule: Any, identity: Identity | str = USER, **call: Any) -> list[Charge]:
    return [ask.charge for ask in planned(rule, identity, **call)]


@pytest.mark.parametrize(
    ("rule", "call", "key", "rate", "group"),
    [
        ("AI_QUERY", {}, "rl:AI_QUERY:{user:42}", "40/m", "AI_QUERY"),
        (RateLimits.AI_QUERY, {}, "rl:AI_QUERY:{user:42}", "40/m", "AI_QUERY"),
        ("AI_QUERY", {"group": "g"}, "rl:g:{user:42}", "40/m", "g"),
        ("AI_QUERY", {"identity": "user:42"}, "rl:AI_QUERY:{user:42}", "20/m", "AI_QUERY"),
        ("EXPORT", {"identity": "u"}, "rl:EXPORT:{u}", "9/h", "EXPORT"),
        (Category("AD_HOC", Rate(7, 60)), {"identity": "u"}, "rl:AD_HOC:{u}", "7/m", "AD_HOC"),
        (Rate(5, 30), {}, "rl:default:{user:42}", "5/30s", "default"),
        (Rate(5, 30), {"group": "g", "key": "ip"}, "rl:g:{ip:203.0.113.7}", "5/30s", "g"),
        (Rate(5, 30), {"key": "global"}, "rl:default:{global}", "5/30s", "default"),
        (Rule("r", "5/30s"), {}, "rl:r:{user:42}", "5/30s", "r"),
        (Rule("r", "5/30s"), {"group": "g"}, "rl:g:{user:42}", "5/30s", "g"),
        (Rule("r", "AI_QUERY"), {}, "rl:r:{user:42}", "20/m", "r"),
        (Rule("r", "EXPORT"), {}, "rl:r:{user:42}", "9/h", "r"),
        (Rule("r", "AI_QUERY", tiered=True), {}, "rl:r:{user:42}", "40/m", "r"),
        (Rule("r", "5/30s", tiered=True), {}, "rl:r:{user:42}", "10/30s", "r"),
        (Rule("r", "5/30s", tiered=True), {"identity": "user:42"}, "rl:r:{user:42}", "5/30s", "r"),
        (Rule("r", lambda identity: f"{identity.user}/m"), {}, "rl:r:{user:42}", "42/m", "r"),
        (Rule("r", lambda identity: "EXPORT", by="ip"), {}, "rl:r:{ip:203.0.113.7}", "9/h", "r"),
        (Rule("r", lambda identity: f"{len(identity.name or '')}/m"), {"identity": "four"}, "rl:r:{four}", "4/m", "r"),
        (Policy(Rule("r", "5/30s")), {"group": "g"}, "rl:g:{user:42}", "5/30s", "g"),
    ],
)
def test_a_call_becomes_a_charge(rule: Any, call: dict[str, Any], key: str, rate: str, group: str) -> None:
    (found,) = planned(rule, **call)
    assert found.charge == Charge(f"rl:{group}", found.caller, Rate.parse(rate), 1, group)
    assert found.charge.key == key
    assert key.endswith(f":{{{found.caller}}}")
    assert found.on_outage is None


def test_each_further_rate_is_a_charge_of_its_own() -> None:
    for rule, group in ((Rate.parse("10/s; 200/h"), "g"), (Rule("g", "10/s; 200/h"), None)):
        assert charges(rule, "u", group=group, cost=3) == [
            Charge("rl:g", "u", Rate(10, 1), 3, "g"),
            Charge("rl:g~3600s", "u", Rate(200, 3600), 3, "g"),
        ]


def test_what_a_rule_says_stands_in_each_of_its_charges() -> None:
    rule = Rule("g", "10/s; 200/h", cost=2, action="log", ban_for=(60, 3600), on_outage="local")
    first, second = planned(rule, "u", cost=3)
    assert first == Ask(
        Charge("rl:g", "u", Rate(10, 1), 6, "g", False, (60_000_000, 3_600_000_000), "rl:g"), "u", "local"
    )
    assert second.charge[4:] == first.charge[4:]
    assert (second.caller, second.on_outage) == ("u", "local")


def test_a_value_that_is_counted_is_hashed() -> None:
    rule = Rule("names", "20/h", by="ip", count_distinct="account")
    members = [charges(rule, attributes=attributes)[0].member for attributes in ({"account": "ann"}, {"account": 5})]
    assert members == [hashed("ann"), hashed("5")]
    assert charges(rule)[0].member == charges(rule, attributes={"account": None})[0].member == hashed("")


@pytest.mark.parametrize("rate", ["10/m sliding", "10/m burst 20", "10/m; 20/h anchored"])
def test_a_rate_found_at_the_call_that_cannot_count_values_is_an_error(rate: str) -> None:
    rule = Rule("names", lambda identity: rate, count_distinct="account")
    with pytest.raises(ConfigurationError, match=r"rule 'names', rate: .*: count_distinct needs fixed windows"):
        planned(rule)


def test_no_rate_for_this_caller_is_no_charge() -> None:
    assert planned(Policy(Rule("a", lambda identity: None), Rule("b", "5/m"))) == planned(Rule("b", "5/m"))


@pytest.mark.parametrize("cost", [True, False, -1, 1.0, 1.5, "1", None, MAX_LIMIT + 1, float("nan")])
def test_a_cost_is_a_whole_number_of_units(cost: object) -> None:
    for rule in ("AI_QUERY", Rule("r", "5/m")):
        with pytest.raises(ConfigurationError) as caught:
            planned(rule, cost=cost)
        assert f"cost {cost!r} is not" in str(caught.value)


def test_costs_at_the_bounds() -> None:
    assert [charges("AI_QUERY", cost=cost)[0].cost for cost in (0, MAX_LIMIT)] == [0, MAX_LIMIT]
    assert charges(Rule("r", "5/m", cost=1000), cost=MAX_LIMIT // 1000)[0].cost == MAX_LIMIT
    with pytest.raises(ConfigurationError, match="rule 'r': cost 1000 times 1000000001 is more than 1000000000000"):
        planned(Rule("r", "5/m", cost=1000), cost=MAX_LIMIT // 1000 + 1)


@pytest.mark.parametrize("strategy", ["users", "", None])
def test_an_unknown_key_strategy_is_an_error(strategy: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown key strategy {strategy!r}"):
        planned("AI_QUERY", key=strategy)


def test_a_group_for_several_rules_would_mix_their_counts() -> None:
    with pytest.raises(ConfigurationError, match="group 'g' with a policy"):
        planned(Policy(Rule("a", "5/m"), Rule("b", "5/m")), group="g")


class TestMatching:
    rules = Policy(Rule("a", "5/m", match={"path": "/a"}), Rule("b", "5/m", match={"path": "/b"}), Rule("all", "5/m"))

    @staticmethod
    def meant(rule: Rule | Policy, identity: Identity | str = USER, **attributes: Any) -> list[str]:
        return [ask.charge.rule for ask in planned(rule, identity, attributes=attributes)]

    def test_every_rule_that_matches_is_asked_in_order(self) -> None:
        assert self.meant(self.rules, path="/a") == ["a", "all"]
        assert self.meant(self.rules, path="/b") == ["b", "all"]
        assert self.meant(self.rules) == ["all"]

    def test_a_rule_that_skips_asks_nothing_wherever_it_stands(self) -> None:
        skip = Rule("skip", match={"path": "/a"}, action="skip")
        for policy in (Policy(skip, self.rules), Policy(self.rules, skip)):
            assert self.meant(policy, path="/a") == []
            assert self.meant(policy, path="/b") == ["b", "all"]

    def test_attributes_of_the_call_win_over_those_of_the_caller(self) -> None:
        identity = USER.having(path="/a")
        assert self.meant(self.rules, identity) == ["a", "all"]
        assert self.meant(self.rules, identity, path="/b") == ["b", "all"]

    @pytest.mark.parametrize(
        ("identity", "facts"),
        [
            (USER, {"user": "42", "ip": "203.0.113.7", "authenticated": True, "superuser": False}),
            (Identity("1", superuser=True), {"user": "1", "ip": "unknown", "authenticated": True, "superuser": True}),
            (Identity(ip="203.0.113.7"), {"ip": "203.0.113.7", "authenticated": False, "superuser": False}),
            ("user:42", {"ip": "unknown", "authenticated": False, "superuser": False}),
        ],
    )
    def test_the_engines_own_facts_cannot_be_chosen(self, identity: Identity | str, facts: dict[str, Any]) -> None:
        forged: dict[str, Any] = dict.fromkeys(("user", "ip", "authenticated", "superuser", "protocol"), "forged")
        carrier = identity if isinstance(identity, str) else identity.having(**forged)
        for name in forged:
            assert self.meant_by({name: "forged"}, carrier, forged) is False
        for name, value in {**facts, "protocol": "http"}.items():
            assert self.meant_by({name: value}, carrier, forged) is True

    @staticmethod
    def meant_by(match: dict[str, Any], identity: Identity | str, attributes: dict[str, Any]) -> bool:
        return bool(planned(Rule("r", "5/m", match=match), identity, "http", attributes=attributes))

    def test_a_forged_fact_does_not_change_who_is_counted(self) -> None:
        rule = Rule("r", "5/m", by=("ip", "protocol", "authenticated"))
        (found,) = planned(rule, USER, "http", attributes={"ip": "x", "protocol": "x", "authenticated": "x"})
        assert found.caller == "ip:203.0.113.7&protocol:http&authenticated:True"


class TestClearing:
    def test_names_everything_a_rule_may_have_counted_whatever_it_matches(self) -> None:
        policy = Policy(
            Rule("failed", "3/15m", by=("account", "ip"), match={"failed": True}, ban_for=900),
            Rule("skip", match={"path": "/"}, action="skip"),
            Rule("none", lambda identity: None),
        )
        call = Call(policy, USER, attributes={"account": "ann", "path": "/"})
        (found,) = PLANNER.clearing(call, SETTINGS)
        assert (found.charge.key, found.charge.ban_key) == (
            "rl:failed:{account:ann&ip:203.0.113.7}",
            "rl:failed:{account:ann&ip:203.0.113.7}:ban",
        )

    @pytest.mark.parametrize("rule", ["AI_QUERY", RateLimits.AI_QUERY, Rate(5, 60), Rule("r", "5/m")])
    def test_of_anything_else_is_what_a_check_asks(self, rule: Any) -> None:
        assert PLANNER.clearing(Call(rule, USER), SETTINGS) == planned(rule)


class TestNames:
    policies = {"login": Policy(Rule("a", "5/m")), "mobile-api": Policy(Rule("b", "5/m"))}

    def test_a_name_is_a_category_or_a_policy(self) -> None:
        assert named_rule("AI_QUERY", self.policies) is RateLimits.AI_QUERY
        assert named_rule("login", self.policies) is self.policies["login"]

    @pytest.mark.parametrize(("name", "what"), [("logni", "policy"), ("AI_QERY", "category"), ("", "category")])
    def test_an_unknown_one_lists_both(self, name: str, what: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            named_rule(name, self.policies)
        assert str(caught.value).startswith(f"unknown {what} {name!r}; valid ones: ADMIN_LOGIN_PAGE, ADMIN_OPERATION, ")
        assert str(caught.value).endswith("; policies in RATELIMIT_POLICY_FILE: login, mobile-api")

    def test_without_a_file_there_are_none(self) -> None:
        with pytest.raises(ConfigurationError, match=r"policies in RATELIMIT_POLICY_FILE: none$"):
            named_rule("login", {})

    @pytest.mark.parametrize("find", [named_category, kept_rule, lambda text: named_rule(text, {})])
    def test_a_rates_text_in_place_of_a_category_is_told_what_to_write(self, find: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"for a rate write rate='[0-9]+/m' or Rate.parse\('10/m'\)"):
            find("10/m")

    @pytest.mark.parametrize("rule", [None, 10, 0, True, b"AI_QUERY", ("AI_QUERY",), Rate])
    def test_what_names_nothing_is_an_error(self, rule: object) -> None:
        for find in (named_category, kept_rule):
            with pytest.raises(ConfigurationError, match="is not a category, Rate, Rule or Policy"):
                find(rule)

    @pytest.mark.parametrize("rule", [Rate(5, 60), Rule("r", "5/m"), policies["login"], RateLimits.AI_QUERY, "login"])
    def test_a_decorator_keeps_what_can_be_asked(self, rule: Any) -> None:
        assert kept_rule(rule) is rule

    @pytest.mark.parametrize("name", ["AI_QERY", "Login", "log in", "", "_login", "1login", "é"])
    def test_a_decorator_refuses_a_name_that_no_policy_can_have(self, name: str) -> None:
        with pytest.raises(ConfigurationError, match=f"unknown category '{name}'"):
            kept_rule(name)

    def test_a_policy_of_the_settings_file_is_planned_by_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "p.toml").write_text('[login]\n[[login.rules]]\nname = "pair"\nrate = "5/m"\n')
        settings = Settings(policy_file=tmp_path / "p.toml")  # type: ignore[arg-type]
        (found,) = PLANNER.asks(Call("login", "u"), settings, "")
        assert found.charge == Charge("rl:pair", "u", Rate(5, 60), 1, "pair")


@pytest.mark.parametrize("what", ["tiers", "multiplier"])
def test_a_tier_or_multiplier_that_cannot_be_asked_is_an_error(what: str) -> None:
    async def later(*_: object) -> None: ...

    for given in (5, later):
        with pytest.raises(ConfigurationError, match=f"{what}=.* is not a plain function of the caller"):
            Planner(**{"tiers": default_tiers, "multiplier": None, what: given})  # type: ignore[arg-type]
