"""The page on Kafka: its query writes to a real broker, which is started from Maven's artifacts."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyspark
import pytest

from cdc_reader.testing import Scylla
from tests import maven

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/write-to-kafka.md").read_text()
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUNNER = Path(__file__).with_name("run_kafka.py")
POM = Path(__file__).with_name("kafka.xml")
TABLE = (
    "CREATE TABLE {ks}.orders (customer int, number int, status text, "
    "PRIMARY KEY (customer, number)) "
    "WITH cdc = {{'enabled': true, 'preimage': 'full', 'postimage': true}}"
)
INSERT = "INSERT INTO {ks}.orders (customer, number, status) VALUES (7, %s, 'placed')"
CHANGES = (
    "UPDATE {ks}.orders SET status = 'shipped' WHERE customer = 7 AND number = 2",
    "DELETE FROM {ks}.orders WHERE customer = 7 AND number = 1",
)
TOPIC = "cluster.shop.orders"

Messages = list[dict[str, Any]]


def jars(profile: str, **properties: str) -> list[Path]:
    """Return the artifacts of a profile of the POM, or skip the test if they are unavailable."""
    try:
        return maven.jars(POM, profile, **properties)
    except maven.Unavailable as error:
        pytest.skip(str(error))


def sink_jars() -> list[Path]:
    """Return Spark's sink for Kafka, of the newest patch release that Maven's repositories have."""
    series, _, patch = pyspark.__version__.rpartition(".")
    for earlier in range(int(patch), 0, -1):
        with suppress(maven.Unavailable):
            return maven.jars(POM, "sink", spark=f"{series}.{earlier}")
    return jars("sink", spark=f"{series}.0")


def free_port() -> int:
    """Return a port that nothing listens on."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Broker:
    """A Kafka broker that is its own controller."""

    def __init__(self, classes: list[Path], folder: Path) -> None:
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._java = ["java", "-Xmx256m", "-cp", ":".join(map(str, classes))]
        self._config = folder / "server.properties"
        self._log = folder / "kafka.log"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "num.partitions": "3",
            "offsets.topic.replication.factor": "1",
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        self._config.write_text("\n".join(lines))
        self._run("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c").wait()
        self.process = self._run("kafka.Kafka")

    def wait(self) -> None:
        """Wait until the broker accepts connections, and fail if it ends first."""
        host, _, port = self.address.partition(":")
        while True:
            with suppress(ConnectionRefusedError):
                socket.create_connection((host, int(port))).close()
                return
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
                raise AssertionError(self._log.read_text()[-2_000:])

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [*self._java, program, *arguments, str(self._config)]
            return subprocess.Popen(command, stdout=log, stderr=log)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running broker."""
    broker = Broker(jars("broker"), tmp_path)
    broker.wait()
    yield broker
    broker.process.kill()
    broker.process.wait()


@pytest.fixture
def orders(scylla: Scylla, keyspace: str) -> str:
    """A keyspace with the page's table, whose log contains changes of all kinds."""
    scylla.session.execute(TABLE.format(ks=keyspace))
    for number in (1, 2, 3):
        scylla.session.execute(INSERT.format(ks=keyspace), (number,))
    for statement in CHANGES:
        scylla.session.execute(statement.format(ks=keyspace))
    return keyspace


def written(
    broker: Broker, scylla: Scylla, keyspace: str, folder: Path, *, tombstones: bool = False
) -> Messages:
    """Run the page's query, and return all messages of the topic."""
    code, with_tombstones = BLOCK.findall(PAGE)
    if tombstones:
        code = code.replace("messages =", f"{with_tombstones}messages =")
    code = code.replace("scylla.example.com:9042", scylla.contact_point)
    code = code.replace("kafka.example.com:9092", broker.address)
    code = code.replace('"shop"', f'"{keyspace}"').replace("/data/", f"{folder}/")
    code = code.replace(".load()", '.option("confidenceWindow", "0s").load()')
    sink = ",".join(map(str, sink_jars()))
    ran = subprocess.run(
        [sys.executable, str(RUNNER), str(folder), sink, broker.address, TOPIC],
        input=code,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    found: Messages = json.loads(ran.stdout.splitlines()[-1])
    return found


def without_times(messages: Messages) -> list[tuple[str, str, str]]:
    """Return key, sequence and value of each message, without the times of reading."""
    shown = []
    for message in messages:
        value = json.loads(message["value"])
        for name in ("ts_ms", "ts_us", "ts_ns"):
            del value[name]
        shown.append((message["key"], message["sequence"], json.dumps(value, sort_keys=True)))
    return shown


@pytest.mark.slow
@pytest.mark.spark
def test_the_query_writes_the_messages(
    scylla: Scylla, orders: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """After a crash, repeated messages have the same key, sequence and value as before."""
    sink_jars()
    broker: Broker = request.getfixturevalue("broker")
    first = written(broker, scylla, orders, tmp_path)
    values = [json.loads(message["value"]) for message in first]
    keys = [json.loads(message["key"]) for message in first]
    assert sorted(key["number"] for key in keys) == [1, 1, 2, 2, 3]
    of_second = [v for k, v in zip(keys, values, strict=True) if k["number"] == 2]
    assert [value["op"] for value in of_second] == ["c", "u"]
    placed = {"customer": 7, "number": 2, "status": "placed"}
    assert (of_second[0]["before"], of_second[0]["after"]) == (None, placed)
    assert of_second[1]["after"] == {**placed, "status": "shipped"}
    (deleted,) = [value for value in values if value["op"] == "d"]
    assert (deleted["before"]["number"], deleted["after"]) == (1, None)

    forget_last(tmp_path / "orders.kafka.checkpoint")
    again = without_times(written(broker, scylla, orders, tmp_path))
    assert len(again) == 2 * len(first)
    assert set(again) == set(without_times(first))

    insert = INSERT.format(ks=orders)
    scylla.session.execute(CHANGES[1].format(ks=orders))
    scylla.session.execute(insert, (1,))
    every = written(broker, scylla, orders, tmp_path, tombstones=True)
    last = [message["value"] for message in every if json.loads(message["key"])["number"] == 1][-3:]
    assert last[1] is None
    assert [json.loads(last[at])["op"] for at in (0, 2)] == ["d", "c"]


def forget_last(checkpoint: Path) -> None:
    """Change the checkpoint as if Spark had crashed before it recorded the micro-batch as done."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
