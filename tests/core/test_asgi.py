"""What is read from a scope, and what is sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ratelimit import Identity, Limiter, Rate, shapes
from ratelimit.answers import Answer
from ratelimit.asgi import (
    denial_frame,
    headed,
    header,
    header_lines,
    other_reading,
    refuse_websocket,
    route_path,
    scope_facts,
    scope_identity,
    send_answer,
    with_headers,
)
from ratelimit.settings import Settings
from ratelimit.testing import FakeClock

SETTINGS = Settings()
ANSWER = Answer(429, {"Content-Type": "text/plain", "Retry-After": "7"}, b"busy")


class Nameless:
    """A user of Starlette's that has no identity."""

    is_authenticated = True

    @property
    def identity(self) -> str:
        raise NotImplementedError


class Simple(Nameless):
    username = "ada"


@pytest.mark.parametrize(
    ("scope", "user", "key"),
    [
        ({}, None, "ip:unknown"),
        ({"client": None, "headers": None}, None, "ip:unknown"),
        ({"client": ("203.0.113.7", 1)}, None, "ip:203.0.113.7"),
        ({"client": ["203.0.113.7", None]}, None, "ip:203.0.113.7"),
        ({"user": 7}, None, "user:7"),
        ({"user": 7}, 8, "user:8"),
        ({"user": ""}, None, "ip:unknown"),
        ({"user": SimpleNamespace(is_authenticated=True, pk=3)}, None, "user:3"),
        ({"user": SimpleNamespace(is_authenticated=True, id=3)}, None, "user:3"),
        ({"user": SimpleNamespace(is_authenticated=True, identity="ada")}, None, "user:ada"),
        ({"user": SimpleNamespace(is_authenticated=False, identity="ada")}, None, "ip:unknown"),
        ({"user": SimpleNamespace(is_authenticated=True, identity="")}, None, "ip:unknown"),
        ({"user": SimpleNamespace(is_authenticated=True, identity=7)}, None, "ip:unknown"),
        ({"user": SimpleNamespace(identity="ada")}, None, "ip:unknown"),
        ({"user": Nameless()}, None, "ip:unknown"),
        ({"user": Simple()}, None, "user:ada"),
    ],
)
@pytest.mark.parametrize("looking", [True, False])
def test_who_is_calling(
    monkeypatch: pytest.MonkeyPatch, scope: dict[str, Any], user: Any, key: str, looking: bool
) -> None:
    monkeypatch.setattr(shapes, "looking", looking)
    assert scope_identity(scope, SETTINGS, user).key() == key


def test_a_named_user_keeps_its_flags() -> None:
    user = SimpleNamespace(is_authenticated=True, identity="ada", is_superuser=True, is_usage_capped=True)
    assert scope_identity({"user": user}, SETTINGS) == Identity(user="ada", superuser=True, capped=True)


@pytest.mark.parametrize("looking", [True, False])
def test_a_token_counts_once_the_application_accepted_it(monkeypatch: pytest.MonkeyPatch, looking: bool) -> None:
    monkeypatch.setattr(shapes, "looking", looking)
    typed = {"client": ("203.0.113.7", 1), "headers": [(b"authorization", b"Bearer abc")]}
    assert scope_identity(typed, SETTINGS).token is None
    assert scope_identity(typed | {"limit_token": "abc"}, SETTINGS).token == "abc"


@pytest.mark.parametrize(
    ("path", "root", "seen"),
    [
        ("/a", None, "/a"),
        ("/a", "", "/a"),
        ("/app/a", "/app", "/a"),
        ("/app/a", "/app/", "/a"),
        ("/app", "/app", ""),
        ("/apple", "/app", "/apple"),
        ("/a", "/app", "/a"),
        (None, "/app", ""),
    ],
)
def test_the_path_that_the_router_sees(path: Any, root: Any, seen: str) -> None:
    assert route_path({"path": path, "root_path": root}) == seen


@pytest.mark.parametrize(
    ("path", "root", "reading"),
    [
        ("/a", "", None),
        ("/a", None, None),
        (None, "/app", None),
        ("/a", "/app", None),
        ("/app", "/app", None),
        ("/app/a", "/app", None),
        ("/app/app/a", "/app", None),
        ("/app//a", "/app/", None),
        ("/appa", "/app", "a"),
        ("/x/app/a", "/app", "/a"),
        ("/x/app", "/app", ""),
    ],
)
def test_what_other_routers_may_take_the_path_for(path: Any, root: Any, reading: str | None) -> None:
    assert other_reading({"path": path, "root_path": root}) == reading


def test_after_litestars_router_the_path_is_what_it_found() -> None:
    scope = {"path": "/app/a", "root_path": "/app", "route_handler": object()}
    assert (route_path(scope), other_reading(scope)) == ("/app/a", None)
    scope["path"] = "/x/app/a"
    assert (route_path(scope), other_reading(scope)) == ("/x/app/a", None)


def test_what_rules_may_know() -> None:
    assert scope_facts({"path": "/app/a", "root_path": "/app", "method": "GET"}) == {"path": "/a", "method": "GET"}
    assert scope_facts({"type": "websocket", "path": "/app/ws/", "root_path": "/app"}) == {"path": "/ws/"}
    assert scope_facts({"path": "/a\n"}) == scope_facts({"path": "/a\r\n"}) == {"path": "/a"}
    assert (
        scope_facts({"path": "//ws/\n"}) == scope_facts({"path": "/app///ws/", "root_path": "/app"}) == {"path": "/ws/"}
    )
    assert scope_facts({"path": "", "root_path": ""}) == {"path": ""}
    assert scope_facts({}) == {}


