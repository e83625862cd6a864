"""Public constructors reject wrong values with a one-line error that says what to pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import cdc_reader
from cdc_reader import (
    AsyncCdcConsumer,
    AsyncChanges,
    CdcConsumer,
    CdcReader,
    ConnectionConfig,
    ConsumerConfig,
    CqlWriter,
    ReadConfig,
    Replicator,
    ScyllaCheckpoints,
    Shard,
    TableName,
)
from cdc_reader.config import as_connection
from cdc_reader.errors import ConfigurationError

cdc: Any = cdc_reader
"""The package as an untyped value, because type checkers would reject wrong arguments."""
WAY = "host:9042"


async def coroutine(_: object) -> None:
    """A coroutine handler."""


def consumer(**wrong: Any) -> CdcConsumer:
    """Construct a consumer with the values of `wrong` in place of valid arguments."""
    given = {"connection": WAY, "tables": "ks.t", "handler": print, "application": "a", **wrong}
    return CdcConsumer(**given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cdc.CdcReader("host:x", "ks.t"), "contact_points is 'host:x': give each host as"),
        (lambda: cdc.CdcReader(WAY), "tables is (): give at least one table, as 'keyspace.table'"),
        (lambda: cdc.TableName("", "t"), "keyspace is '': give a string that is not empty"),
        (lambda: cdc.TableName("ks", "\udcff"), "name is '\\udcff': give a string that is not"),
        (lambda: cdc.Shard(10**9, 10**9), "shard is '1000000000/1000000000': give it as"),
        (lambda: cdc.SqliteCheckpoints(""), "path is '': give the path of a file"),
        (lambda: cdc.SqliteCheckpoints("a\0"), "path is 'a\\x00': give the path of a file"),
        (lambda: cdc.SqliteCheckpoints("\ud800"), "path is '\\ud800': give the path of a file"),
        (lambda: cdc.ReadConfig(window=0), "give a timedelta, such as timedelta(seconds=5)"),
        (lambda: cdc.ReadConfig(window="0"), "window is 0 s: give a duration above zero"),
        (
            lambda: cdc.ReadConfig(window="9" * 5_000 + "s"),
            "... (5,003 characters): give a duration such as",
        ),
        (lambda: cdc.ReadConfig(max_queries_per_second=10**400), "give a number above zero"),
        (lambda: cdc.ConnectionConfig("h", tls_ca=""), "tls_ca is '': give a string that is not"),
        (lambda: cdc.ConnectionConfig("h", local_dc=""), "local_dc is '': give a string that is"),
        (
            lambda: cdc.ConnectionConfig("h", username="a\0b", password="p"),
            "username is 'a\\x00b': give a string that is not empty, in UTF-8 and without NUL",
        ),
        (
            lambda: cdc.ConnectionConfig("h", username="u", password="hunter2\0"),
            "password is '(not shown)': give a string that is not empty, in UTF-8 and without",
        ),
        (
            lambda: cdc.ScyllaCheckpoints(WAY, "ks", ttl=30),
            "ttl is 30: give a timedelta, such as time",
        ),
        (
            lambda: cdc.ScyllaCheckpoints(WAY, "ks", ttl="1ms"),
            "ttl is '1ms': give at least one second",
        ),
        (
            lambda: cdc.ScyllaCheckpoints(WAY, "ks", consistency="MOST"),
            "consistency is 'MOST': give one",
        ),
        (
            lambda: cdc.Replicator(cdc.CqlWriter(WAY), {"t": "u"}),
            "table is 't': give it as keyspace.table",
        ),
        (lambda: consumer(tables=[]), "tables is []: give at least one table"),
        (
            lambda: consumer(handler=coroutine),
            "give a plain function, or use AsyncCdcConsumer for a coroutine function",
        ),
        (lambda: consumer(handler=None), "handler is None: give a function that takes a change"),
        (
            lambda: consumer(start="2026-11-22T00:00:00Z", end="2026-11-21"),
            "start is '2026-11-22T00:00:00Z': it is after end, 2026-11-21T00:00:00Z: give an ear",
        ),
        (lambda: consumer(start="now", end="-1h"), "it is after end, 20"),
        (lambda: consumer(start="soon"), "start is 'soon': give 'earliest'"),
        (lambda: consumer(end=0), "end is 0: not a likely time of a change"),
        (
            lambda: cdc.ConnectionConfig("h", request_timeout=5),
            "request_timeout is 5: give a timedelta",
        ),
        (
            lambda: cdc.ReadConfig(confidence_window=5),
            "give a timedelta, such as timedelta(seconds=5), or a string, such as '5s'",
        ),
        (
            lambda: cdc.ReadConfig(window=None),
            "window is None: give a timedelta, such as timedelta(sec",
        ),
        (lambda: cdc.ReadConfig(window="0s"), "give a duration above zero"),
        (
            lambda: cdc.ReadConfig(poll_interval="5"),
            "poll_interval is '5': give a unit, such as '5s'",
        ),
        (
            lambda: cdc.ReadConfig(late_horizon="soon"),
            "late_horizon is 'soon': give a duration such as",
        ),
        (lambda: cdc.ReadConfig(fetch_size=True), "fetch_size is True: give a whole number from 1"),
        (
            lambda: cdc.ConsumerConfig(workers=True),
            "workers is True: give a whole number from 1 to 1024",
        ),
        (
            lambda: cdc.ReadConfig(confidence_window=timedelta(seconds=-1)),
            "confidence_window is -1 s: give a duration of zero or more",
        ),
        (lambda: cdc.ReadConfig(window=timedelta(0)), "window is 0 s: give a duration above zero"),
        (
            lambda: cdc.ReadConfig(late_horizon=timedelta.max),
            "late_horizon is 8.64e+13 s: give at most 36500d",
        ),
        (
            lambda: cdc.ReadConfig(max_queries_per_second=float("nan")),
            "max_queries_per_second is nan: give a number above zero",
        ),
        (
            lambda: consumer(application="a" * 100_000),
            "aaaa... (100,002 characters): give at most 1,000",
        ),
        (lambda: cdc.CdcReader("node1..example.com", "ks.t"), "give each host as"),
        (lambda: cdc.CdcReader("h" * 64, "ks.t"), "give each host as"),
        (
            lambda: cdc.CdcReader(WAY, "ks." + "t" * 100_000),
            "tttt... (100,005 characters): give it as keyspace.table",
        ),
        (
            lambda: cdc.ConsumerConfig(workers=10**9),
            "workers is 1000000000: give a whole number from 1 to 1024",
        ),
        (lambda: consumer(application="a\0b"), "application is 'a\\x00b': give printable"),
        (lambda: consumer(application="\ud800"), "application is '\\ud800': give printable"),
        (
            lambda: cdc.ConsumerConfig(checkpoint_interval="-1s"),
            "checkpoint_interval is '-1s': give a",
        ),
    ],
)
def test_an_error_names_the_wrong_setting(make: Callable[[], object], message: str) -> None:
    """The ConfigurationError for a wrong setting is raised at once, in one line without secrets."""
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "hunter2" not in str(refused.value)


TEXTS = ("", "\0", "\ud800", "a\nb", "x" * 100_000, "9" * 5_000, "9" * 5_000 + "s")
CONSUMER = {"connection": WAY, "tables": "ks.t", "application": "a"}
MADE: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (ConnectionConfig, {"contact_points": "h"}),
    (ReadConfig, {}),
    (ConsumerConfig, {}),
    (CdcConsumer, CONSUMER | {"handler": print}),
    (AsyncCdcConsumer, CONSUMER | {"handler": coroutine}),
    (AsyncChanges, CONSUMER),
    (ScyllaCheckpoints, {"connection": WAY, "keyspace": "ks"}),
    (CqlWriter, {"config": WAY}),
    (TableName, {"keyspace": "ks", "name": "t"}),
    (Shard, {}),
]


@pytest.mark.parametrize(
    ("make", "given", "name"),
    [
        (make, given, parameter.name)
        for make, given in MADE
        for parameter in inspect.signature(make).parameters.values()
        if "str" in str(parameter.annotation)
    ],
)
def test_no_text_causes_an_error_of_python(
    make: Callable[..., object], given: dict[str, Any], name: str
) -> None:
    """Each text is accepted, or rejected with a one-line error of under 2,000 characters."""
    for text in TEXTS:
        try:
            assert repr(make(**{**given, name: text}))
        except ConfigurationError as error:
            message = str(error)
            assert message.isprintable()
            assert len(message) < 2_000


def test_durations_may_be_texts() -> None:
    """All settings that are durations accept text."""
    read = ReadConfig(confidence_window="5s", late_horizon="1h30m", retry_deadline="0s")
    assert read == ReadConfig(
        confidence_window=timedelta(seconds=5),
        late_horizon=timedelta(minutes=90),
        retry_deadline=timedelta(0),
    )
    assert ConsumerConfig(lease="1500ms").lease == timedelta(milliseconds=1_500)
    assert ConnectionConfig("h", request_timeout="3s").request_timeout == timedelta(seconds=3)


def test_a_cluster_may_be_a_text() -> None:
    """A cluster passed as text is a list of contact points, without a user or TLS."""
    assert as_connection("a:1, b") == ConnectionConfig(("a:1", "b"))
    config = ConnectionConfig("a", tls_ca=Path("/ca.pem"))
    assert as_connection(config) is config
    assert config.tls_ca == "/ca.pem"
    made: list[object] = [
        CdcReader("a:1", "ks.t"),
        consumer(connection="a:1"),
        AsyncChanges("a:1", ["ks.t"], application="a"),
        AsyncCdcConsumer("a:1", TableName("ks", "t"), coroutine, application="a"),
        ScyllaCheckpoints("a:1", "ks", ttl="30d"),
        Replicator(CqlWriter("a:1"), {"ks.t": "ks.u"}),
    ]
    assert all(made)


def test_a_table_that_is_named_twice_is_read_once() -> None:
    """A table that is named twice, in any form, is read once."""
    assert len(CdcReader("a", "ks.t", '"ks".t', TableName("ks", "t")).tables) == 1
