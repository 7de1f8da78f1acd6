"""The rates that are asked for: so wide that nothing is refused, and a bucket that refills slowly, so that every check
changes what is stored."""

from __future__ import annotations

LIMIT = 100_000_000
REFILL = 1_000_000

WINDOW = f"{LIMIT}/h"
"""A fixed window."""
BUCKET = f"{REFILL}/h burst {LIMIT}"
"""A token bucket."""
CATEGORY = "BENCHMARK"
"""The category that has the window for its rate."""

ONE = "'user:42'"
"""As a check's caller: always the same one."""
MANY = "callers[i & 1023]"
"""As a check's caller: another one every time."""
CALLERS = [f"user:{number}" for number in range(1024)]
