from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, RateLimits, Rule
from ratelimit.paths import PathRule, PathRules, bare_host, is_preflight

CALLER = Identity(ip="203.0.113.7")


def rules(*prefixes: str, **options: Any) -> PathRules:
    return PathRules([PathRule(prefix, "1/m") for prefix in prefixes], **options)


def found(rules: PathRules, path: str, method: str = "GET", host: str = "") -> str | None:
    rule = rules.find(path, method, host)
    return None if rule is None else rule.name


class TestMatching:
    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("/api", "/api"),
            ("/api/", "/api"),
            ("/api/x", "/api"),
            ("/api/login", "/api/login"),
            ("/api/login/x/y/z", "/api/login"),
            ("/api/loginx", "/api"),
            ("/apis", None),
            ("/ap", None),
            ("/", None),
            ("", None),
            ("/x/api", None),
            ("/API", None),
        ],
    )
    def test_a_prefix_means_whole_segments_and_the_longest_decides(self, path: str, name: str | None) -> None:
        assert found(rules("/api", "/api/login"), path) == name

    def test_without_rules_nothing_is_limited(self) -> None:
        assert PathRules([]).find("/api", "GET") is None
        assert found(rules(exempt=["/api"]), "/api") is None

    def test_the_root_means_everything(self) -> None:
        one = rules("/", "/api")
        assert [found(one, path) for path in ("", "/", "/x", "//", "/api")] == ["/", "/", "/", "/", "/api"]

    @pytest.mark.parametrize(
        "path", ["//login", "/login/", "/login//", "///login", "/login\n", "/login/\n", "/login\r\n"]
    )
    def test_every_spelling_meets_the_plain_paths_rule(self, path: str) -> None:
        assert found(rules("/", "/login"), path) == "/login"

    @pytest.mark.parametrize("path", ["//static/x", "/static//x", "/static/x\n", "/static//"])
    def test_an_exemption_holds_for_the_plain_spelling_alone(self, path: str) -> None:
        one = rules("/", exempt=["/static"])
        assert found(one, path) == "/"
        assert [found(one, plain) for plain in ("/static", "/static/", "/static/x/y")] == [None] * 3

    def test_a_longer_rule_holds_below_an_exemption_and_the_other_way_round(self) -> None:
        one = rules("/api", "/api/docs/private", exempt=["/api/docs"])
        paths = ["/api/x", "/api/docs/x", "/api/docs/private/x"]
        assert [found(one, path) for path in paths] == ["/api", None, "/api/docs/private"]

    def test_an_exemption_at_a_rules_own_prefix_is_for_what_the_rule_does_not_mean(self) -> None:
        one = PathRules([PathRule("/", "1/m"), PathRule("/x", "1/m", methods="POST")], exempt="/x")
        assert [found(one, "/x", method) for method in ("POST", "GET")] == ["POST /x", None]


class TestReadings:
    """What serves files resolves dots, a router does not; and some routers take a prefix for a text."""

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("/files/x/../big", "/files/big"),
            ("/files/./big", "/files/big"),
            ("/files/x/../big/../big/a", "/files/big"),
            ("/../files/big", "/files/big"),
            ("/files/big/../x", "/files/big"),  # a router would not leave it
            ("/public/../files/big", "/public"),  # nothing that serves files is above its own place
            ("/x/../files", "/files"),
            ("/files/..big", "/files"),
            ("/files/.well-known/big", "/files"),
            ("/x/..", "/"),
        ],
    )
    def test_dots_lead_to_no_easier_rule(self, path: str, name: str) -> None:
        assert found(rules("/", "/files", "/files/big", "/public"), path) == name

    def test_dots_lead_to_no_exemption(self) -> None:
        one = rules("/", "/login", exempt=["/static"])
        assert [found(one, path) for path in ("/static/../login", "/login/../static", "/static/./x", "/static/x")] == [
            "/login",
            "/login",
            "/",
            None,
        ]

    def test_dots_and_case(self) -> None:
        assert found(rules("/Files", "/files/Big", ignore_case=True), "/FILES/x/../BIG") == "/files/Big"

    @pytest.mark.parametrize(
        ("path", "reading", "name"),
        [
            ("/applogin", "login", "/login"),
            ("/applogin", "x/../login", "/login"),
            ("/applogin", "other", "/"),
            ("/static/app/login", "/login", "/login"),
            ("/static/app/x", "/x", "/"),
            ("/api/app/login", "/login", "/api"),
        ],
    )
    def test_another_reading_leads_to_no_easier_rule_and_to_no_exemption(
        self, path: str, reading: str, name: str
    ) -> None:
        one = rules("/", "/login", "/api", exempt=["/static"]).find(path, "GET", "", reading)
        assert one is not None
        assert one.name == name


