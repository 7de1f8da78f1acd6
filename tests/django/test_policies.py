"""Rules and policies on views: what they may look at, what they refuse, and what they leave as it is."""

from __future__ import annotations

import json
import re
from itertools import permutations
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore, Policy, Rate, Rule
from ratelimit.stores.redis import RedisStore
from ratelimit.testing import FakeClock, isolated
from ratelimit_django import view_ratelimit
from tests.django.calls import Person, aok, codes, get, ok
from tests.wire import CountingProxy

HERE = "127.0.0.1"
THERE = "198.51.100.9"

POLICY = Policy(
    Rule("health", action="skip", match={"path": re.compile(r"^/health(/|$)")}),
    Rule("writes", "2/m", by=("ip", "device"), match={"method": ("POST", "PUT")}),
    Rule("watched", "1/m", by="ip", action="log"),
)


def device(group: str, request: HttpRequest) -> dict[str, Any]:
    """The device that an application's middleware has made sure of."""
    return {"device": getattr(request, "device", None)}


def post(path: str = "/", device: str = "a", **meta: Any) -> HttpRequest:
    request = RequestFactory().post(path, **meta)
    request.device = device  # type: ignore[attr-defined]
    return request


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Any:
    """Calls a view of either kind, decorated, with a request; gives its response."""

    def call(decorator: Any, made: HttpRequest) -> Any:
        return decorator(ok)(made) if request.param == "sync" else async_to_sync(decorator(aok))(made)

    return call


def test_a_compound_rule_refuses_each_pair_on_its_own(ask: Any, limiter: Limiter) -> None:
    limited = view_ratelimit(POLICY, attributes=device)
    assert [ask(limited, post(device=one)).status_code for one in "aaab"] == [200, 200, 429, 200]
    assert ask(limited, post(REMOTE_ADDR=THERE)).status_code == 200
    assert (
        limiter.peek(POLICY["writes"], Identity(ip=HERE), attributes={"device": "b", "method": "POST"}).remaining == 1
    )


def test_a_line_end_leads_past_no_rule(ask: Any) -> None:
    limited = view_ratelimit(Policy(Rule("search", "1/m", by="ip", match={"path": "/search"})))
    assert [ask(limited, post(one)).status_code for one in ("/search", "/search%0A", "/search%0D%0A")] == [
        200,
        429,
        429,
    ]


def test_a_denial_is_answered_with_the_rules_wait_and_headers(ask: Any, limiter: Limiter) -> None:
    limited = view_ratelimit(POLICY, attributes=device)
    with override_settings(RATELIMIT_HEADERS="ietf"):
        responses = [ask(limited, post()) for _ in range(3)]
    assert [response.headers["RateLimit"] for response in responses] == [
        '"writes";r=1;t=60',
        '"writes";r=0;t=60',
        '"writes";r=0;t=60',
    ]
    assert responses[2].headers["Retry-After"] == "60"
    assert json.loads(responses[2].content)["error"]["details"] == {"retry_after_ms": 60_000}


def test_what_a_policy_refuses_counts_in_none_of_its_rules(ask: Any, limiter: Limiter) -> None:
    both = Policy(Rule("narrow", "1/m", by="ip"), Rule("wide", "9/m", by="global"))
    assert [ask(view_ratelimit(both), get()).status_code for _ in range(5)] == [200] + [429] * 4
    assert limiter.peek(both["wide"], Identity()).remaining == 8


def test_a_rule_alone_is_one_budget_wherever_it_is_named(limiter: Limiter) -> None:
    rule = Rule("api", "3/m")
    one, other = view_ratelimit(rule)(ok), view_ratelimit(rate=rule)(ok)
    assert codes(one, 2) + codes(other, 2) == [200, 200, 200, 429]
    assert limiter.peek(rule, f"ip:{HERE}").remaining == 0


def test_a_rate_function_may_give_a_policy(limiter: Limiter) -> None:
    strict, loose = Rule("strict", "1/m"), Rule("loose", "2/m")
    view = view_ratelimit(rate=lambda group, request: strict if request.path == "/strict" else Policy(loose))(ok)
    assert codes(view, 2, lambda: get("/strict")) == [200, 429]
    assert codes(view, 3) == [200, 200, 429]


