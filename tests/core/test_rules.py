from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, RateLimits, Rule
from ratelimit.identity import hashed
from ratelimit.keys import encoded
from ratelimit.rates import MAX_LIMIT, MAX_WINDOW
from ratelimit.rules import read_rate

USER = Identity("42", "203.0.113.7", "t")
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)
# What would end one characteristic and begin another, were it not encoded.
PIECES = st.lists(st.sampled_from(["&", "%", "%26", "%25", "&device:", ":", "a", "", "&&", "{", "}"])).map("".join)
TEXT = ANY_TEXT | PIECES


async def later(identity: Identity) -> str:
    return "5/m"


class TestDefinition:
    def test_of_a_rule_with_every_field(self) -> None:
        rule = Rule(
            "login",
            "5/m; 20/h",
            by=["ip", "account"],
            match={"path": "/login", "method": ["POST", "PUT"]},
            cost=2,
            action="log",
            ban_for=[900, 3600],
            tiered=True,
            on_outage="local",
        )
        assert (rule.rate, rule.by, rule.bans_us) == (
            Rate.parse("5/m; 20/h"),
            ("ip", "account"),
            (900_000_000, 3_600_000_000),
        )
        assert (rule.cost, rule.action, rule.tiered, rule.on_outage) == (2, "log", True, "local")

    def test_of_a_rule_with_none(self) -> None:
        rule = Rule("r", "5/m")
        assert (rule.by, dict(rule.match), rule.cost, rule.action, rule.bans_us) == (
            ("user_or_ip",),
            {},
            1,
            "enforce",
            (),
        )
        assert (rule.count_distinct, rule.tiered, rule.on_outage, rule.lease) == (None, False, None, 1)

    def test_one_characteristic_or_ban_may_stand_without_a_list(self) -> None:
        rule = Rule("r", "5/m", by="ip", ban_for=900)
        assert rule == Rule("r", "5/m", by=("ip",), ban_for=(900,))
        assert hash(rule) == hash(Rule("r", "5/m", by=["ip"], ban_for=[900]))

    def test_a_rule_cannot_be_changed(self) -> None:
        given = {"path": "/a"}
        rule = Rule("r", "5/m", match=given)
        given["path"] = "/b"
        assert rule.matches({"path": "/a"})
        with pytest.raises(AttributeError):
            rule.rate = "6/m"  # type: ignore[misc]
        with pytest.raises(TypeError):
            rule.match["path"] = "/b"  # type: ignore[index]

    @pytest.mark.parametrize(
        ("rate", "read"),
        [
            ("5/m", Rate(5, 60)),
            (Rate(5, 60), Rate(5, 60)),
            ("AI_QUERY", RateLimits.AI_QUERY),
            (RateLimits.AI_QUERY, RateLimits.AI_QUERY),
        ],
    )
    def test_forms_of_a_rate(self, rate: Any, read: Any) -> None:
        assert Rule("r", rate).rate == read_rate(rate) == read

    @pytest.mark.parametrize("name", ["", None, 5, b"r", ["r"]])
    def test_a_rule_has_a_name(self, name: Any) -> None:
        with pytest.raises(ConfigurationError) as caught:
            Rule(name, "5/m")
        assert str(caught.value) == f"rule name {name!r} is not a name"

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"rate": None}, "rate: missing; give one, or action='skip' to let matching calls through"),
            ({"rate": "5/mm"}, "rate: rate '5/mm' is not understood: "),
            ({"rate": "AI_QERY"}, "rate: unknown category 'AI_QERY'; valid ones: "),
            ({"rate": 5}, "rate: rate 5 is not a text: "),
            pytest.param(
                {"rate": later}, f"rate: {later!r} is a coroutine function; it must be a plain one", id="async rate"
            ),
            ({"by": ()}, "by: name at least one characteristic, or 'global' for one budget for everybody"),
            ({"by": []}, "by: name at least one characteristic"),
            *(
                ({"by": by}, "is neither the name of a characteristic nor a function of the caller")
                for by in ("", None, 5, ("ip", None), ("ip", ""), {"ip"}, {"ip": 1}, (("ip", "device"),))
            ),
            pytest.param(
                {"by": later}, f"by: {later!r} is a coroutine function; it must be a plain one", id="async by"
            ),
            *(
                ({"cost": cost}, f"cost: {cost!r} is not a whole number from 0 to")
                for cost in (-1, 1.5, True, "1", None)
            ),
            ({"cost": MAX_LIMIT + 1}, "cost: 1000000000001 is not a whole number from 0 to 1000000000000"),
            ({"action": "block"}, "action: 'block' is not one of enforce, log, skip"),
            ({"action": None}, "action: None is not one of enforce, log, skip"),
            ({"action": ["log"]}, "action: ['log'] is not one of enforce, log, skip"),
            ({"on_outage": "shut"}, "on_outage: 'shut' is not one of open, closed, local"),
            ({"on_outage": True}, "on_outage: True is not one of open, closed, local"),
            *(({"tiered": tiered}, f"tiered: {tiered!r} is neither true nor false") for tiered in ("no", 0, None)),
            *(
                (
                    {"ban_for": ban},
                    f"ban_for: {ban!r} is not a whole number of seconds from 1 to {MAX_WINDOW}; leave it out",
                )
                for ban in (0, -1, 1.5, True, "900", None, MAX_WINDOW + 1)
            ),
            ({"ban_for": (900, 0)}, "ban_for: 0 is not a whole number of seconds"),
            ({"ban_for": {900}}, "ban_for: {900} is not a whole number of seconds"),
            *(
                ({"match": match}, f"match: {match!r} is not a mapping of attributes to what they must be")
                for match in ("path", None, 5, [("path", "/a")])
            ),
            *(({"match": {name: "x"}}, f"match: {name!r} is not the name of an attribute") for name in ("", 5, None)),
            *(
                (
                    {"match": {"path": wanted}},
                    f"match.path: {wanted!r} is not a value, a compiled pattern or a list of these",
                )
                for wanted in (None, 1.5, {"regex": "x"}, b"/a", len)
            ),
            (
                {"match": {"path": ("/a", None)}},
                "match.path: None is not a value, a compiled pattern or a list of these",
            ),
            ({"match": {"path": []}}, "match.path: no value is in an empty list; leave it out to mean every call"),
            ({"match": {"path": ("/a", ())}}, "match.path: no value is in an empty list"),
            ({"match": {"path": re.compile(b"/a")}}, "match.path: b'/a' is a pattern of bytes; compile it from a text"),
            *(
                ({"count_distinct": name}, f"count_distinct: {name!r} is not the name of an attribute")
                for name in ("", 5, True, ("account",))
            ),
            (
                {"count_distinct": "account", "ban_for": 900},
                "ban_for: not with count_distinct; add a second rule that counts calls and bans",
            ),
            *(
                (
                    {"count_distinct": "account", "cost": cost},
                    "cost: not with count_distinct, where each different value uses",
                )
                for cost in (0, 2)
            ),
            *(
                (
                    {"count_distinct": "account", "rate": rate},
                    f"rate: {rate!r}: count_distinct needs fixed windows, as in '20/h'",
                )
                for rate in ("10/m sliding", "10/m anchored", "10/m burst 5", "10/m leaky", "10/m; 20/h sliding")
            ),
            *(
                ({"lease": lease}, f"lease: {lease!r} is not a whole number of units from 1 to {MAX_LIMIT}")
                for lease in (0, -1, 2.0, True, "2", None, MAX_LIMIT + 1)
            ),
            *(
                ({"lease": 2, field: value}, f"lease: not with {field}; only a rule that counts every call alike can")
                for field, value in (
                    *(("action", "log"), ("match", {"path": "/"}), ("cost", 2), ("ban_for", 60)),
                    ("count_distinct", "account"),
                )
            ),
            *(
                (
                    {"lease": 2, "by": by},
                    "lease: only where by is one of global, ip, token, token_or_ip, user, user_or_ip",
                )
                for by in ("device", ("ip", "device"), ("user", "ip"), str)
            ),
            *(
                (
                    {"lease": 2, "rate": rate},
                    f"lease: {rate!r}: only for one rate in clock-aligned windows, as in '600/m'",
                )
                for rate in ("10/m sliding", "10/m anchored", "10/m burst 5", "10/m leaky", "10/m; 20/h")
            ),
            ({"lease": 2, "rate": len}, "lease: not with a function as the rate, <built-in function len>"),
            ({"lease": 6}, "lease: 6 units at a time are more than '5/m' ever has"),
        ],
    )
    def test_a_mistake_is_an_error_that_names_rule_and_field(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            Rule(**{"name": "r", "rate": "5/m", **fields})
        assert str(caught.value).startswith("rule 'r', ")
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("rate", "5/m"), ("rate", len), ("cost", 0), ("cost", 2), ("ban_for", 900), ("ban_for", (60, 900))),
            *(("count_distinct", "account"), ("tiered", True), ("on_outage", "open"), ("lease", 2)),
        ],
    )
    def test_a_rule_that_skips_has_nothing_to_count(self, field: str, value: Any) -> None:
        assert Rule("r", action="skip", by="ip", match={"path": "/"}).rate is None
        with pytest.raises(ConfigurationError) as caught:
            Rule(**{"name": "r", "action": "skip", field: value})
        assert str(caught.value) == (
            f"rule 'r', {field}: a skipped call is not counted, so it can have none; use action='log' to count"
        )

    def test_a_category_that_cannot_count_values_is_refused_too(self) -> None:
        sliding = RateLimits.add("SLIDING", "5/m sliding")
        with pytest.raises(
            ConfigurationError, match="rule 'r', rate: '5/m sliding': count_distinct needs fixed windows"
        ):
            Rule("r", sliding, count_distinct="account")
        assert Rule("r", "AI_QUERY", count_distinct="account").rate is RateLimits.AI_QUERY

    def test_a_lease_is_of_a_plain_rule(self) -> None:
        assert Rule("r", "600/m", lease=50).lease == 50
        assert Rule("r", "5/m", by="ip", lease=5, on_outage="local").lease == 5
        assert Rule("r", "AI_QUERY", by=["token"], lease=50).lease == 50  # the category's limit may be changed
        assert Rule("r", "5/m", tiered=True, lease=50).lease == 50
        sliding = RateLimits.add("SLIDING", "5/m sliding")
        with pytest.raises(
            ConfigurationError, match="rule 'r', lease: '5/m sliding': only for one rate in clock-aligned"
        ):
            Rule("r", sliding, lease=2)


