"""Both executors, for tests that must hold under either."""

from __future__ import annotations

import pytest

from tests.graphql.schemas import Executor


@pytest.fixture(params=["sync", "async"])
def executor(request: pytest.FixtureRequest) -> Executor:
    """graphql-core's sync executor, and its async one."""
    return Executor(request.param)
