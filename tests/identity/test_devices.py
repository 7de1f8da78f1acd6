"""A device's id is the client's own word: it divides an address's budget, and never makes a new one beside it."""

from __future__ import annotations

from ratelimit import Identity, Limiter, MemoryStore, Policy, Rule
from ratelimit.testing import FakeClock

DEVICES = Policy(Rule("address", "10/m", by="ip"), Rule("device", "3/m", by=("ip", "device")))
CARRIER = Identity(ip="203.0.113.7")


def passed(limiter: Limiter, identity: Identity, *devices: str) -> list[bool]:
    return [limiter.check(DEVICES, identity, attributes={"device": device}).allowed for device in devices]


def test_devices_behind_one_address_have_budgets_of_their_own() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock())
    assert passed(limiter, CARRIER, *"aaaa") == [True, True, True, False]
    assert passed(limiter, CARRIER, *"bbbb") == [True, True, True, False]


def test_a_new_device_id_with_each_call_does_not_get_past_the_address() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock())
    assert passed(limiter, CARRIER, *(f"device-{number}" for number in range(50))) == [True] * 10 + [False] * 40
    assert passed(limiter, Identity(ip="203.0.113.8"), "device-0") == [True]


def test_nobody_uses_up_anothers_device_by_its_id() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock())
    assert passed(limiter, Identity(ip="198.51.100.66"), *"aaaa") == [True, True, True, False]
    assert passed(limiter, CARRIER, *"aaa") == [True, True, True]


def test_no_spelling_of_an_id_is_another_address_and_device() -> None:
    limiter = Limiter(MemoryStore(), clock=FakeClock())
    assert passed(limiter, CARRIER, "a&device:b", "a%26device:b", "a}", "") == [True] * 4
    keys = {
        limiter.peek(DEVICES["device"], CARRIER, attributes={"device": device}).key
        for device in ("a", "a&device:b", "a%26device:b", "a}", "", "A")
    }
    assert len(keys) == 6
