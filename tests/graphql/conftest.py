"""Both executors, for tests that must hold under either; and a clean start for those that look at what ran."""

from __future__ import annotations

import pytest

from tests.graphql.operations import ran
from tests.graphql.schemas import Executor


@pytest.fixture(params=["sync", "async"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """graphql-core's sync executor, and its async one."""
    return Executor(request.param)


@pytest.fixture
def nothing_ran() -> None:
    """No field was resolved yet."""
    ran.clear()
