"""Adapts the driver: keeps result pages as bytes, takes long decimals, evens out the two drivers.

By default, the driver turns each cell into a Python object. Here, the body of a ROWS result is kept
as received, until `decoding` reads it. Either cassandra-driver or scylla-driver may be installed.
Both provide the package `cassandra`; scylla-driver is a fork that can send a query to a shard.
"""

from __future__ import annotations

import functools
import inspect
import io
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from cassandra import cqltypes
from cassandra.cluster import Cluster, Session
from cassandra.marshal import int32_pack, varint_pack
from cassandra.protocol import ResultMessage, _ProtocolHandler
from cassandra.query import PreparedStatement

from cdc_reader._log import get_logger
from cdc_reader.cql.schema import Column
from cdc_reader.decoding import Page
from cdc_reader.decoding.buffer import Buffer
from cdc_reader.decoding.metadata import ResultMetadata, read_metadata
from cdc_reader.reading.retry import Interruption, wait_for

log = get_logger(__name__)

DRIVERS = ("cassandra-driver", "scylla-driver")
_UNKNOWN_TO_SOME = frozenset({"monitor_reporting_enabled"})


class PageResult(ResultMessage):  # type: ignore[misc]
    """A RESULT whose rows are kept as bytes: `parsed_rows` contains a single Page."""

    def recv_results_metadata(self, f: io.BytesIO, user_type_map: object) -> None:  # noqa: ARG002
        """Read the metadata of a statement that is being prepared."""
        buffer = Buffer(f.getvalue(), f.tell())
        self._keep(read_metadata(buffer))
        f.seek(buffer.position)

    def recv_results_rows(
        self,
        f: io.BytesIO,
        protocol_version: int,
        user_type_map: object,
        result_metadata: tuple[Column, ...] | None,
        column_encryption_policy: object,
    ) -> None:
        """Keep the body as bytes, starting at its kind; only the metadata is parsed now."""
        del protocol_version, user_type_map, column_encryption_policy
        page = Page.parse(f.getvalue()[f.tell() - 4 :], result_metadata or None)
        self._keep(page.metadata)
        self.column_names = self.column_types = ()
        self.parsed_rows = [page]

    def _keep(self, metadata: ResultMetadata) -> None:
        self.column_metadata = metadata.columns
        self.paging_state = metadata.paging_state
        if metadata.metadata_id is not None:
            self.result_metadata_id = metadata.metadata_id


class PageProtocol(_ProtocolHandler):  # type: ignore[misc]
    """The protocol handler of sessions that read rows as pages of bytes."""

    message_types_by_opcode: ClassVar[dict[int, Any]] = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: PageResult,
    }


def open_cluster(settings: Mapping[str, Any]) -> Cluster:
    """Open a Cluster with these settings; omit settings that the installed driver lacks."""
    warn_of_two_drivers()
    known = inspect.signature(Cluster.__init__).parameters
    left_out = _UNKNOWN_TO_SOME - known.keys()
    return Cluster(**{name: value for name, value in settings.items() if name not in left_out})


def wait_for_nodes(session: Session, interruption: Interruption) -> None:
    """Wait, at most a second, until the session has connected to all nodes that it can reach.

    A session opens as soon as it has connected to one of them.
    """
    until = time.monotonic() + 1
    for connecting in session._initial_connect_futures:  # noqa: SLF001 - told nowhere else
        if not connecting.done():
            wait_for(connecting.add_done_callback, interruption, until - time.monotonic())


def application(name: str) -> dict[str, Any]:
    """Return the settings that report the application's name to the server."""
    try:
        from cassandra.application_info import ApplicationInfo
    except ImportError:
        return {"application_name": name}
    return {"application_info": ApplicationInfo(application_name=name)}


def forget_columns(statement: PreparedStatement) -> None:
    """Make the server include the metadata in the next result again."""
    if hasattr(statement, "update_result_metadata"):
        statement.update_result_metadata(None, statement.result_metadata_id)
    else:
        statement.result_metadata = None


def keep_columns(statement: PreparedStatement, columns: Sequence[Column]) -> None:
    """Let later results omit their metadata, which has been checked against `columns`.

    If the server assigns an id to the metadata, scylla-driver sends the id with each request, and
    replaces the id and the metadata when the server reports a change. Metadata that the driver has
    already replaced is kept.
    """
    if not hasattr(statement, "update_result_metadata"):
        statement.result_metadata = columns
        return
    known, metadata_id = statement.result_metadata_and_id
    if known is None:
        statement.update_result_metadata(columns, metadata_id)


@functools.cache
def warn_of_two_drivers() -> None:
    """Warn, once per process, if both drivers are installed, because they share one directory."""
    found = installed_drivers()
    if len(found) > 1:
        log.warning(
            "two_drivers_installed",
            found=", ".join(f"{name} {number}" for name, number in found.items()),
            remedy="each overwrites files of the other: run 'pip uninstall -y "
            f"{' '.join(DRIVERS)}', then install one of them",
        )


def installed_drivers() -> dict[str, str]:
    """Return the versions of the drivers that are installed, by name."""
    found = {}
    for name in DRIVERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


class _Decimal(cqltypes.DecimalType):  # type: ignore[misc]
    """Decimals with any number of digits.

    The driver converts the digits from text to an integer, which Python refuses to do for more than
    4,300 digits. The underscore keeps the driver from using this class for other sessions.
    """

    @staticmethod
    def serialize(value: Any, _protocol_version: int) -> bytes:
        sign, digits, exponent = Decimal(value).as_tuple()
        unscaled = int(Decimal((sign, digits, 0)))
        raw: bytes = int32_pack(-exponent) + varint_pack(unscaled)  # type: ignore[operator]
        return raw


DECIMAL: Any = _Decimal
"""The driver's class for decimals, without its limit."""


def accept_long_decimals(statement: PreparedStatement) -> None:
    """Let values of the statement contain decimals with any number of digits."""
    statement.column_metadata = [
        column._replace(type=_with_long_decimals(column.type))
        for column in statement.column_metadata or ()
    ]


def _with_long_decimals(kind: Any) -> Any:
    """Return the driver's class for a type, with `DECIMAL` in place of the driver's own."""
    if kind is cqltypes.DecimalType:
        return DECIMAL
    if issubclass(kind, cqltypes.VectorType):
        return _derived(kind, "subtype", kind.subtype, _with_long_decimals(kind.subtype))
    return _derived(kind, "subtypes", kind.subtypes, [*map(_with_long_decimals, kind.subtypes)])


def _derived(kind: Any, name: str, known: Any, changed: Any) -> Any:
    """Return the class if the attribute is unchanged, or else a subclass with the new value."""
    is_same = [*known] == changed if isinstance(changed, list) else known is changed
    return kind if is_same else type(kind)(f"_{kind.__name__}", (kind,), {name: changed})
