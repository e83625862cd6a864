"""`scylla-cdc status` on the server under test."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from cdc_reader import CdcReader, WindowComplete
from cdc_reader._time import BEGINNING, format_timestamp
from cdc_reader.checkpoints import ScyllaCheckpoints, SqliteCheckpoints
from cdc_reader.checkpoints.store import CheckpointName
from cdc_reader.cli.command import main
from cdc_reader.cli.status.reader import Reader
from cdc_reader.cql.names import TableName
from cdc_reader.reading.cursor import Checkpoint, SnapshotProgress
from cdc_reader.streams.ring import TokenRange, TokenRanges
from cdc_reader.streams.shard import MIN_TOKEN
from cdc_reader.testing import EmbeddedScylla, Fault, ManualClock

if TYPE_CHECKING:
    from click.testing import Result

    from cdc_reader.testing import Scylla

SECOND = 1_000_000
HOUR = 3_600 * SECOND


@pytest.fixture
def table(scylla: Scylla, keyspace: str) -> str:
    """A table whose log keeps rows for two hours."""
    scylla.session.execute(
        f"CREATE TABLE {keyspace}.t (p int PRIMARY KEY) "
        "WITH cdc = {'enabled': true, 'preimage': 'full', 'ttl': 7200}"
    )
    return f"{keyspace}.t"


def invoke(scylla: Scylla, *arguments: str) -> Result:
    """Run the command, and return its result when it ends."""
    return CliRunner().invoke(main, ["status", "--hosts", scylla.contact_point, *arguments])


def found(scylla: Scylla, *arguments: str) -> Any:
    """Return the object of the command's JSON output."""
    outcome = invoke(scylla, "--json", *arguments)
    assert outcome.exit_code == 0, outcome.output
    return json.loads(outcome.stdout)


def generation_start(scylla: Scylla, table: str) -> int:
    """Return the start, in µs, of the oldest generation that may have rows."""
    start: int = found(scylla, table)["generations"][0]["start_micros"]
    return start


def save(file: Path, table: str, **positions: Checkpoint) -> None:
    """Save the position of each application for both of its shards."""
    store = SqliteCheckpoints(file)
    for application, checkpoint in positions.items():
        for shard in ("1/2", "2/2"):
            store.save(CheckpointName(application, TableName.parse(table), shard), checkpoint)
    store.close()


def test_the_readable_span_and_generations_are_shown(scylla: Scylla, table: str) -> None:
    """The output shows the CDC options, the readable span and the generations."""
    status = found(scylla, table)
    assert status["table"] == table
    assert status["log"] == {
        "enabled": True,
        "ttl": 7200,
        "delta_keys_only": False,
        "preimage": "full",
        "postimage": False,
    }
    assert [row["state"] for row in status["generations"]].count("in force") == 1
    assert status["applications"] == []
    name, log, blank, heading, *_ = invoke(scylla, table).stdout.splitlines()
    assert name.startswith(f"{table} at 20")
    assert log == "CDC on, preimage full, postimage false, TTL 7200 s"
    assert (blank, heading.split()) == ("", ["BEGINS", "ENDS", "STATE", "KIND"])


