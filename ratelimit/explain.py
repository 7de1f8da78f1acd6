"""What a request counts as, and why: the hop that was chosen, the identity, and the budgets that it would spend.

    print(explain([("X-Forwarded-For", "203.0.113.7")], "10.0.0.1", rule="AI_QUERY"))

Rules:
- Nothing is written: what is left is read by the trip that `Limiter.peek` makes.
- No secret is shown: a token is its hash, the store a name without an address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ratelimit.addresses import Header
from ratelimit.categories import RateLimits
from ratelimit.decision import Decision
from ratelimit.engine import Limiter
from ratelimit.errors import ConfigurationError
from ratelimit.explanation import NO_PATHS, Explanation, Spending
from ratelimit.identity import STRATEGIES, Identity, resolve
from ratelimit.keys import stored_key
from ratelimit.outcome import NEVER, Outcome
from ratelimit.paths import PathRules
from ratelimit.plan import Ask, Call, RuleLike
from ratelimit.position import position, shown
from ratelimit.process import get_limiter


class Question(NamedTuple):
    """What is asked about a request: a `rule` by its name or as it is, else what `paths` say of `path`, `method`, `host`.

    `arguments` gives, for the name of a path's rule, what its callables are given at a check.
    """

    rule: RuleLike | None = None
    paths: PathRules | None = None
    path: str | None = None
    method: str = "GET"
    host: str = ""
    arguments: Callable[[str], Sequence[Any]] = lambda name: ()


def explain(
    headers: Iterable[Header],
    peer: str | None = None,
    user: Any = None,
    token: str | None = None,
    *,
    limiter: Limiter | None = None,
    protocol: str = "http",
    **asked: Any,
) -> Explanation:
    """The explanation of a request, of which the first arguments are what `resolve` takes; one round trip at most.

    `user` may be the `Identity` that an adapter has found already.
    `asked` is a `Question`, field by field. Raises `ConfigurationError` for a rule that does not exist.
    """
    limiter = limiter or get_limiter()
    planned = _Planned(limiter, list(headers), peer, user, token, protocol, Question(**asked))
    return planned.explained(limiter.look(planned.asks, planned.now_us))


async def aexplain(
    headers: Iterable[Header],
    peer: str | None = None,
    user: Any = None,
    token: str | None = None,
    *,
    limiter: Limiter | None = None,
    protocol: str = "http",
    **asked: Any,
) -> Explanation:
    """`explain` for an event loop."""
    limiter = limiter or get_limiter()
    planned = _Planned(limiter, list(headers), peer, user, token, protocol, Question(**asked))
    return planned.explained(await limiter.alook(planned.asks, planned.now_us))


class _Planned:
    """What is known before the store is asked."""

    def __init__(
        self,
        limiter: Limiter,
        headers: Sequence[Header],
        peer: str | None,
        user: Any,
        token: str | None,
        protocol: str,
        question: Question,
    ) -> None:
        self.limiter, self.now_us = limiter, limiter.now()
        self.settings = settings = limiter.settings
        self.position = position(headers, peer, settings)
        known = isinstance(user, Identity)
        self.identity = user if known else resolve(headers, peer, user, token, settings=settings)
        self.lacks_paths = question.rule is None and question.paths is None and question.path is not None
        self.rule, call = _call(question, self.identity)
        self.asks = [] if call is None else limiter.plan([call], protocol)

    def explained(self, decision: Decision) -> Explanation:
        pairs = zip(self.asks, decision.parts, strict=True) if self.asks else ()
        spends = tuple(_spending(ask, part.outcome, self.now_us) for ask, part in pairs)
        notes = [NO_PATHS] if self.lacks_paths else []
        if self.settings.disable:
            notes.append("RATELIMIT_DISABLE is on: nothing is limited, nothing is counted")
        if decision.degraded:
            notes.append("the store did not answer: the figures are what the outage policy makes of it")
        return Explanation(
            position=self.position,
            ip=self.identity.ip,
            keys={strategy: self.identity.key(strategy) for strategy in STRATEGIES},
            tier=_tier(self.identity),
            rule=self.rule,
            spends=spends,
            allowed=decision.allowed,
            store=type(self.limiter.store).__name__,
            notes=tuple(notes),
        )


def _call(question: Question, identity: Identity) -> tuple[str, Call | None]:
    """What is asked about, by name, and the call to make; None if nothing is limited."""
    facts = {} if question.path is None else {"path": question.path, "method": question.method}
    if question.rule is not None:
        name = question.rule if isinstance(question.rule, str) else str(getattr(question.rule, "name", question.rule))
        return name, Call(question.rule, identity, attributes=facts)
    if question.paths is None or question.path is None:
        return "", None
    found = question.paths.find(question.path, question.method, question.host)
    if found is None:
        return "", None
    guard = found.guard(lambda *_: facts)
    return found.name, guard.call(identity, f"path:{found.name}", *question.arguments(found.name))


def _spending(ask: Ask, outcome: Outcome, now_us: int) -> Spending:
    charge, wait_us = ask.charge, outcome.retry_after_us
    return Spending(
        rule=charge.rule,
        rate=str(charge.rate),
        caller=ask.caller,
        store_key=stored_key(charge, now_us),
        cost=charge.cost,
        limit=outcome.limit,
        remaining=outcome.remaining,
        reset_after=outcome.reset_after_us / 1_000_000,
        retry_after=0.0 if outcome.allowed else None if wait_us == NEVER else wait_us / 1_000_000,
        allowed=outcome.allowed,
        banned=outcome.banned,
        enforced=charge.enforce,
    )


def _tier(identity: Identity) -> str:
    tier = "anonymous" if identity.user is None else "superuser" if identity.superuser else "authenticated"
    return f"{tier}, usage-capped" if identity.capped else tier


def known_rule(name: str, limiter: Limiter) -> str:
    """`name`, if it is that of a category or of a policy in the policy file. Raises `ConfigurationError` for anything else."""
    if name in RateLimits or name in limiter.policies:
        return name
    raise ConfigurationError(f"rule {shown(name)!r} is the name of no category and of no policy")
