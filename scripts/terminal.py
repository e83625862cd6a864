"""Runs a command in a pseudo-terminal, and draws the terminal's screen as an SVG."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte
from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

_IGNORED = frozenset("COLORTERM COLUMNS FORCE_COLOR LINES NO_COLOR".split())
"""Environment variables that would change how a command draws."""

_THEME = TerminalTheme(
    (246, 248, 250),
    (36, 41, 47),
    [
        (36, 41, 47),
        (207, 34, 46),
        (17, 99, 41),
        (125, 78, 0),
        (9, 105, 218),
        (130, 80, 223),
        (27, 124, 131),
        (87, 96, 106),
    ],
)
"""Dark text on a light background. The colors have enough contrast to be read as text."""

# Unlike rich's own format, this one loads no font from another server, and names the picture.
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>TITLE</title>
<style>
svg > rect {{ stroke: #d0d7de }}
.{unique_id}-matrix {{
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class TerminalError(Exception):
    """A command failed, ended too early, or took too long; the message ends with its screen."""


class Terminal:
    """A context manager that runs a command in a terminal of fixed size.

    The first line of the screen shows the command as a user types it. Leaving the context
    interrupts the command if it still runs.

    Args:
        command: the program, which is searched for on PATH, and its arguments.
        columns: the width of the terminal, in characters.
        lines: the height of the terminal. Lines that scroll off the top are lost.
        seconds: how long the command may take until it ends, or shows what is expected.
        directory: the command's working directory; None for the current one.
        environment: variables to set in addition to those of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        columns: int,
        lines: int,
        seconds: float,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._command = " ".join(command)
        self._stream.feed(f"$ {self._command}\r\n".encode())
        self._deadline = time.monotonic() + seconds
        self._end, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (lines, columns))
        inherited = {name: value for name, value in os.environ.items() if name not in _IGNORED}
        self._process = subprocess.Popen(  # noqa: S603 - the caller's command
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env={**inherited, "TERM": "xterm-256color", **(environment or {})},
            start_new_session=True,
        )
        os.close(theirs)

    @property
    def text(self) -> str:
        """The text on the screen, without trailing spaces and empty lines."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def until(self, pattern: str) -> None:
        """Read until the screen matches `pattern`, in which a dot also matches a line break."""
        while not re.search(pattern, self.text, re.DOTALL):
            if not self._read():
                raise TerminalError(f"the command ended: expected {pattern!r} in\n{self.text}")

    def until_end(self) -> None:
        """Read until the command ends. Raises TerminalError if its exit status is not 0."""
        while self._read():
            pass
        if status := self._process.wait():
            raise TerminalError(f"the exit status is {status}: expected 0\n{self.text}")

    def svg(self, name: str) -> str:
        """Draw the screen, without empty lines at its end. Ids in the SVG begin with `name`."""
        width = self._screen.columns
        console = Console(record=True, width=width, file=io.StringIO(), legacy_windows=False)
        for number in range(self.text.count("\n") + 1):
            cells = [self._screen.buffer[number][column] for column in range(width)]
            console.print(_line(cells), soft_wrap=True)
        console.print()  # without it, rich cuts off the lower edge of the last line
        named = _SVG.replace("TITLE", escape(self._command))
        drawn = console.export_svg(title="", theme=_THEME, code_format=named, unique_id=name)
        drawn = re.sub(r"<text[^>]*>\n</text>", "", drawn)  # rich draws line breaks as text
        return drawn.replace("</text><text", "</text>\n<text")

    def _read(self) -> bool:
        """Read what the command has written. Return False once it has closed the terminal."""
        ready, _, _ = select.select([self._end], [], [], max(0, self._deadline - time.monotonic()))
        if not ready:
            raise TerminalError(f"the command takes too long\n{self.text}")
        try:
            data = os.read(self._end, 65_536)
        except OSError:  # Linux reports in this way that the other end is closed
            return False
        self._stream.feed(data)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.send_signal(signal.SIGINT)
        with suppress(TerminalError):
            while self._read():
                pass
        self._process.kill()
        self._process.wait()
        os.close(self._end)


def _line(cells: Sequence[Char]) -> Text:
    line = Text()
    for style, run in groupby(cells, _style):
        line.append("".join(cell.data for cell in run), style)
    line.rstrip()
    return line


def _style(cell: Char) -> Style:
    return Style(
        color=_color(cell.fg),
        bgcolor=_color(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        strike=cell.strikethrough,
        reverse=cell.reverse,
    )


def _color(name: str) -> str | None:
    """Translate pyte's name of a color into rich's. None is the default color."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("brown", "yellow").replace("bright", "bright_")
