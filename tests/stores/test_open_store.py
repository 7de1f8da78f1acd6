from __future__ import annotations

import importlib.util

import pytest

from ratelimit import ConfigurationError, MemoryStore, stores
from ratelimit.stores import SCHEMES, known_scheme, open_store, redacted
from ratelimit.stores.memory import DEFAULT_MAX_KEYS


@pytest.mark.parametrize(
    ("url", "max_keys"),
    [("memory://", DEFAULT_MAX_KEYS), ("memory://?max_keys=5", 5), ("memory://?max_keys=0500", 500)],
)
def test_memory_urls(url: str, max_keys: int) -> None:
    store = open_store(url)
    assert isinstance(store, MemoryStore)
    assert store.max_keys == max_keys


def test_each_url_of_memory_is_a_store_of_its_own() -> None:
    assert open_store("memory://") is not open_store("memory://")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "memory://localhost",
            "memory:///",
            "memory://?",
            "memory://?max_keys",
            "memory://?max_keys=",
            "memory://?keys=5",
        ),
        *(
            "memory://?max_keys=-5",
            "memory://?max_keys=5.0",
            "memory://?max_keys=٥",
            "memory://?max_keys=" + "9" * 5000,
        ),
        *("memory://?max_keys=5&x=1", "memory://\n", "memory://?max_keys=5\n"),
    ],
)
def test_a_memory_url_with_anything_else_is_an_error_that_names_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert f"store {url!r}: " in str(caught.value)


@pytest.mark.parametrize("url", ["memory://?max_keys=0", "redis://[::1/0"])
def test_a_url_that_means_nothing_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:",
        "MEMORY://",
        " memory://",
        "redsi://localhost",
        "localhost:6379",
        "://x",
        None,
        5,
        b"memory://",
    ],
)
def test_an_unknown_scheme_is_an_error_that_lists_the_valid_ones(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_store(url)
    assert str(url) in str(caught.value)
    assert all(f"{scheme}://" in str(caught.value) for scheme in SCHEMES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_names_a_callable_that_exists(scheme: str) -> None:
    module, _, name = SCHEMES[scheme].partition(":")
    assert importlib.util.find_spec(module) is not None
    assert name.isidentifier()
    assert known_scheme(f"{scheme}://x") == scheme


def test_no_connection_is_made() -> None:
    open_store("redis://192.0.2.1:1/0").close()


@pytest.mark.parametrize(("scheme", "extra"), [("redis", "redis"), ("rediss", "redis"), ("django", "django")])
def test_a_missing_package_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, scheme: str, extra: str
) -> None:
    monkeypatch.setitem(SCHEMES, scheme, "ratelimit.stores.no_such_module:open")
    with pytest.raises(ConfigurationError, match=rf"pip install 'ratelimit-engine\[{extra}\]'") as caught:
        open_store(f"{scheme}://user:s3cret@host")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:s3cret@host/0", "redis://***@host/0"),
        ("rediss://user:s3cret@host:1/0?x=1", "rediss://***@host:1/0?x=1"),
        ("redis://user:s3@cr:et/@host", "redis://***@host"),
        ("redis+sentinel://user:s3cret@a,b/service/0", "redis+sentinel://***@a,b/service/0"),
        ("redis:user:s3cret@host/0", "redis:***@host/0"),
        ("user@s3cret@host", "***@host"),
        ("redis://host/0?password=s3cret&db=1", "redis://host/0?password=***&db=1"),
        ("rediss://host/0?ssl_password=s3cret", "rediss://host/0?ssl_password=***"),
        ("redis://u:s3\ncret@host", "redis://***@host"),
        (None, "None"),
    ],
)
def test_messages_show_no_password(url: object, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize("url", ["redsi://user:s3cret@host", "redis:user:s3cret@host", "redis://u:s3cret@[::1"])
def test_errors_show_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        stores.open_store(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://h/zero", "'zero' is not the number of a database"),
        ("redis+sentinel://h:1/service/x", "'x' is not the number of a database"),
        ("redis+cluster://h:1/x", "'x' is not the number of a database"),
        ("redis://h/0?sockt_timeout=1", "an option cannot be used: unexpected keyword argument 'sockt_timeout'"),
        ("rediss://h?ssl_crt=none", "an option cannot be used: unexpected keyword argument 'ssl_crt'"),
        ("unix:///tmp/x?dbb=1", "an option cannot be used: unexpected keyword argument 'dbb'"),
        ("redis+cluster://h:1?nope=1", "an option cannot be used: unexpected keyword argument 'nope'"),
        ("redis+sentinel://h:1/service/0?nope=1", "an option cannot be used: unexpected keyword argument 'nope'"),
    ],
)
def test_what_would_be_an_outage_at_every_check_is_refused_when_it_is_written(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        open_store(url)
    assert str(found.value).startswith(f"store {url!r}: {complaint}")  # later releases of Python guess what was meant


@pytest.mark.parametrize(
    "url",
    [
        "redis://h/1?socket_timeout=2&max_connections=4&timeout=3&protocol=3",
        "rediss://h/1?ssl_cert_reqs=none",
        "unix:///tmp/x.sock?db=2",
        "redis+cluster://h:1,i:2/0?read_from_replicas=true",
        "redis+sentinel://h:1/service/0?socket_timeout=1",
    ],
)
def test_options_of_connections_and_pools_are_taken(url: str) -> None:
    open_store(url).close()
