"""Requests, users and infos as the tests need them: like Django's in what the limits read, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

HERE = "203.0.113.7"
THERE = "203.0.113.8"


@dataclass
class User:
    """A logged-in user."""

    pk: int = 42
    is_authenticated: bool = True
    is_superuser: bool = False
    is_usage_capped: bool = False


def request(address: str = HERE, user: Any = None, **headers: str) -> Any:
    """A request as Django makes it; `x_forwarded_for="..."` becomes that header."""
    meta = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    return SimpleNamespace(META={"REMOTE_ADDR": address, **meta}, user=user)


def info(context: Any, type_name: str = "Query", field_name: str = "items") -> Any:
    """What an executor tells a resolver about the field `type_name.field_name`."""
    return SimpleNamespace(context=context, parent_type=SimpleNamespace(name=type_name), field_name=field_name)
