"""A client's session with one node, which handles its requests in order."""

from __future__ import annotations

import itertools
import secrets
import time
import traceback
from collections.abc import Iterator, Mapping
from uuid import uuid1

from attrs import Factory, define, evolve, field, frozen

from cdc_reader._log import get_logger
from cdc_reader.testing.embedded.errors import BadCredentials, CqlError, ServerError
from cdc_reader.testing.embedded.faults import FaultKind, FaultPlan, Statement, Strike
from cdc_reader.testing.embedded.faults.errors import error_of
from cdc_reader.testing.embedded.node_view import NodeView
from cdc_reader.testing.embedded.protocol import responses
from cdc_reader.testing.embedded.protocol.compression import compression_of, compressions
from cdc_reader.testing.embedded.protocol.connection import Call, Connection, State
from cdc_reader.testing.embedded.protocol.requests import (
    AuthResponse,
    Batch,
    Execute,
    Options,
    Prepare,
    Query,
    Register,
    Request,
    Startup,
)
from cdc_reader.testing.embedded.protocol.responses import Answer, ResultFormat
from cdc_reader.testing.embedded.query.engine import Engine
from cdc_reader.testing.embedded.query.model import QueryOptions
from cdc_reader.testing.embedded.query.result import Result, SetKeyspace
from cdc_reader.testing.embedded.schema.table import MURMUR3
from cdc_reader.testing.embedded.system.node_tables import CQL_VERSION
from cdc_reader.testing.embedded.system.traces import Trace, Traces
from cdc_reader.testing.embedded.topology.ring import Node

log = get_logger(__name__)

PASSWORD_AUTHENTICATOR = "org.apache.cassandra.auth.PasswordAuthenticator"  # noqa: S105 - a name
_LONG = 1 << 14
LWT_MARK_OPTION = "SCYLLA_LWT_ADD_METADATA_MARK"


def supported_options(node: Node) -> Mapping[str, tuple[str, ...]]:
    """Return a node's supported options, for its response to OPTIONS."""
    return {
        "COMPRESSION": tuple(compressions()),
        "CQL_VERSION": (CQL_VERSION,),
        LWT_MARK_OPTION: (f"LWT_OPTIMIZATION_META_BIT_MASK={responses.MetadataFlag.LWT:d}",),
        "SCYLLA_NR_SHARDS": (str(node.shards),),
        "SCYLLA_PARTITIONER": (MURMUR3,),
        "SCYLLA_RATE_LIMIT_ERROR": ("ERROR_CODE=61440",),
        "SCYLLA_SHARDING_ALGORITHM": ("biased-token-round-robin",),
        "SCYLLA_SHARDING_IGNORE_MSB": (str(node.ignore_msb),),
    }


@define(eq=False)
class Host:
    """The state shared by the sessions of a node: engine, options, credentials and faults.

    Sessions whose clients do not select a shard are assigned to the node's `shards` in turn.
    `traces` stores the traces of the node at `address`. `view` is what the node knows while it lags
    behind the cluster, and None otherwise.
    """

    _engine: Engine
    supported: Mapping[str, tuple[str, ...]]
    credentials: tuple[str, str] | None = None
    shards: int = 1
    faults: FaultPlan = field(factory=FaultPlan)
    address: str = "127.0.0.1"
    traces: Traces = field(factory=Traces)
    view: NodeView | None = field(default=None, init=False)
    _turns: Iterator[int] = field(factory=itertools.count, init=False)

    @property
    def engine(self) -> Engine:
        """The engine, which shows what the node knows now."""
        if self.view is not None:
            self.view.refresh()
        return self._engine

    def restart(self) -> None:
        """Discard the prepared statements, as a restarted node does."""
        self._engine.forget()

    def next_shard(self) -> int:
        """Return the shard of the next session."""
        return next(self._turns) % self.shards


@frozen
class Reply:
    """The bytes to send, their delay in seconds, and whether to reset the connection afterward."""

    data: bytes
    delay: float = 0.0
    breaks: bool = False


