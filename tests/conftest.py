"""Settings for all tests."""

from __future__ import annotations

import os
from collections import defaultdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests import spark_classes

if TYPE_CHECKING:
    from xdist.remote import Producer

ROOT = Path(__file__).parents[1]

# Examples have no deadline: the machine may be busy, and in a fresh checkout the first example
# that draws text builds Unicode tables. Each run draws other examples, and each night's draws more.
for name, examples in (("tests", 40), ("nightly", 1_000)):
    settings.register_profile(
        name,
        settings(),  # keep the settings of the CI profile
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
settings.load_profile("tests")

spark_classes.use()

SLOWEST = 20
"""The number of tests whose durations are printed."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use Spark first, so that none of these long tests is left for the end."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object:
    """With ``--dist=loadscope``, files share a process; so do all those of one Spark session."""
    if config.getvalue("dist") != "loadscope":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class OneSession(LoadScopeScheduling):  # type: ignore[misc] # xdist ships no types
        """Keeps the tests of a file together, and the files that share a session."""

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "spark" if _shares_a_session(file) else file

    return OneSession(config, log)


@cache
def _shares_a_session(file: str) -> bool:
    """Return True if the file's tests use the process's Spark session, which starts only once."""
    text = (ROOT / file).read_text()
    return "mark.spark" in text and "\nimport subprocess\n" not in text  # a process has its own


def pytest_configure(config: pytest.Config) -> None:
    """Ignore the sockets that Spark 4.0 and 4.1 leave open."""
    if version("pyspark") < "4.2":
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the twenty slowest tests, and the sum of each package, with their fixtures."""
    tests: defaultdict[str, float] = defaultdict(float)
    packages: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                tests[report.nodeid] += report.duration
                packages[report.nodeid.partition("::")[0].rpartition("/")[0]] += report.duration
    if len(tests) <= SLOWEST:
        return
    terminalreporter.section("seconds of the slowest tests, and of each package")
    for seconds, count in ((tests, SLOWEST), (packages, len(packages))):
        for name in sorted(seconds, key=lambda name: -seconds[name])[:count]:
            terminalreporter.write_line(f"{seconds[name]:8.1f} {name}")
        terminalreporter.write_line("")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all test processes of this run share; see `tests/locking.py`."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