class TestMatches:
    @pytest.mark.parametrize(
        ("wanted", "hits", "misses"),
        [
            ("/a", ["/a"], ["/A", "/a/", "", None, 5, ["/a"]]),
            (5, [5], ["5", 6, None]),
            (True, [True], [False, "True", None]),
            (re.compile("^/api/"), ["/api/", "/api/x"], ["/x/api/", "", None]),
            (re.compile("curl", re.IGNORECASE), ["Curl/8", "xcurlx"], ["wget", None]),
            (re.compile("^5$"), [5, "5"], [55]),
            (re.compile(""), ["", "x", 0], [None]),
            (("GET", "HEAD"), ["GET", "HEAD"], ["POST", None, ["GET"], {"GET": 1}]),
            (["GET", 5], ["GET", 5], ["5"]),
            ({"GET", "HEAD"}, ["GET"], ["POST", ["GET"]]),
            (frozenset({1}), [1], [2]),
            (("/a", re.compile("^/b/")), ["/a", "/b/x"], ["/a/", "/c", None]),
        ],
    )
    def test_by_equality_pattern_or_one_of_several(self, wanted: Any, hits: list[Any], misses: list[Any]) -> None:
        rule = Rule("r", "5/m", match={"x": wanted})
        assert [rule.matches({"x": value}) for value in hits] == [True] * len(hits)
        assert [rule.matches({"x": value}) for value in misses] == [False] * len(misses)

    def test_all_of_them_have_to(self) -> None:
        rule = Rule("r", "5/m", match={"path": "/a", "method": "GET"})
        assert rule.matches({"path": "/a", "method": "GET", "more": 1})
        assert not rule.matches({"path": "/a", "method": "POST"})

    @pytest.mark.parametrize("wanted", ["", re.compile(""), ("",)])
    def test_a_call_without_the_attribute_is_not_meant(self, wanted: Any) -> None:
        assert not Rule("r", "5/m", match={"x": wanted}).matches({"y": ""})

    def test_a_rule_without_a_match_means_every_call(self) -> None:
        assert Rule("r", "5/m").matches({})


