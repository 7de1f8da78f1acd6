"""`manage.py ratelimit_explain`: what `python -m ratelimit explain` tells, under the project's settings."""

from __future__ import annotations

import json
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ratelimit import ConfigurationError
from ratelimit.command import BAD_INPUT, Given, add_arguments, explained
from ratelimit_django.conf import django_settings
from ratelimit_django.paths import path_limits

CONFIGURED: Final = "ratelimit_django.configured.PATHS"
"""What `--path` is looked up in without `--paths`."""


class Command(BaseCommand):
    """Explains a request that is described by its header lines, its peer and its user."""

    help = "Explains what a request counts as: address, identity, and the budgets it spends. Writes nothing."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add_arguments(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            if options["path"] is not None and options["paths"] is None:
                path_limits()  # which says what is wrong with them, if anything is
                options["paths"] = CONFIGURED
            found = explained(Given(**options), django_settings())
        except ConfigurationError as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from None
        self.stdout.write(json.dumps(found.as_dict(), indent=2) if options["json"] else str(found))
