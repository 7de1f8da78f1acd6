"""The Django application."""

from __future__ import annotations

import logging

from django.apps import AppConfig
from django.core.checks import Tags, register

import ratelimit.settings

logger = logging.getLogger("ratelimit")


class RateLimitConfig(AppConfig):
    """Checks the settings when Django starts, under any server; the system checks look at the caches too."""

    name = "ratelimit_django"
    verbose_name = "Rate limits"

    def ready(self) -> None:
        """Raises `ConfigurationError` that names the variable and its text for a setting that cannot be used."""
        from ratelimit_django.checks import PER_PROCESS, check_caches, check_limits, check_settings, workers_in_sight
        from ratelimit_django.conf import checked_settings
        from ratelimit_django.path_checks import check_answer, check_paths

        for check, tag in ((check_settings, Tags.security), (check_limits, Tags.urls), (check_caches, Tags.caches)):
            register(check, tag)
        for check in (check_answer, check_paths):
            register(check, Tags.urls)
        ratelimit.settings.reload()
        checked_settings()
        # Servers do not run the system checks; several processes on a store for one are worth a line in their log.
        if workers_in_sight() > 1:
            for message in check_caches():
                if message.id == PER_PROCESS:
                    logger.warning("%s. %s", message.msg, message.hint)
