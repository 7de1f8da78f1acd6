"""What the log says of chains: once for each shape, never more than a stranger can bear it to."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from ratelimit import shapes
from ratelimit.addresses import environ_headers
from ratelimit.identity import resolve
from ratelimit.settings import Settings

PEER = "10.0.0.1"


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(shapes, "_seen", {})
    monkeypatch.setattr(shapes, "looking", True)
    monkeypatch.setattr(shapes, "_left", shapes.LOOKS)
    with caplog.at_level(logging.INFO, "ratelimit"):
        yield


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.levelno for record in caplog.records} <= {logging.INFO}
    return caplog.messages


def ask(settings: Settings, text: str | None, peer: str | None = PEER) -> None:
    resolve([] if text is None else [(settings.client_header, text)], peer, settings=settings)


def test_each_shape_is_one_line_that_names_the_first_ones_address(caplog: pytest.LogCaptureFixture) -> None:
    one = Settings(proxies_count=1)
    for number in range(50):
        ask(one, f"203.0.113.{number}")
        ask(one, f"192.0.2.1, 203.0.113.{number}")
        ask(one, None)
    assert lines(caplog) == [
        "forwarding chain: header=X-Forwarded-For entries=1 depth=1 peer=trusted address=203.0.113.0",
        "forwarding chain: header=X-Forwarded-For entries=2 depth=1 peer=trusted address=203.0.113.0",
        "forwarding chain: header=X-Forwarded-For entries=0 depth=1 peer=trusted address=10.0.0.1",
    ]


def test_networks_headers_and_whether_the_peer_is_trusted_are_part_of_a_shape(caplog: pytest.LogCaptureFixture) -> None:
    some = Settings(trusted_proxies="10.0.0.0/8, unix", client_header="Forwarded")
    for _ in range(2):
        ask(some, "for=203.0.113.7, for=10.0.0.2")
        ask(some, "for=203.0.113.7", "192.0.2.1")
        ask(some, "for=203.0.113.7", None)
        ask(Settings(trusted_proxies="10.0.0.0/8", client_header="X-Real-IP"), "2001:db8:1:2::7")
    assert lines(caplog) == [
        "forwarding chain: header=Forwarded entries=2 networks=10.0.0.0/8,unix peer=trusted address=203.0.113.7",
        "forwarding chain: header=Forwarded entries=0 networks=10.0.0.0/8,unix peer=not trusted address=192.0.2.1",
        "forwarding chain: header=Forwarded entries=1 networks=10.0.0.0/8,unix peer=trusted address=203.0.113.7",
        "forwarding chain: header=X-Real-IP entries=1 networks=10.0.0.0/8 peer=trusted address=2001:db8:1:2::",
    ]


def test_strangers_cannot_fill_the_log_with_long_chains(caplog: pytest.LogCaptureFixture) -> None:
    one = Settings(proxies_count=1)
    for number in range(1, 500):
        ask(one, ", ".join(["203.0.113.7"] * number))
    assert len(lines(caplog)) == shapes.MANY + 1
    assert "entries=more than 20 " in lines(caplog)[-1]


def test_shapes_are_bounded_whatever_is_configured(caplog: pytest.LogCaptureFixture) -> None:
    for count in range(1, 101):
        for text in (None, "203.0.113.7", "203.0.113.7," * 30):
            shapes.note(Settings(proxies_count=count), 0 if text is None else text.count(",") + 1, True, PEER)
    assert len(lines(caplog)) == shapes.MOST


def test_a_shape_that_two_threads_meet_at_once_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(dict[Any, object]):
        """Says that the shape is new, and then that another thread was first."""

        def setdefault(self, key: Any, default: object = None) -> object:
            return object()

    monkeypatch.setattr(shapes, "_seen", Late())
    ask(Settings(proxies_count=1), "203.0.113.7")
    assert lines(caplog) == []


def test_what_nobody_reads_is_not_taken_for_told(caplog: pytest.LogCaptureFixture) -> None:
    one = Settings(proxies_count=1)
    with caplog.at_level(logging.WARNING, "ratelimit"):
        ask(one, "203.0.113.7")
    ask(one, "203.0.113.8")
    assert [line.rpartition("=")[2] for line in lines(caplog)] == ["203.0.113.8"]


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ([("X-Forwarded-For", "203.0.113.7"), ("forwarded", "for=_x")], "X-Forwarded-For"),
        ([(b"host", b"x"), (b"FORWARDED", b"for=_x")], "Forwarded"),
        ([(b"x-real-ip", b"203.0.113.7")], "X-Real-IP"),
        (environ_headers({"HTTP_CF_CONNECTING_IP": "203.0.113.7"}), "CF-Connecting-IP"),
    ],
)
@pytest.mark.parametrize(("peer", "shown"), [(PEER, "'10.0.0.1'"), (None, "'unknown'")])
def test_a_header_that_nobody_configured_is_hinted_at_once_in_a_process(
    caplog: pytest.LogCaptureFixture, headers: Any, name: str, peer: str | None, shown: str
) -> None:
    for _ in range(3):
        resolve([(b"host", b"x")], peer, settings=Settings())
    for _ in range(10):
        resolve(headers, peer, settings=Settings())
    (line,) = lines(caplog)
    assert line.startswith(
        f"{name} arrives from {shown}, and no proxy is configured: if that is your proxy, all its clients"
    )
    assert line.endswith("count as one; set RATELIMIT_PROXIES_COUNT or RATELIMIT_TRUSTED_PROXIES")


def test_no_more_than_the_first_requests_are_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(shapes.LOOKS):
        resolve([("x_forwarded_for", "203.0.113.7")], PEER, settings=Settings())
    resolve([("x-forwarded-for", "203.0.113.7")], PEER, settings=Settings())
    assert lines(caplog) == []


@pytest.mark.parametrize("odd", [["x"], [5], [()], [(5, "x")], [None], {"x-forwarded-for": "203.0.113.7"}, "headers"])
def test_headers_that_nobody_asked_for_may_be_anything(caplog: pytest.LogCaptureFixture, odd: Any) -> None:
    assert resolve(odd, PEER, settings=Settings()).ip == PEER
    assert lines(caplog) == []
