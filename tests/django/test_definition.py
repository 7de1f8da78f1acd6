"""What cannot be meant is an error where the view is decorated; the text names it."""

from __future__ import annotations

from typing import Any

import pytest

from ratelimit import ConfigurationError
from ratelimit_django import view_ratelimit
from tests.django.calls import get, ok


async def coroutine(group: str, request: Any) -> str:
    return "1/m"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "give either a rule"),
        ({"rule": "AI_QUERY", "rate": "1/m"}, "give either a rule"),
        ({"rule": "AI_QUERRY"}, "unknown category 'AI_QUERRY'; valid ones: .*AI_QUERY"),
        ({"rule": "10/m"}, "'10/m' is not a category"),
        ({"rule": ok}, "is not a category; write @view_ratelimit"),
        ({"rate": "10/mm"}, "rate '10/mm'"),
        ({"rate": "1.5/m"}, "rate '1.5/m'"),
        ({"rate": "ten"}, "unknown category 'ten'"),
        ({"rate": "AI_QUERRY"}, "unknown category 'AI_QUERRY'"),
        ({"rate": 10}, "rate 10 is not a text"),
        ({"rate": (10,)}, r"rate \(10,\) is not a text"),
        ({"rate": ("10", 60)}, "limit '10' is not a whole number"),
        ({"rate": "1/m", "key": "adress"}, "unknown key 'adress'; use one of user_or_ip, .*header:NAME"),
        ({"rate": "1/m", "key": "header:"}, "unknown key 'header:'"),
        ({"rate": "1/m", "key": "cookie:sid"}, "unknown key 'cookie:sid'"),
        ({"rate": "1/m", "key": ""}, "unknown key ''"),
        ({"rate": "1/m", "key": 7}, "unknown key 7"),
        ({"rate": "1/m", "method": "PSOT"}, "method 'PSOT' is not an HTTP method"),
        ({"rate": "1/m", "method": ["GET", 1]}, "method 1 is not an HTTP method"),
        ({"rate": "1/m", "method": []}, "method is empty"),
        ({"rate": "1/m", "cost": -5}, "cost -5"),
        ({"rate": "1/m", "cost": 1.5}, "cost 1.5"),
        ({"rate": "1/m", "group": ""}, "group ''"),
        ({"rate": coroutine}, "rate=.* is async"),
        ({"rate": "1/m", "key": coroutine}, "key=.* is async"),
        ({"rate": "1/m", "cost": coroutine}, "cost=.* is async"),
    ],
)
def test_an_error_names_what_is_wrong(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        view_ratelimit(**options)


def test_used_without_parentheses_it_says_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"write @view_ratelimit\(rate='10/m'\)"):
        view_ratelimit(ok)  # type: ignore[arg-type]


@pytest.mark.usefixtures("limiter")
def test_what_is_known_only_later_is_an_error_then() -> None:
    for options in (
        {"key": "no.such.function", "rate": "1/m"},
        {"rate": "math.pi"},
        {"rate": lambda group, request: "10/mm"},
    ):
        with pytest.raises(ConfigurationError):
            view_ratelimit(**options)(ok)(get())  # type: ignore[arg-type]
