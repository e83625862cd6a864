"""Detection of processes on this machine that have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from cdc_reader.checkpoints import process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def test_this_process_has_not_ended() -> None:
    """A process counts as running if it has the given start time, as this process does."""
    assert process.machine()
    assert process.started(os.getpid()) > 0
    assert not process.has_ended(os.getpid(), process.started(os.getpid()))


def test_a_process_that_was_killed_has_ended() -> None:
    """The end of a killed process is detected before and after its parent reaps it."""
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        start = process.started(sleeping.pid)
        assert not process.has_ended(sleeping.pid, start)
        sleeping.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, sleeping.pid, os.WEXITED | os.WNOWAIT)
        assert process.has_ended(sleeping.pid, start)
    assert process.has_ended(sleeping.pid, start)


def test_a_reused_pid_is_another_process() -> None:
    """A process with the same PID but another start time is a different process."""
    assert process.has_ended(os.getpid(), process.started(os.getpid()) - 1)


def test_a_hidden_process_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that can be neither signaled nor inspected counts as running."""

    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(process, "_stat", lambda _pid: [])
    assert not process.has_ended(1, 1)
