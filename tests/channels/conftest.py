"""Consumers that start afresh in each test."""

from __future__ import annotations

import pytest

from tests.channels.consumers import Counted


@pytest.fixture
def counted() -> type[Counted]:
    """A consumer whose `connect` nobody has called yet; it counts."""
    return type("Counted", (Counted,), {})
