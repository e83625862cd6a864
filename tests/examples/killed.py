"""Runs an example that keeps a copy, and kills this process at a chosen call of a function.

    python killed.py MODULE TARGET HOSTS TABLE FUNCTION MOMENT NUMBER

FUNCTION is the name of a method of the copy's class, or of a function of the module. The process is
killed before or after (MOMENT) call NUMBER of the function, or never if NUMBER is 0.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from cdc_reader import CdcReader, ReadConfig, TableName
from cdc_reader.reading import tuning

EXAMPLES = Path(__file__).parents[2] / "examples"
READ = ReadConfig(confidence_window="0s", window="200ms", fetch_size=20)
"""No writes are in flight, so no waiting is needed. Small windows and pages lead to more steps."""


def killing(function: Callable[..., Any], moment: str, number: int) -> Callable[..., Any]:
    """Wrap the function so that one of its calls kills this process with SIGKILL."""
    calls = count(1)

    def call(*arguments: Any) -> Any:
        is_chosen = next(calls) == number
        if is_chosen and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*arguments)
        if is_chosen:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return call


def example(name: str) -> Any:
    """Return the module of an example, which writes with each checkpoint."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    module: Any = import_module(name)
    module.SECONDS = 0
    return module


def keep_current(module: Any, target: Path, hosts: str, table: str) -> None:
    """Keep the example's copy current up to the present."""
    is_folder = hasattr(module, "Folder")
    copy = module.Folder(target) if is_folder else module.Copy(target, TableName.parse(table))
    with CdcReader(hosts, table, config=READ) as reader:
        module.keep_current(reader, copy, "now")
    if not is_folder:
        copy.close()


def main(
    name: str, target: str, hosts: str, table: str, function: str, moment: str, number: str
) -> None:
    """Keep the copy current up to the present, unless the process is killed before."""
    tuning.LONGEST_WINDOW = 200_000
    module = example(name)
    place = getattr(module, "Copy", module)
    setattr(place, function, killing(getattr(place, function), moment, int(number)))
    keep_current(module, Path(target), hosts, table)


if __name__ == "__main__":
    main(*sys.argv[1:])
