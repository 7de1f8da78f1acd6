"""One rate-limit engine for every protocol an application speaks. Start with `Limiter`."""

from ratelimit.categories import Category, RateLimits
from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError, RateLimitError, RateLimitExceeded, StoreError
from ratelimit.identity import Identity
from ratelimit.namesake import warn_of_namesake
from ratelimit.plan import Call
from ratelimit.process import ais_rate_limited, get_limiter, is_rate_limited, set_limiter
from ratelimit.rates import Rate
from ratelimit.rules import Policy, Rule
from ratelimit.stores.memory import MemoryStore

__all__ = [
    "Call",
    "Category",
    "ConfigurationError",
    "Decision",
    "Identity",
    "Limiter",
    "MemoryStore",
    "Policy",
    "Rate",
    "RateLimitError",
    "RateLimitExceeded",
    "RateLimits",
    "Rule",
    "StoreError",
    "ais_rate_limited",
    "get_limiter",
    "is_rate_limited",
    "set_limiter",
]

warn_of_namesake(__path__[0])
del warn_of_namesake
