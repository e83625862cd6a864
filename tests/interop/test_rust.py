"""ScyllaDB's Rust CDC library reads the log of the server under test."""

import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from cdc_reader.testing.target import Scylla

PROGRAM = Path(__file__).parent / "rust"
ROWS = 60


@pytest.fixture(scope="module")
def interop() -> Path:
    """The path of the compiled program."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo on this machine: install Rust to run the Rust library")
    manifest = ("--quiet", "--manifest-path", str(PROGRAM / "Cargo.toml"))
    fetched = subprocess.run(
        ["cargo", "fetch", *manifest], capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        reason = (fetched.stderr.strip().splitlines() or ["no reason given"])[-1].strip()
        pytest.skip(f"the Rust library cannot be fetched: {reason}")
    subprocess.run(["cargo", "build", *manifest], check=True)
    return PROGRAM / "target" / "debug" / "scylla-cdc-interop"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_rust_library_reads_every_row_once(
    scylla: Scylla, keyspace: str, interop: Path
) -> None:
    """Each row is read once, with the operation that was written."""
    session = scylla.session
    session.execute(
        f"CREATE TABLE {keyspace}.t (pk int, ck int, v text, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'preimage': true, 'postimage': true}"
    )
    start = int(time.time() * 1000) - 1000
    insert = session.prepare(f"INSERT INTO {keyspace}.t (pk, ck, v) VALUES (?, ?, ?)")
    for number in range(ROWS):
        session.execute(insert, (number % 7, number % 5, f"value {number}"))
    session.execute(f"DELETE FROM {keyspace}.t WHERE pk = 1 AND ck = 1")
    expected = sorted(
        (stream.hex(), time_id.int, number)
        for stream, time_id, number in session.execute(
            'SELECT "cdc$stream_id", "cdc$time", "cdc$batch_seq_no" '
            f"FROM {keyspace}.t_scylla_cdc_log"
        )
    )
    end = int(time.time() * 1000) + 1
    command: list[str | Path] = [interop, scylla.contact_point, keyspace, "t", str(start), str(end)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = [line.split() for line in run.stdout.splitlines()]
    keys = [(stream, uuid.UUID(at).int, int(number)) for stream, at, number, *_ in found]
    assert sorted(keys) == expected
    assert {operation for *_, operation, _ in found} >= {"PreImage", "RowInsert", "PostImage"}
