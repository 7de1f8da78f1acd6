"""What can go wrong, as exceptions. A denial is a value (`Decision`); only adapters turn it into one of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratelimit.decision import Decision


class RateLimitError(Exception):
    """Base of everything this package raises."""


class ConfigurationError(RateLimitError, ValueError):
    """A rate, category, setting, key strategy or store URL that cannot be used; the text names it and the mend."""


class UnknownCategory(ConfigurationError, AttributeError):
    """A category name that nobody defined; the text lists the valid ones."""


class StoreError(RateLimitError):
    """The store could not answer. `Limiter` turns it into a degraded decision; it reaches only direct users of a store."""


class RateLimitExceeded(RateLimitError):
    """A denied call, for code that prefers exceptions; `decision` holds the figures."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        super().__init__(decision.exceeded_message())

    def __reduce__(self) -> tuple[type[RateLimitExceeded], tuple[object, ...]]:
        return type(self), (self.decision,)  # so that it can be pickled: an exception is made anew from its text else
