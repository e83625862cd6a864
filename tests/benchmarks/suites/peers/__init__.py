"""The official CDC libraries in other languages, which read the same pages as this package.

Each library runs if its compiler is installed.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cdc_reader.reader import CdcReader
from tests.benchmarks.figure import Figure
from tests.benchmarks.logs import FLAT, PAGE_ROWS, fill, log_of
from tests.benchmarks.serving import KEYSPACE, Served, serving
from tests.benchmarks.suites.read import PAGES, ROWS, batches, changes, everything
from tests.benchmarks.turns import Turn, take_turns

BUILD = Path("build", "peers")
_SOURCES = Path(__file__).parent


def rust() -> list[str] | None:
    """Build the program with ScyllaDB's Rust library. Return its command, or None without cargo."""
    if shutil.which("cargo") is None:
        return None
    target = BUILD / "rust"
    manifest = _SOURCES / "rust" / "Cargo.toml"
    places = ["--manifest-path", str(manifest), "--target-dir", str(target)]
    subprocess.run(["cargo", "build", "--release", "--quiet", *places], check=True)
    return [str(target / "release" / "scylla-cdc-peer")]


def go() -> list[str] | None:
    """Build the program with ScyllaDB's Go library. Return its command, or None without go."""
    if shutil.which("go") is None:
        return None
    program = (BUILD / "go" / "scylla-cdc-peer").resolve()
    # -mod=mod: the module checksums are not stored, so they are computed again.
    places = ["-C", str(_SOURCES / "go"), "-mod=mod", "-o", str(program)]
    subprocess.run(["go", "build", *places], check=True)
    return [str(program)]


def java() -> list[str] | None:
    """Build the program with ScyllaDB's Java library. Return its command, or None without mvn."""
    if shutil.which("mvn") is None:
        return None
    target = (BUILD / "java").resolve()  # Maven resolves relative paths against the POM's folder
    manifest = ["--file", str(_SOURCES / "java" / "pom.xml"), f"-Dtarget={target}"]
    # Retry failed look-ups: the library's parent POM is not in the expected place.
    quiet = ["--batch-mode", "--quiet", "--update-snapshots"]
    build = ["mvn", *quiet, *manifest, "compile", "dependency:copy-dependencies"]
    subprocess.run(build, stdout=sys.stderr, check=True)
    home = os.environ.get("JAVA_HOME")
    jvm = str(Path(home, "bin", "java")) if home else "java"
    return [*_on_few_processors(jvm), "-cp", f"{target}/classes:{target}/lib/*", "Peer"]


def _on_few_processors(jvm: str) -> list[str]:
    """Return the JVM command that is fastest if at most two processors are available.

    With so few processors, a JVM has no common pool by default, and the library would start a
    thread for each row. The command therefore sets the size of the pool. It also pins the JVM to
    one processor: rows pass from thread to thread, so with two processors the results vary and the
    library is up to four times slower.
    """
    processors = os.sched_getaffinity(0)
    if len(processors) > 2:
        return [jvm]
    flags = ["-Djava.util.concurrent.ForkJoinPool.common.parallelism=2", "-XX:+UseSerialGC"]
    one = ["taskset", "--cpu-list", str(max(processors))] if shutil.which("taskset") else []
    return [*one, jvm, *flags]


LEAST = {"changes_go": 1.5, "changes_rust": 0.5}
MOST = {"changes_rust_cpu": 2.2}
"""The targets."""

PEERS: dict[str, Callable[[], list[str] | None]] = {"rust": rust, "go": go, "java": java}


def figures(times: int) -> Iterator[Figure]:
    """Measure rows per second, and CPU time per row, against each peer that can run here."""
    commands = {peer: _built(peer, build) for peer, build in PEERS.items()}
    with serving() as served:
        fill(served)
        start = _now_ms() - 60_000
        served.replay_on(log_of(FLAT), PAGES, PAGE_ROWS)
        time.sleep(0.1)  # peers read up to now, so all rows must be older
        for peer, command in commands.items():
            if command is not None:
                yield from _against(peer, _reading(command, served, start), served, times)


def _built(peer: str, build: Callable[[], list[str] | None]) -> list[str] | None:
    """Return the command of a peer, or print why it cannot run here and return None."""
    try:
        command = build()
    except subprocess.CalledProcessError as error:
        print(f"{peer}: {error.cmd[0]} failed, see above, so it does not run", file=sys.stderr)
        return None
    if command is None:
        print(f"{peer}: its compiler is not installed, so it does not run", file=sys.stderr)
    return command


def _against(peer: str, read: Callable[[], Turn], served: Served, times: int) -> Iterator[Figure]:
    with CdcReader(served.config, f"{KEYSPACE}.{FLAT}") as reader:
        ours: dict[str, Callable[[], object]] = {
            "batches": lambda: batches(reader),
            "changes": lambda: changes(reader),
            "changes_used": lambda: everything(reader),
        }
        found = take_turns({**ours, peer: read}, times)
    theirs = found[peer]
    for way in ours:
        turn = found[way]
        against = f"the {peer} library's rows"
        name, cpu = f"{way}_{peer}", f"{way}_{peer}_cpu"
        rate, rival = (ROWS / each.wall for each in (turn, theirs))
        yield Figure(name, rate, "rows/s", rival, against, at_least=LEAST.get(name))
        taken, rival = (each.cpu / ROWS * 1e9 for each in (turn, theirs))
        yield Figure(cpu, taken, "ns/row", rival, against, at_most=MOST.get(cpu))


def _reading(command: list[str], served: Served, start: int) -> Callable[[], Turn]:
    """Return a function that runs a peer once. Its Turn contains the time that the peer reports."""

    def read() -> Turn:
        place = [f"127.0.0.1:{served.port}", KEYSPACE, FLAT, str(start), str(_now_ms())]
        before = _cpu_of_children()
        run = subprocess.run(
            [*command, *place], stdout=subprocess.PIPE, text=True, check=True, timeout=120
        )
        rows, seconds = run.stdout.split()
        assert int(rows) == ROWS, run.stdout
        return Turn(float(seconds), _cpu_of_children() - before)

    return read


def _cpu_of_children() -> float:
    """Return the CPU seconds of all child processes that have ended, which excludes the server."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
