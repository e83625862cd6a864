"""`scylla-cdc serve`: the embedded ScyllaDB as a process of its own."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import click
import structlog

from cdc_reader.errors import ConfigurationError
from cdc_reader.testing.embedded import EmbeddedScylla
from cdc_reader.testing.embedded.profile import NEWEST
from cdc_reader.testing.embedded.topology.cluster import RING_DELAY_MS

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the first node.")
@click.option("--port", default=9042, show_default=True, help="Port of all nodes; 0: a free one.")
@click.option("--nodes", default=1, show_default=True, help="Nodes that clients can connect to.")
@click.option("--vnodes", default=16, show_default=True, help="Token ranges of each node.")
@click.option("--shards", default=2, show_default=True, help="Shards of each node.")
@click.option("--username", help="Ask clients to log in as this user.")
@click.option("--password", help="The user's password.")
@click.option("--certificate", type=_FILE, help="Certificate chain (PEM), for TLS.")
@click.option("--key", type=_FILE, help="Private key of the certificate (PEM).")
@click.option("--version", default=NEWEST, show_default=True, help="ScyllaDB version to be like.")
@click.option(
    "--ring-delay",
    default=RING_DELAY_MS / 1000,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds: a later generation begins twice this and 5 s after a join; 0: at once.",
)
@click.option(
    "--join-after",
    "joins",
    multiple=True,
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="A node joins so long after the start; may be given several times.",
)
def command(
    host: str,
    port: int,
    nodes: int,
    vnodes: int,
    shards: int,
    username: str | None,
    password: str | None,
    certificate: Path | None,
    key: Path | None,
    version: str,
    ring_delay: float,
    joins: tuple[float, ...],
) -> None:
    """Run the embedded ScyllaDB, for development and tests, until SIGINT or SIGTERM.

    It keeps nothing on disk. Prints `listening on HOST:PORT` when clients may connect.
    """
    if (username is None) != (password is None):
        raise click.UsageError("--username and --password go together: give both or neither")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        scylla = EmbeddedScylla(
            host,
            port,
            nodes=nodes,
            vnodes=vnodes,
            shards=shards,
            version=version,
            credentials=None if username is None or password is None else (username, password),
            certificate=certificate,
            key=key,
            ring_delay_ms=round(ring_delay * 1000),
        )
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    _serve(scylla, [threading.Timer(after, _join, (scylla, vnodes, shards)) for after in joins])


def _join(scylla: EmbeddedScylla, vnodes: int, shards: int) -> None:
    try:
        generation = scylla.join(vnodes, shards)
    except (ConfigurationError, OSError) as error:
        click.echo(f"no node can join: {error}", err=True)
    else:
        address = scylla.cluster.nodes[-1].address
        click.echo(f"{address} joined, its generation begins at {generation.timestamp} ms")


def _serve(scylla: EmbeddedScylla, joins: Sequence[threading.Timer]) -> None:
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        scylla.start()
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on {scylla.contact_point}: {error.strerror}; "
            "give another --host or --port"
        ) from error
    try:
        click.echo(f"listening on {scylla.contact_point}")
        for join in joins:
            join.daemon = True  # one under way does not keep the process
            join.start()
        stop.wait()
    finally:
        for join in joins:
            join.cancel()
        scylla.stop()
