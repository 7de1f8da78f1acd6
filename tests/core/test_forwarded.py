from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit.forwarded import LONGEST, elements, hop


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("for=192.0.2.1", ["for=192.0.2.1"]),
        ("for=192.0.2.1, for=192.0.2.2", [" for=192.0.2.2", "for=192.0.2.1"]),
        ("", [""]),
        (",", ["", ""]),
        ('for="a,b",for=c', ["for=c", 'for="a,b"']),
        (r'for="a\",b",for=c', ["for=c", r'for="a\",b"']),
        (r'for="a\\",for=c', ["for=c", r'for="a\\"']),
        ('for="open, for=192.0.2.1', [" for=192.0.2.1", 'for="open']),
        ('", for="[2001:db8::1]:443"', [' for="[2001:db8::1]:443"', '"']),
        ('for=x\\", for="a,b"', [' for="a,b"', 'for=x\\"']),
    ],
)
def test_elements_are_parted_from_the_right(text: str, found: list[str]) -> None:
    assert list(elements(text)) == found


def test_an_element_that_no_proxy_would_write_ends_the_chain() -> None:
    fits = "for=" + "x" * (LONGEST - 4)
    assert list(elements(f"for=a,{fits}")) == [fits, "for=a"]
    assert [len(one) for one in elements(f"for=a,x{fits}")] == [LONGEST + 1]
    assert [len(one) for one in elements('"' * 5_000)] == [LONGEST + 1]
    assert hop("for=a;" + "x=y;" * LONGEST) == ""


@pytest.mark.parametrize(
    ("element", "node"),
    [
        ("for=192.0.2.1", "192.0.2.1"),
        (" FOR=192.0.2.1 ", "192.0.2.1"),
        ("For=192.0.2.1;proto=https;by=203.0.113.43", "192.0.2.1"),
        ('proto=https;host="shop.example";fOr="192.0.2.1:4711"', "192.0.2.1:4711"),
        ('for="[2001:db8::1]:4711"', "[2001:db8::1]:4711"),
        ("for=192.0.2.1:4711", "192.0.2.1:4711"),
        ("for = 192.0.2.1 ; proto = https", "192.0.2.1"),
        (";;for=192.0.2.1;;", "192.0.2.1"),
        (r'for="1\92.0.2.1"', "192.0.2.1"),
        (r'host="a\"b;for=192.0.2.9";for=192.0.2.1', "192.0.2.1"),
        ("for=unknown", "unknown"),
        ("for=_hidden", "_hidden"),
        ('for="_SEVKISEK"', "_SEVKISEK"),
        *((odd, "") for odd in ("", " ", "for", "for=", 'for=""', "proto=https", "xfor=192.0.2.1", "=192.0.2.1")),
        *(
            (odd, "")
            for odd in ('for="192.0.2.1', 'for=192.0.2.1"', "for=1;for=2", "192.0.2.1", "for=1 2", "f or=1", "\n")
        ),
        *((odd, "") for odd in (" " * 900 + "x", "for=1" + " " * 900 + "x", "for=1;" * 100, 'for="' + "\\" * 900)),
        *((odd, "") for odd in ("for=192.0.2.1;x", "for=192.0.2.1;\x00=1", 'for="a"b', 'for="192.0.2.1";;="')),
    ],
)
def test_an_elements_hop_is_its_one_for(element: str, node: str) -> None:
    assert hop(element) == node


WELL_FORMED = st.sampled_from(
    ["for=192.0.2.1", 'for="[2001:db8::1]:80"', r'by="x,\"y\\";for=_a', 'for=unknown;host="a,b"', "proto=http", ""]
)


@given(st.text('for="\\,;192. x', max_size=40), st.lists(WELL_FORMED, min_size=1, max_size=4))
def test_what_stands_left_of_well_formed_elements_does_not_change_them(left: str, right: list[str]) -> None:
    found = list(elements(",".join([left, *right])))
    assert found[: len(right)] == right[::-1]


@given(st.text(), st.text('for="\\,;=192.\n x'))
def test_nothing_raises_and_nothing_is_lost(text: str, likely: str) -> None:
    for one in (text, likely):
        found = list(elements(one))
        assert ",".join(reversed(found)) == one
        assert all(isinstance(hop(element), str) for element in found)