class TestMethods:
    def test_they_are_compared_in_capitals_and_get_means_head(self) -> None:
        one = PathRules([PathRule("/x", "1/m", methods=["get", "Post"]), PathRule("/", "9/m")])
        methods = ["GET", "get", "HEAD", "head", "POST", "post", "PUT", "OPTIONS", ""]
        assert [found(one, "/x", method) for method in methods] == ["GET,POST /x"] * 6 + ["/"] * 3

    def test_a_rule_with_methods_comes_before_one_without(self) -> None:
        one = PathRules([PathRule("/x", "1/m"), PathRule("/x", "1/m", methods="POST")])
        assert [found(one, "/x", method) for method in ("POST", "GET", "")] == ["POST /x", "/x", "/x"]


class TestHosts:
    HOSTS = [
        PathRule("/", "1/m"),
        PathRule("/", "1/m", hosts="*.example.com"),
        PathRule("/", "1/m", hosts=["api.example.com", "example.org"]),
        PathRule("/", "1/m", hosts="*.api.example.com"),
        PathRule("/", "1/m", hosts="[2001:db8::1]"),
        PathRule("/", "1/m", hosts="*.api.example.com", methods="POST"),
    ]

    @pytest.mark.parametrize("turned", [False, True])
    @pytest.mark.parametrize(
        ("host", "name"),
        [
            ("api.example.com", "api.example.com,example.org/"),
            ("API.Example.COM:8000", "api.example.com,example.org/"),
            ("api.example.com.", "api.example.com,example.org/"),
            ("example.org", "api.example.com,example.org/"),
            ("www.example.com", "*.example.com/"),
            ("a.b.example.com", "*.example.com/"),
            ("v1.api.example.com", "*.api.example.com/"),
            ("example.com", "/"),
            ("notexample.com", "/"),
            ("[2001:DB8::1]:443", "[2001:db8::1]/"),
            ("", "/"),
        ],
    )
    def test_the_more_exact_host_decides(self, host: str, name: str, turned: bool) -> None:
        one = PathRules(self.HOSTS[::-1] if turned else self.HOSTS)
        assert found(one, "/x", "GET", host) == name
        assert one.has_hosts

    def test_of_one_host_the_rule_with_methods_comes_first(self) -> None:
        assert found(PathRules(self.HOSTS), "/x", "POST", "v1.api.example.com") == "POST *.api.example.com/"

    def test_a_longer_prefix_comes_before_a_host(self) -> None:
        one = PathRules([PathRule("/", "1/m", hosts="example.com"), PathRule("/x", "1/m")])
        assert found(one, "/x", "GET", "example.com") == "/x"
        assert not rules("/x").has_hosts

    @pytest.mark.parametrize(
        ("host", "bare"),
        [(" A.example. ", "a.example"), ("a:80", "a"), ("[::1]:80", "[::1]"), ("[::1", "[::1]"), ("", "")],
    )
    def test_a_host_without_port_and_final_dot(self, host: str, bare: str) -> None:
        assert bare_host(host) == bare


class TestWhatARouterTakesForTheSame:
    def test_case(self) -> None:
        one = rules("/", "/Login", exempt=["/Static"], ignore_case=True)
        paths = ["/LOGIN", "/login/", "//lOgIn", "/logın", "/Static/x", "/static/x", "/STATIC"]
        assert [found(one, path) for path in paths] == ["/Login"] * 4 + [None, "/", "/"]

    def test_formats(self) -> None:
        one = rules("/", "/users", "/users/new", "/report.pdf", exempt=["/docs"], formats=True)
        paths = ["/users.json", "/users.json/", "/users.api", "/users/new.json", "/users/7.json", "/userss.json"]
        assert [found(one, path) for path in paths] == ["/users"] * 3 + ["/users/new", "/users", "/"]
        assert [found(one, path) for path in ["/report.pdf", "/docs", "/docs.json", "/"]] == [
            "/report.pdf",
            None,
            "/",
            "/",
        ]
        assert found(rules("/", "/users"), "/users.json") == "/"


