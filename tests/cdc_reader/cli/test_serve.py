"""`scylla-cdc serve`, run as a process."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version

import pytest
from cassandra import Unavailable
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement
from click.testing import CliRunner

from cdc_reader.cli.command import main
from cdc_reader.decoding import NAME
from tests.drivers import PATIENT


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command, and yield the process and the line that it prints when ready."""
    command = [sys.executable, "-c", "from cdc_reader.cli import main; main()", "serve"]
    process = subprocess.Popen(
        [*command, "--port", "0", *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_serve_prints_its_address_and_ends_cleanly(number: signal.Signals) -> None:
    """A driver can connect to the printed address, and a signal ends the process with status 0."""
    with serving("--nodes", "2", "--vnodes", "4", "--shards", "3") as (process, line):
        prefix, _, address = line.strip().rpartition(" ")
        assert prefix == "listening on"
        host, _, port = address.rpartition(":")
        cluster = Cluster([host], port=int(port), protocol_version=4, **PATIENT)
        cluster.connect()
        assert len(cluster.metadata.token_map.ring) == 8
        process.send_signal(number)
        assert process.wait(timeout=120) == 0
        cluster.shutdown()


def test_the_chosen_port_of_the_rest_api_is_printed() -> None:
    """With `--api-port 0`, the REST API uses a free port, and the command prints the port."""
    with serving("--api-port", "0") as (process, line):
        assert process.stdout is not None
        told = re.fullmatch(r"REST API on port (\d+) of each node\n", process.stdout.readline())
        assert told
        host = line.strip().rpartition(" ")[2].rpartition(":")[0]
        url = f"http://{host}:{told[1]}/storage_service/operation_mode"
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.read() == b'"NORMAL"'


@pytest.mark.slow
def test_a_node_joins_a_served_cluster() -> None:
    """A node that joins has as many vnodes as the other nodes, and starts a new generation."""
    arguments = ("--vnodes", "4", "--join-after", "0", "--ring-delay", "0")
    with serving(*arguments) as (process, line):
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.2 joined; its generation begins at 1")
        host, _, port = line.strip().rpartition(" ")[2].rpartition(":")
        cluster = Cluster([host], port=int(port), protocol_version=4, **PATIENT)
        cluster.connect()
        assert len(cluster.metadata.token_map.ring) == 8
        cluster.shutdown()


def test_statements_fail_as_requested() -> None:
    """The error requested by `--fault` occurs exactly once."""
    with serving("--fault", "unavailable,match=system_distributed") as (_, line):
        host, _, port = line.strip().rpartition(" ")[2].rpartition(":")
        cluster = Cluster([host], port=int(port), protocol_version=4, **PATIENT)
        session = cluster.connect()
        select = SimpleStatement(
            "SELECT * FROM system_distributed.cdc_generation_timestamps",
            retry_policy=FallthroughRetryPolicy(),
        )
        with pytest.raises(Unavailable):
            session.execute(select)
        assert session.execute(select).one() is not None
        cluster.shutdown()


@pytest.mark.slow
def test_a_node_goes_down_and_comes_back_as_requested() -> None:
    """The last node goes down and comes back at the requested times."""
    arguments = ("--nodes", "2", "--down-after", "0", "--up-after", "0.5")
    with serving(*arguments) as (process, _):
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["127.0.0.2 is down\n", "127.0.0.2 is up\n"]


def test_a_node_is_frozen_and_released_as_requested() -> None:
    """The last node is frozen and released at the requested times."""
    arguments = ("--nodes", "2", "--freeze-after", "0", "--release-after", "0.5")
    with serving(*arguments) as (process, _):
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines == ["127.0.0.2 is frozen\n", "127.0.0.2 knows everything again\n"]


def test_the_last_node_lags_as_requested() -> None:
    """A change at the first node reaches the last node only when its lag has passed."""
    with serving("--nodes", "2", "--lag", "1000000") as (_, line):
        _, _, port = line.strip().rpartition(" ")[2].rpartition(":")
        known: list[bool] = []
        for host in ("127.0.0.1", "127.0.0.2"):
            profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(WhiteListRoundRobinPolicy([host]))}
            with Cluster(
                [host],
                port=int(port),
                protocol_version=4,
                execution_profiles=profiles,
                max_schema_agreement_wait=0,
                **PATIENT,
            ) as cluster:
                session = cluster.connect()
                if not known:
                    session.execute(
                        "CREATE KEYSPACE ks WITH replication = "
                        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
                    )
                names = session.execute("SELECT keyspace_name FROM system_schema.keyspaces")
                known.append("ks" in {row.keyspace_name for row in names})
        assert known == [True, False]


@pytest.mark.slow
def test_the_clocks_of_nodes_differ_as_requested() -> None:
    """Each node's clock is ahead of the previous node's by the requested number of seconds."""
    with serving("--nodes", "2", "--clock-skew", "1000000") as (_, line):
        _, _, port = line.strip().rpartition(" ")[2].rpartition(":")
        times = []
        for host in ("127.0.0.1", "127.0.0.2"):
            policy = WhiteListRoundRobinPolicy([host])
            profiles = {EXEC_PROFILE_DEFAULT: ExecutionProfile(policy)}
            with Cluster(
                [host], port=int(port), protocol_version=4, execution_profiles=profiles, **PATIENT
            ) as cluster:
                session = cluster.connect()
                row = session.execute("SELECT totimestamp(now()) FROM system.local").one()
                times.append(row[0])
        assert timedelta(days=11) < times[1] - times[0] < timedelta(days=12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--username", "me"], "--username and --password go together"),
        (["--fault", "fire"], "fault is 'fire': expected one of drop, close, delay"),
        (["--up-after", "3"], "--up-after needs --down-after, and a later time"),
        (["--release-after", "3"], "--release-after needs --freeze-after, and a later time"),
        (["--lag", "3"], "--lag and --freeze-after need two --nodes or more"),
        (["--port", "70000"], "port is 70000: expected 0 to 65535"),
        (["--version", "9.9"], "version is '9.9': expected a version of ScyllaDB such as '5.2'"),
        (["--certificate", __file__, "--key", __file__], "expected PEM, and in"),
        (["--ring-delay", "nan"], "'nan' is not a number"),
        (["--join-after", "inf"], "inf is not in the range"),
        (["--shards", "0"], "shards is 0: expected at least 1"),
        (["--nodes", "2", "--host", "10.1.2.3"], "several nodes need a loopback IPv4 address"),
        (["--host", "203.0.113.1"], "cannot listen on 203.0.113.1:9042"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments: list[str], message: str) -> None:
    """Invalid options are rejected with a non-zero exit status and without a traceback."""
    outcome = CliRunner().invoke(main, ["serve", *arguments])
    assert outcome.exit_code in (1, 2)
    assert isinstance(outcome.exception, SystemExit)
    assert message in outcome.output.splitlines()[-1]


@pytest.mark.parametrize("word", ["version", "--version"])
def test_version_prints_the_packages_version_and_the_kernel(word: str) -> None:
    """The version of the package and the kernel in use are printed on one line."""
    outcome = CliRunner().invoke(main, [word])
    assert outcome.exit_code == 0
    assert outcome.output == f"scylla-cdc {version('scylla-cdc')} (kernel: {NAME})\n"


@pytest.mark.parametrize(
    ("kernel", "shown"),
    [("python", "(kernel: python)"), ("rust", "CDC_READER_KERNEL is 'rust': expected one of")],
)
def test_version_names_a_forced_kernel(kernel: str, shown: str) -> None:
    """The `version` command shows a forced kernel, and rejects an unknown kernel."""
    code = "from cdc_reader.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "version"],
        env={**os.environ, "CDC_READER_KERNEL": kernel},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown in run.stdout + run.stderr
    assert (run.returncode == 0) == (kernel == "python")


def test_help_lists_the_commands_without_importing_them() -> None:
    """Help lists all commands, even commands whose extras are not installed."""
    code = (
        "import sys; from click.testing import CliRunner; from cdc_reader.cli.command import main; "
        "print(CliRunner().invoke(main, ['--help']).output); "
        "assert not {'lark', 'pyspark', 'cassandra'} & set(sys.modules)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert all(name in printed for name in ("demo", "serve", "version"))