def test_positions_of_applications_are_shown(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """Each reader is listed with its position, its lag, and the time until unread rows expire."""
    now, file = time.time_ns() // 1_000, tmp_path / "positions"
    save(
        file,
        table,
        behind=Checkpoint(now - HOUR),
        lost=Checkpoint(now - 3 * HOUR),
        new=Checkpoint(BEGINNING),
    )
    save(file, "other.table", elsewhere=Checkpoint(now))
    readers = found(scylla, table, "--checkpoint", str(file))["applications"]
    assert [(reader["application"], reader["shard"]) for reader in readers] == [
        (name, shard) for name in ("behind", "lost", "new") for shard in ("1/2", "2/2")
    ]
    behind, lost, new = readers[::2]
    assert behind["position_micros"] == now - HOUR
    assert behind["lag_seconds"] == pytest.approx(3600, abs=60)
    assert behind["expires_in_seconds"] == pytest.approx(3600, abs=60)
    assert lost["expires_in_seconds"] == pytest.approx(-3600, abs=60)
    assert new["position"] is None
    oldest = max(now - 2 * HOUR, generation_start(scylla, table))
    assert new["lag_seconds"] == pytest.approx((now - oldest) / SECOND, abs=60)
    assert new["expires_in_seconds"] == pytest.approx(7200 - (now - oldest) / SECOND, abs=60)
    lines = invoke(scylla, table, "--checkpoint", str(file)).stdout.splitlines()
    shown = {line.split()[0]: " ".join(line.split()) for line in lines if "1/2" in line}
    assert " 1 h 0 min in 59 min" in shown["behind"]
    assert "since 1 h 0 min" in shown["lost"]
    assert " earliest " in shown["new"]
    arguments = (table, "--checkpoint", str(file), "--application", "new")
    chosen = found(scylla, *arguments)["applications"]
    assert [reader["application"] for reader in chosen] == ["new", "new"]


def test_a_file_without_a_position_of_the_table_says_so(
    scylla: Scylla, table: str, tmp_path: Path
) -> None:
    """If the file contains no position for the table, a message says so."""
    save(tmp_path / "positions", "other.table", elsewhere=Checkpoint(0))
    outcome = invoke(scylla, table, "--checkpoint", str(tmp_path / "positions"))
    assert outcome.exit_code == 0
    assert f"no position of this table in {tmp_path}" in outcome.stdout


def test_max_lag_sets_the_exit_status(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """The exit status is 1 if a reader lags too much or there is no reader, and 0 otherwise."""
    now, file = time.time_ns() // 1_000, tmp_path / "positions"
    save(file, table, late=Checkpoint(now - HOUR), prompt=Checkpoint(now))
    arguments = (table, "--checkpoint", str(file), "--max-lag")
    late = invoke(scylla, *arguments, "30m")
    assert late.exit_code == 1
    assert "late" in late.stdout
    [line] = late.stderr.splitlines()
    assert line.startswith(f"Error: {table}: late (1/2) lags by 1 h 0 min; late (2/2) lags by ")
    assert line.endswith("; --max-lag allows 30 min 0 s")
    assert invoke(scylla, *arguments, "2h").exit_code == 0
    assert invoke(scylla, *arguments, "30m", "--application", "prompt").exit_code == 0
    as_json = invoke(scylla, *arguments, "30m", "--json")
    assert (as_json.exit_code, len(json.loads(as_json.stdout)["applications"])) == (1, 4)
    save(tmp_path / "others", "other.table", elsewhere=Checkpoint(now))
    nobody = invoke(scylla, table, "--checkpoint", str(tmp_path / "others"), "--max-lag", "1h")
    assert nobody.exit_code == 1
    assert f"no position of {table} in {tmp_path}" in nobody.stderr


def test_a_shard_that_never_ran_is_an_alarm(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """A shard without a position is reported, as the names of other shards show that it exists."""
    now, file, name = time.time_ns() // 1_000, tmp_path / "positions", TableName.parse(table)
    save(file, table, whole=Checkpoint(now))
    store = SqliteCheckpoints(file)
    store.save(CheckpointName("part", name, "1/3"), Checkpoint(now))
    store.save(CheckpointName("begun", name, "0/2"), Checkpoint(now))
    store.close()
    arguments = (table, "--checkpoint", str(file), "--max-lag", "1h")
    alarm = invoke(scylla, *arguments)
    assert alarm.exit_code == 1
    for shard in ("part (2/3)", "part (3/3)", "begun (1/2)", "begun (2/2)"):
        assert f"{shard}: it has no position here: start it" in alarm.stdout
        assert f"{shard} never ran: it has no position here: start it" in alarm.stderr
    assert "whole" not in alarm.stderr
    assert "(1/3)" not in alarm.stderr
    last = json.loads(invoke(scylla, *arguments, "--json").stdout)["applications"][-1]
    assert (last["application"], last["shard"], last["lag_seconds"]) == ("part", "3/3", None)
    assert last["fault"].startswith("never ran: ")
    assert invoke(scylla, *arguments, "--application", "whole").exit_code == 0
    own = (*arguments, "--application", "part", "--shard")
    assert [invoke(scylla, *own, shard).exit_code for shard in ("1/3", "2/3")] == [0, 1]
    assert invoke(scylla, table, "--shard", "1/3").exit_code == 2


@pytest.fixture(params=["sqlite", "scylla", "spark"])
def place(
    request: pytest.FixtureRequest, scylla: Scylla, table: str, tmp_path: Path
) -> tuple[list[str], str, Checkpoint]:
    """The options, reader name and checkpoint for each kind of checkpoint store."""
    keyspace, name = table.split(".")
    [row] = scylla.session.execute(
        "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s",
        (keyspace, name),
    )
    kept = Checkpoint(time.time_ns() // 1_000, table_id=row.id)
    of_app = CheckpointName("app", TableName.parse(table))
    match request.param:
        case "sqlite":
            store = SqliteCheckpoints(tmp_path / "c.db")
            store.save(of_app, kept)
            store.close()
            return ["--checkpoint", str(tmp_path / "c.db")], "app", kept
        case "scylla":
            in_table = ScyllaCheckpoints(scylla.contact_point, keyspace, "kept")
            in_table.save(of_app, kept)
            in_table.close()
            return ["--checkpoint-table", f"{keyspace}.kept"], "app", kept
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id": "the-query"}')
    of_spark = {"version": 1, "position": kept.position, "table": table, "id": str(row.id)}
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(of_spark)}")
    return ["--checkpoint", str(tmp_path)], "the-query", kept


def test_a_table_created_again_is_an_alarm(
    scylla: Scylla, table: str, place: tuple[list[str], str, Checkpoint]
) -> None:
    """The lag is unknown if the position belongs to a table that was dropped and recreated."""
    options, reader, kept = place
    arguments = (table, *options, "--max-lag", "1h")
    assert invoke(scylla, *arguments).exit_code == 0
    scylla.session.execute(f"DROP TABLE {table}")
    scylla.session.execute(
        f"CREATE TABLE {table} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}"
    )
    outcome = invoke(scylla, *arguments)
    assert outcome.exit_code == 1
    [line] = outcome.stderr.splitlines()
    told = f"table {table} was dropped and created again, or is in another cluster: the position"
    assert line.startswith(
        f"Error: {table}: {reader} (1/1) cannot resume: {told} belongs to the table with id "
        f"{kept.table_id}"
    )
    assert f"{reader} (1/1): {told}" in outcome.stdout
    [found] = json.loads(invoke(scylla, *arguments, "--json").stdout)["applications"]
    assert (found["lag_seconds"], found["expires_in_seconds"]) == (None, None)
    assert found["fault"].startswith(f"cannot resume: {told}")


@pytest.mark.needs("topology")
@pytest.mark.parametrize("behind", [0, HOUR])
def test_a_log_created_again_is_an_alarm(tmp_path: Path, behind: int) -> None:
    """If a log was recreated, all output formats report that rows of the old log are lost."""
    clock, table, file = ManualClock(time.time_ns() // 1_000 - 2 * HOUR), "ks.t", tmp_path / "c.db"
    with EmbeddedScylla(ring_delay_ms=0, clock=clock) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        server.execute(f"CREATE TABLE {table} (p int PRIMARY KEY) WITH cdc = {{'enabled': true}}")
        clock.advance(HOUR)
        with CdcReader(server.contact_point, table, clock=clock) as reader:
            *_, last = reader.table.follow(end=format_timestamp(clock.now() - 60 * SECOND))
        assert isinstance(last, WindowComplete)
        store = SqliteCheckpoints(file)
        store.save(CheckpointName("app", TableName.parse(table), "1/2"), last.checkpoint)
        store.close()
        clock.advance(SECOND)
        server.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': false}}")
        server.execute(f"DROP TABLE {table}_scylla_cdc_log")
        server.skew_clock(server.nodes[0], -behind)
        server.execute(f"ALTER TABLE {table} WITH cdc = {{'enabled': true}}")
        html = tmp_path / "status.html"
        arguments = ("status", "--hosts", server.contact_point, table, "--checkpoint", str(file))
        told = "the log was dropped and created again: its changes since the position"
        plain = CliRunner().invoke(main, [*arguments, "--max-lag", "30d", "--html", str(html)])
        assert plain.exit_code == 1
        assert f"app (1/2) has lost rows: {told}" in plain.stderr
        assert told in plain.stdout
        assert told in html.read_text()
        assert "never ran" in html.read_text()
        as_json = CliRunner().invoke(main, [*arguments, "--json"])
        [of_first, _] = json.loads(as_json.stdout)["applications"]
        assert of_first["fault"].startswith(f"has lost rows: {told}")


def test_a_position_in_the_future_is_an_alarm(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """The exit status is 1 if a position is in the future by more than `--max-lag`."""
    file, now = tmp_path / "c.db", time.time_ns() // 1_000
    save(file, table, ahead=Checkpoint(now + 25 * HOUR))
    arguments = (table, "--checkpoint", str(file), "--max-lag")
    outcome = invoke(scylla, *arguments, "1h")
    assert outcome.exit_code == 1
    assert "ahead (1/2) reads nothing yet: its position is 1 d " in outcome.stderr
    assert invoke(scylla, *arguments, "26h").exit_code == 0


def test_an_unknown_lag_is_an_alarm() -> None:
    """The lag is unknown if nothing is acknowledged and no generation is announced."""
    name = CheckpointName("app", TableName("ks", "t"))
    assert Reader(name, None).alarm(HOUR) == (
        "the lag of app (1/1) is unknown: the cluster has announced no generation yet"
    )


def test_a_new_reader_lags_by_the_whole_log(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """A reader that has acknowledged nothing lags by the whole log."""
    age = (time.time_ns() // 1_000 - generation_start(scylla, table)) / SECOND
    save(tmp_path / "positions", table, new=Checkpoint(BEGINNING))
    arguments = (table, "--checkpoint", str(tmp_path / "positions"), "--max-lag")
    assert invoke(scylla, *arguments, f"{int(age * 1000)}ms").exit_code == 1
    assert invoke(scylla, *arguments, "3h").exit_code == 0


@pytest.mark.needs("topology")
def test_only_generations_with_live_rows_are_queried() -> None:
    """Only generations with live rows are listed, and the log is not queried."""
    clock = ManualClock(time.time_ns() // 1_000 - HOUR)
    with EmbeddedScylla(vnodes=2, shards=1, ring_delay_ms=0, clock=clock) as server:
        server.execute(
            "CREATE KEYSPACE ks WITH replication = "
            "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1} "
            "AND tablets = {'enabled': false}"
        )
        for name, ttl in (("kept", 0), ("brief", 60)):
            server.execute(
                f"CREATE TABLE ks.{name} (p int PRIMARY KEY) "
                f"WITH cdc = {{'enabled': true, 'ttl': {ttl}}}"
            )
        server.join(vnodes=3, shards=1)
        clock.advance(HOUR)
        server.faults.add(Fault.parse("server-error,times=1000,match=cdc$"))
        runner, base = CliRunner(), ["status", "--hosts", server.contact_point, "--json"]
        brief, kept = (runner.invoke(main, [*base, f"ks.{name}"]) for name in ("brief", "kept"))
    states = [
        [row["state"] for row in json.loads(found.stdout)["generations"]] for found in (kept, brief)
    ]
    assert states == [["over", "in force"], ["in force"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--application", "a"], "--application, --shard and --max-lag need --checkpoint or"),
        (["--watch", "--checkpoint", "{tmp}/c", "--max-lag", "1h"], "--max-lag is an answer for o"),
        (["--checkpoint", "{tmp}/c", "--max-lag", "5"], "--max-lag is '5': give a unit, such as"),
        (
            ["--checkpoint", "{tmp}/missing"],
            "missing': no such file; give the checkpoint file of a reader",
        ),
        (["--checkpoint", "{tmp}/c", "--application", "b"], "--application is 'b': of {table}, "),
    ],
)
def test_a_missing_position_is_reported_in_one_line(
    scylla: Scylla, table: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """A missing position is reported with exit status 2, and the missing file is not created."""
    save(tmp_path / "c", table, a=Checkpoint(0))
    given = (argument.format(tmp=tmp_path) for argument in arguments)
    outcome = invoke(scylla, table, *given)
    assert outcome.exit_code == 2
    [line] = outcome.stderr.splitlines()
    assert message.format(table=table) in line
    assert not (tmp_path / "missing").exists()


def test_the_progress_of_a_snapshot_is_shown(scylla: Scylla, table: str, tmp_path: Path) -> None:
    """Each shard is shown with its row count, completed percentage and remaining time.

    The checkpoint that the shards share is not listed.
    """
    file, began = tmp_path / "c.db", time.time_ns() // 1_000 - 60 * SECOND
    quarter = TokenRanges([TokenRange(MIN_TOKEN, MIN_TOKEN + (1 << 62))])
    start = Checkpoint(began, snapshot=SnapshotProgress(began, None, quarter, 1234))
    save(file, table, app=start)
    store = SqliteCheckpoints(file)
    store.save(CheckpointName("app", TableName.parse(table), "0/2"), start)
    store.close()
    readers = found(scylla, table, "--checkpoint", str(file))["applications"]
    assert [reader["shard"] for reader in readers] == ["1/2", "2/2"]
    snapshot = readers[0]["snapshot"]
    assert (snapshot["rows"], snapshot["share"]) == (1234, 0.5)
    assert snapshot["seconds_left"] == pytest.approx(60, abs=30)
    shown = invoke(scylla, table, "--checkpoint", str(file)).stdout
    assert "snapshot: 1,234 rows, 50%, 1 min left" in shown
