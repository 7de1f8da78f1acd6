"""What is shipped: the wheel, made from the sdist as an installer would, holds our packages and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "ratelimit",
    "ratelimit_asgi",
    "ratelimit_channels",
    "ratelimit_django",
    "ratelimit_graphql",
    "ratelimit_mcp",
}
TRY_IT = """
from ratelimit import Limiter, Rate
limiter = Limiter()
print([bool(limiter.check(Rate.parse("2/d"), "user:42")) for _ in range(3)])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_packages_and_nothing_else(names: list[str]) -> None:
    top = {name.partition("/")[0] for name in names}
    (metadata,) = top - PACKAGES
    assert metadata == "ratelimit_engine-0.1.0.dist-info"
    assert top > PACKAGES


def test_the_wheel_is_pure_python_unless_asked_otherwise(wheel: Path) -> None:
    assert wheel.name == "ratelimit_engine-0.1.0-py3-none-any.whl"


def test_every_package_says_that_it_is_typed(names: list[str]) -> None:
    assert {name for name in names if name.endswith("py.typed")} == {f"{package}/py.typed" for package in PACKAGES}


def test_every_script_is_shipped(names: list[str]) -> None:
    scripts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ratelimit").rglob("*.lua")}
    assert scripts
    assert {name for name in names if name.endswith(".lua")} == scripts


def test_the_licence_is_shipped(names: list[str]) -> None:
    assert "ratelimit_engine-0.1.0.dist-info/licenses/LICENSE" in names


def test_the_unpacked_wheel_works_by_itself(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, "-S", "-c", TRY_IT]  # without site-packages
    tried = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True)
    assert tried.stdout == "[True, True, False]\n", tried.stderr
