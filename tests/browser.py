"""A headless Chromium, through its DevTools protocol over pipes, which needs no other package."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or "chromium"
_OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run "
    "--disable-background-networking --disable-extensions --force-color-profile=srgb"
).split()
_LAUNCH = """
import fcntl, os, sys
ours = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, number in zip(ours, (3, 4)):  # where Chromium reads commands, and writes events
    os.dup2(end, number, inheritable=True)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Page:
    """A tab of a browser, and what it logged and requested since it was opened."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = commands, events
        self._buffer = b""
        self._ids = itertools.count(1)
        self._session: str | None = None
        self._seen: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str, *, width: int, scheme: str = "light") -> None:
        """Open an address, in a window of `width` pixels and a light or dark colour scheme."""
        self._seen.clear()
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self._seen):
            self._read()

    @property
    def errors(self) -> list[str]:
        """What the page logged, and the errors of its scripts."""
        names = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
        return [json.dumps(event["params"]) for event in self._seen if event["method"] in names]

    @property
    def requests(self) -> list[str]:
        """The addresses that the page requested, except those that contain their own data."""
        sent = [e["params"] for e in self._seen if e["method"] == "Network.requestWillBeSent"]
        urls = [str(event["request"]["url"]) for event in sent]
        return [url for url in urls if not url.startswith("data:")]

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def names(self) -> list[tuple[str, str]]:
        """Return the role and name of what a screen reader finds."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node.get("ignored")
        ]

    def screenshot(self, file: Path) -> None:
        """Save a picture of the whole page."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(picture["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._ids)
        command: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            pass
        assert "error" not in answer, (method, answer)
        found: dict[str, Any] = answer["result"]
        return found

    def _read(self) -> dict[str, Any]:
        """Read one message, and keep it if it is an event."""
        while b"\0" not in self._buffer:
            data = os.read(self._events, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._seen.append(message)
        return message


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start Chromium with its data in `folder`; skip the test if it is not installed."""
    if shutil.which(CHROMIUM) is None:
        pytest.skip(f"there is no {CHROMIUM}: apt-get install chromium, or name it in CHROMIUM")
    theirs, commands = os.pipe()
    events, answers = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, str(theirs), str(answers), CHROMIUM, *_OPTIONS,
         f"--user-data-dir={folder}"],
        pass_fds=(theirs, answers),
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    os.close(answers)
    try:
        yield Page(commands, events)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(events)
