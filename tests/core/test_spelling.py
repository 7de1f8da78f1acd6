from __future__ import annotations

import re
import sys

import pytest

from ratelimit import ConfigurationError
from ratelimit.spelling import folded, has_dots, plain_prefix, spelled, without_dots, without_format


@pytest.mark.parametrize(
    ("path", "segments", "plain"),
    [
        ("/", (), True),
        ("", (), True),
        ("/a", ("a",), True),
        ("/a/", ("a",), True),
        ("/a/b", ("a", "b"), True),
        ("a", ("a",), True),
        ("//", (), False),
        ("//a", ("a",), False),
        ("/a//", ("a",), False),
        ("/a//b", ("a", "b"), False),
        ("/a\n", ("a",), False),
        ("/a/\n", ("a",), False),
        ("/a\r\n", ("a",), False),
        ("/a\r", ("a",), False),
        ("/\n", (), False),
        ("/a\n/b", ("a\n", "b"), True),
        ("/a/./b", ("a", ".", "b"), True),
        ("/a;x=1", ("a;x=1",), True),
        ("/A", ("A",), True),
    ],
)
def test_a_paths_segments_and_whether_it_is_plain(path: str, segments: tuple[str, ...], plain: bool) -> None:
    assert spelled(path) == (segments, plain)


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/a/b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/a/../b", "/b"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a"),
        ("/a/...", "/a/..."),
        ("/a/.b/..c", "/a/.b/..c"),
    ],
)
def test_dots_are_resolved_as_for_files(path: str, resolved: str) -> None:
    segments, _ = spelled(path)
    assert without_dots(segments) == spelled(resolved)[0]
    assert has_dots(segments) is (path != resolved)


def test_case_is_ignored_just_as_regular_expressions_do() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    cased = "".join(one for one in every if {one.lower(), one.upper(), one.casefold()} != {one})
    differing = [
        (one, other)
        for one in cased
        for other in re.findall(re.escape(one), cased, re.IGNORECASE)
        if folded((one,)) != folded((other,))
    ]
    assert len(cased) > 2000
    assert differing == []
    assert folded(("LOGİN", "logın", "ſtatic")) == ("login", "login", "static")


@pytest.mark.parametrize(
    ("last", "bare"),
    [
        ("login.json", "login"),
        ("a.b.json", "a.b"),
        ("login", "login"),
        ("login.", "login."),
        ("l.j-n", "l.j-n"),
        (".x", ""),
    ],
)
def test_the_format_at_the_end_of_a_path(last: str, bare: str) -> None:
    assert without_format(("api.v1", last)) == ("api.v1", bare)


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("api", "write it from the root"),
        ("", "write it from the root"),
        (None, "write it from the root"),
        ("//api", "plain segments"),
        ("/api//x", "plain segments"),
        ("/api\n", "plain segments"),
        ("/api/*", "without patterns"),
        ("/api/<int:pk>", "without patterns"),
        ("/api/{pk}", "without patterns"),
        ("/api?x=1", "without patterns"),
        ("/caf%C3%A9", "write it decoded"),
        ("/a%2fb", "write it decoded"),
        ("/api ", "no blanks"),
        ("/a\tb", "no control characters"),
        ("/a/../b", "no '.' and '..'"),
        ("/./b", "no '.' and '..'"),
    ],
)
def test_a_prefix_that_no_path_begins_with_is_an_error_that_names_it(prefix: object, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"path {prefix!r}: ")) as caught:
        plain_prefix(prefix)
    assert said in str(caught.value)


@pytest.mark.parametrize(("prefix", "segments"), [("/", ()), ("/100%", ("100%",)), ("/é/x y/", ("é", "x y"))])
def test_a_prefix_is_its_segments(prefix: str, segments: tuple[str, ...]) -> None:
    assert plain_prefix(prefix) == segments
