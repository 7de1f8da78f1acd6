"""What happens when the store cannot answer: the policy decides, and the log says so once per outage."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count

from ratelimit.algorithms.base import algorithm_of, units_of
from ratelimit.outcome import LOOK, Charge, Outcome
from ratelimit.plan import Ask
from ratelimit.stores.memory import MemoryStore

logger = logging.getLogger("ratelimit")

CLOSED_RETRY_US = 1_000_000
"""The wait a refused caller is told while the store is out: nobody knows the real one."""


def policy_outcomes(asks: Sequence[Ask], fail_open: bool, now_us: int, mode: int, local: MemoryStore) -> list[Outcome]:
    """What each charge becomes by its rule's policy, or by `fail_open` when it has none; `"local"` ones count in `local`."""
    found = [None if ask.on_outage == "local" else _outcome(ask, fail_open, now_us) for ask in asks]
    refused = any(
        outcome is not None and ask.charge.enforce and not outcome.allowed
        for ask, outcome in zip(asks, found, strict=True)
    )
    taken = [ask.charge for ask in asks if ask.on_outage == "local"]
    # A call that another rule refuses anyhow spends nothing here either.
    counted = iter(local.apply(taken, now_us, LOOK if refused else mode) if taken else ())
    return [next(counted) if outcome is None else outcome for outcome in found]


def _outcome(ask: Ask, fail_open: bool, now_us: int) -> Outcome:
    if ask.on_outage == "open" or (ask.on_outage is None and fail_open):
        return _unused(ask.charge, now_us)
    return Outcome(False, ask.charge.rate.capacity, 0, CLOSED_RETRY_US, CLOSED_RETRY_US)


def _unused(charge: Charge, now_us: int) -> Outcome:
    """As if nothing were counted yet: what could never pass, `0/m` say, is refused without a store, too."""
    algorithm = algorithm_of(charge)
    return algorithm.outcome(algorithm.current(None, charge.rate, now_us), charge.rate, units_of(charge), now_us, False)


class OutageLog:
    """Tells the log when an outage begins and when it ends, not for every check between; safe under threads."""

    def __init__(self) -> None:
        # The checks of the outage, while there is one. Every step is atomic: no lock to be held across a fork.
        self._checks: dict[str, count[int]] = {}

    def failed(self, error: BaseException, fail_open: bool) -> None:
        """Counts one check that the store did not answer."""
        if next(self._checks.setdefault("outage", count())) == 0:
            logger.error(
                "rate limit store failed; until it answers, calls %s unless their rule says otherwise: %s: %.300s",
                "pass (RATELIMIT_FAIL_OPEN is on)" if fail_open else "are refused (RATELIMIT_FAIL_OPEN is off)",
                type(error).__name__,
                error,
            )

    def answered(self) -> None:
        """Ends an outage, if there was one."""
        checks = self._checks.pop("outage", None) if self._checks else None
        if checks is not None:
            logger.warning("rate limit store answers again; %d checks were decided without it", next(checks))
