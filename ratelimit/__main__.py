"""`python -m ratelimit`: see `command`."""

import sys

from ratelimit.command import main

sys.exit(main())
