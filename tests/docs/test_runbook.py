"""The runbook's code moves a checkpoint to another store, and a consumer can resume there."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

from cdc_reader import ConnectionConfig, SqliteCheckpoints, TableName
from cdc_reader.checkpoints import ScyllaCheckpoints
from cdc_reader.checkpoints.store import CheckpointName, Owner
from cdc_reader.reading.cursor import Checkpoint, KnownGenerations
from cdc_reader.testing import Scylla

PAGE = Path(__file__).parents[2] / "docs/operate/runbook.md"
POSITION = 1_795_338_000_000_000
KNOWN = KnownGenerations(POSITION - 1, (POSITION - 1,))


def test_a_checkpoint_moves_to_another_store(scylla: Scylla, keyspace: str, tmp_path: Path) -> None:
    """The code of the page moves a checkpoint, with the test's cluster and directory."""
    found = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    code = found[1].replace("scylla.example.com:9042", scylla.contact_point)
    code = code.replace('"shop"', f'"{keyspace}"').replace("/data/", f"{tmp_path}/")
    name = CheckpointName("printer", TableName(keyspace, "orders"))
    owner = Owner.of_this_process(POSITION)
    before = SqliteCheckpoints(tmp_path / "printer.db")
    before.acquire(name, owner, timedelta(seconds=30))
    before.save_as(owner, name, Checkpoint(POSITION, KNOWN))
    before.close()

    exec(compile(code, str(PAGE), "exec"), {})

    after = ScyllaCheckpoints(ConnectionConfig(scylla.contact_point), keyspace)
    assert after.load(name) == Checkpoint(POSITION, KNOWN)
    assert after.acquire(name, owner, timedelta(seconds=30)) == owner
    assert after.save_as(owner, name, Checkpoint(POSITION + 1, KNOWN))
    after.close()
