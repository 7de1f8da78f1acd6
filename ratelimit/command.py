"""The command line: `python -m ratelimit explain` tells an operator on the machine itself what a request would count as.

Exit status: 0, or 2 with one line on standard error for input that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import attrgetter
from typing import Any

from ratelimit.addresses import read_address
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.explain import explain, known_rule
from ratelimit.explanation import Explanation
from ratelimit.networks import UNIX
from ratelimit.paths import PathRule, PathRules
from ratelimit.settings import Settings

BAD_INPUT = 2
_IN_MEMORY = "memory://"
_ABOUT = (
    "Tells whose request it is, by which header, and what it would spend, with the settings of the environment. "
    "Nothing is counted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line. Gives the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        found = explained(given)
    except ConfigurationError as error:
        print(f"ratelimit explain: {error}", file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    print(json.dumps(found.as_dict(), indent=2) if given.json else found)  # noqa: T201
    return 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What a request and its settings are described by."""
    add = parser.add_argument
    add("--header", action="append", default=[], metavar="'NAME: VALUE'", help="a header line; several in their order")
    add("--peer", metavar="ADDRESS", help="the other end of the connection; none for a unix socket")
    add("--user", metavar="ID", help="the id of a logged-in user")
    add("--rule", metavar="NAME", help="a category or a policy of RATELIMIT_POLICY_FILE")
    add("--paths", metavar="MODULE:NAME", help="the application's rules by path, to find that of --path in")
    add("--path", metavar="/PATH", help="the path of the request, as the router sees it")
    add("--method", default="GET", help="the method of the request (default: %(default)s)")
    add("--proxies-count", metavar="N", help="instead of RATELIMIT_PROXIES_COUNT")
    add("--trusted-proxies", metavar="NETWORKS", help="instead of RATELIMIT_TRUSTED_PROXIES")
    add("--client-header", metavar="NAME", help="instead of RATELIMIT_CLIENT_HEADER")
    add("--store", metavar="URL", help="instead of RATELIMIT_STORE")
    add("--json", action="store_true", help="as JSON")


Given = argparse.Namespace
"""What the arguments say."""


def explained(given: Given, below: Mapping[str, object] | None = None) -> Explanation:
    """The explanation that parsed arguments ask for. `below` are settings that the environment goes before.

    Raises `ConfigurationError` for anything that cannot be used.
    """
    limiter = _limiter(given, below)
    try:
        rule, paths = None if given.rule is None else known_rule(given.rule, limiter), _paths(given.paths)
        headers, peer = [_header(line) for line in given.header], _peer(given.peer)
        asked: dict[str, Any] = {
            "rule": rule,
            "paths": paths,
            "path": _path(given.path),
            "method": given.method.upper(),
        }
        found = _told(headers, peer, given.user, limiter, asked)
    finally:
        limiter.close()
    if limiter.settings.store.startswith(_IN_MEMORY):
        return found.noting(
            f"counts in {_IN_MEMORY} are each process's own: what is left there cannot be seen from here"
        )
    return found


def _limiter(given: Given, below: Mapping[str, object] | None) -> Limiter:
    try:
        return Limiter(settings=_settings(given, below))
    except ConfigurationError:
        raise
    except Exception as error:  # a store's client may raise what it likes
        raise ConfigurationError(f"the store cannot be used: {type(error).__name__}: {error}") from error


def _told(headers: list[tuple[str, str]], peer: str | None, user: Any, limiter: Limiter, asked: Any) -> Explanation:
    try:
        return explain(headers, peer, user, limiter=limiter, **asked)
    except ConfigurationError:
        raise
    except Exception as error:  # the application's own functions, which expect a request
        raise ConfigurationError(f"cannot be told without the request: {type(error).__name__}: {error}") from error


def _settings(given: Given, below: Mapping[str, object] | None) -> Settings:
    names = ("proxies_count", "trusted_proxies", "client_header", "store")
    explicit = {name: getattr(given, name) for name in names if getattr(given, name) is not None}
    # One on the command line replaces the other in the environment.
    if "proxies_count" in explicit:
        explicit.setdefault("trusted_proxies", ())
    elif "trusted_proxies" in explicit:
        explicit["proxies_count"] = 0
    return Settings.load(os.environ, below, **explicit)


def _peer(text: str | None) -> str | None:
    if text is None or text == UNIX:
        return None
    if read_address(text) is None:
        raise ConfigurationError(f"--peer {text!r} is not an address; leave it out for a unix socket")
    return text


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ConfigurationError(f"--header {line!r}: write 'Name: value'")
    return name.strip(), value.strip()


def _path(text: str | None) -> str | None:
    if text is not None and not text.startswith("/"):
        raise ConfigurationError(f"--path {text!r}: write it from the root, as in '/api/login'")
    return text


def _paths(name: str | None) -> PathRules | None:
    if name is None:
        return None
    module, _, attribute = name.rpartition(":" if ":" in name else ".")
    if not module or not attribute:
        raise ConfigurationError(f"--paths {name!r}: write the module and the name in it, as in 'shop.limits:PATHS'")
    try:
        found = attrgetter(attribute)(import_module(module))
    except Exception as error:  # importing runs the application's code
        raise ConfigurationError(f"--paths {name!r} cannot be imported: {error}") from error
    if isinstance(found, (list, tuple)) and all(isinstance(rule, PathRule) for rule in found):
        return PathRules(found)
    if not isinstance(found, PathRules):
        raise ConfigurationError(f"--paths {name!r} is {found!r}, not PathRules or a list of PathRule")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ratelimit", description="Rate limits, looked at from outside.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    command = commands.add_parser("explain", help="what a request would count as, and why", description=_ABOUT)
    add_arguments(command)
    return parser
