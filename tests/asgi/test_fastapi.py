"""Limits in FastAPI: as dependencies of routes, routers and applications, and as decorators."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any

import pytest

pytest.importorskip("fastapi")

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.testclient import TestClient
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.websockets import WebSocketDisconnect

from ratelimit import Decision, Identity, Limiter, Policy, Rate, RateLimitExceeded, Rule
from ratelimit.testing import isolated
from ratelimit_asgi import PathRule, RateLimited, RateLimitMiddleware, endpoint_ratelimit, limit
from tests.asgi.clients import codes

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.usefixtures("limiter")
ENVELOPE = {
    "error": {
        "code": "RATE_LIMITED",
        "message": "Limit exceeded: Max 1 request per minute. Please try again later.",
        "details": {"retry_after_ms": 60000},
        "request_id": None,
    }
}


def of_header(request: Request) -> Identity | None:
    """A user without a tier, as a test wants one."""
    name = request.headers.get("x-user")
    return None if name is None else Identity(name=f"user:{name}")


def test_a_dependency_gives_the_decision_and_denies_with_the_error_contract() -> None:
    app = FastAPI()

    @app.get("/")
    async def answer(decision: Annotated[Decision, Depends(limit(rate="1/m"))]) -> dict[str, int]:
        return {"remaining": decision.remaining}

    client = TestClient(app)
    assert client.get("/").json() == {"remaining": 0}
    denied = client.get("/")
    assert (denied.status_code, denied.json()) == (429, ENVELOPE)
    assert denied.headers == {
        "content-type": "application/json",
        "cache-control": "no-store",
        "access-control-expose-headers": "Retry-After",
        "retry-after": "60",
        "content-length": str(len(denied.content)),
    }


def test_problem_details_have_their_content_type() -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="0/m"))])
    app.get("/")(lambda: None)
    with isolated(errors="problem"):
        denied = TestClient(app).get("/")
    assert (denied.status_code, denied.headers["content-type"]) == (429, "application/problem+json")


def test_a_category_is_one_budget_and_a_rate_one_for_each_route(limiter: Limiter) -> None:
    app, router = FastAPI(), APIRouter(dependencies=[Depends(limit(rate="2/m"))])

    @router.get("/a")
    @router.post("/a")
    def a() -> None: ...

    @router.get("/items/{number}")
    def item(number: int) -> None: ...

    @app.get("/shared", dependencies=[Depends(limit("AI_ANALYSIS", cost=3, user=of_header))])
    def shared() -> None: ...

    app.include_router(router, prefix="/v1")
    app.include_router(router, prefix="/v2")
    client = TestClient(app)
    for prefix in ("/v1", "/v2"):
        assert codes(client, 3, f"{prefix}/a") == [200, 200, 429]
        assert codes(client, 3, f"{prefix}/a", "POST") == [200, 200, 429]
        # What stands for a parameter is the caller's to choose: it makes no budget.
        assert [client.get(f"{prefix}/items/{number}").status_code for number in range(3)] == [200, 200, 429]
    assert codes(client, 2, "/shared", headers={"x-user": "7"}) == [200, 429]
    assert limiter.peek("AI_ANALYSIS", "user:7").remaining == 2


def test_two_rates_on_one_route_are_two_budgets() -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="3/m"))])

    @app.get("/", dependencies=[Depends(limit(rate="2/m")), Depends(limit(rate="2/m"))])
    def answer() -> None: ...

    assert codes(TestClient(app), 3) == [200, 200, 429]


def test_a_group_is_one_budget_for_all_its_routes() -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="2/m", group="all"))])
    app.get("/a")(lambda: None)
    app.get("/b")(lambda: None)
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/a", "/b", "/a", "/b")] == [200, 200, 429, 429]


def test_a_method_that_nobody_knows_makes_no_budget_of_its_own() -> None:
    app = FastAPI()

    @app.api_route("/", methods=["GET", "HEAD", "A", "B"], dependencies=[Depends(limit(rate="1/m"))])
    def answer() -> None: ...

    client = TestClient(app)
    assert [client.request(method, "/").status_code for method in ("A", "B", "GET", "HEAD")] == [200, 429, 200, 429]


@pytest.mark.parametrize("mount", ["/{tenant}", "/api"])
def test_applications_that_one_function_made_count_apart_where_they_are_mounted(mount: str) -> None:
    def made() -> FastAPI:
        app = FastAPI()

        @app.get("/items", dependencies=[Depends(limit(rate="1/m"))])
        def items() -> None: ...

        return app

    app = FastAPI()
    app.mount("/first", made())
    app.mount(mount, made())
    client = TestClient(app)
    assert codes(client, 2, "/first/items") == [200, 429]
    assert codes(client, 2, "/api/items") == [200, 429]
    if mount == "/{tenant}":  # whoever chooses the tenant does not choose a budget
        assert codes(client, 1, "/other/items") == [429]


def test_an_applications_own_handler_wins() -> None:
    def app_with(*handlers: Any) -> TestClient:
        app = FastAPI(dependencies=[Depends(limit(rate="0/m"))])
        app.get("/")(lambda: None)
        for handler in handlers:
            app.add_exception_handler(handler, lambda request, error: PlainTextResponse("mine", 418, error.headers))
        return TestClient(app)

    for kind in (429, RateLimited, RateLimitExceeded, StarletteHTTPException, HTTPException):
        answered = app_with(kind).get("/")
        assert (answered.status_code, answered.text) == (418, "mine")
        assert answered.headers["cache-control"] == "no-store"
        assert answered.headers["content-type"].startswith("text/plain")
    assert app_with().get("/").status_code == 429
    assert app_with(404, ValueError).get("/").status_code == 429


def test_a_denial_is_caught_as_what_it_is() -> None:
    seen: list[Any] = []
    app = FastAPI()

    async def watching() -> AsyncIterator[None]:
        try:
            yield
        except RateLimited as error:
            seen.append(error)
            raise

    @app.get("/", dependencies=[Depends(watching), Depends(limit(rate="1/m"))])
    async def answer() -> None: ...

    assert codes(TestClient(app), 2) == [200, 429]
    assert [(type(error), error.decision.retry_after) for error in seen] == [(RateLimited, 60.0)]


def test_the_exception_can_be_read_and_pickled() -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="0/m"))])
    app.get("/")(lambda: None)
    kept: list[RateLimited] = []

    @app.exception_handler(RateLimited)
    async def keep(request: Request, error: RateLimited) -> Response:
        kept.append(error)
        return Response(status_code=error.status_code)

    assert codes(TestClient(app), 1) == [429]
    for error in (kept[0], pickle.loads(pickle.dumps(kept[0]))):
        assert (error.status_code, error.decision.allowed, error.answer.status) == (429, False, 429)
        assert error.detail == "Limit exceeded: Max 0 requests per minute. Please try again later."


@pytest.mark.parametrize("with_middleware", [False, True])
def test_allowed_responses_carry_limit_headers(with_middleware: bool) -> None:
    app = FastAPI()
    if with_middleware:
        app.add_middleware(RateLimitMiddleware)

    @app.get("/built", dependencies=[Depends(limit(rate="5/m"))])
    def built() -> dict[str, str]:
        return {}

    @app.get("/returned", dependencies=[Depends(limit(rate="5/m"))])
    def returned() -> Response:
        return PlainTextResponse("ok")

    @app.get("/own", dependencies=[Depends(limit(rate="5/m"))])
    def own(response: Response) -> None:
        response.headers["X-RateLimit-Limit"] = "mine"

    @app.get("/free")
    def free() -> None: ...

    client = TestClient(app)
    with isolated(headers="x"):
        for path in ("/built", "/returned"):
            headers = client.get(path).headers
            if path == "/built" or with_middleware:
                assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("5", "4")
                assert headers.get_list("X-RateLimit-Limit") == ["5"]
            else:
                assert "X-RateLimit-Limit" not in headers
        assert client.get("/own").headers.get_list("X-RateLimit-Limit") == ["mine"]
        assert "X-RateLimit-Limit" not in client.get("/free").headers


@pytest.mark.parametrize("with_middleware", [False, True])
def test_of_several_limits_the_strictest_is_shown(with_middleware: bool) -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="3/m")), Depends(limit(rate="9/m"))])
    if with_middleware:
        app.add_middleware(RateLimitMiddleware, paths=[PathRule("/", "7/m")])

    @app.get("/")
    def answer(request: Request) -> str:
        return str(request.scope["limit_decision"].limit)

    client = TestClient(app)
    with isolated(headers="x"):
        answered = client.get("/")
        assert (answered.json(), answered.headers["X-RateLimit-Limit"]) == ("3", "3")
    with isolated(headers="ietf"):
        shown = client.get("/").headers["RateLimit-Policy"].split(", ")
        assert len(shown) == 2 + with_middleware


def test_a_budget_that_was_spent_twice_is_shown_once_as_it_stands_now() -> None:
    app = FastAPI(dependencies=[Depends(limit("AI_ANALYSIS", cost=2))])
    app.get("/")(lambda: PlainTextResponse("ok"))
    app.add_middleware(RateLimitMiddleware, paths=[PathRule("/", "AI_ANALYSIS")])
    with isolated(headers="ietf"):
        headers = TestClient(app).get("/").headers
        assert headers["RateLimit-Policy"] == '"AI_ANALYSIS";q=5;w=60'
        assert headers["RateLimit"] == '"AI_ANALYSIS";r=2;t=60'


def test_a_copied_scope_does_not_lose_the_headers() -> None:
    app = FastAPI(dependencies=[Depends(limit(rate="5/m"))])
    app.get("/")(lambda: PlainTextResponse("ok"))

    class Copying:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await self.app(dict(scope), receive, send)

    app.add_middleware(Copying)
    app.add_middleware(RateLimitMiddleware)
    with isolated(headers="x"):
        assert TestClient(app).get("/").headers["X-RateLimit-Remaining"] == "4"


def test_what_a_path_rule_counted_is_not_counted_again() -> None:
    app = FastAPI(dependencies=[Depends(limit("AI_ANALYSIS"))])

    @app.get("/")
    @endpoint_ratelimit("AI_ANALYSIS")
    async def answer() -> None: ...

    @app.get("/dear")
    def dear(decision: Annotated[Decision, Depends(limit("AI_ANALYSIS", cost=2))]) -> int:
        return decision.remaining

    app.add_middleware(RateLimitMiddleware, paths=[PathRule("/", "AI_ANALYSIS")])
    client = TestClient(app)
    assert codes(client, 6) == [200] * 5 + [429]
    with isolated():
        assert client.get("/dear").json() == 2  # what costs more counts for itself


@pytest.mark.parametrize("awaited", [False, True])
def test_a_user_that_a_function_finds_is_counted(awaited: bool) -> None:
    async def later(request: Request) -> Any:
        return request.headers.get("x-verified")

    app = FastAPI()
    user = later if awaited else lambda request: request.headers.get("x-verified")
    app.get("/", dependencies=[Depends(limit(rate="1/m", user=user))])(lambda: None)
    client = TestClient(app)
    for name, status in [("a", 200), ("b", 200), ("a", 429)]:
        assert codes(client, 1, headers={"x-verified": name}) == [status]


def test_a_key_is_asked_of_the_connection() -> None:
    app = FastAPI()
    app.get("/", dependencies=[Depends(limit(rate="1/m", key=lambda request: request.query_params["k"]))])(lambda: None)
    client = TestClient(app)
    assert [client.get(f"/?k={key}").status_code for key in "aba"] == [200, 200, 429]


def test_the_user_of_the_authentication_middleware_is_counted() -> None:
    class Backend(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> Any:
            name = conn.headers.get("x-login")
            return (AuthCredentials(["authenticated"]), SimpleUser(name)) if name else None

    app = FastAPI()

    @app.get("/", dependencies=[Depends(limit("AI_ANALYSIS"))])
    def answer(request: Request) -> Any:
        return request.scope["limit_key"]

    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    client = TestClient(app)
    assert client.get("/", headers={"x-login": "ada"}).json() == "user:ada"
    assert client.get("/").json().startswith("ip:")
    assert codes(client, 10, headers={"x-login": "ada"}) == [200] * 9 + [429]  # twice an anonymous caller's


def test_disabled_nothing_is_counted_and_a_decision_is_given_all_the_same() -> None:
    app = FastAPI()

    @app.get("/")
    def answer(decision: Annotated[Decision, Depends(limit(rate="1/m"))]) -> bool:
        return decision.allowed

    @app.get("/decorated")
    @endpoint_ratelimit(rate="1/m")
    def decorated() -> bool:
        return True

    client = TestClient(app)
    with isolated(disable=True, headers="x"):
        for path in ("/", "/decorated"):
            for _ in range(3):
                answered = client.get(path)
                assert (answered.json(), "X-RateLimit-Limit" in answered.headers) == (True, False)


def test_dependencies_can_be_overridden_in_tests() -> None:
    strict = limit(rate="0/m")
    app = FastAPI(dependencies=[Depends(strict)])
    app.get("/")(lambda: None)
    assert codes(TestClient(app), 1) == [429]
    app.dependency_overrides[strict] = lambda: None
    assert codes(TestClient(app), 3) == [200] * 3


class Searching:
    """An endpoint that is an object."""

    async def __call__(self, q: Annotated[str, Query(max_length=3)] = "a") -> str:
        return q


class Search:
    """A dependency that is an object."""

    @endpoint_ratelimit(rate="1/m")
    async def __call__(self, q: Annotated[str, Query(max_length=3)] = "a") -> str:
        return q


def plain(word: str, q: str) -> list[str]:
    return [word, q]


@endpoint_ratelimit(rate="1/m")
async def coroutine(q: int) -> dict[str, int]:
    """Doc."""
    return {"q": q}


@endpoint_ratelimit(rate="1/m")
def threaded(q: int, request: Request) -> JSONResponse:
    return JSONResponse({"q": q, "path": request.url.path})


@endpoint_ratelimit(rate="1/m")
async def streamed() -> StreamingResponse:
    return StreamingResponse(iter(["a", "b"]))


@endpoint_ratelimit(rate="1/m")
async def with_response(response: Response, rate_limit_: int = 3) -> int:
    response.headers["X-Own"] = "1"
    return rate_limit_


@pytest.mark.parametrize(
    ("endpoint", "query", "body"),
    [
        (coroutine, "?q=1", {"q": 1}),
        (threaded, "?q=1", {"q": 1, "path": "/x"}),
        (endpoint_ratelimit(rate="1/m")(Searching()), "?q=abc", "abc"),
        (with_response, "", 3),
        (endpoint_ratelimit(rate="1/m")(partial(plain, word="a")), "?q=abc", ["a", "abc"]),
    ],
)
def test_decorated_endpoints_of_every_kind(endpoint: Any, query: str, body: Any) -> None:
    app = FastAPI()
    app.get("/x")(endpoint)
    client = TestClient(app)
    with isolated(headers="x"):
        allowed = client.get(f"/x{query}")
        assert (allowed.status_code, allowed.json()) == (200, body)
        assert allowed.headers.get_list("X-RateLimit-Limit") == ["1"]
        assert client.get(f"/x{query}").status_code == 429


search = Search()


def test_a_decorated_method_is_a_dependency() -> None:
    app = FastAPI()

    @app.get("/")
    def answer(found: Annotated[str, Depends(search)]) -> str:
        return found

    client = TestClient(app)
    assert [client.get("/?q=x").json() for _ in range(2)] == ["x", ENVELOPE]


def later(q: int) -> Sequence[int]:  # a name that only type checkers know
    return [q]


def test_a_name_that_only_type_checkers_know_is_no_error_when_it_is_decorated() -> None:
    app = FastAPI()
    app.get("/", response_model=None)(endpoint_ratelimit(rate="1/m")(later))
    client = TestClient(app)
    assert client.get("/?q=1").json() == [1]
    assert codes(client, 1, "/?q=1") == [429]


def test_a_decorated_endpoint_keeps_its_name_its_words_and_its_parameters() -> None:
    app = FastAPI()
    app.get("/x", name="x")(coroutine)
    assert (coroutine.__name__, coroutine.__doc__, coroutine.__module__) == ("coroutine", "Doc.", __name__)
    assert coroutine.__annotations__ == {"q": "int", "return": "dict[str, int]"}
    assert asyncio.iscoroutinefunction(coroutine)
    operation = app.openapi()["paths"]["/x"]["get"]
    assert operation["description"] == "Doc."
    assert [one["name"] for one in operation["parameters"]] == ["q"]
    assert "requestBody" not in operation
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema["additionalProperties"] == {"type": "integer"}


def test_a_response_that_an_application_keeps_is_not_changed() -> None:
    kept = PlainTextResponse("ok")
    before = list(kept.raw_headers)
    app = FastAPI()
    app.get("/")(endpoint_ratelimit(rate="3/m")(lambda: kept))
    client = TestClient(app)
    with isolated(headers="x"):
        assert [client.get("/").headers.get_list("X-RateLimit-Remaining") for _ in range(3)] == [["2"], ["1"], ["0"]]
    assert kept.raw_headers == before


def test_a_streamed_response_is_streamed_with_headers() -> None:
    app = FastAPI()
    app.get("/")(streamed)
    with isolated(headers="x"):
        answered = TestClient(app).get("/")
    assert (answered.text, answered.headers["X-RateLimit-Remaining"]) == ("ab", "0")


def test_an_invalid_request_has_spent_its_unit() -> None:
    app = FastAPI()
    app.get("/")(endpoint_ratelimit(rate="2/m")(coroutine))
    assert codes(TestClient(app), 3, "/?q=nonsense") == [422, 429, 429]


order: list[str] = []


@endpoint_ratelimit(rate="2/m")
async def session() -> AsyncIterator[str]:
    order.append("open")
    try:
        yield "session"
    except ValueError:
        order.append("rolled back")
        raise
    finally:
        order.append("closed")


@endpoint_ratelimit(rate="2/m")
def threaded_session() -> Iterator[str]:
    order.append("open")
    try:
        yield "thread"
    finally:
        order.append("closed")


@endpoint_ratelimit(rate="2/m")
async def forgiving() -> AsyncIterator[str]:
    try:
        yield "forgiven"
    except HTTPException:
        order.append("forgave")
        raise HTTPException(409) from None


def test_decorated_dependencies_with_yield_are_entered_and_left() -> None:
    app = FastAPI()

    @app.get("/")
    async def answer(one: Annotated[str, Depends(session)], two: Annotated[str, Depends(threaded_session)]) -> str:
        return one + two

    @app.get("/fails")
    async def fails(one: Annotated[str, Depends(session)]) -> None:
        raise ValueError(one)

    @app.get("/forgiven")
    async def forgiven(one: Annotated[str, Depends(forgiving)]) -> None:
        raise HTTPException(404)

    client = TestClient(app, raise_server_exceptions=False)
    for path, status, steps in [
        ("/", 200, ["open", "open", "closed", "closed"]),
        ("/fails", 500, ["open", "rolled back", "closed"]),
        ("/forgiven", 409, ["forgave"]),
    ]:
        order.clear()
        assert codes(client, 1, path) == [status]
        assert order == steps
    order.clear()
    assert codes(client, 2) == [200, 429]
    assert order.count("open") == order.count("closed") == 2


def test_an_endpoint_that_streams_by_yield_is_denied_before_it_begins() -> None:
    sse = pytest.importorskip("fastapi.sse")
    app = FastAPI()

    @app.get("/", response_class=sse.EventSourceResponse)
    @endpoint_ratelimit(rate="1/m")
    async def events() -> AsyncIterator[int]:
        order.append("begun")
        yield 1
        yield 2

    order.clear()
    client = TestClient(app)
    assert client.get("/").text == "data: 1\n\ndata: 2\n\n"
    assert client.get("/").json() == ENVELOPE
    assert order == ["begun"]


def test_other_decorators_may_stand_above_and_below() -> None:
    def doubled(endpoint: Any) -> Any:
        @wraps(endpoint)
        async def both(*args: Any, **kwargs: Any) -> Any:
            return 2 * await endpoint(*args, **kwargs)

        return both

    @endpoint_ratelimit(rate="2/m")
    @endpoint_ratelimit(rate="1/m", key="global")
    @doubled
    async def below(q: int) -> int:
        return q

    @doubled
    @endpoint_ratelimit(rate="1/m")
    async def above(q: int) -> int:
        return q

    app = FastAPI()
    app.get("/below")(below)
    app.get("/above")(above)
    client = TestClient(app)
    for path in ("/below", "/above"):
        assert client.get(f"{path}?q=4").json() == 8
        assert codes(client, 1, f"{path}?q=4") == [429]


def denied_handshake(client: TestClient, path: str = "/") -> Any:
    with pytest.raises(Exception) as refused, client.websocket_connect(path):  # noqa: PT011
        raise AssertionError("it was accepted")
    return refused.value


@pytest.mark.parametrize("how", ["dependency", "decorator", "router"])
def test_a_websocket_route_is_refused_before_it_is_accepted(how: str) -> None:
    entered: list[str] = []
    app = FastAPI()
    router = APIRouter(dependencies=[Depends(limit(rate="1/m"))] if how == "router" else [])

    async def chat(websocket: WebSocket) -> None:
        entered.append("chat")
        await websocket.accept()
        await websocket.send_text("hello")
        await websocket.close()

    if how == "decorator":
        chat = endpoint_ratelimit(rate="1/m")(chat)
    dependencies = [Depends(limit(rate="1/m"))] if how == "dependency" else []
    router.websocket("/chat", dependencies=dependencies)(chat)
    app.include_router(router)
    client = TestClient(app)
    with client.websocket_connect("/chat") as socket:
        assert socket.receive_text() == "hello"
    error = denied_handshake(client, "/chat")
    assert (error.status_code, error.headers["retry-after"]) == (429, "60")
    assert error.json() == ENVELOPE
    assert entered == ["chat"]


def test_without_the_extension_the_handshake_is_closed() -> None:
    app = FastAPI()

    @app.websocket("/", dependencies=[Depends(limit(rate="0/m"))])
    async def chat(websocket: WebSocket) -> None: ...

    async def without(scope: Any, receive: Any, send: Any) -> None:
        scope.get("extensions", {}).clear()
        await app(scope, receive, send)

    error = denied_handshake(TestClient(without))
    assert isinstance(error, WebSocketDisconnect)
    assert error.code == 4029


def test_an_applications_own_handler_for_handshakes_wins() -> None:
    app = FastAPI()
    seen: list[Any] = []

    @app.websocket("/", dependencies=[Depends(limit(rate="0/m"))])
    async def chat(websocket: WebSocket) -> None: ...

    @app.exception_handler(RateLimitExceeded)
    async def mine(websocket: WebSocket, error: RateLimitExceeded) -> None:
        seen.append(error.decision.limit)
        await websocket.close(4000)

    assert denied_handshake(TestClient(app)).code == 4000
    assert seen == [0]


def test_a_rate_may_be_asked_for_and_be_a_policy() -> None:
    def plan(request: Request) -> Any:
        found = {"free": "1/m", "team": Policy(Rule("a", "2/m"), Rule("b", "9/h")), "staff": None, "c": "AI_ANALYSIS"}
        return found[request.query_params["plan"]]

    app = FastAPI()
    for path in ("/", "/other"):
        app.get(path, dependencies=[Depends(limit(rate=plan))])(lambda: None)
    client = TestClient(app)
    assert codes(client, 2, "/?plan=free") == [200, 429]
    assert codes(client, 1, "/other?plan=free") == [200]
    assert codes(client, 3, "/?plan=team") == [200, 200, 429]
    assert codes(client, 1, "/other?plan=team") == [429]  # a policy's rules have names of their own
    assert codes(client, 9, "/?plan=staff") == [200] * 9
    assert codes(client, 5, "/?plan=c") == [200] * 4 + [429]  # one of five was spent at the first plan's rate


@pytest.mark.parametrize("rate", ["AI_ANALYSIS", Rate.parse("5/m")])
def test_a_category_given_as_a_rate_is_a_budget_of_each_route(rate: Any) -> None:
    app = FastAPI(dependencies=[Depends(limit(rate=rate))])
    for path in ("/a", "/b"):
        app.get(path)(lambda: None)
    client = TestClient(app)
    for path in ("/a", "/b"):
        assert codes(client, 6, path) == [200] * 5 + [429]


def test_a_rate_given_as_the_rule_is_a_budget_of_each_route() -> None:
    app = FastAPI(dependencies=[Depends(limit(Rate.parse("1/m")))])
    for path in ("/a", "/b"):
        app.get(path)(lambda: None)
    client = TestClient(app)
    assert [client.get(path).status_code for path in ("/a", "/b", "/a", "/b")] == [200, 200, 429, 429]


def test_a_rule_is_counted_once_by_middleware_dependency_and_decorator() -> None:
    rule = Rule("shared", "3/m", match={"path": "/x"})
    app = FastAPI(dependencies=[Depends(limit(rule))])
    app.get("/x")(endpoint_ratelimit(rule)(lambda: None))
    app.add_middleware(RateLimitMiddleware, paths=[PathRule("/", rule)])
    assert codes(TestClient(app), 4, "/x") == [200] * 3 + [429]
