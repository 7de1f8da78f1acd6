from __future__ import annotations

import re
from pathlib import Path

import pytest

from ratelimit import ConfigurationError, Limiter, MemoryStore, Policy, Rate, Rule, settings
from ratelimit.guard import Guard
from ratelimit.identity import Identity
from ratelimit.policy_file import load_policies
from ratelimit.settings import Settings, override
from ratelimit.testing import FakeClock, isolated

WHOLE = """
[login]
[[login.rules]]
name = "login-pair"
rate = "5/15m anchored; 20/d"
by = ["account", "ip"]
match = { path = "/login", method = ["POST", "PUT"], agent = { regex = "(?i)curl" }, tries = 3, tls = true }
cost = 2
action = "log"
ban_for = [900, 3600]
tiered = true
on_outage = "local"

[[login.rules]]
name = "login-names"
rate = "20/h"
by = "ip"
count_distinct = "account"

[mobile-api_2]
rules = [
    { name = "health", match = { path = ["/health", { regex = "^/static/" }] }, action = "skip" },
    { name = "writes", rate = "WRITE_LIGHT", ban_for = 60 },
]

[uploads]
rules = [{ name = "uploads", rate = "600/m", lease = 50 }]
"""
ONE_RULE = '[login]\n[[login.rules]]\nname = "pair"\nrate = "5/m"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policies.toml"


