"""The endpoint that explains a requester's own request: alone, and mounted in each framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from ratelimit import ConfigurationError, Identity, Limiter, MemoryStore
from ratelimit.identity import hashed
from ratelimit.paths import PathRule, PathRules
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock, isolated
from ratelimit_asgi.explain import ExplainEndpoint

PATHS = PathRules(
    [
        PathRule("/api", "100/m"),
        PathRule("/api/login", "AUTH_LOGIN", methods="POST", hosts="shop"),
        PathRule("/own", "9/m", key=lambda scope: f"{scope['method']} {scope['root_path']}{scope['path']}"),
    ]
)
ENDPOINT = ExplainEndpoint(PATHS)
SECRET = "sk-live-0123456789abcdef"


async def ask(app: Any, path: str = "/", method: str = "GET", client: Any = ("10.0.0.1", 1), **headers: str) -> Any:
    transport = httpx.ASGITransport(app, client=client)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as http:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await http.request(method, path, headers=named)


def with_scope(app: Any, **more: Any) -> Any:
    async def changed(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, **more}, receive, send)

    return changed


async def test_it_is_not_found_unless_it_is_on() -> None:
    with isolated():
        answer = await ask(ENDPOINT)
    assert (answer.status_code, answer.text, answer.headers["cache-control"]) == (404, "Not Found", "no-store")


async def test_the_requesters_own_position_and_identity_are_told() -> None:
    user = SimpleNamespace(is_authenticated=True, id=42)
    app = with_scope(ENDPOINT, user=user, limit_token=SECRET)
    with isolated(explain=True, proxies_count=1):
        answer = await ask(app, x_forwarded_for="192.0.2.66, 203.0.113.7", authorization=SECRET)
    found = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert found["position"]["entries"][1] == {"text": "203.0.113.7", "part": "client"}
    assert (found["keys"]["user"], found["keys"]["token_or_ip"]) == ("user:42", f"tok:{hashed(SECRET)}")
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("client", "peer"), [(None, "unknown"), (("testclient", 50000), "testclient"), (("", 0), "unknown")]
)
async def test_a_scope_may_have_no_client(client: Any, peer: str) -> None:
    with isolated(explain=True):
        found = (await ask(with_scope(ENDPOINT, client=client), x_forwarded_for="203.0.113.7")).json()
    assert (found["position"]["peer"], found["ip"]) == (peer, peer)


async def test_nothing_in_the_request_names_another_caller() -> None:
    with isolated(explain=True):
        query = "user=1&ip=203.0.113.9&peer=203.0.113.9&token=x&identity=user:1&limiter=x&headers=x"
        assert (await ask(ENDPOINT, f"/?{query}")).json() == (await ask(ENDPOINT)).json()


async def test_a_category_or_a_path_is_asked_about_and_nothing_is_spent() -> None:
    with isolated(explain=True) as limiter:
        limiter.check("EXPORT", "ip:10.0.0.1", cost=2)
        for _ in range(9):
            found = (await ask(ENDPOINT, "/?rule=EXPORT")).json()
        assert (found["rule"], found["spends"][0]["remaining"]) == ("EXPORT", 3)
        for query, rule in (
            ("path=/api/x", "/api"),
            ("path=/api/login", "/api"),
            ("path=/api/login&method=post", "POST shop/api/login"),
            ("path=/", ""),
            ("path=", ""),
            ("method=POST", ""),
        ):
            assert (await ask(ENDPOINT, f"/?{query}")).json()["rule"] == rule
        own = (await ask(with_scope(ENDPOINT, root_path="/mounted"), "/?path=/own/x&method=PUT")).json()
        assert own["spends"][0]["caller"] == "key:PUT /own/x"
        assert (await ask(ExplainEndpoint(), "/?path=/api/x")).json()["rule"] == ""


@pytest.mark.parametrize("rule", ["EXPORTS", "10/m", "", "%1b%ff"])
async def test_only_known_names_are_rules(rule: str) -> None:
    with isolated(explain=True):
        answer = await ask(ENDPOINT, f"/?rule={rule}")
    assert (answer.status_code, answer.headers["cache-control"]) == (400, "no-store")
    assert answer.json()["error"]["code"] == "BAD_REQUEST"


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/plain", "text/plain; charset=utf-8"),
        ("text/plain;q=0.9, application/json", "text/plain; charset=utf-8"),
        *(
            (accept, "application/json")
            for accept in ("*/*", "", "application/json, text/plain", "text/html", "text/*")
        ),
    ],
)
async def test_text_for_those_who_read(accept: str, kind: str) -> None:
    with isolated(explain=True):
        answer = await ask(ENDPOINT, accept=accept)
    assert answer.headers["content-type"] == kind
    assert answer.text.startswith("configured    no proxy" if kind.startswith("text") else "{")


async def test_it_only_looks() -> None:
    with isolated(explain=True):
        refused, head, whole = [await ask(ENDPOINT, method=method) for method in ("POST", "HEAD", "GET")]
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


async def test_other_connections_are_turned_down_and_a_lifespan_is_left_alone() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await ENDPOINT({"type": "lifespan"}, receive, send)
    assert sent == []
    await ENDPOINT({"type": "websocket"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1000}]


async def test_a_limiter_of_its_own_is_asked() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock(), settings=Settings(explain=True, key_prefix="own"))
    with isolated():
        found = (await ask(ExplainEndpoint(limiter=limiter), "/?rule=EXPORT")).json()
    assert found["spends"][0]["store_key"] == "own:EXPORT:{ip:10.0.0.1}:500000"


async def known(scope: Any) -> Any:
    return 7


@pytest.mark.parametrize(
    ("user", "keys"),
    [
        (lambda scope: SimpleNamespace(is_authenticated=True, id=7), ("user:7", "ip:10.0.0.1")),
        (known, ("user:7", "ip:10.0.0.1")),
        (lambda scope: None, ("user:42", "ip:10.0.0.1")),
        (lambda scope: Identity(name="key:own", ip="203.0.113.7"), ("key:own", "key:own")),
    ],
)
async def test_the_application_may_say_who_calls(user: Any, keys: tuple[str, str]) -> None:
    with isolated(explain=True):
        found = (await ask(with_scope(ExplainEndpoint(user=user), user=42))).json()
    assert (found["keys"]["user_or_ip"], found["keys"]["ip"]) == keys


def test_a_user_is_told_by_a_function() -> None:
    with pytest.raises(ConfigurationError, match="user=7 is not a function"):
        ExplainEndpoint(user=7)  # type: ignore[arg-type]


def test_paths_are_path_rules() -> None:
    with pytest.raises(ConfigurationError, match="expected PathRules"):
        ExplainEndpoint([PathRule("/api", "1/m")])  # type: ignore[arg-type]


def in_starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    return Starlette(routes=[Route("/route", ENDPOINT), Mount("/mount", ENDPOINT)])


def in_fastapi() -> Any:
    from fastapi import FastAPI

    app = FastAPI()
    app.mount("/mount", ENDPOINT)
    app.add_route("/route", ENDPOINT)  # type: ignore[arg-type]
    return app


def in_litestar() -> Any:
    from litestar import Litestar, asgi

    return Litestar(
        [asgi("/mount", is_mount=True, copy_scope=True)(ENDPOINT), asgi("/route", copy_scope=True)(ENDPOINT)]
    )


@pytest.mark.parametrize("made", [in_starlette, in_fastapi, in_litestar])
async def test_it_is_mounted_in_a_framework(made: Callable[[], Any]) -> None:
    app = made()
    with isolated(explain=True, proxies_count=1):
        for path in ("/route", "/mount/"):
            answer = await ask(app, f"{path}?path=/api/x", x_forwarded_for="203.0.113.7")
            assert answer.status_code == 200
            found = json.loads(answer.content)
            assert (found["ip"], found["rule"]) == ("203.0.113.7", "/api")