def test_header_lines() -> None:
    scope = {"headers": [(b"Host", b"a"), (b"hosts", b"b"), (b"host", b"\xe9")]}
    assert header_lines(scope, b"host") == [b"a", b"\xe9"]
    assert header(scope, "HOST") == "a"
    assert header(scope, "X-None") is None
    assert header({}, "Host") is None


async def sent_by(call: Any, *args: Any) -> list[Any]:
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    await call(send, *args)
    return sent


START = {
    "status": 429,
    "headers": [(b"content-type", b"text/plain"), (b"retry-after", b"7"), (b"content-length", b"4")],
}


async def test_an_answer_is_a_response_whose_length_is_known() -> None:
    assert await sent_by(send_answer, ANSWER) == [
        {"type": "http.response.start", **START},
        {"type": "http.response.body", "body": b"busy"},
    ]


@pytest.mark.parametrize(
    ("answer", "headers"),
    [
        (Answer(429, {"CONTENT-LENGTH": "4"}, b"busy"), [(b"content-length", b"4")]),
        (Answer(429, {}, b""), [(b"content-length", b"0")]),
        (Answer(204, {}, b""), []),
    ],
)
async def test_a_length_is_told_where_it_is_missing_and_may_be(answer: Answer, headers: Any) -> None:
    assert (await sent_by(send_answer, answer))[0]["headers"] == headers


@pytest.mark.parametrize(
    ("first", "extensions", "types"),
    [
        ("websocket.connect", {"websocket.http.response": {}}, ["http.response.start", "http.response.body"]),
        ("websocket.connect", {}, ["close"]),
        ("websocket.connect", None, ["close"]),
        ("websocket.disconnect", {"websocket.http.response": {}}, []),
    ],
)
async def test_a_handshake_is_turned_down_in_the_best_way_the_server_has(
    first: str, extensions: Any, types: list[str]
) -> None:
    async def receive() -> Any:
        return {"type": first}

    async def refuse(send: Any) -> None:
        await refuse_websocket({"extensions": extensions}, receive, send, ANSWER)

    sent = await sent_by(refuse)
    assert [message["type"] for message in sent] == [f"websocket.{kind}" for kind in types]
    if types == ["close"]:
        assert sent[0]["code"] == 4029
    if len(types) == 2:
        assert sent == [
            {"type": "websocket.http.response.start", **START},
            {"type": "websocket.http.response.body", "body": b"busy"},
        ]


@pytest.mark.parametrize("kind", ["http.response.start", "websocket.accept", "websocket.http.response.start"])
async def test_headers_are_added_but_for_the_applications_own(kind: str) -> None:
    message = {"type": kind, "headers": [(b"RateLimit", b"own")]}

    async def app(send: Any) -> None:
        await with_headers(send, [(b"ratelimit", b"1"), (b"retry-after", b"2")])(message)

    assert await sent_by(app) == [{"type": kind, "headers": [(b"RateLimit", b"own"), (b"retry-after", b"2")]}]
    assert message["headers"] == [(b"RateLimit", b"own")]


@pytest.mark.parametrize(
    ("own", "both"),
    [
        (None, [(b"ratelimit", b"1"), (b"retry-after", b"2")]),
        ([], [(b"ratelimit", b"1"), (b"retry-after", b"2")]),
        ([(b"etag", b"3")], [(b"etag", b"3"), (b"ratelimit", b"1"), (b"retry-after", b"2")]),
        (
            [(b"ratelimit", b"3"), (b"ratelimit", b"4")],
            [(b"ratelimit", b"3"), (b"ratelimit", b"4"), (b"retry-after", b"2")],
        ),
        ([(b"Retry-After", b"3"), (b"RateLimit", b"4")], [(b"Retry-After", b"3"), (b"RateLimit", b"4")]),
        ([[b"etag", b"3"]], [[b"etag", b"3"], (b"ratelimit", b"1"), (b"retry-after", b"2")]),
        (
            [(bytearray(b"X-Request"), b"3"), (bytearray(b"RateLimit"), b"4")],
            [(b"X-Request", b"3"), (b"RateLimit", b"4"), (b"retry-after", b"2")],
        ),
    ],
)
def test_a_name_that_a_response_has_is_not_given_again(own: Any, both: Any) -> None:
    message = {"type": "http.response.start", "headers": own}
    assert headed(message, [(b"ratelimit", b"1"), (b"retry-after", b"2")])["headers"] == both
    assert message["headers"] is own


def test_without_headers_send_is_the_servers_own() -> None:
    async def send(message: Any) -> None: ...

    assert with_headers(send, []) is send


@pytest.mark.parametrize(
    ("rate", "cost", "frame"),
    [
        ("1/m", 1, {"error": "Rate limit exceeded. Max 1 request per minute.", "retry_after": 60}),
        ("1/m", 2, {"error": "Rate limit exceeded. Max 1 request per minute.", "retry_after": None}),
    ],
)
def test_what_the_client_of_an_open_websocket_is_told(rate: str, cost: int, frame: dict[str, Any]) -> None:
    limiter = Limiter("memory://", clock=FakeClock())
    limiter.check(Rate.parse(rate), "a")
    decision = limiter.check(Rate.parse(rate), "a", cost=cost)
    assert denial_frame(decision) == {"type": "RATE_LIMITED", **frame}
