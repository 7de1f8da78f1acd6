"""What may import what: the core stays small and free of frameworks, an adapter knows the core and its own framework."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ADAPTERS = ROOT / "adapters"

# What an adapter may import besides the standard library and `ratelimit`. Channels needs Django, which brings asgiref.
OWN_FRAMEWORK = {
    "ratelimit_asgi": {"fastapi", "starlette"},
    "ratelimit_channels": {"asgiref", "channels", "django"},
    "ratelimit_django": {"asgiref", "django", "ninja", "rest_framework"},
    "ratelimit_graphql": {"ariadne", "asgiref", "graphql", "strawberry"},
    "ratelimit_mcp": {"fastmcp", "mcp"},
}
# What a store of the core may import when it is opened.
STORE_CLIENTS = {
    **{
        f"stores/{name}.py": {"redis"}
        for name in ("redis", "redis_clients", "redis_cluster", "redis_script", "redis_threads")
    },
    "stores/redis_reader.py": {"redis", "hiredis"},
    "conformance.py": {"pytest"},
    "compiling.py": {"mypy_extensions"},  # read by type checkers and the compiler, never imported
}

FRAMEWORKS = {
    "ariadne",
    "asgiref",
    "fastapi",
    "litestar",
    "ninja",
    "rest_framework",
    "channels",
    "django",
    "fastmcp",
    "graphene",
    "graphql",
    "mcp",
    "starlette",
    "strawberry",
}
CLIENTS = {"hiredis", "mypy_extensions", "psycopg", "pytest", "redis", "valkey"}
# Modules of the standard library that take longer to import than the core itself, and what they would bring along.
HEAVY = {
    "asyncio",
    "concurrent",
    "decimal",
    "email",
    "http",
    "multiprocessing",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
}
MOST_MODULES = 110

SEEN = "import json, sys; before = set(sys.modules); import {}; print(json.dumps(sorted(set(sys.modules) - before)))"


def modules_after_importing(name: str) -> list[str]:
    """What `import name` brings into a fresh interpreter."""
    command = [sys.executable, "-c", SEEN.format(name)]
    environment = {"PYTHONPATH": f"{ROOT}:{ADAPTERS}"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return list(json.loads(printed))


def imported(path: Path) -> Iterator[str]:
    """Top-level names of the packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level or (node.module or "").partition(".")[0]


def foreign(path: Path, own: set[str]) -> set[str]:
    """What a file imports beyond the standard library and `own`; a relative import is foreign too."""
    return set(imported(path)) - own - sys.stdlib_module_names


def files(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def test_importing_the_core_imports_no_framework_and_no_client() -> None:
    found = {name.partition(".")[0] for name in modules_after_importing("ratelimit")}
    assert found.isdisjoint(FRAMEWORKS | CLIENTS)
    assert not {name for name in found if name.startswith("ratelimit_")}


def test_importing_the_core_is_cheap() -> None:
    found = modules_after_importing("ratelimit")
    assert {name.partition(".")[0] for name in found}.isdisjoint(HEAVY)
    assert len(found) <= MOST_MODULES


@pytest.mark.parametrize("path", files(ROOT / "ratelimit"), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_core_imports_only_itself(path: Path) -> None:
    clients = STORE_CLIENTS.get(path.relative_to(ROOT / "ratelimit").as_posix(), set())
    assert foreign(path, {"ratelimit"} | clients) == set()


@pytest.mark.parametrize("path", files(ADAPTERS), ids=lambda path: path.relative_to(ADAPTERS).as_posix())
def test_an_adapter_imports_only_the_core_and_its_framework(path: Path) -> None:
    package = path.relative_to(ADAPTERS).parts[0]
    assert foreign(path, {"ratelimit", package} | OWN_FRAMEWORK[package]) == set()


def test_every_adapter_has_its_framework_named_here() -> None:
    assert {path.name for path in ADAPTERS.iterdir() if path.name != "__pycache__"} == set(OWN_FRAMEWORK)
