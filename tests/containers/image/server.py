"""The embedded server in a container, which is started like ScyllaDB's image.

The container accepts the options of that image. Options that only concern a real server's hardware
and files have no effect.

All nodes share one store in one process, in the container that is started without `--seeds`. A
container with `--seeds` adds a node to that process, and relays CQL and REST connections from its
own address to that node. The node is down while its container is down. Nodes thus join, leave and
fail as in a real cluster, except that the whole cluster is lost if the first container fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

from cdc_reader.testing.embedded import EmbeddedScylla

CQL_PORT, API_PORT, INTERNODE_PORT = 9042, 10000, 7000
_WITHOUT_EFFECT = (
    "api-address", "authorizer", "blocked-reactor-notify-ms", "broadcast-address",
    "broadcast-rpc-address", "cpuset", "developer-mode", "endpoint-snitch",
    "experimental-features", "io-setup", "memory", "overprovisioned", "reserve-memory",
    "rpc-address", "skip-wait-for-gossip-to-settle",
)  # fmt: skip
_CREDENTIALS = ("cassandra", "cassandra")
VERSION = os.environ["SCYLLA_VERSION"]
_RELEASE = tuple(map(int, VERSION.split(".")[:2]))


class _Parser(argparse.ArgumentParser):
    """Tells of errors as the real server does."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()[0]
        found = f"unrecognised option '{unknown}'" if unknown.startswith("-") else message
        print(f"error: {found}\n\nTry --help.", file=sys.stderr)
        sys.exit(2)


def options() -> argparse.Namespace:
    """Parse the command line. Like the real server, reject unknown options."""
    parser = _Parser(allow_abbrev=False)
    if _RELEASE >= (5, 4):
        parser.add_argument("--auth-superuser-name")
        parser.add_argument("--auth-superuser-salted-password")
    parser.add_argument("--authenticator", default="AllowAllAuthenticator")
    parser.add_argument("--cluster-name", default="")
    parser.add_argument("--listen-address", default="")
    parser.add_argument("--num-tokens", type=int, default=256)
    parser.add_argument("--ring-delay-ms", type=int, default=30_000)
    parser.add_argument("--seeds", default="")
    parser.add_argument("--smp", type=int, default=1)
    parser.add_argument("--tablets-mode-for-new-keyspaces", default="disabled")
    for name in _WITHOUT_EFFECT:
        parser.add_argument(f"--{name}")
    return parser.parse_args()


def superuser(given: argparse.Namespace) -> tuple[str, str]:
    """Return the name and password of the superuser that the real server would create.

    From 2026.2 on, that is none without the option. A salted password can only be that of
    'cassandra'.
    """
    if not getattr(given, "auth_superuser_name", None):
        return _CREDENTIALS if _RELEASE < (2026, 2) else ("", secrets.token_hex())
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    salted = given.auth_superuser_salted_password.encode()
    if crypt(_CREDENTIALS[1].encode(), salted) != salted:
        raise SystemExit("expected the salted password of 'cassandra'")
    return given.auth_superuser_name, _CREDENTIALS[1]


class FirstNode:
    """The container that holds the data. Its ring includes the nodes of other containers.

    Another container connects to the internode port and sends a line. ``join ADDRESS`` keeps that
    container's node up while the connection lasts. ``relay ADDRESS PORT`` relays bytes, in both
    directions, between the connection and that port of the node.
    """

    def __init__(self, given: argparse.Namespace, address: str) -> None:
        has_login = given.authenticator.endswith("PasswordAuthenticator")
        self._given = given
        self._superuser = superuser(given)
        self._listening: dict[str, str] = {}
        self._scylla = EmbeddedScylla(
            address,
            CQL_PORT,
            api_port=API_PORT,
            vnodes=given.num_tokens,
            shards=given.smp,
            version=VERSION,
            credentials=self._superuser if has_login else None,
            cluster_name=given.cluster_name or "embedded",
            ring_delay_ms=given.ring_delay_ms,
            tablets=given.tablets_mode_for_new_keyspaces != "disabled",
        )

    async def run(self, address: str) -> None:
        """Serve until the process ends."""
        with self._scylla:
            server = await asyncio.start_server(self._accept, address, INTERNODE_PORT)
            print(f"listening on {self._scylla.contact_point}", flush=True)
            if self._superuser[0]:
                print("Created default superuser authentication record.", flush=True)
            async with server:
                await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            verb, address, *port = (await reader.readline()).decode().split()
            if verb == "join":
                await self._keep(address, reader, writer)
            else:
                await relay(reader, writer, (self._listening[address], int(port[0])))
        except (ConnectionError, KeyError, ValueError) as error:
            print(f"refused: {error!r}", file=sys.stderr, flush=True)
        finally:
            writer.close()

    async def _keep(
        self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Keep the node up until its container closes the connection."""
        await asyncio.to_thread(self._arrive, address)
        writer.write(b"joined\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        await asyncio.to_thread(self._if_on_ring, address, self._scylla.take_down)

    def _arrive(self, address: str) -> None:
        if address in self._listening:
            self._if_on_ring(address, self._scylla.bring_up)
            return
        self._listening[address] = f"127.0.0.{len(self._listening) + 2}"
        self._scylla.join(
            self._given.num_tokens, self._given.smp, address, self._listening[address]
        )

    def _if_on_ring(self, address: str, action: Callable[..., None]) -> None:
        for node in self._scylla.cluster.nodes:
            if node.address == address:
                action(node)


async def relay_node(seed: str, address: str) -> None:
    """Run the container of another node: join through the first container, then relay to it."""
    reader, writer = await asyncio.open_connection(seed, INTERNODE_PORT)
    writer.write(f"join {address}\n".encode())
    if not await reader.readline():
        raise SystemExit(f"{seed} did not let {address} join")

    def accept(port: int) -> Callable[..., Awaitable[None]]:
        async def to_first(own: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
            opening = f"relay {address} {port}\n".encode()
            with contextlib.suppress(ConnectionError):
                await relay(own, answers, (seed, INTERNODE_PORT), opening)
            answers.close()

        return to_first

    for port in (CQL_PORT, API_PORT):
        await asyncio.start_server(accept(port), address, port)
    print(f"{address} joined {seed}", flush=True)
    await reader.read()  # until the first container ends
    writer.close()


async def relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    to: tuple[str, int],
    opening: bytes = b"",
) -> None:
    """Relay bytes between a connection and a new one, on which `opening` is sent first."""
    far_reader, far_writer = await asyncio.open_connection(*to)
    far_writer.write(opening)
    await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


def main() -> None:
    """Run one container."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    given = options()
    address = given.listen_address or socket.gethostbyname(socket.gethostname())
    seed = given.seeds.split(",")[0]
    if seed and seed != address:
        asyncio.run(relay_node(seed, address))
    else:
        asyncio.run(FirstNode(given, address).run(address))


if __name__ == "__main__":
    main()
