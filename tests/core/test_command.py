"""The command line: what an operator types, what is printed where, and the exit status."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ratelimit import Limiter
from ratelimit import command as module
from ratelimit.command import main
from ratelimit.paths import PathRule, PathRules

CHAIN = ["--header", "X-Forwarded-For: 192.0.2.66, 203.0.113.7", "--peer", "10.0.0.1"]
PATHS = PathRules(
    [PathRule("/api", "100/m"), PathRule("/own", "9/m", key=lambda request: request.key), PathRule("/gone", "gone")]
)
RULES = [PathRule("/api", "100/m")]


class Holder:
    paths = (PathRule("/api", "100/m"),)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    try:
        status = main(["explain", *arguments])
    except SystemExit as ended:
        status = int(str(ended.code))
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ([], "10.0.0.1"),
        (["--proxies-count", "1"], "203.0.113.7"),
        (["--proxies-count", "2"], "192.0.2.66"),
        (["--trusted-proxies", "10.0.0.0/8,203.0.113.7"], "192.0.2.66"),
        (["--proxies-count", "1", "--client-header", "x-client", "--header", "X-Client:203.0.113.9"], "203.0.113.9"),
    ],
)
def test_a_request_is_explained(capsys: pytest.CaptureFixture[str], options: list[str], address: str) -> None:
    status, out, err = run(capsys, *CHAIN, *options)
    assert (status, err) == (0, "")
    assert f"address       {address}, counted as {address}\n" in out
    assert run(capsys, *CHAIN, *options, "--json")[1].startswith("{")


def test_json_is_everything(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *CHAIN, "--proxies-count", "1", "--rule", "AI_QUERY", "--user", "42", "--json")
    found = json.loads(out)
    assert found["position"]["entries"] == [
        {"text": "192.0.2.66", "part": "never read"},
        {"text": "203.0.113.7", "part": "client"},
    ]
    assert (found["keys"]["user"], found["tier"], found["spends"][0]["limit"]) == ("user:42", "authenticated", 40)
    assert found["notes"] == ["counts in memory:// are each process's own: what is left there cannot be seen from here"]


def test_the_environment_is_what_options_replace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATELIMIT_PROXIES_COUNT", "1")
    monkeypatch.setenv("RATELIMIT_EXPORT", "7/h")
    assert "203.0.113.7, counted" in run(capsys, *CHAIN)[1]
    assert "1 of EXPORT (7/h)" in run(capsys, *CHAIN, "--rule", "EXPORT")[1]
    assert "192.0.2.66, counted" in run(capsys, *CHAIN, "--trusted-proxies", "10.0.0.1,203.0.113.7")[1]
    assert "10.0.0.1, counted" in run(capsys, *CHAIN, "--proxies-count", "0")[1]
    monkeypatch.delenv("RATELIMIT_PROXIES_COUNT")
    monkeypatch.setenv("RATELIMIT_TRUSTED_PROXIES", "10.0.0.1")
    assert "192.0.2.66, counted" in run(capsys, *CHAIN, "--proxies-count", "2")[1]


@pytest.mark.parametrize("peer", [[], ["--peer", "unix"]])
def test_a_unix_socket_has_no_address(capsys: pytest.CaptureFixture[str], peer: list[str]) -> None:
    _, out, _ = run(capsys, "--header", "X-Forwarded-For: 203.0.113.7", *peer, "--trusted-proxies", "unix")
    assert "peer          unknown (trusted)\n" in out
    assert "address       203.0.113.7, " in out


@pytest.mark.parametrize("name", ["PATHS", "RULES", "Holder.paths"])
def test_rules_by_path_are_named_with_a_colon_too_and_may_be_a_list(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    status, out, err = run(capsys, *CHAIN, "--paths", f"{__name__}:{name}", "--path", "/api/x")
    assert (status, err) == (0, "")
    assert "rule          /api\n" in out


def test_a_path_without_rules_by_path_is_not_told_to_be_free(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, *CHAIN, "--path", "/api/x")
    assert "spends        not known\n" in out
    assert "note          no rules by path were given, so what limits the path is not known\n" in out
    for known in (["--rule", "AI_QUERY", "--path", "/x"], ["--paths", f"{__name__}:PATHS", "--path", "/x"], []):
        assert "not known" not in run(capsys, *CHAIN, *known)[1]


def test_the_help_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "Nothing is counted." in out
    assert "`" not in out


def test_the_rule_of_a_path_is_found_in_the_applications_rules(capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{__name__}.PATHS"
    status, out, _ = run(capsys, *CHAIN, "--paths", name, "--path", "/api/x", "--method", "post")
    assert status == 0
    assert "rule          /api\n" in out
    assert "rl:path:/api:{ip:10.0.0.1}:" in out
    status, _, err = run(capsys, *CHAIN, "--paths", name, "--path", "/own")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("ratelimit explain: cannot be told without the request: TypeError")
    status, _, err = run(capsys, *CHAIN, "--paths", name, "--path", "/gone")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("ratelimit explain: unknown policy 'gone'")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--header", "nothing"], "--header 'nothing': write 'Name: value'"),
        (["--header", ": x"], "--header ': x': write"),
        (["--peer", "10.0.0"], "--peer '10.0.0' is not an address"),
        (["--proxies-count", "x"], "RATELIMIT_PROXIES_COUNT='x': expected a whole number"),
        (["--trusted-proxies", "10.0.0.0/33"], "RATELIMIT_TRUSTED_PROXIES: '10.0.0.0/33'"),
        (["--proxies-count", "1", "--trusted-proxies", "::1"], "choose one"),
        (["--client-header", "X-Real-IP"], "without a trusted proxy"),
        (["--rule", "AI_QUERRY"], "rule 'AI_QUERRY' is the name of no category"),
        (["--path", "api"], "--path 'api': write it from the root"),
        (["--store", "mongo://h"], "RATELIMIT_STORE='mongo://h'"),
        (["--store", "redis://:sekret@["], "RATELIMIT_STORE: store 'redis://***@["),
        (["--paths", "no.such.PATHS"], "--paths 'no.such.PATHS' cannot be imported"),
        (["--paths", "math.pi"], "--paths 'math.pi' is 3.14"),
        (["--paths", "math:pi"], "not PathRules or a list of PathRule"),
        (["--paths", "sys:path"], "not PathRules or a list of PathRule"),
        (["--paths", "no:such.PATHS"], "--paths 'no:such.PATHS' cannot be imported"),
        *(
            (["--paths", name], f"--paths {name!r}: write the module and the name")
            for name in ("pi", ":pi", "math:", "")
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    status, out, err = run(capsys, *CHAIN, *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ratelimit explain: ")
    assert said in err
    assert "sekret" not in err


def test_unknown_options_and_commands_are_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["explain", "--what"], ["explain", "--header"], ["explain", "extra"], ["exlpain"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert "usage: python -m ratelimit" in capsys.readouterr().err


def test_a_store_that_cannot_be_opened_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: object) -> Limiter:
        raise OSError("no such socket")

    monkeypatch.setattr(module, "Limiter", broken)
    status, out, err = run(capsys, *CHAIN)
    assert (status, out) == (2, "")
    assert err == "ratelimit explain: the store cannot be used: OSError: no such socket\n"


def test_without_a_command_the_usage_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ratelimit"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("ratelimit", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: python -m ratelimit [-h] COMMAND")


def test_what_is_left_in_a_shared_store_is_seen_and_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    monkeypatch.setenv("RATELIMIT_EXPORT", "5/d")
    limiter = Limiter(redis_url)
    limiter.check("EXPORT", "ip:203.0.113.7", cost=2)
    for _ in range(3):
        status, out, err = run(capsys, *CHAIN, "--proxies-count", "1", "--rule", "EXPORT", "--store", redis_url)
        assert (status, err) == (0, "")
        assert "  left        3 of 5, unused again in " in out
        assert "store         RedisStore\npasses now    yes\n" in out
        assert "memory://" not in out
    limiter.close()


def test_it_runs_as_a_program_and_the_core_does_not_bring_it_along() -> None:
    root = Path(module.__file__).parent.parent
    ran = subprocess.run(
        [sys.executable, "-m", "ratelimit", "explain", "--rule", "nope"], cwd=root, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "ratelimit explain: rule 'nope' is the name of no category and of no policy\n"
    seen = "import sys, ratelimit; print([n for n in ('argparse', 'ratelimit.explain', 'ratelimit.command') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", seen], cwd=root, capture_output=True, text=True).stdout == "[]\n"
