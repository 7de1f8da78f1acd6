"""What a contributor and CI run: `python -m pip install nox`, then `python -m nox -s tests` (or lint, types, demo, build).

Words after `--` go to the command: `python -m nox -s tests -- tests/core -k rates`.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import nox

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PYPROJECT = nox.project.load_toml("pyproject.toml")

# Python, and a generation of frameworks: the newest graphene and the newest strawberry cannot share an environment.
# The Python that runs nox tests both; others where they are found, else they are skipped.
ENVIRONMENTS = dict.fromkeys(
    [(HERE, "graphene"), (HERE, "strawberry"), ("3.11", "oldest"), ("3.12", "strawberry"), ("3.13", "graphene")]
)
# The tests that import a framework, or the client of Redis.
FRAMEWORKS = ("asgi", "channels", "django", "graphql", "identity", "mcp", "stores")
# What of the suite the compiled modules decide, without servers.
COMPILED = [
    "tests/core",
    "tests/stores/test_memory.py",
    "tests/model",
    "tests/test_compiled.py",
    "-k",
    "not redis and not valkey",
]
# Each process has servers of its own, and one that is done takes over from the other.
PARALLEL = ["--numprocesses=auto", "--maxprocesses=4", "--dist=worksteal"]
nox.needs_version = ">=2025.10.14"
nox.options.sessions = ["tests", "compiled", "lint", "types", "coverage"]
nox.options.default_venv_backend = "virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"


def keep_bytecode() -> None:
    """Lets Python keep what it has compiled. Dozens of servers are started, and each would compile all it imports again."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def add_pyenv_to_path() -> None:
    """Lets nox find every Python that pyenv installed: its own commands run only the selected one."""
    versions = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    found = sorted(str(path) for path in versions.glob("3.*/bin"))
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), *found])


def install(session: nox.Session, *groups: str, project: bool = True) -> None:
    """Installs dependency groups of pyproject.toml, and the project itself with every extra.

    Without compiling: most of what is installed is never imported.
    """
    requirements = nox.project.dependency_groups(PYPROJECT, *groups)
    session.install("--no-compile", *(["-e", ".[all]"] if project else []), *requirements)


def part(python: str, generation: str) -> list[str]:
    """What of the suite runs where: all of it once; where only GraphQL's generation differs, what touches GraphQL; with the
    oldest frameworks, what touches a framework or a client of Redis.

    The example's tests start the same program from the same environment each time, and the comparison with the model is
    arithmetic: both are long, and once is enough.
    """
    if generation == "strawberry":
        return ["tests/graphql", "tests/test_docs.py"]
    if generation == "oldest":
        return [*(f"tests/{area}" for area in FRAMEWORKS), "tests/test_docs.py"]
    return [] if python == HERE else ["--ignore=tests/example", "--ignore=tests/model"]


keep_bytecode()
add_pyenv_to_path()


@nox.session
@nox.parametrize("python,generation", list(ENVIRONMENTS), ids=["-".join(one) for one in ENVIRONMENTS])
def tests(session: nox.Session, generation: str) -> None:
    """The test suite, real servers included."""
    install(session, "tests", generation)
    session.run("python", "-m", "pytest", *(session.posargs or [*PARALLEL, *part(str(session.python), generation)]))


@nox.session
def compiled(session: nox.Session) -> None:
    """The compiled wheel, and what of the suite the compiled modules decide; `-- tests` for all of it.

    In a folder without the package's source, which would be imported in place of what is installed.
    """
    folder = Path(session.create_tmp()).resolve()
    for name in os.listdir(folder):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    install(session, "compiled", "tests", "graphene", project=False)
    build = ["python", "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder)]
    session.run(*build, env={"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"})
    (wheel,) = folder.glob("*.whl")
    session.install("--no-compile", f"{wheel}[all]")
    # Again by itself, for one of its version may be installed already.
    session.install("--no-compile", "--force-reinstall", "--no-deps", str(wheel))
    for name in ("adapters", "benchmarks", "docs", "examples", "tests"):
        shutil.copytree(name, folder / name)
    for name in (*Path().glob("*.md"), "pyproject.toml"):
        shutil.copy(name, folder)
    session.chdir(folder)
    words = ["-o", "pythonpath=.", "--ignore=tests/test_wheel.py", *(session.posargs or COMPILED)]
    # Not in the session's own temporary folder: the path of a unix socket has to be short.
    session.run("python", "-m", "pytest", *words, env={"TESTED_BUILD": "compiled", "TMPDIR": None})


@nox.session
def coverage(session: nox.Session) -> None:
    """Which branches of the core its own tests leave out: none, or this fails."""
    install(session, "tests")
    words = session.posargs or [*PARALLEL, "tests/core", "tests/stores"]
    session.run("python", "-m", "coverage", "erase")
    session.run("python", "-m", "coverage", "run", "-m", "pytest", *words)
    session.run("python", "-m", "coverage", "combine", "--quiet")
    session.run("python", "-m", "coverage", "report")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff: its rules, and its format."""
    install(session, "lint", project=False)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """mypy (strict) and pyright over the packages that are shipped."""
    install(session, "types", "graphene")
    session.run("mypy")
    session.run("pyright")


@nox.session
def demo(session: nox.Session) -> None:
    """The example, driven by real clients. `-- --serve` leaves it running, `-- --store redis://...` uses Redis."""
    install(session, "demo")
    session.run("python", "examples/unified/demo.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """What a check costs, beside its peers. `-- --quick` takes two minutes, `-- --only memory,redis` measures a part."""
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """A wheel and an sdist in dist/, and a test of what is in them."""
    install(session, "build", "tests")
    session.run("python", "-m", "build")
    session.run("python", "-m", "pytest", "tests/test_wheel.py")
