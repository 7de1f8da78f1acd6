"""What real servers serve for the tests: each application explains the request that reached it.

`application` is Django under WSGI, `django_asgi` the same under ASGI, `plain_asgi` has no framework.
"""

from __future__ import annotations

from django.conf import settings

if not settings.configured:
    settings.configure(
        SECRET_KEY="for this test", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, INSTALLED_APPS=["ratelimit_django"]
    )

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.urls import path

from ratelimit_asgi.explain import ExplainEndpoint
from ratelimit_django.explain import aexplain_view, explain_view

urlpatterns = [path("", explain_view), path("async", aexplain_view)]
application = get_wsgi_application()
django_asgi = get_asgi_application()
plain_asgi = ExplainEndpoint()
