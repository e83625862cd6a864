"""`scylla-cdc serve`: runs the embedded ScyllaDB in a separate process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import click

from cdc_reader.cli.seconds import YEARS, Seconds
from cdc_reader.consumer.signals import stopped_by_signals
from cdc_reader.errors import ConfigurationError
from cdc_reader.testing.embedded import EmbeddedScylla
from cdc_reader.testing.embedded.faults import SYNTAX, Fault, FaultKind
from cdc_reader.testing.embedded.profile import NEWEST
from cdc_reader.testing.embedded.topology.cluster import RING_DELAY_MS
from cdc_reader.testing.embedded.topology.ring import Node

_SECONDS = Seconds(min=0, max=YEARS)
_KINDS = ", ".join(kind.value for kind in FaultKind)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address of the first node.")
@click.option(
    "--port", default=9042, show_default=True, help="Port of all nodes; 0 chooses a free one."
)
@click.option(
    "--api-port", type=int, help="Port of all nodes' REST API, which is 10000 on a real server."
)
@click.option("--nodes", default=1, show_default=True, help="Nodes that clients can connect to.")
@click.option("--vnodes", default=16, show_default=True, help="Token ranges of each node.")
@click.option("--shards", default=2, show_default=True, help="Shards of each node.")
@click.option("--username", help="Ask clients to log in as this user.")
@click.option("--password", help="The user's password.")
@click.option("--certificate", type=_FILE, help="Certificate chain (PEM), for TLS.")
@click.option("--key", type=_FILE, help="Private key of the certificate (PEM).")
@click.option(
    "--client-authority",
    type=_FILE,
    help="Require client certificates signed by this CA (PEM).",
)
@click.option("--tablets", is_flag=True, help="Keyspaces use tablets unless they say otherwise.")
@click.option("--version", default=NEWEST, show_default=True, help="ScyllaDB version to imitate.")
@click.option(
    "--ring-delay",
    default=RING_DELAY_MS / 1000,
    show_default=True,
    type=_SECONDS,
    help="In seconds. A generation begins twice this time plus 5 seconds after a node joins; "
    "with 0, at once.",
)
@click.option(
    "--join-after",
    "joins",
    multiple=True,
    type=_SECONDS,
    metavar="SECONDS",
    help="Add a node this long after the start. Repeatable.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar=SYNTAX,
    help="Make statements fail: the first that contains the words of match, or the first "
    f"`times`. KIND is one of {_KINDS}. Repeatable.",
)
@click.option(
    "--down-after",
    type=_SECONDS,
    metavar="SECONDS",
    help="Stop the last node this long after the start.",
)
@click.option(
    "--up-after",
    type=_SECONDS,
    metavar="SECONDS",
    help="Start the stopped node again this long after the start.",
)
@click.option(
    "--lag",
    default=0.0,
    show_default=True,
    type=_SECONDS,
    help="Let the last node learn of new schemas, nodes and streams this many seconds late.",
)
@click.option(
    "--freeze-after",
    type=_SECONDS,
    metavar="SECONDS",
    help="Let the last node learn of no changes, from this long after the start.",
)
@click.option(
    "--release-after",
    type=_SECONDS,
    metavar="SECONDS",
    help="Let the frozen node know everything again this long after the start.",
)
@click.option(
    "--clock-skew",
    default=0.0,
    show_default=True,
    type=Seconds(min=-YEARS, max=YEARS),
    help="Set each node's clock this many seconds ahead of the previous node's.",
)
def command(
    host: str,
    port: int,
    api_port: int | None,
    nodes: int,
    vnodes: int,
    shards: int,
    username: str | None,
    password: str | None,
    certificate: Path | None,
    key: Path | None,
    client_authority: Path | None,
    tablets: bool,
    version: str,
    ring_delay: float,
    joins: tuple[float, ...],
    faults: tuple[str, ...],
    down_after: float | None,
    up_after: float | None,
    lag: float,
    freeze_after: float | None,
    release_after: float | None,
    clock_skew: float,
) -> None:
    """Run the embedded ScyllaDB, for development and tests, until SIGINT or SIGTERM.

    The server stores nothing on disk. The command prints `listening on HOST:PORT` when clients may
    connect, and the port of the REST API if there is one.
    """
    if (username is None) != (password is None):
        raise click.UsageError("--username and --password go together: give both or neither")
    _check_later("--up-after", up_after, "--down-after", down_after)
    _check_later("--release-after", release_after, "--freeze-after", freeze_after)
    if nodes == 1 and (lag or freeze_after is not None):
        raise click.UsageError("--lag and --freeze-after need two --nodes or more")
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
            client_authority=client_authority,
            ring_delay_ms=round(ring_delay * 1000),
            api_port=api_port,
            tablets=tablets,
        )
        scylla.faults.add(*map(Fault.parse, faults))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    for number, node in enumerate(scylla.cluster.nodes):
        scylla.skew_clock(node, round(number * clock_skew * 1_000_000))
    last = scylla.cluster.nodes[-1]
    if lag:
        scylla.lag(last, round(lag * 1_000_000))
    events = [threading.Timer(after, _join, (scylla, vnodes, shards)) for after in joins]
    for seconds, event in (
        (down_after, _take_down),
        (up_after, _bring_up),
        (freeze_after, _freeze),
        (release_after, _release),
    ):
        if seconds is not None:
            events.append(threading.Timer(seconds, event, (scylla, last)))
    _serve(scylla, events)


def _check_later(name: str, then: float | None, first_name: str, first: float | None) -> None:
    if then is not None and (first is None or then <= first):
        raise click.UsageError(f"{name} needs {first_name}, and a later time")


def _join(scylla: EmbeddedScylla, vnodes: int, shards: int) -> None:
    try:
        generation = scylla.join(vnodes, shards)
    except (ConfigurationError, OSError) as error:
        click.echo(f"no node can join: {error}", err=True)
    else:
        address = scylla.cluster.nodes[-1].address
        click.echo(f"{address} joined; its generation begins at {generation.timestamp} ms")


def _take_down(scylla: EmbeddedScylla, node: Node) -> None:
    scylla.take_down(node)
    click.echo(f"{node.address} is down")


def _bring_up(scylla: EmbeddedScylla, node: Node) -> None:
    try:
        scylla.bring_up(node)
    except OSError as error:
        click.echo(f"{node.address} cannot come back: {error}", err=True)
    else:
        click.echo(f"{node.address} is up")


def _freeze(scylla: EmbeddedScylla, node: Node) -> None:
    scylla.freeze(node)
    click.echo(f"{node.address} is frozen")


def _release(scylla: EmbeddedScylla, node: Node) -> None:
    scylla.release(node)
    click.echo(f"{node.address} knows everything again")


def _serve(scylla: EmbeddedScylla, events: Sequence[threading.Timer]) -> None:
    stop = threading.Event()
    with stopped_by_signals(stop.set):
        _start(scylla)
        try:
            for event in events:
                event.daemon = True  # a pending event does not keep the process alive
                event.start()
            stop.wait()
        finally:
            for event in events:
                event.cancel()
            scylla.stop()


def _start(scylla: EmbeddedScylla) -> None:
    try:
        scylla.start()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no name of a host"
        raise click.ClickException(
            f"cannot listen on {scylla.contact_point}: {reason}; give another --host or --port"
        ) from error
    click.echo(f"listening on {scylla.contact_point}")
    if scylla.api_port is not None:
        click.echo(f"REST API on port {scylla.api_port} of each node")