@define(eq=False)
class Session:
    """Handles the calls of one connection.

    `startup` contains the client's STARTUP options, and `events` the kinds of events that the
    client registered for. `keyspace` is the keyspace set by USE. `shard` is the shard that serves
    the connection. `shard_aware_port` is (option name, port) of the port on which clients can
    select the shard.
    """

    host: Host
    peer: tuple[str, int] = ("", 0)
    connection: Connection = field(factory=Connection)
    startup: Mapping[str, str] = field(factory=dict)
    events: frozenset[str] = frozenset()
    keyspace: str | None = None
    shard: int = field(default=Factory(lambda self: self.host.next_shard(), takes_self=True))
    shard_aware_port: tuple[str, str] | None = None

    @classmethod
    def of_shard(
        cls, host: Host, peer: tuple[str, int], shard_aware_port: tuple[str, str]
    ) -> Session:
        """Return a session on the shard that the client's port selects."""
        shard = peer[1] % host.shards
        return cls(host, peer, shard=shard, shard_aware_port=shard_aware_port)

    def receive(self, data: bytes) -> Iterator[Reply | str]:
        """Yield the response frames for the requests that `data` completes, one by one.

        Yields the text of a long statement before its response, so that the caller can parse it in
        another thread.
        """
        for call in self.connection.receive(data):
            yield from (text for text in self._texts(call.request) if len(text) > _LONG)
            strike = self._strike(call.request) if self.host.faults else None
            answer = (self._traced if call.traced else self._answer)(call, strike)
            frame = answer.frame(call.version, call.stream, self.connection.compression)
            yield Reply(frame) if strike is None else self._struck(frame, strike)

    def _traced(self, call: Call, strike: Strike | None) -> Answer:
        """Add a trace id to the response; only statements are traced."""
        host, started = self.host, time.monotonic()
        answer = self._answer(call, strike)
        request = call.request
        if not isinstance(request, Query | Prepare | Execute | Batch):
            return answer
        trace = Trace(
            uuid1(),
            self.peer[0],
            host.address,
            "QUERY",
            "; ".join(self._texts(request)),
            self.username,
            started_us=host.engine.now_us(),
            duration_us=round((time.monotonic() - started) * 1_000_000),
        )
        host.traces.add(trace)
        return evolve(answer, trace=trace.id)

    def _texts(self, request: Request | CqlError) -> Iterator[str]:
        engine = self.host.engine
        match request:
            case Query(cql) | Prepare(cql):
                yield cql
            case Execute(statement_id):
                yield engine.text(statement_id)
            case Batch(_, statements):
                for statement, _ in statements:
                    yield statement if isinstance(statement, str) else engine.text(statement)
            case _:
                pass

    def _struck(self, frame: bytes, strike: Strike) -> Reply:
        if strike.kind not in (FaultKind.DROP, FaultKind.CLOSE):
            return Reply(frame, strike.fault.seconds)
        self.connection.state = State.CLOSED
        return Reply(frame[: len(frame) // 2], breaks=strike.kind is FaultKind.DROP)

    def event(self, answer: Answer) -> bytes:
        """Encode an event for this connection."""
        connection = self.connection
        return answer.frame(connection.version, responses.EVENT_STREAM, connection.compression)

    @property
    def username(self) -> str:
        """The name of the logged-in user."""
        return self.host.credentials[0] if self.host.credentials else "anonymous"

    @property
    def is_closed(self) -> bool:
        """True if the connection must be closed after the responses that were already returned."""
        return self.connection.state is State.CLOSED

    def _strike(self, request: Request | CqlError) -> Strike | None:
        """Return the fault that affects the statement or batch in a request; None if none does."""
        engine, faults = self.host.engine, self.host.faults
        match request:
            case Query(_, _, options) | Batch(_, _, options):
                text = "; ".join(self._texts(request))
                return faults.strike(Statement(text, options.consistency))
            case Execute(statement_id, _, options):
                text = engine.text(statement_id)
                strike = faults.strike(Statement(text, options.consistency, is_prepared=True))
                if strike is not None and strike.kind is FaultKind.UNPREPARED:
                    engine.forget(statement_id)
                return strike
            case _:
                return None

    def _answer(self, call: Call, strike: Strike | None) -> Answer:
        if isinstance(call.request, CqlError):
            return responses.error(call.request)
        if strike is not None and (refusal := error_of(strike, self.username)):
            return responses.error(refusal)
        try:
            return self._handle(call.request)
        except CqlError as refusal:
            return responses.error(refusal)
        except Exception as bug:  # noqa: BLE001 - the client gets an error; the server keeps running
            # Log the traceback as text: a renderer that shows local variables would print the whole
            # database.
            trace = "".join(traceback.format_exception(bug))
            log.error("request_failed", request=repr(call.request)[:1000], traceback=trace)  # noqa: TRY400
            return responses.error(ServerError(f"{type(bug).__name__}: {bug}"))

    def _handle(self, request: Request) -> Answer:
        match request:
            case Options():
                return responses.supported(self._supported())
            case Startup():
                return self._start(request)
            case AuthResponse(token):
                return self._authenticate(token)
            case Register(events):
                self.events |= frozenset(events)
                return responses.ready()
            case Query() | Prepare() | Execute() | Batch():
                return self._execute(request)

    def _supported(self) -> dict[str, tuple[str, ...]]:
        options = {**self.host.supported, "SCYLLA_SHARD": (str(self.shard),)}
        if self.shard_aware_port is not None:
            name, port = self.shard_aware_port
            options[name] = (port,)
        return dict(sorted(options.items()))

    def _start(self, startup: Startup) -> Answer:
        self.connection.compression = compression_of(startup.options.get("COMPRESSION"))
        self.startup = startup.options
        if self.host.credentials is None:
            self.connection.state = State.READY
            return responses.ready()
        self.connection.state = State.AUTHENTICATING
        return responses.authenticate(PASSWORD_AUTHENTICATOR)

    def _authenticate(self, token: bytes) -> Answer:
        """Authenticate with SASL PLAIN: [authorization id] NUL user NUL password."""
        given = token.split(b"\0")[-2:]
        wanted = [text.encode() for text in self.host.credentials or ()]
        if not secrets.compare_digest(b"\0".join(given), b"\0".join(wanted)):
            raise BadCredentials("Username and/or password are incorrect")
        self.connection.state = State.READY
        return responses.auth_success()

    def _execute(self, request: Query | Prepare | Execute | Batch) -> Answer:
        outcome = self._run(request)
        if isinstance(outcome, SetKeyspace):
            self.keyspace = outcome.keyspace
        style = ResultFormat(
            skip_metadata=isinstance(request, Query | Execute) and request.skip_metadata,
            lwt_mark=LWT_MARK_OPTION in self.startup,
        )
        return responses.result(outcome, self.connection.version, style)

    def _run(self, request: Query | Prepare | Execute | Batch) -> Result:
        engine = self.host.engine
        match request:
            case Query(cql, values, options):
                return engine.query(cql, values, self._placed(options))
            case Prepare(cql):
                return engine.prepare(cql, self._placed(QueryOptions()))
            case Execute(statement_id, values, options):
                return engine.execute(statement_id, values, self._placed(options))
            case Batch(kind, statements, options):
                return engine.batch(kind, statements, self._placed(options))

    def _placed(self, options: QueryOptions) -> QueryOptions:
        return options if self.keyspace is None else evolve(options, keyspace=self.keyspace)
