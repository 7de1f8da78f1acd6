"""The start of an application whose settings cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ratelimit import ConfigurationError, Limiter, set_limiter, settings
from ratelimit.answers import Answer
from ratelimit.lifespan import start_checked
from ratelimit.settings import Settings

COMPLETE, FAILED = "lifespan.startup.complete", "lifespan.startup.failed"


@pytest.fixture(autouse=True)
def no_limiter() -> Iterator[None]:
    set_limiter(None)
    yield
    set_limiter(None)


def polite(decision: Any, answer: Answer) -> Answer:
    return answer


class Application:
    """It starts, then does what `at_start` does, and puts away what it has."""

    def __init__(self, at_start: Any = lambda: None) -> None:
        self.at_start, self.put_away = at_start, False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
            self.at_start()
            await send({"type": COMPLETE})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        finally:
            self.put_away = True


async def started(app: Any, limiter: Limiter | None = None) -> list[dict[str, Any]]:
    """What the server is sent."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        await start_checked(app, {"type": "lifespan"}, receive, send, limiter)
    except (ConfigurationError, LookupError) as error:
        sent.append({"type": type(error).__name__})
    return sent


def kinds(sent: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in sent]


@pytest.mark.parametrize("answer", ["", f"{__name__}.polite"])
async def test_with_settings_that_can_be_used_it_starts(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setenv("RATELIMIT_ANSWER", answer)
    settings.reload()
    assert kinds(await started(Application())) == [COMPLETE, "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("ANSWER", f"{__name__}.gone"), ("ANSWER", "gone.polite"), ("PROXIES_COUNT", "x"), ("STORE", "mongo://h")],
)
async def test_with_a_bad_setting_the_start_fails_and_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"RATELIMIT_{name}", value)
    settings.reload()
    sent = await started(app := Application())
    assert kinds(sent) == [FAILED, "ConfigurationError"]
    assert f"RATELIMIT_{name}={value!r}" in sent[0]["message"]
    assert app.put_away


async def test_a_limiter_that_is_set_meanwhile_is_the_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATELIMIT_PROXIES_COUNT", "x")
    settings.reload()
    app = Application(lambda: set_limiter(Limiter(settings=Settings())))
    assert kinds(await started(app))[0] == COMPLETE


async def test_a_limiter_of_its_own_is_asked_instead() -> None:
    bad = Limiter(settings=Settings(answer=f"{__name__}.gone"))
    assert kinds(await started(Application(), bad)) == [FAILED, "ConfigurationError"]
    assert kinds(await started(Application()))[0] == COMPLETE


async def test_limits_that_are_off_end_no_start() -> None:
    off = Limiter(settings=Settings(answer=f"{__name__}.gone", disable=True))
    assert kinds(await started(Application(), off))[0] == COMPLETE


async def test_what_the_application_says_or_raises_itself_is_handed_on() -> None:
    async def tells(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": FAILED, "message": "mine"})
        raise ConfigurationError("mine")

    async def has_no_lifespan(scope: Any, receive: Any, send: Any) -> None:
        raise LookupError("lifespan")

    assert await started(tells) == [{"type": FAILED, "message": "mine"}, {"type": "ConfigurationError"}]
    assert await started(has_no_lifespan) == [{"type": "LookupError"}]
