"""What observers are told: the log lines of denials."""

from __future__ import annotations

import logging

from ratelimit.decision import Decision
from ratelimit.keys import encoded
from ratelimit.rates import Rate

logger = logging.getLogger("ratelimit")


def decided(decision: Decision, protocol: str) -> None:
    """Logs a denial at WARNING, and at INFO those that rules in shadow would have made."""
    if not decision.allowed:
        denied(decision, protocol)
    for part in decision.parts:
        if not part.enforced and not part.outcome.allowed:
            _log(logging.INFO, "rate limit would be exceeded", part.rule, part.key, part.rate, protocol)


def denied(decision: Decision, protocol: str) -> None:
    """Logs a denial."""
    if logger.isEnabledFor(logging.WARNING):
        _log(logging.WARNING, "rate limit exceeded", decision.rule, decision.key, decision.rate, protocol)


def _log(level: int, what: str, rule: str, key: str, rate: Rate, protocol: str) -> None:
    """Rule and caller are encoded, so that no caller can forge a line."""
    line = "%s: rule=%s key=%s rate=%s protocol=%s"
    logger.log(level, line, what, encoded(rule), encoded(key), rate, protocol or "-")