def test_a_policy_of_the_file_goes_by_its_name(limiter: Limiter, tmp_path: Any) -> None:
    file = tmp_path / "limits.toml"
    file.write_text('[[api.rules]]\nname = "api"\nrate = "1/m"\nby = "ip"\nmatch = { method = "POST" }\n')
    view = view_ratelimit("api")(ok)
    with override_settings(RATELIMIT_POLICY_FILE=str(file)):
        assert codes(view, 2, post) == [200, 429]
        assert codes(view, 2) == [200, 200]


@override_settings(RATELIMIT_HEADERS="x")
@pytest.mark.parametrize("block", [True, False])
def test_a_shadow_rule_refuses_nothing_and_leaves_the_response_as_it_is(
    block: bool, ask: Any, limiter: Limiter
) -> None:
    shadow = Rule("shadow", "1/m", by="ip", action="log", ban_for=900)
    made = [get() for _ in range(4)]
    responses: list[Any] = [ask(view_ratelimit(shadow, block=block), request) for request in made]
    assert [response.status_code for response in responses] == [200] * 4
    assert [dict(response.headers) for response in responses] == [{"Content-Type": "text/html; charset=utf-8"}] * 4
    assert [request.limited for request in made] == [False] * 4  # type: ignore[attr-defined]
    assert [request.limit_decision.shadow_denials for request in made] == [  # type: ignore[attr-defined]
        (),
        *[("shadow",)] * 3,
    ]


def test_a_shadow_rule_is_no_reason_to_hide_another_limits_figures(limiter: Limiter) -> None:
    seen = []

    @view_ratelimit(rate="9/m")
    @view_ratelimit(Rule("shadow", "1/m", action="log"))
    def view(request: Any) -> HttpResponse:
        seen.append((request.limit_decision.limit, request.limit_decision.remaining))
        return HttpResponse("ok")

    codes(view, 3)
    assert seen == [(9, 8), (9, 7), (9, 6)]


@override_settings(RATELIMIT_HEADERS="x")
@pytest.mark.parametrize("path", ["/health", "/health/db"])
def test_a_skipped_path_touches_neither_store_nor_response(path: str, ask: Any, fake_clock: FakeClock) -> None:
    store = MemoryStore()
    with isolated(store, fake_clock):
        made = [post(path) for _ in range(9)]
        responses = [ask(view_ratelimit(POLICY, attributes=device), request) for request in made]
    assert [response.status_code for response in responses] == [200] * 9
    assert len(store) == 0
    assert {name for response in responses for name in response.headers} == {"Content-Type"}
    noted: Any = made[0]
    assert (noted.limited, noted.limit_decision, noted.limit_key) == (False, None, None)


def test_the_path_is_the_one_that_the_router_sees(limiter: Limiter) -> None:
    rule = Rule("deep", "1/m", match={"path": "/deep"})
    view = view_ratelimit(rule)(ok)
    assert codes(view, 2, lambda: get("/deep", SCRIPT_NAME="/app")) == [200, 429]
    assert codes(view, 2, lambda: get("/deeper")) == [200, 200]
    headers = {"HTTP_X_ORIGINAL_URL": "/elsewhere", "HTTP_X_HTTP_METHOD_OVERRIDE": "GET"}
    assert codes(view, 1, lambda: get("/deep", **headers)) == [429]


def test_a_ban_is_answered_with_its_wait_and_outlives_the_window(
    ask: Any, limiter: Limiter, fake_clock: FakeClock
) -> None:
    limited = view_ratelimit(Rule("guess", "2/m", by="ip", ban_for=900))
    made = [get() for _ in range(4)]
    responses = [ask(limited, request) for request in made]
    assert [response.status_code for response in responses] == [200, 200, 429, 429]
    assert [response.headers.get("Retry-After") for response in responses] == [None, None, "900", "900"]
    assert made[3].limit_decision.banned is True  # type: ignore[attr-defined]
    fake_clock.advance(899)
    assert ask(limited, get()).headers["Retry-After"] == "1"
    fake_clock.advance(1)
    assert ask(limited, get()).status_code == 200


