"""Reports on the cost of reading, which the tasks of a micro-batch send to the driver.

Spark gives a Python data source no way to return metrics from its tasks. Instead, a task that has
read a partition sends one datagram to the process of the `ScyllaCdcListener` whose address is in
option ``reportTo``. The datagram is sent once, and nothing waits for its arrival. If a firewall
drops it, metrics are missing; the listener says how many partitions reported.

A datagram is a keyed hash of JSON text, followed by the text. The key is part of the address, so
only someone who can read the query's options can create a valid datagram.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from errno import EADDRINUSE
from functools import cache
from itertools import islice
from typing import Any, Self

from attrs import asdict, field, frozen

from cdc_reader._log import get_logger
from cdc_reader._stats import ReadStats
from cdc_reader._time import Micros
from cdc_reader.errors import ConfigurationError

log = get_logger(__name__)

OPTION = "reportTo"
_HASH = 16
"""The size in bytes of a datagram's hash, and of the key."""
_LONGEST = 1_200
"""The maximum size of a datagram, in bytes; networks do not fragment datagrams of this size."""
_BUFFER = 1 << 20
"""The size in bytes of the system's buffer for datagrams; the system may allow less."""
_MOST = 1 << 16
"""The maximum number of reports that an inbox keeps until they are taken."""
_ADDRESS = re.compile(r"(?:\[([^]]+)\]|([^:/\[\]]+)):(\d{1,5})/([0-9a-f]{32})")


@frozen
class Plan:
    """The driver's data about a micro-batch at the time of planning, sent with every partition."""

    table: str
    end: Micros
    """The position of the offset at the micro-batch's end."""
    generation: Micros | None
    """The start of the newest generation."""
    partitions: int
    late_rows: int
    """Late rows that were found, but not delivered, since the previous plan."""
    stats: ReadStats
    """The driver's statistics since the previous plan."""


@frozen
class Report:
    """The statistics of one task of a micro-batch."""

    query: str
    batch: int
    task: int
    """The id of the task attempt, which is unique in an application."""
    place: int
    """The partition's index in the plan."""
    plan: Plan
    stats: ReadStats

    def to_bytes(self) -> bytes:
        """Return the report as JSON."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """Parse JSON; raise KeyError, TypeError or ValueError for anything else."""
        stored: dict[str, Any] = json.loads(text)
        plan, stats = stored.pop("plan"), stored.pop("stats")
        planned = Plan(**{**plan, "stats": ReadStats(**plan["stats"])})
        return cls(**stored, plan=planned, stats=ReadStats(**stats))


@frozen
class Address:
    """The address to which reports are sent; as text, ``host:port/key``."""

    host: str
    port: int
    key: bytes = field(repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.key.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Raises ConfigurationError if it is invalid. The message does not show the address.
        """
        if not (found := _ADDRESS.fullmatch(text)) or not 0 < int(found[3]) < 1 << 16:
            remedy = "give the address of a ScyllaCdcListener: listener.address"
            raise ConfigurationError(OPTION, "(not shown)", remedy)
        return cls(found[1] or found[2], int(found[3]), bytes.fromhex(found[4]))


def everywhere(host: str) -> str:
    """Return the address that stands for all addresses of this machine, in the family of `host`."""
    place = _resolved(host, 0)
    return "::" if place is not None and place[0] == socket.AF_INET6 else "0.0.0.0"  # noqa: S104


def send(report: Report, address: Address) -> None:
    """Send a report; drop it if it cannot be sent."""
    text = report.to_bytes()
    place = _resolved(address.host, address.port)
    if place is None or len(text) + _HASH > _LONGEST:
        log.debug("report_not_sent", host=address.host, size=len(text))
        return
    family, where = place
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(_hash(text, address.key) + text, where)


class Inbox:
    """Receives reports at `address`, in a thread of its own, and keeps the latest until taken.

    The thread ends when the inbox is closed or garbage-collected. The inbox listens at `bind`, or
    at `host` if `bind` is empty. A `port` of 0 means any free port.
    """

    def __init__(self, host: str, port: int = 0, bind: str = "") -> None:
        try:
            listening = _listening(bind or host, port)
        except OSError as error:
            if error.errno == EADDRINUSE:
                remedy = "another program uses this UDP port: give another, or 0 for a free one"
                raise ConfigurationError("port", port, remedy) from None
            remedy = f"it cannot be listened at ({error.strerror}): give an address of this machine"
            raise ConfigurationError("host", f"{bind or host}:{port}", remedy) from None
        key = secrets.token_bytes(_HASH)
        self.address = Address(host, listening.getsockname()[1], key)
        self._mail = _Mail(listening, key)
        open_end, watched = socket.socketpair()
        # The thread must not refer to the inbox, which would then never be collected.
        arguments = (self._mail, watched)
        name = "cdc-reports"
        self._thread = threading.Thread(target=_receive, args=arguments, name=name, daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, open_end.close)

    def take(self) -> Iterator[Report]:
        """Yield the reports that arrived since the last call; ignore other senders' datagrams."""
        for text in self._mail.take():
            with suppress(KeyError, TypeError, ValueError):  # sent by another version
                yield Report.from_bytes(text)

    @property
    def is_open(self) -> bool:
        """True until the inbox is closed."""
        return self._end.alive

    def close(self) -> None:
        """Stop receiving, and free the port."""
        self._end()
        self._thread.join()


class _Mail:
    """The texts of the datagrams that have arrived at a socket. Thread-safe."""

    def __init__(self, arriving: socket.socket, key: bytes) -> None:
        self.socket = arriving
        self._key = key
        self._lock = threading.Lock()
        self._texts: deque[bytes] = deque(maxlen=_MOST)

    def collect(self) -> None:
        """Move the datagrams from the system's buffer to this process."""
        with self._lock:
            for datagram in islice(iter(self._next, None), _MOST):
                claimed, text = datagram[:_HASH], datagram[_HASH:]
                if hmac.compare_digest(claimed, _hash(text, self._key)):
                    self._texts.append(text)
                else:
                    log.warning("report_refused", size=len(datagram))

    def take(self) -> list[bytes]:
        """Remove and return all texts, including those still in the system's buffer."""
        self.collect()
        with self._lock:
            texts = list(self._texts)
            self._texts.clear()
        return texts

    def _next(self) -> bytes | None:
        try:
            return self.socket.recv(_LONGEST)
        except OSError:  # nothing has arrived, or the socket is closed
            return None


def _receive(mail: _Mail, watched: socket.socket) -> None:
    """Collect datagrams as they arrive, until the other end of `watched` is closed."""
    with mail.socket, watched, selectors.DefaultSelector() as selector:
        selector.register(mail.socket, selectors.EVENT_READ)
        selector.register(watched, selectors.EVENT_READ)
        while watched not in [key.fileobj for key, _ in selector.select()]:
            mail.collect()


def _listening(host: str, port: int) -> socket.socket:
    family, where = _resolve(host, port)
    listening = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listening.bind(where)
    except OSError:
        listening.close()
        raise
    return listening


def _hash(text: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_HASH, key=key).digest()


@cache
def _resolved(host: str, port: int) -> tuple[socket.AddressFamily, Any] | None:
    """Look up the host once per process, because a failed lookup may take seconds."""
    try:
        return _resolve(host, port)
    except OSError:
        return None


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    return family, where
