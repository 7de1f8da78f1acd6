"""What is known on a request of the limits it met, and what its response tells of them.

Rules:
- `request.limit_decision` is one decision: that which constrains the request most. What else was counted is kept beside it.
- A denial speaks for itself: the limit that refused is told, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ratelimit import Decision
from ratelimit.decision import stricter, together

_NOTED: Final = "_ratelimit_noted"
"""Where all decisions on a request are, once there are several."""


def note(request: Any, decision: Decision | None, key: str | None = None) -> Decision | None:
    """Sets `request.limited`, True as soon as one of a view's limits was exceeded, `request.limit_decision`, the decision
    that constrains the request most so far, and `request.limit_key`, the caller whose budget that is.

    Gives `decision`, None where nothing was counted. `key` is the decision's, if that is known.
    """
    if decision is not None and not decision.counted:
        decision = None
    request = _djangos(request)
    limited = decision is not None and not decision.allowed
    request.limited = limited or getattr(request, "limited", False)
    earlier: Decision | None = getattr(request, "limit_decision", None)
    strictest = earlier if decision is None else decision
    if decision is not None and earlier is not None:
        setattr(request, _NOTED, [*getattr(request, _NOTED, [earlier]), decision])
        strictest = stricter(earlier, decision)
    request.limit_decision = strictest
    if strictest is None:
        request.limit_key = None
    else:
        request.limit_key = key if key is not None and strictest is decision else strictest.key
    return decision


def shown(request: Any) -> Decision | None:
    """What the headers of a response tell: all that was counted for the request as one decision, or what refused it."""
    request = _djangos(request)
    strictest: Decision | None = request.limit_decision
    several: Sequence[Decision] = getattr(request, _NOTED, ())
    if strictest is None or not strictest.allowed or not several:
        return strictest
    return together(several)


def _djangos(request: Any) -> Any:
    """Django's request, behind that of Django REST framework."""
    return getattr(request, "_request", request)
