"""The table of test outcomes by server, printed at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "scylla_target"
VERSION = "scylla_version"
NO_SERVER = "no server"


class Tally:
    """A pytest plugin that collects test outcomes; prints nothing if no test uses a server.

    User properties of the test reports contain the server and its version, so tests that ran in
    other processes are counted too.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, tuple[str, str]] = {}
        self._versions: dict[str, str] = {}
        self._skips: Counter[tuple[str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        properties = dict(report.user_properties)
        target = str(properties.get(PROPERTY, NO_SERVER))
        if VERSION in properties:
            self._versions[target] = str(properties[VERSION])
        self._outcomes[report.nodeid] = (target, report.outcome)
        if report.skipped:
            self._skips[target, _reason(report)] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        targets = sorted({target for target, _ in self._outcomes.values()})
        if not set(targets) - {NO_SERVER}:
            return
        terminalreporter.section("what ran where")
        for line in self.lines(targets):
            terminalreporter.write_line(line)

    def lines(self, targets: list[str]) -> list[str]:
        """Return the lines of the table, then each target's version and reasons for skips."""
        counts = Counter(self._outcomes.values())
        width = max(map(len, ["target", *targets]))
        lines = [f"{'target':{width}}  passed  failed  skipped"]
        lines += [
            f"{target:{width}}  {counts[target, 'passed']:6}  {counts[target, 'failed']:6}"
            f"  {counts[target, 'skipped']:7}"
            for target in targets
        ]
        lines += [f"{target} is ScyllaDB {found}" for target, found in self._versions.items()]
        lines += [
            f"skipped on {target}: {number} x {reason}"
            for (target, reason), number in sorted(self._skips.items())
        ]
        return lines


def _reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped or expected to fail."""
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail}"
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
