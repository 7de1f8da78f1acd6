"""Plans: a budget for each token and environment, by what its owner pays for; one for each address without a token.

decision = limiter.check(API, identify(ip, token, environment))
"""

from __future__ import annotations

from ratelimit import Identity, Rule
from ratelimit.plans import Plans

RATES = {
    "untokened": "60/m burst 60",
    "free": "60/m burst 120",
    "team": "600/m burst 1200",
    "enterprise": "6000/m burst 12000",
}
ENVIRONMENTS = ("live", "test")

# In an application: the table of tokens that it gave out, kept in memory or in a cache, for it is read at each check.
TOKENS = {"tok-ann": "free", "tok-bob": "team", "tok-eve": "enterprise"}


def plan_of(identity: Identity) -> str | None:
    """The plan of a caller whose token is known."""
    return TOKENS.get(identity.token or "")


def identify(ip: str, token: str | None = None, environment: str = "live") -> Identity:
    """The caller behind a request.

    Nothing that a stranger can invent makes a budget: an unknown token is none, an unknown environment is `live`, and a
    caller without a token has no environment.
    """
    if token not in TOKENS:
        return Identity(ip=ip)
    return Identity(ip=ip, token=token).having(environment=environment if environment in ENVIRONMENTS else "live")


API = Rule("api", Plans(RATES, of=plan_of, default="untokened"), by=("token_or_ip", "environment"))