def test_different_values_of_an_attribute_are_counted(ask: Any, limiter: Limiter) -> None:
    spread = Rule("accounts", "2/h", by="ip", count_distinct="account")
    limited = view_ratelimit(spread, attributes=lambda group, request: {"account": request.GET["name"]})
    assert [ask(limited, get(f"/?name={name}")).status_code for name in "aabbc"] == [200, 200, 200, 200, 429]


# The caller's key


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"rate": "1/m"}, f"ip:{HERE}"),
        ({"rule": "AI_QUERY", "key": "global"}, "global"),
        ({"rule": Rule("pair", "1/m", by=("ip", "device")), "attributes": {"device": "a"}}, f"ip:{HERE}&device:a"),
    ],
)
def test_the_request_knows_whose_budget_it_spent(options: dict[str, Any], key: str, ask: Any, limiter: Limiter) -> None:
    for _ in range(2):
        ask(view_ratelimit(**options), made := get())
        assert made.limit_key == key  # type: ignore[attr-defined]


@pytest.mark.parametrize("limits", list(permutations([("9/m", "ip"), ("5/m", "global")])))
def test_of_several_limits_the_key_is_that_of_the_strictest(limiter: Limiter, limits: Any) -> None:
    seen = []
    (outer, outer_key), (inner, inner_key) = limits

    @view_ratelimit(rate=outer, key=outer_key)
    @view_ratelimit(rate=inner, key=inner_key)
    def view(request: Any) -> HttpResponse:
        seen.append((request.limit_decision.key, request.limit_key))
        return HttpResponse("ok")

    codes(view, 1)
    assert seen == [("global", "global")]


def test_a_token_budgets_key_can_be_taken_up(limiter: Limiter) -> None:
    keys = []

    @view_ratelimit(Rule("plan", "2/m", by="token_or_ip"))
    def view(request: Any) -> HttpResponse:
        keys.append(request.limit_key)
        return HttpResponse("ok")

    def request() -> HttpRequest:
        made = get()
        made.limit_token = "secret"  # type: ignore[attr-defined]
        return made

    assert codes(view, 3, request) == [200, 200, 429]
    assert keys == [Identity(token="secret").key("token_or_ip")] * 2
    assert limiter.peek(Rate.parse("2/m"), keys[0], group="plan").remaining == 0


# Reading the user, or not

UNREAD = [
    Rule("a", "2/m", by="ip"),
    Rule("a", "2/m", by=("token_or_ip", "device"), match={"method": "GET"}),
    Policy(Rule("a", "2/m", by="global", ban_for=9), Rule("b", "2/m", by="ip", action="log")),
    Policy(Rule("s", action="skip", match={"path": "/x"}, by="ip"), Rule("a", "WRITE_HEAVY", by="ip")),
]
READ = [
    Rule("a", "2/m"),
    Rule("a", "2/m", by=("ip", "user")),
    Rule("a", "2/m", by="ip", tiered=True),
    Rule("a", "2/m", by="ip", match={"authenticated": True}),
    Rule("a", "2/m", by="ip", match={"superuser": False}),
    Rule("a", "2/h", by="ip", count_distinct="user"),
    Rule("a", "2/m", by=lambda identity: identity.ip),
    Rule("a", lambda identity: "2/m", by="ip"),
    Policy(Rule("a", "2/m", by="ip"), Rule("b", "2/m", by="user")),
]


class Watched(Person):
    """A user that tells when it is asked."""

    asked = 0

    @property
    def is_authenticated(self) -> bool:  # type: ignore[override]
        type(self).asked += 1
        return True


