"""The caller behind each kind of context. Those that a library makes are tested with the library, too."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ratelimit.settings import Settings
from ratelimit_graphql.context import identify
from tests.graphql.callers import HERE, User, request

TRUSTING_NONE = Settings()
TRUSTING_TWO = Settings(proxies_count=2)
CHAIN = "198.51.100.1, 198.51.100.2"


def key(context: Any, settings: Settings = TRUSTING_NONE) -> str:
    return identify(context, settings).key()


class Scoped:
    """A request with an ASGI scope, as Starlette's: asking it for its user without the middleware is an error."""

    def __init__(self, **scope: Any) -> None:
        self.scope = {"type": "http", "headers": [], "client": (HERE, 4711), **scope}

    @property
    def user(self) -> Any:
        raise AssertionError("AuthenticationMiddleware must be installed to access request.user")


def environ(**more: Any) -> dict[str, Any]:
    return {"REQUEST_METHOD": "POST", "REMOTE_ADDR": HERE, **more}


def test_django() -> None:
    assert key(request()) == f"ip:{HERE}"
    assert key(request(user=User(42))) == "user:42"
    assert key(SimpleNamespace(META={"REMOTE_ADDR": HERE})) == f"ip:{HERE}"


@pytest.mark.parametrize("meta", [{}, {"REMOTE_ADDR": ""}])
def test_django_without_an_address(meta: dict[str, str]) -> None:
    spoofed = {**meta, "HTTP_X_FORWARDED_FOR": "198.51.100.9"}
    assert key(SimpleNamespace(META=spoofed)) == "ip:unknown"
    assert key(SimpleNamespace(META=spoofed), Settings(proxies_count=1)) == "ip:198.51.100.9"


def test_a_request_with_an_environ_and_a_scope_is_read_by_what_the_server_saw() -> None:
    """Some releases of Django make one variable of two headers' names."""
    meta = {"REMOTE_ADDR": HERE, "HTTP_X_FORWARDED_FOR": "198.51.100.9"}
    for name, expected in ((b"x_forwarded_for", HERE), (b"x-forwarded-for", "198.51.100.9")):
        scope = {"type": "http", "headers": [(name, b"198.51.100.9")], "client": (HERE, 1)}
        assert key(SimpleNamespace(META=meta, scope=scope), Settings(proxies_count=1)) == f"ip:{expected}"


@pytest.mark.parametrize("wrap", [lambda made: {"request": made}, lambda made: SimpleNamespace(request=made)])
@pytest.mark.parametrize(
    "made",
    [
        request(),
        request(HERE, x_forwarded_for="198.51.100.9"),
        Scoped(),
        SimpleNamespace(consumer=Scoped()),
        Scoped().scope,
        environ(),
        SimpleNamespace(environ=environ()),
        SimpleNamespace(headers={}, remote=HERE),
        SimpleNamespace(headers={}, remote_addr=HERE),
        {"headers": {}, "client": (HERE, 80)},
    ],
)
def test_requests_alone_and_in_a_context(made: Any, wrap: Any) -> None:
    assert key(made) == key(wrap(made)) == f"ip:{HERE}"


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_asgi_users_come_from_the_scope(kind: str) -> None:
    assert key({"request": Scoped(type=kind, user=User(42))}) == "user:42"
    assert key({"request": SimpleNamespace(consumer=Scoped(user=User(42)))}) == "user:42"


@pytest.mark.parametrize("client", [None, [], ["203.0.113.7", None]])
def test_asgi_clients_of_odd_shapes(client: Any) -> None:
    assert key(Scoped(client=client)) == ("ip:203.0.113.7" if client else "ip:unknown")


def test_forwarding_lines_keep_their_order() -> None:
    lines = [(b"x-forwarded-for", b"198.51.100.1"), (b"host", b"h"), (b"x-forwarded-for", b"198.51.100.2")]
    assert key(Scoped(headers=lines), TRUSTING_TWO) == "ip:198.51.100.1"
    assert key({"request": Scoped(headers=lines)}, TRUSTING_TWO) == "ip:198.51.100.1"
    assert key(request(x_forwarded_for=CHAIN), TRUSTING_TWO) == "ip:198.51.100.1"
    assert key(environ(HTTP_X_FORWARDED_FOR=CHAIN), TRUSTING_TWO) == "ip:198.51.100.1"
    plain = {"headers": {"X-Forwarded-For": CHAIN}, "remote_addr": HERE}
    assert key(plain, TRUSTING_TWO) == "ip:198.51.100.1"
    assert key(
        {"headers": [("X-Forwarded-For", "198.51.100.1"), ("X-Forwarded-For", "198.51.100.2")]}, TRUSTING_TWO
    ) == ("ip:198.51.100.1")


def test_forwarding_headers_are_not_believed_unasked() -> None:
    for context in (request(x_forwarded_for=CHAIN), {"headers": {"X-Forwarded-For": CHAIN}, "remote_addr": HERE}):
        assert key(context) == f"ip:{HERE}"


@pytest.mark.parametrize(
    "inner", [request(user=User(1)), Scoped(user=User(1)), environ(), SimpleNamespace(remote=HERE)]
)
def test_the_contexts_own_user_counts_before_the_requests(inner: Any) -> None:
    assert key({"request": inner, "user": User(42)}) == "user:42"
    assert key(SimpleNamespace(request=inner, user=User(42))) == "user:42"
    assert key({"request": inner, "user": None}) == key(inner)


