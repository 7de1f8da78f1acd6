"""What the demonstration asks, and what must come of it.

The numbers are those of the categories: AI_QUERY is 20 a minute for strangers, twice that for users, ten times for
superusers. They are written out, not worked out, so that a limiter that gets them wrong is found out.
"""

from __future__ import annotations

from dataclasses import dataclass

STRANGER = "anonymous"
FORGER = "anonymous, lying"
"""The same stranger, with every header that might make somebody else of a caller."""


@dataclass(frozen=True)
class Step:
    """One caller's calls of one category over one protocol, one after the other, and how many must pass."""

    protocol: str
    caller: str
    category: str
    asked: int
    allowed: int

    @property
    def denied(self) -> int:
        return self.asked - self.allowed


EACH_ITS_OWN = (
    Step("HTTP", STRANGER, "READ_HEAVY", 11, 10),
    Step("HTTP", "alice", "READ_HEAVY", 21, 20),
    Step("GraphQL", STRANGER, "WRITE_MEDIUM", 11, 10),
    Step("GraphQL", "alice", "WRITE_MEDIUM", 21, 20),
    Step("WebSocket", STRANGER, "WS_HEARTBEAT", 121, 120),
    Step("WebSocket", "alice", "WS_HEARTBEAT", 241, 240),
    Step("Handshake", "carol", "WS_CONNECT", 101, 100),
    Step("MCP", STRANGER, "AI_EXTRACT", 11, 10),
    Step("MCP", "alice", "AI_ANALYSIS", 11, 10),
    Step("MCP", "carol", "AI_ANALYSIS", 51, 50),
)

ONE_BUDGET = (
    # Bob's 40 questions, all over GraphQL: nothing is left elsewhere.
    Step("GraphQL", "bob", "AI_QUERY", 41, 40),
    Step("WebSocket", "bob", "AI_QUERY", 1, 0),
    Step("MCP", "bob", "AI_QUERY", 1, 0),
    Step("HTTP", "bob", "AI_QUERY", 1, 0),
    # Alice's 40, a part over each.
    Step("MCP", "alice", "AI_QUERY", 10, 10),
    Step("WebSocket", "alice", "AI_QUERY", 15, 15),
    Step("GraphQL", "alice", "AI_QUERY", 10, 10),
    Step("HTTP", "alice", "AI_QUERY", 6, 5),
    Step("GraphQL", "alice", "AI_QUERY", 1, 0),
    Step("WebSocket", "alice", "AI_QUERY", 1, 0),
    Step("MCP", "alice", "AI_QUERY", 1, 0),
)

NOBODY_ELSE = (
    # A stranger's 20, and the same stranger under false names.
    Step("WebSocket", STRANGER, "AI_QUERY", 21, 20),
    Step("HTTP", FORGER, "AI_QUERY", 1, 0),
    Step("GraphQL", FORGER, "AI_QUERY", 1, 0),
    Step("WebSocket", FORGER, "AI_QUERY", 1, 0),
    Step("MCP", FORGER, "AI_QUERY", 1, 0),
    # Nobody else has lost anything.
    Step("MCP", "carol", "AI_QUERY", 1, 1),
)

PLAN = (*EACH_ITS_OWN, *ONE_BUDGET, *NOBODY_ELSE)

LOGINS = ("alice", "bob", "carol", "alice", "alice", "alice")
"""Six logins from one address, five of which may pass."""
LOGIN = Step("HTTP", STRANGER, "AUTH_LOGIN", 6, 5)

FIRST_WAIT = 45
"""Seconds until the minute ends, in which the server holds its clock still."""
