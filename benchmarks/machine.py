"""What a run was made on: the machine, and the versions of everything that was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ratelimit
from benchmarks.setting import Setting, processors
from tests.servers import binary

PACKAGES = (
    *(
        "ratelimit-engine",
        "redis",
        "hiredis",
        "limits",
        "throttled-py",
        "pyrate-limiter",
        "django-ratelimit",
        "slowapi",
    ),
    *("django", "starlette", "uvicorn", "uvloop", "httptools"),
)


def machine(setting: Setting) -> dict[str, Any]:
    """Facts for the report's head."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": "long" if setting.long else "quick" if setting.quick else "once",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{_processor()}, {len(processors()) or os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 2),
        "server": _server(setting.program),
        "engine": "compiled" if _is_compiled() else "pure Python",
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def head(facts: dict[str, Any]) -> str:
    """The same in a few lines."""
    packages = ", ".join(f"{name} {found}" for name, found in facts["packages"].items())
    lines = [
        f"{facts['python']}, {facts['server']}, {facts['processor']}, {facts['system']}",
        packages,
        f"the engine is {facts['engine']}; {facts['run']} run, {facts['date']}",
    ]
    if facts["load"] > 0.5:
        lines.append(f"beware: the machine is busy with other work (load {facts['load']})")
    return "\n".join(lines)


def _processor() -> str:
    known = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", known.read_text()) if known.exists() else None
    return found[1].strip() if found else platform.machine()


def _server(program: str) -> str:
    printed = subprocess.run([binary(program), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"v=(\S+)", printed)
    return f"{program} {found[1] if found else printed.strip()}"


def _is_compiled() -> bool:
    """Whether the core has extension modules beside its sources."""
    folder = Path(str(ratelimit.__file__)).parent
    return any(folder.rglob("*.so")) or any(folder.rglob("*.pyd"))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
