"""An application with its own driver, which reads a log in the ways that a test requests."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import Popen
from typing import Any

from attrs import frozen

from tests.cluster.log import NumberedLog

PROGRAM = Path(__file__).parent / "programs" / "reading.py"
SETTLED = {"confidenceWindow": "0s"}  # no rows are written while a query runs


@frozen
class Reader:
    """The running application. It writes its output to `store`."""

    _driver: Popen[str]
    _store: Path
    _log: NumberedLog

    def read(self, way: str, folder: str = "", **options: str) -> Any:
        """Return the result of reading the log this way (see `programs/reading.py`)."""
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        given = {**self._log.options, **SETTLED, **options}
        asked = {"way": way, "options": given, "folder": str(self._store / folder)}
        self._driver.stdin.write(json.dumps(asked) + "\n")
        self._driver.stdin.flush()
        answer = json.loads(self._driver.stdout.readline() or '{"error": "the driver ended"}')
        assert "found" in answer, answer["error"]
        print(f"{way}: {answer['found']}")
        return answer["found"]
