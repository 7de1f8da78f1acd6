"""Rate limits in Django: `view_ratelimit` for views, Django's settings and caches for the engine.

Importing this package makes Django's settings those of the engine; with `"ratelimit_django"` in `INSTALLED_APPS` they
are checked when Django starts.
"""

from ratelimit_django.conf import register
from ratelimit_django.decorators import view_ratelimit
from ratelimit_django.identity import arequest_identity, request_identity
from ratelimit_django.methods import ALL, UNSAFE
from ratelimit_django.responses import adenied_response, denied_response

__all__ = [
    "ALL",
    "UNSAFE",
    "adenied_response",
    "arequest_identity",
    "denied_response",
    "request_identity",
    "view_ratelimit",
]

register()
