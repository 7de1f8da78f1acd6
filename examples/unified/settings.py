"""Django's settings, and with them the limiter's. The environment wins: `RATELIMIT_STORE=redis://localhost/0`."""

import os
import secrets

# Tokens are signed with it. Without a key of your own, a new one is made at every start and old tokens end.
SECRET_KEY = os.environ.get("UNIFIED_SECRET_KEY") or secrets.token_urlsafe(50)
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["ratelimit_django"]
MIDDLEWARE = ["login.RequestUser"]
ROOT_URLCONF = "views"
USE_TZ = True

RATELIMIT_STORE = "memory://"
RATELIMIT_HEADERS = "ietf"

# Every denial is a line here: what was limited, who, at which rate, over which protocol.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"ratelimit": {"handlers": ["console"], "level": "INFO", "propagate": False}},
}

# For people to try the example with. Real applications keep hashes, and use Django's own users.
DEMO_PASSWORDS = {"alice": "wonderland", "bob": "builder", "carol": "singer"}
DEMO_SUPERUSERS = {"carol"}
