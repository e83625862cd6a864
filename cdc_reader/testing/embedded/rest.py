"""The part of the nodes' REST API that test suites use.

It lists nodes and keyspaces, repairs streams, and removes nodes from the ring. The server has no
files, so requests that only affect files are accepted and do nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from attrs import frozen

from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.topology.ring import Node

_OF_FILES = {
    "autocompaction", "compact", "flush", "keyspace_cleanup", "keyspace_compaction",
    "keyspace_flush", "keyspace_upgrade_sstables", "major_compaction", "snapshots",
}  # fmt: skip


class _Refused(Exception):
    """The request is rejected, with an HTTP status and a reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ClusterAdmin(Protocol):
    """Administration of the cluster; `EmbeddedScylla` implements this."""

    catalog: Catalog

    @property
    def nodes(self) -> tuple[Node, ...]: ...
    def is_up(self, node: Node) -> bool: ...
    def leave(self, node: Node) -> None: ...
    def check_and_repair_streams(self) -> object: ...


@frozen
class RestApi:
    """Handles the HTTP requests to the node at `address`."""

    scylla: ClusterAdmin
    address: str

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to one request, then close the connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            status, answer = self._answered(method, target)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            status, answer = _refusal(HTTPStatus.BAD_REQUEST, "expected an HTTP request")
        body = json.dumps(answer).encode()
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        writer.close()

    def _answered(self, method: str, target: str) -> tuple[HTTPStatus, Any]:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = url.path.strip("/").split("/")
        try:
            answer = {"GET": self._read, "POST": self._act}.get(method, self._refuse)
            return HTTPStatus.OK, answer(path, query)
        except _Refused as refused:
            return _refusal(refused.status, str(refused))

    def _read(self, path: list[str], _: dict[str, str]) -> Any:
        scylla, nodes = self.scylla, self.scylla.nodes
        facts: dict[str, Callable[[], Any]] = {
            "gossiper/endpoint/down": lambda: [n.address for n in nodes if not scylla.is_up(n)],
            "gossiper/endpoint/live": lambda: [n.address for n in nodes if scylla.is_up(n)],
            "storage_service/host_id": lambda: [
                {"key": node.address, "value": str(node.host_id)} for node in nodes
            ],
            "storage_service/hostid/local": lambda: str(self._own_node().host_id),
            "storage_service/keyspaces": lambda: list(scylla.catalog.keyspaces),
            "storage_service/operation_mode": lambda: "NORMAL",
            "storage_service/scylla_release_version": lambda: scylla.catalog.profile.version,
        }
        return facts.get("/".join(path), self._refuse)()

    def _act(self, path: list[str], query: dict[str, str]) -> None:
        match path:
            case ["storage_service", "cdc_streams_check_and_repair"]:
                self.scylla.check_and_repair_streams()
            case ["storage_service", "decommission"]:
                self._leave(self._own_node())
            case ["storage_service", "remove_node"]:
                host_id = query.get("host_id", "")
                self._leave(self._node(lambda node: str(node.host_id) == host_id))
            case ["storage_service" | "column_family", verb, *names] if verb in _OF_FILES:
                self._check_tables(names, query)
            case _:
                self._refuse()

    def _refuse(self, *_: object) -> None:
        raise _Refused(HTTPStatus.NOT_FOUND, "Not found")

    def _own_node(self) -> Node:
        return self._node(lambda node: node.address == self.address)

    def _node(self, is_meant: Callable[[Node], bool]) -> Node:
        for node in self.scylla.nodes:
            if is_meant(node):
                return node
        raise _Refused(HTTPStatus.BAD_REQUEST, "expected a node on the ring")

    def _leave(self, node: Node) -> None:
        try:
            self.scylla.leave(node)
        except ValueError as error:
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, str(error)) from error

    def _check_tables(self, names: list[str], query: dict[str, str]) -> None:
        """Check that the keyspaces and tables that a request names exist.

        Each of `names` is KEYSPACE or KEYSPACE:TABLE. The parameter ``cf`` in `query` may list
        tables.
        """
        for name in names:
            keyspace, _, table = name.partition(":")
            if keyspace not in self.scylla.catalog.keyspaces:
                raise _Refused(HTTPStatus.BAD_REQUEST, f"Can't find a keyspace {keyspace}")
            for each in filter(None, [table, *query.get("cf", "").split(",")]):
                if not self.scylla.catalog.has(keyspace, each):
                    reason = f"Can't find a column family {each} in keyspace {keyspace}"
                    raise _Refused(HTTPStatus.BAD_REQUEST, reason)


def _refusal(status: HTTPStatus, reason: str) -> tuple[HTTPStatus, Any]:
    return status, {"message": reason, "code": status.value}
