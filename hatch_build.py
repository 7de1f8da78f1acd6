"""Compiles the modules that a check goes through, when asked to: see CONTRIBUTING.md. A wheel is pure Python unless."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "ratelimit"
# Of what the modules import, only the package itself is looked at. One library holds all of them, inside the package.
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent", "--python-version=3.11"]
modules = mypycify([*options, *{modules!r}], group_name="{package}.compiled", debug_level="0", target_dir="c")
setup(name="compiled", packages=[], ext_modules=modules)
"""


class CompiledModules(BuildHookInterface):
    """Adds an extension module beside each of `modules`. Python prefers it; the source stays for tracebacks."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles a copy of the package, so that nothing is left in the source tree."""
        if version == "editable":
            return
        self._folder = Path(mkdtemp())
        package = self._folder / PACKAGE
        shutil.copytree(Path(self.root, PACKAGE), package, ignore=shutil.ignore_patterns("__pycache__"))
        modules = [str(package.relative_to(self._folder) / name) for name in self.config["modules"]]
        (self._folder / "setup.py").write_text(SETUP.format(modules=modules, package=PACKAGE))
        command = [
            sys.executable,
            "setup.py",
            "--quiet",
            "build_ext",
            "--build-lib",
            "built",
            "--build-temp",
            "objects",
        ]
        compiled = subprocess.run(
            command, cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if compiled.returncode:
            raise RuntimeError(f"the modules do not compile:\n{compiled.stdout}")
        built = self._folder / "built"
        found = [path for path in built.rglob("*") if path.suffix in (".so", ".pyd")]
        build_data["force_include"].update({str(path): path.relative_to(built).as_posix() for path in found})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was made on the way."""
        if version != "editable":
            shutil.rmtree(self._folder)
