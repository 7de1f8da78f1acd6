"""The command that the page shows prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ratelimit.command import main

PAGE = Path(__file__).parents[2] / "docs" / "identity.md"
CAPTURED = re.compile(r"<!-- captured -->\n```bash\npython -m ratelimit (.+?)\n```\n\n```text\n(.+?)\n```", re.DOTALL)


def test_the_captured_explanation_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (captured,) = CAPTURED.findall(PAGE.read_text())
    for name in ("RATELIMIT_PROXIES_COUNT", "RATELIMIT_STORE", "RATELIMIT_AI_QUERY", "DJANGO_SETTINGS_MODULE"):
        monkeypatch.delenv(name, raising=False)
    assert main(shlex.split(captured[0])) == 0
    printed = re.sub(r"(?<=\}:)\d+$", "29933832", capsys.readouterr().out, flags=re.MULTILINE)  # the window's number
    assert printed == captured[1] + "\n"
