"""Every test here starts from the defaults: no variable of this machine, no Django settings, no category of another test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import hypothesis
import pytest

from ratelimit import RateLimits, settings

# A busy machine must not make an example "too slow".
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def bare_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("RATELIMIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(settings, "_source", None)
    monkeypatch.setattr(RateLimits, "_by_name", dict(RateLimits._by_name))
    settings.reload()
    yield
    settings.reload()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads change places as often as they can, so that a race shows."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
