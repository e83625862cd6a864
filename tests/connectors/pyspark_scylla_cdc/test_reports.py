"""Reports from tasks to the driver: datagrams over a real socket."""

from __future__ import annotations

import fcntl
import gc
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from cdc_reader._stats import ReadStats
from cdc_reader.errors import ConfigurationError
from pyspark_scylla_cdc import ScyllaCdcListener
from pyspark_scylla_cdc import reports as reporting
from pyspark_scylla_cdc.reports import Address, Inbox, Plan, Report, everywhere, send

KEY = bytes(range(16))
all_stats = st.builds(ReadStats, st.integers(0, 10**9), st.integers(0, 10**6), st.floats(0, 1e9))
plans = st.builds(
    Plan,
    st.text(max_size=96),
    st.integers(0, 2**62),
    st.none() | st.integers(0, 2**62),
    st.integers(0, 100_000),
    st.integers(0, 10**9),
    all_stats,
)
reports = st.builds(
    Report,
    st.uuids().map(str),
    st.integers(0, 10**9),
    st.integers(0, 2**62),
    st.integers(0, 100_000),
    plans,
    all_stats,
)
REPORT = Report(
    "q", 3, 5, 1, Plan("shop.orders", 7, 6, 2, 0, ReadStats(1, 0, 0.5)), ReadStats(8, 1, 1.5)
)


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    """An inbox on the loopback address."""
    inbox = Inbox("127.0.0.1")
    yield inbox
    inbox.close()


@given(reports)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    """A report survives serialization, whatever the table's name."""
    assert Report.from_bytes(report.to_bytes()) == report


@given(
    st.ip_addresses().map(str) | st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True),
    st.integers(1, 65_535),
    st.binary(min_size=16, max_size=16),
)
def test_an_address_is_read_as_it_was_written(host: str, port: int, key: bytes) -> None:
    """Host names and IPv4 and IPv6 addresses are parsed unchanged. The repr hides the key."""
    address = Address(host, port, key)
    assert Address.parse(str(address)) == address
    assert key.hex() not in repr(address)


@pytest.mark.parametrize(
    "text", ["", "host", "host:1", "host:0/" + KEY.hex(), "h:70000/" + KEY.hex()]
)
def test_another_text_is_refused_without_being_shown(text: str) -> None:
    """A malformed address raises an error that names the option, but does not show the address."""
    with pytest.raises(ConfigurationError, match=r"reportTo.*\(not shown\).*listener\.address"):
        Address.parse(text)


def test_what_is_sent_arrives(inbox: Inbox) -> None:
    """On one machine, each report that is sent arrives once, in order."""
    sent = [evolve(REPORT, task=number) for number in range(3)]
    for report in sent:
        send(report, inbox.address)
    assert list(inbox.take()) == sent
    assert list(inbox.take()) == []


def test_reports_without_the_key_are_ignored(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports without the right key or of a wrong length are ignored."""
    address = inbox.address
    send(REPORT, evolve(address, key=KEY))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        for datagram in (b"", b"x", b"x" * 2_000):
            other.sendto(datagram, (address.host, address.port))
    send(REPORT, address)
    assert list(inbox.take()) == [REPORT]
    assert caplog.text.count("report_refused") == 4


def test_a_report_without_a_listener_does_no_harm(inbox: Inbox) -> None:
    """Sending a report to a closed port or an unknown host raises no error."""
    address = inbox.address
    inbox.close()
    send(REPORT, address)
    send(REPORT, evolve(address, host="nowhere.invalid"))
    assert list(inbox.take()) == []


def test_an_unusable_listening_address_is_refused() -> None:
    """The error for an unusable listening address contains the address."""
    with pytest.raises(ConfigurationError, match=r"203\.0\.113\.1:0.*this machine"):
        Inbox("203.0.113.1")


def test_a_port_in_use_is_named(inbox: Inbox) -> None:
    """The error for a port that is in use names the port, not the host."""
    port = inbox.address.port
    with pytest.raises(ConfigurationError, match=f"^port is {port}: another program uses this"):
        Inbox("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("203.0.113.1", "0.0.0.0"), ("nowhere.invalid", "0.0.0.0"), ("::1", "::")],
)
def test_a_host_of_a_gateway(host: str, expected: str) -> None:
    """An address that this machine does not own is announced; all own addresses are opened."""
    assert everywhere(host) == expected
    inbox = Inbox(host, bind=expected)
    assert str(inbox.address).startswith(f"[{host}]:" if ":" in host else f"{host}:")
    send(REPORT, evolve(inbox.address, host="127.0.0.1"))
    wait_until_read(inbox)
    assert list(inbox.take()) == [REPORT]
    inbox.close()


def wait_until_read(inbox: Inbox) -> None:
    """Return when the system's buffer is empty; fail if nothing reads it."""
    deadline = time.monotonic() + 10
    while struct.unpack("i", fcntl.ioctl(inbox._mail.socket, termios.FIONREAD, bytes(4)))[0]:
        assert time.monotonic() < deadline, "nothing reads the reports"


def test_reports_do_not_overflow_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are read as they arrive, so more of them arrive than the system's buffer holds.

    The buffer has the size that Linux allows by default.
    """
    monkeypatch.setattr(reporting, "_BUFFER", 212_992)
    inbox = Inbox("127.0.0.1")
    sent = [evolve(REPORT, task=number) for number in range(2_000)]
    for report in sent:
        send(report, inbox.address)
        if report.task % 100 == 99:
            wait_until_read(inbox)
    assert list(inbox.take()) == sent
    inbox.close()


def test_reports_that_nobody_takes_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If nobody takes the reports, the inbox keeps only the latest of them."""
    monkeypatch.setattr(reporting, "_MOST", 5)
    inbox = Inbox("127.0.0.1")
    for number in range(20):
        send(evolve(REPORT, task=number), inbox.address)
    wait_until_read(inbox)
    assert [report.task for report in inbox.take()] == [15, 16, 17, 18, 19]
    inbox.close()


def test_a_closed_inbox_leaves_nothing_behind(inbox: Inbox) -> None:
    """`close` ends the thread and frees the port. It may be called twice."""
    thread = inbox._thread
    assert thread.is_alive()
    inbox.close()
    inbox.close()
    assert not thread.is_alive()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((inbox.address.host, inbox.address.port))


def test_a_listener_that_is_never_closed_leaves_nothing_behind() -> None:
    """Without `close`, the thread ends and the port is freed when the listener is collected."""
    listener = ScyllaCdcListener(host="127.0.0.1")
    before = set(threading.enumerate())
    address = Address.parse(listener.address)
    [thread] = set(threading.enumerate()) - before
    del listener
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((address.host, address.port))
