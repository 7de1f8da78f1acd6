"""The script's arithmetic beyond the 53 bits that its numbers hold, against Python's whole numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import redis

from ratelimit.rates import MAX_LIMIT, MAX_WINDOW
from ratelimit.stores.redis_script import Script

EXACT = 2**53
LARGEST_B, LARGEST_D = 2**48, 2**49
WINDOW_US = MAX_WINDOW * 1_000_000
CALL = f"""
{Script("redis_numbers.lua").source}
local found = {{}}
for at, case in ipairs(cjson.decode(ARGV[1])) do
  local q, r = muldiv(tonumber(case[1]), tonumber(case[2]), tonumber(case[3]))
  found[at] = string.format('%.0f %.0f', q, r)
end
return found
"""


def computed(client: redis.Redis, cases: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    texts = client.eval(CALL, 0, json.dumps([[str(number) for number in case] for case in cases]))
    return [tuple(map(int, text.split())) for text in texts]


def odd(random: Random, largest: int) -> int:
    """A number of any size up to `largest`, often beside a power of two or ten."""
    near = random.choice(
        (2 ** random.randrange(54), 10 ** random.randrange(16), largest, largest - random.randrange(99))
    )
    number = random.choice((near + random.choice((-1, 0, 1)), random.randint(1, largest), random.randint(1, 1000)))
    return min(max(1, number), largest)


def products(random: Random) -> Iterator[tuple[int, int, int]]:
    """Factors and divisors whose quotient is exact; in every third case the product lies beside a multiple."""
    while True:
        b, d = odd(random, LARGEST_B - 1), odd(random, LARGEST_D - 1)
        a = odd(random, EXACT - 1)
        if random.randrange(3) == 0:
            a = max(1, -(-odd(random, EXACT // 2) * d // b) + random.choice((-1, 0, 1)))
        if a < EXACT and a * b // d < EXACT:
            yield a, b, d


def test_products_beyond_53_bits_are_divided_exactly(client: redis.Redis) -> None:
    some = products(Random(1))
    cases = [next(some) for _ in range(20_000)]
    assert sum(a * b >= EXACT for a, b, _ in cases) > 5_000
    assert computed(client, cases) == [divmod(a * b, d) for a, b, d in cases]


def test_the_largest_that_rates_allow(client: redis.Redis) -> None:
    cases = [
        (WINDOW_US, MAX_LIMIT, WINDOW_US),
        (WINDOW_US - 1, MAX_LIMIT, WINDOW_US),
        (WINDOW_US - 1, MAX_LIMIT - 1, WINDOW_US),
        (WINDOW_US, 9 * MAX_LIMIT, WINDOW_US - 1),
        (EXACT - 1, MAX_LIMIT, WINDOW_US),
        (EXACT - 1, 1, 1),
    ]
    assert computed(client, cases) == [divmod(a * b, d) for a, b, d in cases]


def test_division_never_rounds_up(client: redis.Redis) -> None:
    random = Random(2)
    cases = [(odd(random, EXACT - 1), odd(random, EXACT - 1)) for _ in range(10_000)]
    multiples = [(one, two) for one, two in ((k * d, d) for d, k in cases) if one < EXACT]
    beside = [(a + by, d) for a, d in multiples for by in (-1, 0, 1) if a + by < EXACT]
    cases += beside
    assert computed(client, [(a, 1, d) for a, d in cases]) == [divmod(a, d) for a, d in cases]
