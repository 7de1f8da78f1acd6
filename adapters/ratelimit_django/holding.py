"""Whether the store can hold what a rule says, known before anybody is counted."""

from __future__ import annotations

from collections.abc import Iterator

from ratelimit import Category, ConfigurationError, Limiter, Policy, Rate, Rule
from ratelimit.plan import RuleLike, named_rule
from ratelimit.rates import is_rate


def check_holds(rule: RuleLike, limiter: Limiter) -> None:
    """Raises `ConfigurationError` for a rule that the limiter's store cannot hold, and for the name of none. What only a
    function knows is not asked for."""
    if isinstance(rule, str):
        rule = Rate.parse(rule) if is_rate(rule) else named_rule(rule, limiter.policies)
    holds = limiter.store.holds
    missing = sorted({need for need in _needs(rule, limiter) if need not in holds})
    if missing:
        raise ConfigurationError(
            f"{_name(rule)} needs {', '.join(missing)}; {type(limiter.store).__name__} holds {', '.join(sorted(holds))}: "
            "change the rule, or count in Redis"
        )


def _needs(rule: object, limiter: Limiter) -> Iterator[str]:
    if isinstance(rule, Policy):
        for one in rule.rules:
            yield from _needs(one, limiter)
    elif isinstance(rule, Rule):
        yield from _needs(rule.rate, limiter)
        if rule.bans_us:
            yield "ban"
        if rule.count_distinct is not None:
            yield "distinct"
    elif isinstance(rule, Category):
        yield from _needs(limiter.settings.rate(rule), limiter)
    elif isinstance(rule, Rate):
        for part in rule.parts:
            yield part.algorithm


def _name(rule: object) -> str:
    if isinstance(rule, Policy):
        return ", ".join(one.name for one in rule.rules)
    return rule.name if isinstance(rule, (Category, Rule)) else str(rule)