def written(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


class TestLoading:
    def test_a_rules_table_has_the_fields_of_a_rule(self, path: Path) -> None:
        policies = load_policies(written(path, WHOLE))
        assert policies == {
            "login": Policy(
                Rule(
                    "login-pair",
                    "5/15m anchored; 20/d",
                    by=("account", "ip"),
                    match={
                        "path": "/login",
                        "method": ["POST", "PUT"],
                        "agent": re.compile("(?i)curl"),
                        "tries": 3,
                        "tls": True,
                    },
                    cost=2,
                    action="log",
                    ban_for=(900, 3600),
                    tiered=True,
                    on_outage="local",
                ),
                Rule("login-names", "20/h", by="ip", count_distinct="account"),
            ),
            "mobile-api_2": Policy(
                Rule("health", match={"path": ["/health", re.compile("^/static/")]}, action="skip"),
                Rule("writes", "WRITE_LIGHT", ban_for=60),
            ),
            "uploads": Policy(Rule("uploads", "600/m", lease=50)),
        }
        assert load_policies(str(path)) == policies

    def test_a_list_of_values_and_patterns_matches_one_of_them(self, path: Path) -> None:
        health = load_policies(written(path, WHOLE))["mobile-api_2"]["health"]
        assert [health.matches({"path": path}) for path in ("/health", "/static/x", "/healthy", "/a/static/")] == [
            *(True, True, False, False)
        ]

    def test_an_empty_file_has_no_policies(self, path: Path) -> None:
        assert load_policies(written(path, "# none yet\n")) == {}

    def test_rules_that_count_the_same_may_stand_in_two_policies(self, path: Path) -> None:
        shared = '[[{}.rules]]\nname = "all"\nrate = "9/m"\nby = "global"\n'
        text = shared.format("a") + shared.format("b") + 'action = "log"\nmatch = { path = "/b" }\n'
        policies = load_policies(written(path, text))
        assert [policy["all"].action for policy in policies.values()] == ["enforce", "log"]

    @pytest.mark.parametrize(
        ("line", "field"),
        [('rate = "6/m"', "rate"), ('rate = "5/m"\nby = "ip"', "by"), ('rate = "5/m"\nban_for = 60', "ban_for")],
    )
    def test_rules_of_one_name_that_count_differently_are_an_error(self, path: Path, line: str, field: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_policies(written(path, ONE_RULE + f'[b]\n[[b.rules]]\nname = "pair"\n{line}\n'))
        assert str(caught.value) == (
            f"policy file {str(path)!r}, b: rule 'pair' has another {field} than in 'login', and their counts would be "
            "mixed; give it another name"
        )


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("[login", "': Expected ']' at the end of a table declaration (at end of document)"),
            ('[login]\nrules = "x', " (at end of document)"),
            ("rules = 5", ", rules: expected a policy, [[rules.rules]] tables; 5 is none"),
            ("[LOGIN]", ", LOGIN: a policy's name has lower-case letters, digits, '-' and '_', as in 'login'"),
            ('["log in"]', ", log in: a policy's name has lower-case letters"),
            ('[""]', ", : a policy's name has lower-case letters"),
            ("[login]", ", login: give at least one rule, a [[login.rules]] table"),
            ("[login]\nrules = []", ", login: give at least one rule"),
            ("[login]\nrules = 5", ", login: give at least one rule"),
            ("[login.rules]\nname = 'a'", ", login: give at least one rule, a [[login.rules]] table"),
            ("[login]\nrule = []", ", login: unknown field 'rule'; did you mean 'rules'?"),
            ("[login]\nmode = 'log'\nrules = []", ", login: unknown field 'mode'; a policy has rules"),
            ("[login]\nrules = [5]", ", login, rule 1: expected a table, not 5"),
            ("[[login.rules]]\nrate = '5/m'", ", login, rule 1, name: missing; give one"),
            ("[[login.rules]]\nname = ''\nrate = '5/m'", ", login, rule 1: rule name '' is not a name"),
            ("[[login.rules]]\nname = 'a'", ", login, rule 1: rule 'a', rate: missing; give one, or action='skip'"),
            (
                "[[login.rules]]\nname = 'a'\nrate = '5/m'\n[[login.rules]]\nname = 'b'\nrate = '5/mm'",
                ", login, rule 2: rule 'b', rate: rate '5/mm' is not understood: ",
            ),
            (
                "[[login.rules]]\nname = 'a'\nrate = '5/m'\n[[login.rules]]\nname = 'a'\nrate = '5/m'",
                ", login: policy: two rules are called 'a'; their counts would be mixed",
            ),
        ],
    )
    def test_of_a_policy_give_file_policy_and_rule(self, path: Path, text: str, message: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_policies(written(path, text))
        assert str(caught.value).startswith(f"policy file {str(path)!r}")
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("bann_for = 60", ": unknown field 'bann_for'; did you mean 'ban_for'?"),
            ("Rate = '5/m'", ": unknown field 'Rate'; did you mean 'rate'?"),
            (
                "xyz = 1",
                ": unknown field 'xyz'; a rule has name, rate, by, match, cost, action, ban_for, count_distinct, tiered, on_",
            ),
            ("action = 'block'", ": rule 'a', action: 'block' is not one of enforce, log, skip"),
            ("by = 5", ": rule 'a', by: 5 is neither the name of a characteristic nor a function of the caller"),
            ("ban_for = '15m'", ": rule 'a', ban_for: '15m' is not a whole number of seconds from 1 to 316224000"),
            ("ban_for = 60\ncount_distinct = 'x'", ": rule 'a', ban_for: not with count_distinct; add a second rule"),
            ("tiered = 'yes'", ": rule 'a', tiered: 'yes' is neither true nor false"),
            ("match = '/login'", ": match: expected a table, as in { path = '/login' }"),
            ("match = { path = [] }", ": rule 'a', match.path: no value is in an empty list; leave it out"),
            ("match = { day = 2026-01-01 }", ": rule 'a', match.day: datetime.date(2026, 1, 1) is not a value, "),
            ("match = { path = { prefix = '/a' } }", ": match.path: {'prefix': '/a'} is not { regex = '…' }"),
            (
                "match = { path = { regex = 'a', flags = 'i' } }",
                ": match.path: {'regex': 'a', 'flags': 'i'} is not { regex",
            ),
            ("match = { path = { regex = 5 } }", ": match.path: {'regex': 5} is not { regex = '…' }"),
            (
                "match = { path = ['/a', { regex = '(' }] }",
                ": match.path: '(' is not a regular expression: missing ), unterminated subpattern at position 0",
            ),
        ],
    )
    def test_of_a_rule_give_its_field_too(self, path: Path, line: str, message: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            load_policies(written(path, f"[[login.rules]]\nname = 'a'\nrate = '5/m'\n{line}\n"))
        assert str(caught.value).startswith(f"policy file {str(path)!r}, login, rule 1{message}")

    def test_a_rule_that_skips_has_nothing_to_count(self, path: Path) -> None:
        with pytest.raises(ConfigurationError, match="login, rule 1: rule 'a', ban_for: a skipped call is not counted"):
            load_policies(written(path, "[[login.rules]]\nname = 'a'\naction = 'skip'\nban_for = 60"))

    def test_a_file_that_cannot_be_read_is_named(self, path: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"policies.toml': .*No such file"):
            load_policies(path)
        with pytest.raises(ConfigurationError, match=r"policy file .*Is a directory"):
            load_policies(tmp_path)
        with pytest.raises(ConfigurationError, match=r"policy file 'a.x00b': embedded null byte"):
            load_policies("a\0b")
        path.write_bytes(b"[login]\n# \xff")
        with pytest.raises(ConfigurationError, match=r"policies.toml': 'utf-8' codec can't decode"):
            load_policies(path)


class TestTheSettingsFile:
    @pytest.fixture
    def limiter(self, path: Path, fake_clock: FakeClock) -> Limiter:
        return Limiter(MemoryStore(), clock=fake_clock, settings=Settings(policy_file=str(written(path, WHOLE))))

    def test_gives_the_limiter_its_policies(self, limiter: Limiter, path: Path) -> None:
        assert limiter.policies == load_policies(path) == limiter.settings.policies
        with pytest.raises(TypeError):
            limiter.policies["x"] = Policy(Rule("r", "1/m"))  # type: ignore[index]
        assert Limiter(settings=Settings()).policies == {}

    async def test_names_what_may_be_checked(self, limiter: Limiter) -> None:
        names = [limiter.check("login", "u", attributes={"account": f"a{n}"}) for n in range(21)]
        assert [bool(decision) for decision in names] == [True] * 20 + [False]
        assert not await limiter.acheck("login", "u", attributes={"account": "a20"})
        assert not limiter.peek("login", "u", attributes={"account": "a20"})
        limiter.clear("login", "u")
        assert limiter.peek("login", "u", attributes={"account": "a20"}).remaining == 20
        assert limiter.reserve("mobile-api_2", "u").decision.limit == 30
        assert limiter.check("AI_QUERY", "u").limit == 20

    async def test_an_unknown_name_lists_categories_and_policies(self, limiter: Limiter) -> None:
        for name, what in (("logni", "policy"), ("AI_QERY", "category")):
            expected = (
                f"^unknown {what} '{name}'; valid ones: .*AI_QUERY, .*; policies in RATELIMIT_POLICY_FILE: login, mob"
            )
            for call in (limiter.check, limiter.peek, limiter.clear, limiter.reserve):
                with pytest.raises(ConfigurationError, match=expected):
                    call(name, "u")  # type: ignore[operator]
            with pytest.raises(ConfigurationError, match=expected):
                await limiter.acheck(name, "u")

    def test_a_rate_is_no_policy(self, limiter: Limiter) -> None:
        with pytest.raises(ConfigurationError, match=r"for a rate write rate='[0-9]+/m' or Rate.parse\('5/m'\)"):
            limiter.check("5/m", "u")

    def test_is_named_by_the_environment_and_read_again_by_a_reload(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RATELIMIT_POLICY_FILE", str(written(path, ONE_RULE)))
        settings.reload()
        limiter = Limiter(clock=FakeClock())
        assert limiter.check("login", "u").limit == 5
        written(path, ONE_RULE.replace("5/m", "7/m"))
        assert limiter.check("login", "u").limit == 5
        settings.reload()
        assert limiter.check("login", "u").limit == 7

    def test_takes_effect_at_once_in_a_test_and_leaves_no_trace(self, path: Path) -> None:
        with isolated(policy_file=written(path, ONE_RULE)) as limiter:
            assert limiter.check("login", "u").limit == 5
        with isolated() as limiter, pytest.raises(ConfigurationError, match="unknown policy 'login'"):
            limiter.check("login", "u")

    def test_that_is_bad_is_an_error_when_the_limiter_is_made(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RATELIMIT_POLICY_FILE", str(written(path, ONE_RULE + "cots = 2")))
        settings.reload()
        with pytest.raises(ConfigurationError) as caught:
            Limiter(MemoryStore())
        assert str(caught.value) == (
            f"RATELIMIT_POLICY_FILE: policy file {str(path)!r}, login, rule 1: unknown field 'cots'; did you mean 'cost'?"
        )

    def test_with_a_rule_that_the_store_cannot_hold_is_one_too(self, path: Path) -> None:
        class OnlyFixed(MemoryStore):
            holds = frozenset({"fixed"})

        for text, needed in (
            (ONE_RULE + "ban_for = 60", "ban"),
            (ONE_RULE.replace("5/m", "5/m leaky"), "leaky_bucket"),
        ):
            with pytest.raises(ConfigurationError) as caught:
                Limiter(OnlyFixed(), settings=Settings(policy_file=str(written(path, text))))
            rate = "5/m leaky" if needed == "leaky_bucket" else "5/m"
            assert str(caught.value) == (
                f"RATELIMIT_POLICY_FILE: login: rule 'pair' with the rate '{rate}' needs {needed}; OnlyFixed holds fixed: "
                "change the rule, or count in memory or Redis"
            )
        Limiter(OnlyFixed(), settings=Settings(policy_file=str(written(path, ONE_RULE))))

    def test_names_a_category_as_it_is_at_the_check(self, path: Path) -> None:
        text = ONE_RULE.replace("5/m", "AI_QUERY")
        with isolated(policy_file=written(path, text)) as limiter:
            assert limiter.check("login", "u").limit == 20
            with override(overrides={"AI_QUERY": "7/m"}):
                assert limiter.check("login", "u").limit == 7

    def test_its_distinct_rules_meet_an_overridden_category_with_an_error(self, path: Path) -> None:
        text = ONE_RULE.replace("5/m", "AI_QUERY") + 'count_distinct = "account"'
        with isolated(policy_file=written(path, text)) as limiter:
            limiter.check("login", "u")
            with (
                override(overrides={"AI_QUERY": "5/m sliding"}),
                pytest.raises(ConfigurationError, match="rule 'pair', rate: '5/m sliding': count_distinct needs fixed"),
            ):
                limiter.check("login", "u")

    def test_so_do_its_rules_with_a_lease(self, path: Path) -> None:
        with isolated(policy_file=written(path, ONE_RULE.replace("5/m", "AI_QUERY") + "lease = 2")) as limiter:
            assert limiter.check("login", "u")
            with override(overrides={"AI_QUERY": "5/m sliding"}):
                for ask in (limiter.check, limiter.peek):
                    with pytest.raises(
                        ConfigurationError, match="rule 'pair', lease: '5/m sliding': only for one rate"
                    ):
                        ask("login", "u")


class TestADecoratorMadeAtImport:
    guard = Guard("login")

    def test_finds_its_policy_when_it_is_asked(self, path: Path) -> None:
        with isolated(policy_file=written(path, ONE_RULE)) as limiter:
            decisions = [self.guard.check(Identity("42"), "place") for _ in range(6)]
            assert [bool(decision) for decision in decisions] == [True] * 5 + [False]
            assert (decisions[0].rule, decisions[0].rate) == ("pair", Rate(5, 60))
            assert not limiter.peek("login", Identity("42"))

    def test_of_a_policy_that_is_not_there_says_so_when_it_is_asked(self, path: Path) -> None:
        with (
            isolated(),
            pytest.raises(ConfigurationError, match=r"unknown policy 'login'; .*RATELIMIT_POLICY_FILE: none$"),
        ):
            self.guard.check(Identity("42"), "place")
        text = ONE_RULE.replace("login", "signup")
        with isolated(policy_file=written(path, text)), pytest.raises(ConfigurationError, match=r"_FILE: signup$"):
            self.guard.check(Identity("42"), "place")

    def test_its_name_is_no_categorys(self) -> None:
        with pytest.raises(ConfigurationError, match="unknown category 'LOGIN'"):
            Guard("LOGIN")
