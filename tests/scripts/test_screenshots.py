"""The terminal that runs commands for pictures, and the pictures in docs/images."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from scripts.screenshots import IMAGES, PICTURES
from scripts.terminal import Terminal, TerminalError

ROOT = Path(__file__).parents[2]
NAMESPACE = "http://www.w3.org/2000/svg"
REDRAWN = r"printf 'one\ntwo\n\033[1A\033[2K\033[1;33m<three>\033[0m '; stty size"


def terminal(command: str, seconds: float = 60) -> Terminal:
    """Run a shell command in a terminal of 40 columns and 10 lines."""
    return Terminal(["sh", "-c", command], 40, 10, seconds)


def texts(svg: str) -> list[str]:
    """Return the texts that an SVG shows."""
    found = ET.fromstring(svg).iter(f"{{{NAMESPACE}}}text")
    return [(element.text or "").replace("\N{NO-BREAK SPACE}", " ") for element in found]


def test_a_screen_is_drawn_as_the_terminal_shows_it() -> None:
    """A line that a command redraws is drawn once, as text, in its color."""
    with terminal(REDRAWN) as shown:
        shown.until_end()
    assert shown.text.splitlines()[-2:] == ["one", "<three> 10 40"]
    svg = shown.svg("picture")
    assert texts(svg)[-3:] == ["one", "<three>", " 10 40"]
    assert re.search(r"fill: #7d4e00;font-weight: bold", svg)


def test_a_picture_has_a_title() -> None:
    """A picture's title, which screen readers read, is the command."""
    with Terminal([sys.executable, "-c", "1 < 2"], 40, 10, 60) as shown:
        shown.until_end()
    title = ET.fromstring(shown.svg("picture")).find(f"{{{NAMESPACE}}}title")
    assert title is not None
    assert title.text == f"{sys.executable} -c 1 < 2"


def test_a_command_that_does_not_end_is_interrupted() -> None:
    """A command that runs until Ctrl-C is interrupted once its screen shows the expected text."""
    with terminal("echo ready; exec cat") as shown:
        shown.until("ready$")
    assert shown.text.endswith("ready")


@pytest.mark.parametrize(
    ("command", "seconds", "message"),
    [
        ("echo no; exit 3", 60, r"the exit status is 3: expected 0\n.*no$"),
        ("exec cat", 0, "the command takes too long"),
    ],
)
def test_a_command_that_fails_is_an_error(command: str, seconds: float, message: str) -> None:
    """A failing or hanging command is reported with its screen, and not drawn."""
    with terminal(command, seconds) as shown, pytest.raises(TerminalError, match=f"(?s){message}"):
        shown.until_end()


def test_a_command_that_ends_too_early_is_an_error() -> None:
    """A command that ends without showing the expected text is reported."""
    with terminal("echo no") as shown, pytest.raises(TerminalError, match="expected 'yes' in"):
        shown.until("yes")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_of_the_site_loads_nothing(name: str) -> None:
    """A committed picture has text and a title, and refers to no other server."""
    svg = (IMAGES / f"{name}.svg").read_text()
    assert re.findall(r"https?:[^\"'\s)<]*", svg) == [NAMESPACE]
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", svg))
    assert texts(svg)[0].startswith("$ scylla-cdc ")
    assert "<title>scylla-cdc " in svg


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_with_a_description(name: str) -> None:
    """Each page that shows a picture describes it."""
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    described = [re.findall(rf"!\[([^\]]*)\]\([^)]*images/{name}\.svg\)", page) for page in pages]
    assert [text for found in described for text in found if text]