@pytest.mark.parametrize(("rule", "reads"), [*((one, False) for one in UNREAD), *((one, True) for one in READ)])
def test_the_user_is_read_only_where_a_rule_needs_it(rule: Any, reads: bool, ask: Any, limiter: Limiter) -> None:
    made, person = get(), type("One", (Watched,), {})(7)
    made.user = person
    assert ask(view_ratelimit(rule), made).status_code == 200
    assert bool(person.asked) is reads


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_closed_threads")
@pytest.mark.urls("tests.django.test_policies")
async def test_a_logged_in_user_is_known_to_rules_in_async_views(limiter: Limiter) -> None:
    user = await User.objects.acreate_user("ann")
    client = AsyncClient()
    await client.aforce_login(user)
    assert [(await client.get("/mine")).status_code for _ in range(3)] == [200, 200, 429]
    assert (await AsyncClient().get("/mine")).status_code == 200
    assert limiter.peek(MINE, Identity(user=str(user.pk))).remaining == 0


@pytest.mark.urls("tests.django.test_policies")
def test_a_skip_comes_before_a_rule_that_would_refuse_everything(limiter: Limiter) -> None:
    assert [Client().get("/health").status_code for _ in range(5)] == [200] * 5


# Mistakes


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "ip"}, "key='ip' has no effect on 'writes'"),
        ({"key": "header:x-api-key"}, "key='header:x-api-key' has no effect on a rule, which says by="),
        ({"key": lambda group, request: "k"}, "has no effect on 'writes'"),
        ({"attributes": 5}, "attributes 5 is neither"),
        ({"attributes": aok}, "attributes=.*is async"),
    ],
)
@pytest.mark.parametrize("place", ["rule", "rate"])
def test_what_cannot_be_meant_is_an_error_at_the_decorator(options: dict[str, Any], text: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        view_ratelimit(**{place: POLICY["writes"], **options})


def test_a_group_cannot_hold_a_whole_policy() -> None:
    with pytest.raises(ConfigurationError, match="group 'g' with a policy"):
        view_ratelimit(POLICY, group="g")


@pytest.mark.parametrize("key", ["ip", "header:x-api-key"])
def test_a_key_beside_a_rule_that_a_function_gives_is_an_error_when_it_does(key: str, limiter: Limiter) -> None:
    view = view_ratelimit(rate=lambda group, request: POLICY, key=key)(ok)
    with pytest.raises(ConfigurationError, match=f"key='{key}'"):
        view(get())


@pytest.mark.parametrize("given", [None, "device", {5: "a"}])
def test_attributes_that_are_none_are_an_error(given: Any, limiter: Limiter) -> None:
    with pytest.raises(ConfigurationError, match=r"an attributes callable gave .*; it must give a mapping"):
        view_ratelimit(POLICY, attributes=lambda group, request: given)(ok)(get())


def test_no_attribute_overrules_what_the_request_is(limiter: Limiter) -> None:
    told = {"path": "/health", "method": "GET", "ip": "192.0.2.1", "self": "x"}
    view = view_ratelimit(POLICY, attributes=told)(ok)
    assert codes(view, 3, post) == [200, 200, 429]


def test_one_round_trip_for_a_whole_policy(proxy: CountingProxy) -> None:
    limiter = Limiter(RedisStore(proxy.url, timeout=30))
    four = Policy(
        Rule("everybody", "90/m", by="global"),
        Rule("address", "50/m; 80/h", by="ip", ban_for=60),
        Rule("pair", "40/m", by=("ip", "device")),
        Rule("watched", "1/m", by="ip", action="log"),
    )
    view = view_ratelimit(four, attributes={"device": "a"}, limiter=limiter)(ok)
    assert codes(view, 1) == [200]
    proxy.reset()
    assert codes(view, 5) == [200] * 5
    assert (proxy.counts, proxy.round_trips) == ({"EVALSHA": 5}, 5)
    limiter.close()


# A site for the tests that go through Django's router

MINE = Rule("mine", "2/m", by="user", match={"authenticated": True})


@view_ratelimit(MINE)
async def mine(request: HttpRequest) -> HttpResponse:
    return HttpResponse("mine")


@view_ratelimit(Policy(POLICY, Rule("closed", "0/m")))
def health(request: HttpRequest) -> HttpResponse:
    return HttpResponse("well")


urlpatterns = [path("mine", mine), path("health", health)]
