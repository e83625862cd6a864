"""Tests the pytest plugin in separate pytest runs.

Each run is a separate process, because a run in this process would discard imported modules, and
numpy cannot be imported twice.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from cdc_reader.testing import Scylla
from cdc_reader.testing.embedded.profile import NEWEST

SUITE = """
    import pytest

    def test_reads(scylla):
        assert scylla.session.execute("SELECT key FROM system.local").one().key == "local"

    def test_writes(scylla, keyspace):
        scylla.session.execute(f"CREATE TABLE {keyspace}.t (pk int PRIMARY KEY)")

    def test_fails(scylla):
        assert scylla.port == 0

    @pytest.mark.needs("faults", "clock")
    def test_asks_for_much(scylla):
        pass

    def test_without():
        pass
"""


def address(scylla: Scylla) -> str:
    """Return the option that makes an inner run use the server of the outer run."""
    login = ":".join(scylla.credentials) + "@" if scylla.credentials else ""
    return f"--scylla={login}{scylla.contact_point}"


def test_the_embedded_server_is_the_default(pytester: pytest.Pytester) -> None:
    """By default, all tests run on the embedded server, as the summary table shows."""
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*= what ran where =*",
            "target     passed  failed  skipped",
            "embedded        3       1        0",
            "no server       1       0        0",
            f"embedded is ScyllaDB {NEWEST}.0",
        ]
    )


@pytest.mark.slow
def test_tests_that_a_server_cannot_serve_are_skipped_with_the_reason(
    pytester: pytest.Pytester, scylla: Scylla
) -> None:
    """A test that needs a capability is skipped on a running server that lacks it.

    The reason names the first missing capability.
    """
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess(address(scylla))
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    label = f"{scylla.host}:{scylla.port}"
    result.stdout.fnmatch_lines(
        [
            f"{label}       2       1        1",
            f"{label} is ScyllaDB {scylla.version}",
            f"skipped on {label}: 1 x needs clock (*), which {label} lacks",
        ]
    )


NODES = """
    def test_kills(scylla_nodes):
        first, *others, last = scylla_nodes.addresses
        scylla_nodes.take_down(last)
        scylla_nodes.bring_up(last)
        assert scylla_nodes.contact_point.startswith(first)
        joined = scylla_nodes.join()
        assert joined not in (first, *others, last)
        scylla_nodes.leave(joined)
        assert scylla_nodes.connect().execute("SELECT key FROM system.local").one()
"""


@pytest.mark.slow
def test_nodes_come_and_go_on_the_embedded_server(pytester: pytest.Pytester) -> None:
    """A test can stop, start, add and remove nodes of the separate three-node cluster."""
    pytester.makepyfile(NODES)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["embedded       1       0        0"])


@pytest.mark.slow
def test_the_nodes_of_a_running_server_are_left_alone(
    pytester: pytest.Pytester, scylla: Scylla
) -> None:
    """A test that uses `scylla_nodes` is skipped on a running server, even without a marker."""
    pytester.makepyfile(NODES)
    result = pytester.runpytest_subprocess(address(scylla))
    result.assert_outcomes(skipped=1)
    label = f"{scylla.host}:{scylla.port}"
    result.stdout.fnmatch_lines([f"skipped on {label}: 1 x needs nodes (*), which {label} lacks"])


@pytest.mark.slow
def test_a_requested_server_that_is_missing_fails_the_run(
    pytester: pytest.Pytester,
) -> None:
    """If the requested server is not available, no test runs, not even one that needs no server."""
    pytester.makepyfile("def test_without(): pass")
    result = pytester.runpytest_subprocess("--scylla=127.0.0.1:1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.assert_outcomes()
    result.stdout.fnmatch_lines(["*127.0.0.1:1: no login over CQL*"])


@pytest.mark.slow
def test_a_container_that_cannot_start_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the Docker engine is not available, the run fails."""
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_subprocess("--scylla=docker")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["*scylladb/scylla:latest: Docker says: *"])


@pytest.mark.slow
def test_a_misspelt_option_is_refused_at_once(pytester: pytest.Pytester) -> None:
    """An invalid option ends the run before collection."""
    result = pytester.runpytest_subprocess("--scylla=embeded")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--scylla=embeded: expected embedded, docker, *"])


def test_a_misspelt_need_is_an_error(pytester: pytest.Pytester) -> None:
    """An unknown capability is an error, because the test would otherwise always be skipped."""
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.needs("fautls")
        def test_it(scylla):
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it needs fautls; expected clock, *"])


@pytest.mark.slow
def test_a_run_without_servers_prints_no_summary(pytester: pytest.Pytester) -> None:
    """If no test uses a server, the plugin prints nothing, because it is loaded in every run."""
    pytester.makepyfile("def test_without(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*what ran where*")


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    """The plugin imports no large packages, because it is loaded in every run."""
    code = "import sys, cdc_reader.testing.pytest_plugin; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"cassandra", "pyarrow", "pyspark", "lark", "testcontainers"} & set(loaded)


@pytest.mark.slow
def test_a_keyspace_is_gone_after_its_test(pytester: pytest.Pytester, scylla: Scylla) -> None:
    """The fixture `keyspace` drops its keyspace after the test."""
    pytester.makepyfile(
        """
        def test_writes(keyspace):
            print(f"keyspace: {keyspace}.")
        """
    )
    result = pytester.runpytest_subprocess(address(scylla), "-s")
    result.assert_outcomes(passed=1)
    name = result.stdout.str().split("keyspace: ")[1].split(".")[0]
    rows = scylla.session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
    assert name not in {row.keyspace_name for row in rows}
