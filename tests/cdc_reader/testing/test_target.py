"""Tests the values of `--scylla`, and the servers that they open."""

from __future__ import annotations

import socket

import pytest

from cdc_reader.testing import Scylla
from cdc_reader.testing.target import (
    CAPABILITIES,
    DockerTarget,
    EmbeddedTarget,
    RunningTarget,
    Target,
    TargetError,
    parse_target,
)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("embedded", EmbeddedTarget()),
        ("docker", DockerTarget()),
        ("docker:scylladb/scylla:5.2", DockerTarget("scylladb/scylla:5.2")),
        ("localhost:9042", RunningTarget("localhost", 9042)),
        ("[::1]:19042", RunningTarget("::1", 19042)),
        ("cassandra:p@ss:word@db:9042", RunningTarget("db", 9042, ("cassandra", "p@ss:word"))),
    ],
)
def test_a_target_is_named_by_a_short_text(text: str, target: Target) -> None:
    """Each form of the option is parsed to its target."""
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", "embeded", "docker:", "localhost", "localhost:", "localhost:x", ":9042", "me@h:1"]
)
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    """Any other text is rejected with a one-line message that lists the valid forms."""
    with pytest.raises(TargetError, match=r"^--scylla=.*: expected embedded, docker, .*PORT$"):
        parse_target(text)


def test_a_password_shows_neither_in_errors_nor_in_representations() -> None:
    """Errors, representations and labels contain no password, because reports may be public."""
    with pytest.raises(TargetError) as refused:
        parse_target("me:secret@host")
    assert "secret" not in str(refused.value)
    assert "secret" not in repr(parse_target("me:secret@host:1"))
    assert "secret" not in parse_target("me:secret@host:1").label


def test_an_error_about_a_silent_server_names_its_address() -> None:
    """The error for a server that does not respond is one line with its address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(TargetError, match=rf"^127\.0\.0\.1:{port}: no login over CQL .*$"):
        RunningTarget("127.0.0.1", port).open()


def test_the_embedded_server_can_all_that_a_test_may_need() -> None:
    """The embedded server has all capabilities."""
    assert EmbeddedTarget().capabilities == set(CAPABILITIES)


def test_sessions_connect_to_their_server(scylla: Scylla) -> None:
    """The shared session and a separate one connect to the server at the contact point's port."""
    for session in (scylla.session, scylla.connect()):
        assert session.execute("SELECT key FROM system.local").one().key == "local"
    assert scylla.contact_point.endswith(f":{scylla.port}")


def test_a_running_server_is_opened_by_its_address(scylla: Scylla) -> None:
    """A running server is opened by address, and keeps running when the target is closed."""
    with RunningTarget(scylla.host, scylla.port, scylla.credentials).open() as again:
        assert again.session.execute("SELECT key FROM system.local").one().key == "local"
    assert scylla.session.execute("SELECT key FROM system.local").one().key == "local"