@pytest.mark.parametrize("user", [User(42), 42, "42"])
def test_a_user_alone_is_enough(user: Any) -> None:
    assert key({"user": user}) == key(SimpleNamespace(user=user)) == "user:42"


def test_an_accepted_token() -> None:
    with_token = request()
    with_token.limit_token = "sesame"
    scoped = Scoped(limit_token="sesame")
    keys = {
        identify(context, TRUSTING_NONE).key("token_or_ip")
        for context in (with_token, scoped, {"request": request(), "limit_token": "sesame"}, {"limit_token": "sesame"})
    }
    assert len(keys) == 1
    assert keys.pop().startswith("tok:")
    unchecked = request(authorization="Bearer sesame")
    assert identify(unchecked, TRUSTING_NONE).key("token_or_ip") == f"ip:{HERE}"


def test_a_stand_in_that_has_every_attribute_is_still_read_right() -> None:
    assert key(Mock(META={"REMOTE_ADDR": HERE}, user=User(42))) == "user:42"
    assert key(Mock(META={"REMOTE_ADDR": HERE}, user=None)) == f"ip:{HERE}"


class Unbound:
    """A proxy outside of the request it stands for, as Werkzeug's."""

    def __getattr__(self, name: str) -> Any:
        if name in ("META", "scope", "consumer", "environ"):
            raise RuntimeError("Working outside of request context.")
        raise AttributeError(name)


def test_a_context_that_tells_nobody_is_the_unknown_address_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class Empty: ...

    class Bare(dict[str, Any]): ...

    with caplog.at_level(logging.WARNING):
        for context in (Empty(), Empty(), Bare(), Bare(page=3), Bare(client="ios"), Bare(user={"id": 7}), Unbound()):
            assert key(context) == "ip:unknown"
    lines = [record.getMessage() for record in caplog.records]
    assert [name for name in ("Empty", "Bare", "Unbound") if sum(name in line for line in lines) == 1] == [
        *("Empty", "Bare", "Unbound")
    ]
    assert len(lines) == 3
    assert {record.name for record in caplog.records} == {"ratelimit.graphql"}


@pytest.mark.parametrize("context", [None, {}, 5, "text", b"", []])
def test_plain_values_as_contexts(context: Any) -> None:
    assert key(context) == "ip:unknown"


def test_what_a_users_property_raises_is_not_hidden() -> None:
    class Context:
        @property
        def user(self) -> Any:
            raise LookupError("session store is down")

    with pytest.raises(LookupError, match="session store is down"):
        key(Context())


# What cannot be read is as if it were not there.

TRUSTING_ONE = Settings(proxies_count=1)
LINE = ("X-Forwarded-For", "198.51.100.1")


@pytest.mark.parametrize(
    "headers",
    [
        [5, None, "text", b"bytes", (), ("alone",), ("a", "b", "c"), (5, 6), (None, None), LINE],
        [LINE, ("X-Forwarded-For", None), ("X-Forwarded-For", 5)],
        [["X-Forwarded-For", "198.51.100.1"], object()],
        {"X-Forwarded-For": "198.51.100.1", 5: None, "X-Real": ["a"]},
        ((b"X-Forwarded-For", "198.51.100.1") for _ in range(1)),
    ],
)
def test_malformed_header_lines_are_left_out(headers: Any) -> None:
    assert identify(SimpleNamespace(headers=headers, remote_addr=HERE), TRUSTING_ONE).ip == "198.51.100.1"


@pytest.mark.parametrize(
    "headers", [5, "X-Forwarded-For", b"x", [5], [("X-Forwarded-For", None)], {5: 6}, object(), [[]]]
)
def test_headers_that_are_none_leave_the_address(headers: Any) -> None:
    assert identify(SimpleNamespace(headers=headers, remote_addr=HERE), TRUSTING_ONE).ip == HERE
    assert identify({"headers": headers, "remote_addr": HERE}, TRUSTING_ONE).ip == HERE
    scope = {"type": "http", "headers": headers, "client": [HERE, 4711]}
    assert identify({"request": SimpleNamespace(scope=scope)}, TRUSTING_ONE).ip == HERE


@pytest.mark.parametrize("value", [None, 5, b"198.51.100.1", ["198.51.100.1"]])
def test_an_environ_with_other_than_text(value: Any) -> None:
    environ = {"REQUEST_METHOD": "POST", "REMOTE_ADDR": HERE, "HTTP_X_FORWARDED_FOR": value}
    assert identify({"request": environ}, TRUSTING_ONE).ip in (HERE, "198.51.100.1")
    assert identify({"request": {**environ, "REMOTE_ADDR": value}}, TRUSTING_NONE).ip == "unknown"
    assert identify(SimpleNamespace(META={"REMOTE_ADDR": value}, user=None), TRUSTING_NONE).ip == "unknown"


@pytest.mark.parametrize("client", [5, HERE, [], [5, 6], [None], {}, [b"203.0.113.7", 1]])
def test_a_scope_with_a_client_that_is_none(client: Any) -> None:
    scope = {"type": "http", "headers": [], "client": client}
    assert identify({"request": SimpleNamespace(scope=scope)}, TRUSTING_NONE).ip == "unknown"


def test_headers_and_addresses_that_raise() -> None:
    class Broken:
        user = 42

        @property
        def headers(self) -> Any:
            raise LookupError("no request")

        remote_addr = client = headers

    assert key(Broken()) == "user:42"