class TestPreflights:
    @pytest.mark.parametrize(
        ("method", "headers", "is_one"),
        [
            ("OPTIONS", {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}, True),
            ("options", {"Origin": "", "Access-Control-Request-Method": ""}, True),
            ("OPTIONS", {"Origin": "https://a.example"}, False),
            ("OPTIONS", {"Access-Control-Request-Method": "PUT"}, False),
            ("GET", {"Origin": "https://a.example", "Access-Control-Request-Method": "PUT"}, False),
        ],
    )
    def test_a_preflight_is_what_a_browser_sends_by_itself(self, method: str, headers: Any, is_one: bool) -> None:
        assert is_preflight(method, headers.get) is is_one


class TestGuards:
    def test_a_rate_has_a_budget_of_its_own_under_the_rules_name(self, limiter: Limiter) -> None:
        one, other, named = PathRule("/a", "1/m"), PathRule("/b", Rate(1, 60)), PathRule("/c", "1/m", name="slow")
        for rule in (one, other, named):
            assert [bool(rule.guard().check(CALLER, "")) for _ in range(2)] == [True, False]
        groups = [rule.guard().check(CALLER, "").rule for rule in (one, other, named)]
        assert groups == ["path:/a", "path:/b", "path:slow"]
        assert [rule.counts_apart for rule in (one, other, named)] == [True] * 3

    @pytest.mark.parametrize(
        "rule", ["AI_QUERY", RateLimits.AI_QUERY, Rule("api", "1/m"), Policy(Rule("x", "1/m")), "api"]
    )
    def test_what_is_named_is_shared(self, rule: Any) -> None:
        one = PathRule("/a", rule)
        assert not one.counts_apart
        assert (one.guard().rate, one.guard().group) == (None, None)

    def test_key_cost_and_attributes_are_the_guards(self, limiter: Limiter) -> None:
        facts = lambda: {"path": "/a"}  # noqa: E731
        rule = PathRule("/a", "10/m", key="ip", cost=4, attributes={"device": "d"})
        guard = rule.guard(facts, "http", limiter)
        assert (guard.key, guard.cost, guard.attributes, guard.facts) == ("ip", 4, {"device": "d"}, facts)
        assert (guard.protocol, guard.limiter) == ("http", limiter)
        assert guard.check(CALLER, "").remaining == 6


