"""The middleware by itself: which rule means a request, who is counted, what is answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ratelimit import ConfigurationError, Identity, Limiter, Policy, Rate, Rule
from ratelimit.answers import Answer
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from ratelimit_asgi import PathRule, PathRules, RateLimitMiddleware
from tests.asgi.raw import Connection, ask, http, ok, statuses, websocket


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def limiter(clock: FakeClock, **settings: Any) -> Limiter:
    return Limiter("memory://", settings=Settings(**settings), clock=clock)


async def test_of_ten_requests_at_four_a_minute_four_pass(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "4/m")], limiter=limiter(clock))
    assert await statuses(app, 10) == [200] * 4 + [429] * 6
    clock.advance(60)
    assert await statuses(app, 5) == [200] * 4 + [429]


async def test_the_longest_prefix_decides_and_what_is_exempt_is_not_counted(clock: FakeClock) -> None:
    paths = [PathRule("/api", "2/m"), PathRule("/api/login", "1/m", methods="POST"), PathRule("/api/static/x", "1/m")]
    app = RateLimitMiddleware(ok, paths, exempt=["/api/static", "/health"], limiter=limiter(clock))
    assert await statuses(app, 2, "/api/login", "POST") == [200, 429]
    assert await statuses(app, 3, "/api/login") == [200, 200, 429]
    assert await statuses(app, 3, "/api/static/a.css") == [200] * 3
    assert await statuses(app, 2, "/api/static/x/1") == [200, 429]
    assert await statuses(app, 3, "/apis") == [200] * 3
    assert await statuses(app, 3, "/health") == [200] * 3


async def test_rules_may_be_put_together_before(clock: FakeClock) -> None:
    rules = PathRules([PathRule("/", "1/m")], exempt=["/health"])
    app = RateLimitMiddleware(ok, rules, limiter=limiter(clock))
    assert await statuses(app, 2) == [200, 429]
    assert await statuses(app, 2, "/health") == [200, 200]


async def test_head_spends_what_get_does(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "2/m", methods="GET")], limiter=limiter(clock))
    assert await statuses(app, 1, "/", "HEAD") == [200]
    assert await statuses(app, 2) == [200, 429]
    assert await statuses(app, 1, "/", "HEAD") == [429]


async def test_hosts_are_told_apart_where_a_rule_asks_for_them(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m", hosts="api.example.com")], limiter=limiter(clock))
    assert await statuses(app, 2, headers={"Host": "API.example.com:8000"}) == [200, 429]
    assert await statuses(app, 2, headers={"Host": "example.com"}) == [200, 200]
    assert await statuses(app, 2) == [200, 200]


PREFLIGHT = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}


async def test_preflights_count_only_where_that_is_wanted(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock))
    assert await statuses(app, 3, "/", "OPTIONS", PREFLIGHT) == [200] * 3
    assert await statuses(app, 2, "/", "OPTIONS") == [200, 429]
    counting = RateLimitMiddleware(ok, [PathRule("/", "1/m", methods="OPTIONS")], limiter=limiter(clock))
    assert await statuses(counting, 2, "/", "OPTIONS", PREFLIGHT) == [200, 429]


async def test_a_rule_counts_under_its_own_name_and_a_category_is_shared(clock: FakeClock) -> None:
    one = limiter(clock)
    app = RateLimitMiddleware(ok, [PathRule("/a", "2/m"), PathRule("/b", "AI_ANALYSIS")], limiter=one)
    assert await statuses(app, 3, "/a") == [200, 200, 429]
    assert one.peek(Rate.parse("2/m"), "ip:203.0.113.7", group="path:/a").remaining == 0
    assert one.check("AI_ANALYSIS", "ip:203.0.113.7", cost=3).allowed
    assert await statuses(app, 3, "/b") == [200, 200, 429]


async def test_rules_may_look_at_path_method_and_what_attributes_tell(clock: FakeClock) -> None:
    policy = Policy(
        Rule("free", action="skip", match={"path": "/api/free"}),
        Rule("writes", "1/m", match={"method": "POST"}),
        Rule("device", "2/m", by=("ip", "device")),
    )
    rule = PathRule("/api", policy, attributes=lambda scope: {"device": dict(scope["headers"]).get(b"x-device")})
    app = RateLimitMiddleware(ok, [rule], limiter=limiter(clock))
    assert await statuses(app, 5, "/api/free", "POST") == [200] * 5
    assert await statuses(app, 2, "/api/x", "POST", {"X-Device": "a"}) == [200, 429]
    assert await statuses(app, 2, "/api/x", headers={"X-Device": "a"}) == [200, 429]
    assert await statuses(app, 2, "/api/x", headers={"X-Device": "b"}) == [200, 200]


async def test_cost_and_key_may_be_asked_of_the_scope(clock: FakeClock) -> None:
    rule = PathRule("/", "4/m", cost=lambda scope: len(scope["path"]), key=lambda scope: scope["state"]["tenant"])
    app = RateLimitMiddleware(ok, [rule], limiter=limiter(clock))
    assert await statuses(app, 2, "/ab", state={"tenant": "a"}) == [200, 429]
    assert await statuses(app, 1, "/abc", state={"tenant": "b"}) == [200]
    assert (await ask(app, http("/", state={"tenant": "c"}))).scope["limit_key"] == "key:c"


async def test_a_limit_by_address_tells_the_address_of_a_user(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "4/m", key="ip")], limiter=limiter(clock))
    assert (await ask(app, http("/", user=7))).scope["limit_key"] == "ip:203.0.113.7"


async def test_a_path_that_is_not_worth_remembering_is_limited_by_its_method_too(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m", methods="POST")], limiter=limiter(clock))
    path = f"/{'a' * 300}"
    assert await statuses(app, 2, path) == [200, 200]
    assert await statuses(app, 2, path, "POST") == [200, 429]


async def test_a_denial_is_the_error_contract(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock, headers="x"))
    await ask(app)
    one = await ask(app, http(headers={"X-Request-ID": "abc-1"}))
    assert one.sent[0] == {
        "type": "http.response.start",
        "status": 429,
        "headers": [
            (b"content-type", b"application/json"),
            (b"cache-control", b"no-store"),
            (
                b"access-control-expose-headers",
                b"Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset",
            ),
            (b"retry-after", b"60"),
            (b"x-ratelimit-limit", b"1"),
            (b"x-ratelimit-remaining", b"0"),
            (b"x-ratelimit-reset", b"60"),
            (b"content-length", b"%d" % len(one.body)),
        ],
    }
    assert one.json == {
        "error": {
            "code": "RATE_LIMITED",
            "message": "Limit exceeded: Max 1 request per minute. Please try again later.",
            "details": {"retry_after_ms": 60000},
            "request_id": "abc-1",
        }
    }


async def test_a_denial_may_be_problem_details(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "0/m", name="nothing")], limiter=limiter(clock, errors="problem"))
    one = await ask(app)
    assert (one.status, one.headers["content-type"]) == (429, "application/problem+json")
    assert (one.json["status"], one.json["violated-policies"]) == (429, ["path:nothing"])
    assert "retry-after" not in one.headers  # waiting will not help


async def test_an_application_may_answer_otherwise(clock: FakeClock) -> None:
    def busy(decision: Any, answer: Answer) -> Answer:
        return Answer(503, {"Content-Type": "text/plain", "Content-Length": "4"}, b"busy")

    app = RateLimitMiddleware(ok, [PathRule("/", "0/m")], limiter=limiter(clock, answer=busy))
    one = await ask(app)
    assert (one.status, one.body) == (503, b"busy")
    assert one.sent[0]["headers"] == [(b"content-type", b"text/plain"), (b"content-length", b"4")]


@pytest.mark.parametrize(
    ("left", "shown"), [(0.6, "1"), (0.001, "1"), (0.000_001, "1"), (1.0, "1"), (1.9, "2"), (59.0, "59")]
)
async def test_retry_after_is_rounded_up_and_waiting_that_long_is_enough(left: float, shown: str) -> None:
    clock = FakeClock()
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock))
    assert "retry-after" not in (await ask(app)).headers
    clock.advance(60 - left)
    assert (await ask(app)).headers["retry-after"] == shown
    clock.advance(int(shown))
    assert (await ask(app)).status == 200


async def test_retry_after_counts_down_and_asking_does_not_prolong_it(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock))
    await ask(app)
    waits = []
    for _ in range(3):
        waits.append((await ask(app)).headers["retry-after"])
        clock.advance(5)
    assert waits == ["60", "55", "50"]


@pytest.mark.parametrize("client", [None, ("testclient", 50000), ("", 0), ["203.0.113.9", 1]])
async def test_a_peer_that_is_none_is_counted_and_headers_say_nothing(client: Any, clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock))
    for number, status in enumerate([200, 429, 429]):
        forwarded = {"X-Forwarded-For": f"198.51.100.{number}"}
        assert (await ask(app, http(headers=forwarded, client=client))).status == status


async def test_a_scope_may_lack_client_and_headers(clock: FakeClock) -> None:
    app = RateLimitMiddleware(
        ok, [PathRule("/", "1/m", hosts="*.example.com"), PathRule("/x", "1/m")], limiter=limiter(clock)
    )
    for status in (200, 429):
        one = await ask(app, {"type": "http", "method": "OPTIONS", "path": "/x"})
        assert (one.status, one.scope["limit_key"]) == (status, "ip:unknown")


@pytest.mark.parametrize("client", [None, ("10.0.0.1", 1)])
async def test_behind_a_trusted_proxy_the_client_is_who_it_says(client: Any, clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=limiter(clock, proxies_count=1))
    for entries, status in [("203.0.113.5", 200), ("203.0.113.6", 200), ("198.51.100.1, 203.0.113.5", 429)]:
        assert (await ask(app, http(headers={"X-Forwarded-For": entries}, client=client))).status == status


class Person:
    """A user object."""

    is_authenticated = True

    def __init__(self, number: int) -> None:
        self.id = number


@pytest.mark.parametrize(
    ("user", "key"),
    [
        (lambda scope: Person(7), "user:7"),
        (lambda scope: 7, "user:7"),
        (lambda scope: "7", "user:7"),
        (lambda scope: Identity(user="7", ip="192.0.2.1"), "user:7"),
        (lambda scope: Identity(name="tenant:a"), "tenant:a"),
        (lambda scope: None, "user:9"),
        (None, "user:9"),
    ],
)
@pytest.mark.parametrize("awaited", [False, True])
async def test_who_calls_is_what_user_says_else_what_the_scope_knows(
    user: Any, key: str, awaited: bool, clock: FakeClock
) -> None:
    async def later(scope: Any) -> Any:
        return user(scope)

    told = later if awaited and user is not None else user
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")], user=told, limiter=limiter(clock))
    one = await ask(app, http(user=Person(9)))
    assert one.scope["limit_key"] == key


async def test_nothing_a_client_sends_is_taken_for_who_it_is(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m", key="token_or_ip")], limiter=limiter(clock))
    for number, status in enumerate([200, 429, 429, 429]):
        typed = {"Authorization": f"Bearer {number}", "X-User": str(number), "Cookie": f"session={number}"}
        assert (await ask(app, http(headers=typed))).status == status


async def test_a_token_that_was_accepted_has_a_budget_of_its_own(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m", key="token_or_ip")], limiter=limiter(clock))
    for token, status in [("a", 200), ("b", 200), ("a", 429), (None, 200), (None, 429)]:
        more = {} if token is None else {"limit_token": token}
        assert (await ask(app, http(**more))).status == status


async def test_disabled_it_counts_nothing_and_leaves_no_trace(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "1/m")])
    with isolated(disable=True, headers="x") as off:
        one = await ask(app)
        assert (one.status, one.headers) == (200, {"content-type": "text/plain"})
        assert one.scope.keys() == http().keys()
        assert await statuses(app, 3) == [200] * 3
        assert (await ask(app, websocket())).sent == [{"type": "websocket.accept"}]
        assert off.peek(Rate.parse("1/m"), "ip:203.0.113.7", group="path:/").remaining == 1


async def test_settings_that_change_hold_at_once() -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "AI_ANALYSIS")])
    with isolated(overrides={"AI_ANALYSIS": "2/m"}):
        assert await statuses(app, 3) == [200, 200, 429]
    with isolated(headers="ietf", overrides={"AI_ANALYSIS": "1/m"}):
        one = await ask(app)
        assert one.headers["ratelimit-policy"] == '"AI_ANALYSIS";q=1;w=60'
        assert one.headers["ratelimit"] == '"AI_ANALYSIS";r=0;t=60'
        assert await statuses(app, 1) == [429]


async def test_a_rule_in_shadow_counts_and_shows_nothing(clock: FakeClock) -> None:
    rule = Rule("trial", "1/m", action="log")
    app = RateLimitMiddleware(ok, [PathRule("/", rule)], limiter=limiter(clock, headers="x"))
    for _ in range(3):
        one = await ask(app)
        assert (one.status, one.headers) == (200, {"content-type": "text/plain"})
    assert one.scope["limit_decision"].shadow_denials == ("trial",)


async def test_a_rule_that_lets_a_call_through_leaves_no_note(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", Rule("free", action="skip"))], limiter=limiter(clock, headers="x"))
    one = await ask(app)
    assert one.headers == {"content-type": "text/plain"}
    assert "limit_decision" not in one.scope


async def test_a_refused_handshake_is_answered_and_the_application_not_called(clock: FakeClock) -> None:
    called = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        called.append(scope["path"])
        await ok(scope, receive, send)

    middleware = RateLimitMiddleware(app, [PathRule("/ws", "2/m")], limiter=limiter(clock))
    for _ in range(2):
        assert (await ask(middleware, websocket("/ws"))).sent == [{"type": "websocket.accept"}]
    one = await ask(middleware, websocket("/ws"))
    assert [message["type"] for message in one.sent] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert (one.status, one.headers["retry-after"], one.reads) == (429, "60", 1)
    assert one.json["error"]["code"] == "RATE_LIMITED"
    assert called == ["/ws", "/ws"]


@pytest.mark.parametrize("extensions", [None, {}, {"tls": {}}])
async def test_without_the_extension_a_handshake_is_closed_before_it_is_accepted(
    extensions: Any, clock: FakeClock
) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "0/m")], limiter=limiter(clock))
    one = await ask(app, websocket() | {"extensions": extensions})
    assert one.sent == [{"type": "websocket.close", "code": 4029}]


async def test_a_client_that_left_before_its_handshake_is_answered_nothing(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "0/m")], limiter=limiter(clock))
    one = Connection(websocket(), [{"type": "websocket.disconnect", "code": 1006}])
    await app(one.scope, one.receive, one.send)
    assert one.sent == []


async def test_requests_and_handshakes_meet_one_rule_and_spend_one_budget(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "2/m")], limiter=limiter(clock))
    assert await statuses(app, 1) == [200]
    assert (await ask(app, websocket())).sent == [{"type": "websocket.accept"}]
    assert await statuses(app, 1) == [429]
    assert (await ask(app, websocket())).status == 429


async def test_a_mounted_application_is_limited_by_the_path_it_sees(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/login", "1/m")], limiter=limiter(clock))
    assert await statuses(app, 2, "/app/login", root_path="/app") == [200, 429]
    assert await statuses(app, 1, "/login", root_path="/app") == [429]
    assert await statuses(app, 2, "/app/login") == [200, 200]
    assert await statuses(app, 2, "/application/login", root_path="/app") == [200, 200]


@pytest.mark.parametrize("path", ["/applogin", "/static/app/login", "/static/../login", "/static/x/../../login"])
async def test_no_spelling_of_a_path_that_a_router_may_serve_is_exempt(clock: FakeClock, path: str) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/login", "1/m")], exempt="/static", limiter=limiter(clock))
    assert await statuses(app, 2, path, root_path="/app") == [200, 429]
    assert await statuses(app, 2, "/static/login", root_path="/app") == [200, 200]


async def test_nothing_that_a_client_writes_at_length_is_remembered(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "9/m", hosts="example.com")], limiter=limiter(clock))
    for more in ({"method": "A" * 300}, {"path": "/" + "a" * 300}, {"headers": {"host": "a" * 300}}):
        await ask(app, http(**more))
    await ask(app, http("/app" + "/a" * 200, root_path="/app"))
    assert app._remembered.cache_info().currsize == 0
    await ask(app, http())
    assert app._remembered.cache_info().currsize == 1


async def test_a_store_that_fails_lets_requests_through_or_refuses_them_as_the_settings_say(silent_url: str) -> None:
    url = f"{silent_url}?timeout=0.05"
    for fail_open, status in [(True, 200), (False, 429)]:
        one = Limiter(url, settings=Settings(fail_open=fail_open))
        answer = await ask(RateLimitMiddleware(ok, [PathRule("/", "1/m")], limiter=one))
        assert answer.status == status
        assert answer.scope["limit_decision"].degraded
        await one.aclose()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"paths": ["/api"]}, "path rule '/api': expected PathRule"),
        ({"paths": PathRule("/", "1/m")}, "give a list of rules"),
        ({"paths": [PathRule("/", "1/m"), PathRule("/", "2/m")]}, "mean the same requests below '/'"),
        ({"paths": PathRules([]), "exempt": ["/static"]}, "beside PathRules, which has its own"),
        ({"exempt": ["static"]}, "path 'static': write it from the root"),
        ({"user": "alice"}, "user='alice' is not a function"),
    ],
)
def test_what_cannot_be_used_is_an_error_when_it_is_made(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.replace("(", r"\(")):
        RateLimitMiddleware(ok, **arguments)


async def test_a_users_flags_and_starlettes_names_are_known(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "AI_ANALYSIS")], limiter=limiter(clock))
    boss = SimpleNamespace(is_authenticated=True, identity="boss", is_superuser=True)
    one = await ask(app, http(user=boss))
    assert (one.scope["limit_key"], one.scope["limit_decision"].limit) == ("user:boss", 50)


async def test_a_scope_that_says_there_is_no_decision_yet_has_none(clock: FakeClock) -> None:
    app = RateLimitMiddleware(ok, [PathRule("/", "2/m")], limiter=limiter(clock, headers="x"))
    unlimited = RateLimitMiddleware(ok, limiter=limiter(clock, headers="x"))
    scope = {**http(), "limit_decision": None}
    assert "x-ratelimit-limit" not in dict((await ask(unlimited, dict(scope))).headers)
    assert (await ask(app, scope)).headers["x-ratelimit-remaining"] == "1"
    assert (scope["limit_decision"].remaining, scope["limit_key"]) == (1, "ip:203.0.113.7")
