"""Finds settings that a session will have but that Spark does not show before it starts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

_DEFAULTS = "spark-defaults.conf"
_LINE = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*$")
"""A line of a properties file: a name, and a value after a space, ``=`` or ``:``."""
_OPTIONS = {"--archives": "spark.archives"}


def submitted_settings() -> dict[str, str]:
    """Return the settings from PYSPARK_SUBMIT_ARGS and from Spark's file of defaults.

    Arguments have precedence over the file, and ``--properties-file`` replaces the file.
    """
    file, given = None, {}
    for option, text in _arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        if option == "--properties-file":
            file = Path(text)
        elif option == "--conf" and "=" in text:
            name, _, value = text.partition("=")
            given[name] = value
        elif option in _OPTIONS:
            given[_OPTIONS[option]] = text
    return {**_properties(file or _defaults()), **given}


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    """Yield each option with the word that follows it; ``--option=value`` counts as two words."""
    words = [part for word in shlex.split(text) for part in _parts(word)]
    yield from pairwise(words)


def _parts(word: str) -> list[str]:
    option, equals, value = word.partition("=")
    return [option, value] if equals and option.startswith("--") else [word]


def _defaults() -> Path:
    folder = os.environ.get("SPARK_CONF_DIR")
    return Path(folder or f"{_find_spark_home()}/conf") / _DEFAULTS


def _properties(file: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with suppress(OSError):  # without a file, Spark has no defaults
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if (pair := _LINE.match(line)) is not None:
                found[pair[1]] = pair[2]
    return found