class TestDefinition:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"prefix": "api"}, "path 'api': write it from the root"),
            ({"rule": 7}, "path rule '/x': 7 is neither a rule nor a rate"),
            ({"rule": "10/mm"}, "path rule '/x': rate '10/mm'"),
            ({"rule": "AI_QUERRY"}, "path rule '/x': unknown category 'AI_QUERRY'"),
            ({"name": 7}, "path rule '/x': name 7 is not a text"),
            ({"methods": "PSOT"}, "path rule '/x': method 'PSOT' is not the name of one"),
            ({"methods": "ALL"}, "leave methods out to mean all"),
            ({"methods": ["GET", 1]}, "path rule '/x': methods: 1 is not a text"),
            ({"methods": 1}, "path rule '/x': methods: 1 is not a text"),
            ({"hosts": "https://example.com"}, "path rule '/x': host 'https://example.com'"),
            ({"hosts": "example.com:80"}, "without a port"),
            ({"hosts": ["*"]}, r"path rule '/x': host '\*'"),
            ({"hosts": [None]}, "path rule '/x': hosts: None is not a text"),
            ({"key": "adress"}, "path rule '/x': unknown key strategy 'adress'"),
            ({"cost": -1}, "path rule '/x': cost -1"),
            ({"attributes": 3}, "path rule '/x': attributes 3"),
        ],
    )
    def test_what_cannot_be_used_is_an_error_that_names_the_path(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigurationError, match=said):
            PathRule(**{"prefix": "/x", "rule": "1/m", **options})

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({}, {}),
            ({}, {"prefix": "/x/"}),
            ({"methods": "GET"}, {"methods": ["GET", "POST"]}),
            ({"methods": "GET"}, {"methods": "HEAD"}),
            ({"methods": ["HEAD", "POST"]}, {"methods": ["GET", "PUT"]}),
            ({"hosts": "a.example"}, {"hosts": ["a.example", "b.example"]}),
            ({"hosts": "*.example", "methods": "GET"}, {"hosts": "*.example", "methods": "get"}),
        ],
    )
    def test_two_rules_that_mean_the_same_requests(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        both = [
            PathRule(**{"prefix": "/x", "rule": "1/m", "name": name, **o}) for name, o in (("a", one), ("b", other))
        ]
        with pytest.raises(ConfigurationError, match="path rules 'a' and 'b' mean the same requests below '/x'"):
            PathRules(both)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"methods": "GET"}, {"methods": "POST"}),
            ({"methods": "GET"}, {}),
            ({"hosts": "a.example"}, {"hosts": "b.example"}),
            ({"hosts": "a.example"}, {"hosts": "*.example"}),
            ({"hosts": "a.example"}, {}),
            ({"hosts": "a.example"}, {"hosts": "a.example", "methods": "GET"}),
            ({"hosts": "a.example", "methods": "GET"}, {"hosts": "a.example", "methods": "PUT"}),
        ],
    )
    def test_two_rules_that_can_be_told_apart(self, one: dict[str, Any], other: dict[str, Any]) -> None:
        assert len(PathRules([PathRule("/x", "1/m", **one), PathRule("/x", "1/m", **other)]).rules) == 2

    def test_case_makes_two_prefixes_one_where_it_is_ignored(self) -> None:
        assert len(rules("/a", "/A").rules) == 2
        with pytest.raises(ConfigurationError, match="mean the same requests"):
            rules("/a", "/A", ignore_case=True)

    def test_one_name_for_two_rates(self) -> None:
        with pytest.raises(ConfigurationError, match="'/a' and '/b' are both called 'x'; give each a name="):
            PathRules([PathRule("/a", "1/m", name="x"), PathRule("/b", "2/m", name="x")])
        shared = [PathRule(prefix, "AI_QUERY", name="x") for prefix in ("/a", "/b")]
        assert len(PathRules(shared).rules) == 2

    @pytest.mark.parametrize(
        ("exempt", "said"),
        [
            (["static"], "path 'static': write it from the root"),
            ([3], "path 3: write it from the root"),
            (3, "exempt paths 3: expected several"),
            (["/x/"], "path '/x' has a rule and is exempt"),
        ],
    )
    def test_exemptions(self, exempt: Any, said: str) -> None:
        with pytest.raises(ConfigurationError, match=said):
            rules("/x", exempt=exempt)

    def test_what_is_no_rule(self) -> None:
        with pytest.raises(ConfigurationError, match=r"path rule '/x': expected PathRule\('/prefix', rule\)"):
            PathRules(["/x"])  # type: ignore[list-item]


NAMES = st.sampled_from(["a", "b", "ab", "a.b", "é", "A"])
PATHS = st.lists(NAMES, max_size=4).map(lambda parts: "/" + "/".join(parts))
SLASHES = st.sampled_from(["/", "//", "///"])
ENDS = st.sampled_from(["", "/", "//", "\n", "/\n", "\r\n"])


@given(st.lists(PATHS, unique=True, max_size=8), PATHS, st.randoms())
def test_the_longest_prefix_decides_whatever_the_order(prefixes: list[str], path: str, random: Any) -> None:
    below = [one for one in prefixes if one == "/" or path == one or path.startswith(one + "/")]
    shuffled = random.sample(prefixes, len(prefixes))
    assert found(rules(*shuffled), path) == max(below, key=len, default=None)


@given(st.sets(PATHS, max_size=6), st.sets(PATHS, max_size=3), PATHS, st.data())
def test_no_spelling_meets_a_looser_rule_than_the_plain_one(
    prefixes: set[str], exempt: Iterable[str], path: str, data: st.DataObject
) -> None:
    one = rules(*prefixes, exempt=set(exempt) - prefixes)
    spelling = "".join(data.draw(SLASHES) + part for part in path.split("/")[1:]) + data.draw(ENDS)
    plain, other = found(one, path), found(one, spelling)
    # An exemption may be lost, a rule never.
    assert other == plain or plain is None