class TestCaller:
    @pytest.mark.parametrize(
        ("by", "caller"),
        [
            ("user_or_ip", "user:42"),
            ("user", "user:42"),
            ("ip", "ip:203.0.113.7"),
            ("token_or_ip", f"tok:{hashed('t')}"),
            ("token", f"tok:{hashed('t')}"),
            ("global", "global"),
            ("device", "device:d1"),
            ("account", "account:"),
            ("empty", "empty:"),
            ("number", "number:7"),
            (lambda identity: identity.user, "key:42"),
            (lambda identity: 7, "key:7"),
            (("ip", "device"), "ip:203.0.113.7&device:d1"),
            (("device", "ip"), "device:d1&ip:203.0.113.7"),
            (("token", "device"), f"tok:{hashed('t')}&device:d1"),
            (("global", "device"), "global&device:d1"),
            (("odd", "device"), "odd:a%26device:d2%25&device:d1"),
            (("ip", lambda identity: "a&b"), "ip:203.0.113.7&key:a%26b"),
        ],
    )
    def test_is_made_of_its_characteristics(self, by: Any, caller: str) -> None:
        attributes = {"device": "d1", "number": 7, "odd": "a&device:d2%", "empty": None}
        assert Rule("r", "5/m", by=by).caller(USER, attributes) == caller

    def test_without_a_token_or_a_user_is_the_address(self) -> None:
        nobody = Identity(ip="203.0.113.7")
        for by in ("token", "token_or_ip", "user", "user_or_ip"):
            assert Rule("r", "5/m", by=by).caller(nobody, {}) == "ip:203.0.113.7"

    def test_that_is_named_by_a_text_is_that_text(self) -> None:
        assert Rule("r", "5/m", by="ip").caller("user:42", {}) == "user:42"
        assert Rule("r", "5/m", by=("ip", "device")).caller("user:42", {"device": "d1"}) == "user:42&device:d1"
        assert Rule("r", "5/m", by="global").caller("user:42", {}) == "global"
        assert Rule("r", "5/m", by="ip").caller(USER.named("team:7"), {}) == "team:7"

    @pytest.mark.parametrize("found", [None, True, 1.5, b"x", ["x"], USER])
    def test_a_function_that_tells_nobody_apart_is_an_error(self, limiter: Limiter, found: Any) -> None:
        def who(identity: Identity) -> Any:
            return found

        with pytest.raises(ConfigurationError) as caught:
            limiter.check(Rule("r", "5/m", by=("ip", who)), USER)
        assert str(caught.value) == f"rule 'r', by: {who!r} gave {found!r}; it must give a text or a number"

    @given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=2, unique=True))
    @example([("a&device:b", "c"), ("a", "b&device:c")])
    @example([("a%26device:b", ""), ("a&device:b", "")])
    @example([("a&account:", "b"), ("a", "&account:b")])
    def test_no_two_compounds_share_a_key(self, pairs: list[tuple[str, str]]) -> None:
        rule = Rule("r", "5/m", by=("account", "device"))
        callers = [rule.caller(USER, {"account": account, "device": device}) for account, device in pairs]
        assert len({encoded(caller) for caller in callers}) == 2

    @given(TEXT, TEXT, TEXT)
    def test_a_compound_shares_no_key_with_one_of_other_characteristics(self, a: str, b: str, c: str) -> None:
        attributes = {"account": a, "device": b, "ring": c}
        compounds = [("account", "device"), ("device", "account"), ("account", "device", "ring"), ("ip", "account")]
        callers = [Rule("r", "5/m", by=by).caller(USER, attributes) for by in compounds]
        assert len(set(callers)) == len(compounds)


