from __future__ import annotations

import copy
import ipaddress
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit import ConfigurationError, networks
from ratelimit.addresses import read_address
from ratelimit.networks import Networks


@pytest.mark.parametrize(
    ("given_", "texts"),
    [
        ((), ()),
        ("", ()),
        (" ", ()),
        ("10.0.0.0/8", ("10.0.0.0/8",)),
        (" 10.0.0.0/8 ,2001:DB8::/32,unix, 192.0.2.1", ("10.0.0.0/8", "2001:db8::/32", "unix", "192.0.2.1")),
        (["10.0.0.0/8", "UNIX"], ("10.0.0.0/8", "unix")),
        (("::1/128", "192.0.2.1/32"), ("::1", "192.0.2.1")),
        ("::ffff:10.0.0.0/104, ::ffff:192.0.2.1", ("10.0.0.0/8", "192.0.2.1")),
        (
            [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_address("::1"), ipaddress.ip_network("fd00::/8")],
            ("10.0.0.0/8", "::1", "fd00::/8"),
        ),
        (iter(["10.0.0.0/8"]), ("10.0.0.0/8",)),
        ("2001::/16", ("2001::/16",)),
    ],
)
def test_networks_are_read_from_text_and_code(given_: Any, texts: tuple[str, ...]) -> None:
    read = Networks(given_)
    assert read.texts == texts
    assert str(read) == ", ".join(texts)
    assert bool(read) is bool(texts)
    assert Networks(read) == read == Networks(list(texts))
    assert hash(Networks(read)) == hash(read)
    assert pickle.loads(pickle.dumps(read)) == copy.deepcopy(read) == read


@pytest.mark.parametrize(
    "text",
    [
        *(
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0",
            "10.0.0.256",
            "1.2.3.4/",
            "1.2.3.4/-1",
            "10.0.0.0/255.0.0.0",
            "::1/129",
        ),
        *("proxy.example", "private", "*", "fe80::1%eth0", "[::1]", "10.0.0.1:80", "10.0.0.0/8 192.0.2.1", "1" * 100),
        *("0.0.0.0/0", "::/0", "::ffff:0:0/96", "٠.0.0.0/8", "10.0.0.0/٨", "unix:", "10.0.0.0/8;::1"),
    ],
)
def test_a_bad_network_is_an_error_that_names_its_text(text: str) -> None:
    for given_ in (text, ["192.0.2.1", text], f"192.0.2.1,{text}"):
        with pytest.raises(ConfigurationError) as caught:
            Networks(given_)
        assert text in str(caught.value)


@pytest.mark.parametrize(
    "odd",
    [5, True, b"10.0.0.0/8", ipaddress.ip_network("10.0.0.0/8"), [5], [None], [b"::1"], ["10.0.0.0/8", ""], "::1,"],
)
def test_what_is_no_list_of_networks_is_an_error(odd: object) -> None:
    with pytest.raises(ConfigurationError, match=r"neither|not an address"):
        Networks(odd)


def test_an_address_lies_in_a_network_by_its_bits() -> None:
    some = Networks("10.0.0.0/8, 2001:db8::/32, 192.0.2.1, unix")
    inside = ["10.0.0.1", "10.255.255.255", "2001:db8:ffff::1", "192.0.2.1", "::ffff:10.1.2.3", "::FFFF:a01:203"]
    outside = ["11.0.0.0", "192.0.2.2", "2001:db9::", "::a00:1", "::10.0.0.1", "64:ff9b::10.0.0.1"]
    for text in inside + outside:
        assert ((read_address(text) or "") in some) is (text in inside)
        assert ((read_address(text) or "") in some) is (text in inside)  # remembered


def test_the_word_unix_is_no_address() -> None:
    assert Networks("unix").unix
    assert not Networks("::1").unix
    assert "127.0.0.1" not in Networks("unix")


def test_wide_networks_are_told() -> None:
    assert Networks("8.0.0.0/6, 10.0.0.0/8, 2000::/3, fd00::/16, unix").wide == ["8.0.0.0/6", "2000::/3"]


def test_addresses_that_were_asked_for_are_remembered_within_bounds() -> None:
    some = Networks("10.0.0.0/8")
    for number in range(networks._REMEMBERED + 10):
        assert f"10.0.{number >> 8}.{number & 255}" in some
    assert len(some._known) == 10


def test_networks_are_shown_as_text() -> None:
    assert repr(Networks(["10.0.0.0/8", "unix"])) == "'10.0.0.0/8, unix'"
    assert Networks("::1") != "::1"


@given(st.ip_addresses(), st.integers(1, 128))
def test_every_address_lies_in_its_own_network(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int
) -> None:
    network = ipaddress.ip_network((address, min(length, address.max_prefixlen)), strict=False)
    text = read_address(str(address))
    assert text is not None
    if network.prefixlen == 0 or (network.version == 6 and network.overlaps(ipaddress.ip_network("::ffff:0:0/96"))):
        return
    assert text in Networks([network])
    assert text in Networks(str(network))
