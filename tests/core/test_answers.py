from __future__ import annotations

import json
from typing import Any

import pytest

from ratelimit import ConfigurationError, Decision, Limiter, Policy, Rate, Rule
from ratelimit.answers import PROBLEM_TYPE, Answer, denied_answer, problem_details, replacement, request_id
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated


def denied(limiter: Limiter, rule: Any = "WRITE_HEAVY", **options: Any) -> Decision:
    """The first decision that refuses."""
    return next(decision for _ in range(1000) if not (decision := limiter.check(rule, "user:42", **options)))


def own(decision: Decision, answer: Answer) -> Answer:
    return answer._replace(status=503, headers={**answer.headers, "X-Own": decision.rule}, body=b"later")


async def awaited(decision: Decision, answer: Answer) -> Answer:
    return answer


def wrong(decision: Decision, answer: Answer) -> Any:
    return WRONG


WRONG: Any = None
NOT_CALLABLE = 7


class TestBody:
    def test_the_envelope(self, limiter: Limiter) -> None:
        answer = denied_answer(denied(limiter), Settings(), "req-1")
        assert answer.status == 429
        assert answer.headers == {
            "Content-Type": "application/json",
            "Cache-Control": "no-store",
            "Access-Control-Expose-Headers": "Retry-After",
            "Retry-After": "60",
        }
        assert answer.body == (
            b'{"error":{"code":"RATE_LIMITED","message":"Limit exceeded: Max 5 requests per minute. Please try again later.",'
            b'"details":{"retry_after_ms":60000},"request_id":"req-1"}}'
        )

    def test_problem_details(self, limiter: Limiter) -> None:
        answer = denied_answer(denied(limiter), Settings(errors="problem"), "req-1")
        assert (answer.status, answer.headers["Content-Type"]) == (429, "application/problem+json")
        assert json.loads(answer.body) == {
            "type": PROBLEM_TYPE,
            "title": "Quota exceeded",
            "status": 429,
            "detail": "Limit exceeded: Max 5 requests per minute. Please try again later.",
            "violated-policies": ["WRITE_HEAVY"],
            "code": "RATE_LIMITED",
            "retry_after_ms": 60_000,
            "request_id": "req-1",
        }

    def test_problem_details_call_policies_as_the_headers_do(self, limiter: Limiter) -> None:
        policy = Policy(
            Rule("shadow", "0/m", action="log"),
            Rule("wide", "9/m"),
            Rule("api", "1/s; 1/m", by="ip"),
        )
        decision = denied(limiter, policy)
        assert problem_details(decision)["violated-policies"] == ["api-1s", "api-60s"]
        assert decision.headers("ietf")["RateLimit-Policy"] == '"wide";q=9;w=60, "api-1s";q=1;w=1, "api-60s";q=1;w=60'
        assert "request_id" not in problem_details(decision)

    def test_a_wait_that_never_ends(self, limiter: Limiter) -> None:
        decision = denied(limiter, Rate(0, 60))
        for errors, shown in (("json", ["error", "details"]), ("problem", [])):
            answer = denied_answer(decision, Settings(errors=errors))
            found = json.loads(answer.body)
            for name in shown:
                found = found[name]
            assert found["retry_after_ms"] is None
            assert "Retry-After" not in answer.headers
            assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After"

    @pytest.mark.parametrize(
        ("style", "shown"),
        [
            ("none", {"Retry-After": "60"}),
            (
                "ietf",
                {
                    "Retry-After": "60",
                    "RateLimit-Policy": '"WRITE_HEAVY";q=5;w=60',
                    "RateLimit": '"WRITE_HEAVY";r=0;t=60',
                },
            ),
            (
                "x",
                {
                    "Retry-After": "60",
                    "X-RateLimit-Limit": "5",
                    "X-RateLimit-Remaining": "0",
                    "X-RateLimit-Reset": "60",
                },
            ),
        ],
    )
    def test_scripts_of_other_origins_may_read_every_header_shown(
        self, limiter: Limiter, style: str, shown: dict[str, str]
    ) -> None:
        headers = denied_answer(denied(limiter), Settings(headers=style)).headers
        assert headers.pop("Access-Control-Expose-Headers") == ", ".join(shown)
        assert headers == {"Content-Type": "application/json", "Cache-Control": "no-store", **shown}


