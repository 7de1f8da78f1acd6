"""What a request counts as, and why: the hop that was chosen, the identity, and the budgets that it would spend.

    print(explain([("X-Forwarded-For", "203.0.113.7")], "10.0.0.1", rule="AI_QUERY"))

Rules:
- Nothing is written: what is left is read by the trip that `Limiter.peek` makes.
- No secret is shown: a token is its hash, the store a name without an address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple

from ratelimit.addresses import Header
from ratelimit.categories import RateLimits
from ratelimit.decision import Decision
from ratelimit.engine import Limiter, get_limiter
from ratelimit.errors import ConfigurationError
from ratelimit.identity import STRATEGIES, Identity, resolve
from ratelimit.keys import stored_key
from ratelimit.outcome import LOOK, NEVER, Outcome
from ratelimit.paths import PathRules
from ratelimit.plan import Ask, Call, RuleLike
from ratelimit.position import Position, position, shown

NOT_LIMITED: Final = "nothing limits this request"


@dataclass(frozen=True, slots=True)
class Spending:
    """One budget that the request would spend. Times are in seconds; `retry_after` is None if it can never pass.

    `enforced` is False for a rule that only counts.
    """

    rule: str
    rate: str
    caller: str
    store_key: str
    cost: int
    limit: int
    remaining: int
    reset_after: float
    retry_after: float | None
    allowed: bool
    banned: bool
    enforced: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request, explained. `position` is the way to its address, `ip` that address as it is counted (masked), `keys` the
    caller's key by each strategy, `rule` what was asked about (empty for nothing), `spends` the budgets of the rules that
    mean the request, `allowed` whether it would be let through now, and `notes` what else holds."""

    position: Position
    ip: str
    keys: dict[str, str]
    tier: str
    rule: str
    spends: tuple[Spending, ...]
    allowed: bool
    store: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Everything, for people."""
        return [*_position_lines(self), *_identity_lines(self), *_spending_lines(self), *_verdict_lines(self)]

    def noting(self, note: str) -> Explanation:
        """The same with a further note."""
        return replace(self, notes=(*self.notes, note))

    def __str__(self) -> str:
        return "\n".join(self.lines())


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

    `asked` is a `Question`, field by field. Raises `ConfigurationError` for a rule that does not exist.
    """
    limiter = limiter or get_limiter()
    planned = _Planned(limiter, list(headers), peer, user, token, protocol, Question(**asked))
    return planned.explained(limiter._asked(planned.asks, LOOK, protocol, planned.now_us))


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
    return planned.explained(await limiter._aasked(planned.asks, LOOK, protocol, planned.now_us))


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
        self.identity = resolve(headers, peer, user, token, settings=settings)
        self.rule, call = _call(question, self.identity)
        self.asks = [] if call is None else limiter._asks([call], protocol)

    def explained(self, decision: Decision) -> Explanation:
        pairs = zip(self.asks, decision.parts, strict=True) if self.asks else ()
        spends = tuple(_spending(ask, part.outcome, self.now_us) for ask, part in pairs)
        notes = []
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


def _position_lines(explanation: Explanation) -> list[str]:
    found = explanation.position
    lines = [
        f"configured    {found.configured}",
        f"peer          {found.peer}{' (trusted)' if found.peer_trusted else ''}",
        f"arrived       {', '.join(found.arrived) or 'no forwarding header'}",
        f"header read   {found.header or 'none'}",
    ]
    if found.left_out:
        lines.append(f"              ({found.left_out} more entries, never read)")
    width = max((len(entry.text) for entry in found.entries), default=0)
    lines += [f"              {entry.text:{width}}  {entry.part}" for entry in found.entries]
    if found.fallback:
        lines.append(f"fallback      {found.fallback}: the peer is the client")
    lines.append(f"address       {shown(found.address)}, counted as {shown(explanation.ip)}")
    return lines


def _identity_lines(explanation: Explanation) -> list[str]:
    lines = [
        f"{'identity' if not number else '':14}{strategy:12}  {shown(key)}"
        for number, (strategy, key) in enumerate(explanation.keys.items())
    ]
    return [*lines, f"tier          {explanation.tier}"]


def _spending_lines(explanation: Explanation) -> list[str]:
    lines = [f"rule          {explanation.rule or 'none'}"]
    for one in explanation.spends:
        counted = "" if one.enforced else ", only counted"
        lines += [
            f"spends        {one.cost} of {one.rule} ({one.rate}{counted})",
            f"  key         {one.store_key}",
            f"  left        {one.remaining} of {one.limit}, unused again in {one.reset_after:g} s",
        ]
        if not one.allowed:
            wait = "never" if one.retry_after is None else f"in {one.retry_after:g} s"
            lines.append(f"  {'banned ' if one.banned else 'refused'}     passes again: {wait}")
    if not explanation.spends:
        lines.append(f"spends        {NOT_LIMITED}")
    lines.append(f"store         {explanation.store}")
    return [*lines, f"passes now    {'yes' if explanation.allowed else 'no'}"]


def _verdict_lines(explanation: Explanation) -> list[str]:
    found = explanation.position
    return [*(f"note          {note}" for note in explanation.notes), f"position      {found.verdict}: {found.because}"]


def known_rule(name: str, limiter: Limiter) -> str:
    """`name`, if it is that of a category or of a policy in the policy file. Raises `ConfigurationError` for anything else."""
    if name in RateLimits or name in limiter.policies:
        return name
    raise ConfigurationError(f"rule {shown(name)!r} is the name of no category and of no policy")
