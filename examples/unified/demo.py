"""Starts the example, drives it with real clients, shows what each protocol let through, and fails if a count is off.

`python examples/unified/demo.py [--serve] [--store redis://localhost/0]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import httpx
from clients import CLIENTS, wait_of
from plan import FORGER, LOGIN, LOGINS, PLAN, STRANGER
from results import Result, table
from settings import DEMO_PASSWORDS

SERVER = Path(__file__).with_name("server.py")
DENIAL_LOGGED = "rate limit exceeded"

TRY = """
The example listens on {url} until Ctrl-C. Alice's token is good for an hour:

  TOKEN={token}
  curl -i -H "Authorization: Bearer $TOKEN" '{url}/ask?question=why'
  curl -i -H "Authorization: Bearer $TOKEN" {url}/report
  curl -i -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
    -d '{{"query": "{{ ask(question: \\"why\\") }}"}}' {url}/graphql
  curl -i -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
    -H 'Accept: application/json, text/event-stream' \\
    -d '{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "ask", "arguments": {{"question": "why"}}}}}}' \\
    {url}/mcp
  python -m websockets {ws_url}/ws        then type {{"ask": "why"}}: an anonymous caller, with a budget of its own
  curl -d name=bob -d password=builder {url}/login
"""


class Server:
    """A server of our own, in a process of its own."""

    def __init__(self, environ: dict[str, str], *options: str, log: IO[str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), "--with-parent", *options],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()  # empty if it ended before it listened

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate()


@contextmanager
def running(environ: dict[str, str], *options: str, log: IO[str] | None = None) -> Iterator[Server]:
    """A server that is ended when the block is left."""
    server = Server(environ, *options, log=log)
    try:
        yield server
    finally:
        server.end()


def server_environ(store: str) -> dict[str, str]:
    """Our own environment, without anybody's settings for a limiter, and keys that nobody else uses."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RATELIMIT_", "DJANGO_"))}
    prefix = f"rl-demo-{secrets.token_hex(4)}"
    return {**inherited, "RATELIMIT_STORE": store, "RATELIMIT_KEY_PREFIX": prefix}


async def log_in(url: str, names: Sequence[str]) -> tuple[Result, dict[str, str]]:
    """The result of these logins, and the tokens that they brought."""
    waits: list[int | None] = []
    tokens: dict[str, str] = {}
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        for name in names:
            response = await client.post("/login", data={"name": name, "password": DEMO_PASSWORDS[name]})
            waits.append(wait_of(response))
            if waits[-1] is None:
                tokens[name] = response.json()["token"]
    return Result(LOGIN, waits), tokens


def headers_of(caller: str, tokens: dict[str, str]) -> dict[str, str]:
    """What a caller sends along. The forger has a token that nobody signed, and claims to be elsewhere."""
    if caller == STRANGER:
        return {}
    if caller == FORGER:
        token, address = tokens["carol"].swapcase(), "198.51.100.1"
        return {"Authorization": f"Bearer {token}", "X-Forwarded-For": address, "X-Real-IP": address}
    return {"Authorization": f"Bearer {tokens[caller]}"}


async def drive(url: str) -> list[Result]:
    """The results of everything in the plan, in its order."""
    first, tokens = await log_in(url, LOGINS)
    results = [first]
    for step in PLAN:
        async with CLIENTS[step.protocol](url, headers_of(step.caller, tokens)) as ask:
            results.append(Result(step, [await ask(step.category) for _ in range(step.asked)]))
    return results


def demonstrate(environ: dict[str, str], log: IO[str]) -> bool:
    """Show the table. Whether every count is right, the number of denials in the server's log included."""
    with running(environ, "--frozen", log=log) as server:
        results = asyncio.run(drive(server.url)) if server.url else []
    print(table(results))
    log.seek(0)
    logged = sum(DENIAL_LOGGED in line for line in log)
    denied = sum(len(result.denied) for result in results)
    print(f"\n{denied} denials, {logged} of them in the server's log.")
    return bool(results) and all(result.is_right for result in results) and logged == denied


def serve(environ: dict[str, str]) -> None:
    """Leave a server running, on the real clock, until Ctrl-C."""
    with running(environ) as server, suppress(KeyboardInterrupt):
        _, tokens = asyncio.run(log_in(server.url, ["alice"]))
        print(TRY.format(url=server.url, ws_url=server.url.replace("http", "ws", 1), token=tokens["alice"]), flush=True)
        server.process.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description="Four protocols, one budget.")
    options.add_argument("--serve", action="store_true", help="leave the example running")
    options.add_argument("--store", default="memory://", help="where the counts are kept (default: %(default)s)")
    chosen = options.parse_args(arguments)
    with tempfile.TemporaryFile("w+") as log:
        if not demonstrate(server_environ(chosen.store), log):
            log.seek(0)
            print("Not every count is right. The server's log ends:\n", *log.readlines()[-20:], sep="", file=sys.stderr)
            return 1
    print("Every count is right.")
    if chosen.serve:
        serve(server_environ(chosen.store))
    return 0


if __name__ == "__main__":
    sys.exit(main())