class TestWaits:
    @pytest.mark.parametrize(("left", "said"), [(0.6, 1), (0.001, 1), (0.000001, 1), (1.9, 2), (59.0, 59)])
    def test_they_are_whole_seconds_rounded_up_and_enough(self, fake_clock: FakeClock, left: float, said: int) -> None:
        with isolated(clock=fake_clock) as limiter:
            fake_clock.advance(60 - left)
            assert limiter.check(Rate(1, 60), "user:42")
            answer = denied_answer(denied(limiter, Rate(1, 60)), Settings())
            assert answer.headers["Retry-After"] == str(said)
            assert json.loads(answer.body)["error"]["details"]["retry_after_ms"] == max(1, round(left * 1000))
            fake_clock.advance(said)
            assert limiter.check(Rate(1, 60), "user:42")

    def test_of_several_the_longest_is_told(self, fake_clock: FakeClock) -> None:
        policy = Policy(Rule("short", "1/10s"), Rule("long", "1/m"))
        with isolated(clock=fake_clock, denial_cache_ms=0) as limiter:
            fake_clock.advance(7)
            limiter.check(policy, "user:42")
            fake_clock.advance(0)
            assert denied_answer(denied(limiter, policy), Settings()).headers["Retry-After"] == "53"
            fake_clock.advance(2)
            assert denied_answer(denied(limiter, policy), Settings()).headers["Retry-After"] == "51"


class TestReplacement:
    @pytest.mark.parametrize("answer", [own, f"{__name__}.own"])
    def test_it_gives_what_is_sent(self, limiter: Limiter, answer: Any) -> None:
        found = denied_answer(denied(limiter), Settings(answer=answer))
        assert (found.status, found.body, found.headers["X-Own"]) == (503, b"later", "WRITE_HEAVY")
        assert found.headers["Retry-After"] == "60"

    @pytest.mark.parametrize("answer", ["", None])
    def test_there_may_be_none(self, answer: Any) -> None:
        assert replacement(answer) is None

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (f"{__name__}.gone", "cannot be imported: .*gone"),
            ("no.such.module", "cannot be imported: No module"),
            ("name", "cannot be imported"),
            (".name", "cannot be imported"),
            (f"{__name__}.NOT_CALLABLE", "is not callable"),
            (f"{__name__}.awaited", "is async; it must be a plain function"),
            (awaited, "is async; it must be a plain function"),
        ],
    )
    def test_what_is_no_function_is_an_error_that_names_the_setting(self, answer: Any, said: str) -> None:
        with pytest.raises(ConfigurationError, match=f"RATELIMIT_ANSWER=.*{said}"):
            replacement(answer)

    @pytest.mark.parametrize(
        "given",
        [
            None,
            (429, {}, b""),
            Answer(429, {}, "text"),  # type: ignore[arg-type]
            Answer("429", {}, b""),  # type: ignore[arg-type]
            Answer(True, {}, b""),
            Answer(100, {}, b""),
            Answer(600, {}, b""),
            Answer(429, [("a", "b")], b""),  # type: ignore[arg-type]
            Answer(429, {"a": 1}, b""),  # type: ignore[dict-item]
            Answer(429, {"a": "b\r\nSet-Cookie: c"}, b""),
            Answer(429, {"a\n": "b"}, b""),
            Answer(429, {"a": "\u20ac"}, b""),
        ],
    )
    def test_what_cannot_be_sent_is_an_error(
        self, limiter: Limiter, given: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(globals(), "WRONG", given)
        with pytest.raises(ConfigurationError, match=r"RATELIMIT_ANSWER=.* it must give an Answer"):
            denied_answer(denied(limiter), Settings(answer=wrong))


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"X-Request-ID": "a1"}, "a1"),
        ({"X-Correlation-ID": "b2"}, "b2"),
        ({"X-Request-ID": "a1", "X-Correlation-ID": "b2"}, "a1"),
        ({"X-Request-ID": "<script>", "X-Correlation-ID": "b2"}, "b2"),
        ({"X-Request-ID": "a" * 129}, None),
        ({"X-Request-ID": "a\n"}, None),
        ({"X-Request-ID": b"a1"}, None),
        ({}, None),
    ],
)
def test_the_requests_id_if_it_looks_like_one(headers: dict[str, Any], found: str | None) -> None:
    assert request_id(headers.get) == found
