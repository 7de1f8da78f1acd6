"""Plans: named rates that callers have subscribed to, as in Free, Team and Enterprise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction

from ratelimit.errors import ConfigurationError
from ratelimit.identity import Identity
from ratelimit.rates import Rate

logger = logging.getLogger("ratelimit")


class Plans:
    """A rate for each plan, usable wherever a rate may be a function of the caller.

        plans = Plans({"free": "60/m burst 120", "team": "600/m burst 1200"}, of=plan_of, default="free")
        Rule("api", plans, by=("token_or_ip", "environment"))

    `of` gives the name of a caller's plan, looked up at each check: keep it quick. A name that is not here, None
    included, is the plan `default`. Raises `ConfigurationError` for rates that do not parse.
    """

    def __init__(self, rates: Mapping[str, str | Rate], of: Callable[[Identity], str | None], default: str) -> None:
        if not callable(of) or iscoroutinefunction(of):
            raise ConfigurationError(f"of={of!r} is not a plain function of the caller")
        self._rates: dict[str, Rate] = {}
        for name, rate in rates.items():
            try:
                self._rates[name] = rate if isinstance(rate, Rate) else Rate.parse(rate)
            except ConfigurationError as error:
                raise ConfigurationError(f"plan {name!r}: {error}") from None
        if default not in self._rates:
            raise ConfigurationError(f"default plan {default!r} is not one of {', '.join(map(repr, self._rates))}")
        self._of = of
        self._default = default

    def __call__(self, identity: Identity) -> Rate:
        """The rate of the caller's plan."""
        name = self._of(identity)
        rate = self._rates.get(name) if name is not None else None
        if rate is None:
            if name is not None:
                logger.warning("unknown plan %.100r; using %r", name, self._default)
            return self._rates[self._default]
        return rate