class TestPolicy:
    a, b = Rule("a", "5/m"), Rule("b", "5/m")

    def test_is_its_rules_in_order(self) -> None:
        policy = Policy(self.a, self.b)
        assert list(policy) == [self.a, self.b] == list(policy.rules)
        assert policy == Policy(Policy(self.a), self.b)
        assert hash(policy) == hash(Policy(self.a, self.b))

    def test_gives_a_rule_by_its_name(self) -> None:
        assert Policy(self.a, self.b)["b"] is self.b
        with pytest.raises(ConfigurationError, match=r"^no rule 'c' in this policy; it has a, b$"):
            Policy(self.a, self.b)["c"]

    @pytest.mark.parametrize("rules", [(a, a), (a, b, replace(a, rate="6/m")), (a, Policy(a, b))])
    def test_two_rules_of_one_name_are_an_error(self, rules: tuple[Any, ...]) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^policy: two rules are called 'a'; their counts would be mixed$"
        ):
            Policy(*rules)

    def test_has_no_leases_among_several_rules(self) -> None:
        leased = Rule("leased", "600/m", lease=50)
        assert list(Policy(leased)) == [leased]
        with pytest.raises(
            ConfigurationError, match="rule 'leased', lease: not in a policy of several rules, of which all"
        ):
            Policy(Rule("r", "5/m"), leased)

    @pytest.mark.parametrize("rules", [(), (Policy,), ("a",), ([a, b],), (a, None), (Rate(5, 60),)])
    def test_of_anything_but_rules_is_an_error(self, rules: tuple[Any, ...]) -> None:
        with pytest.raises(ConfigurationError, match=r"is not a Rule$|give at least one rule$"):
            Policy(*rules)
