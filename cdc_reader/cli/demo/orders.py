"""The demo's table and its traffic: orders that are placed, changed and canceled."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from string import Template
from time import time_ns

from attrs import Factory, define, field

TABLE = "orders"

_STREETS = ("Elm Street", "Harbour Road", "Mill Lane", "Station Square")
_CITIES = ("Gdynia", "Haifa", "Kraków", "Lisboa", "Malmö")
_ITEMS = ("espresso", "filter", "grinder", "kettle", "mug", "scale")
_TAGS = ("fragile", "gift", "priority", "wholesale")

_CREATE_TYPE = Template("CREATE TYPE $keyspace.address (street text, city text, zip text)")
_CREATE_TABLE = Template(
    "CREATE TABLE $keyspace.orders (customer int, number int, status text, total decimal, "
    "items map<text, int>, tags set<text>, ship_to address, placed timestamp, "
    "PRIMARY KEY (customer, number)) "
    "WITH cdc = {'enabled': true, 'preimage': 'full', 'postimage': true}"
)
_PLACE = Template(
    "INSERT INTO $keyspace.orders "
    "(customer, number, status, total, items, tags, ship_to, placed) VALUES "
    "($customer, $number, 'placed', $total, {'$item': $amount}, {'$tag'}, $address, $now)"
)
_CANCEL = Template("DELETE FROM $keyspace.orders WHERE customer = $customer AND number = $number")
_CHANGE = Template(
    "UPDATE $keyspace.orders SET $change WHERE customer = $customer AND number = $number"
)
_CHANGES = (
    Template("status = 'shipped'"),
    Template("items = items + {'$item': $amount}"),
    Template("items = items - {'$item'}"),
    Template("tags = tags + {'$tag'}"),
    Template("ship_to = $address"),
)


def schema(keyspace: str) -> Iterator[str]:
    """Yield the statements that create the type and the table, which logs all images."""
    yield _CREATE_TYPE.substitute(keyspace=keyspace)
    yield _CREATE_TABLE.substitute(keyspace=keyspace)


@define
class Orders:
    """Generates changes to orders, as CQL statements; equal seeds yield equal sequences."""

    keyspace: str
    random: random.Random
    _open: list[tuple[int, int]] = Factory(list)

    def __iter__(self) -> Iterator[str]:
        while True:
            few = len(self._open) < 3
            yield self._place() if few or self.random.random() < 0.3 else self._change()

    def _place(self) -> str:
        order = self.random.randrange(1, 40), self.random.randrange(10**5, 10**6)
        self._open.append(order)
        return self._statement(_PLACE, order)

    def _change(self) -> str:
        order = self.random.choice(self._open)
        if self.random.random() < 0.15:
            self._open.remove(order)
            return self._statement(_CANCEL, order)
        return self._statement(_CHANGE, order)

    def _statement(self, template: Template, order: tuple[int, int]) -> str:
        cents = self.random.randrange(500, 30_000)
        values = {
            "total": f"{cents // 100}.{cents % 100:02}",
            "item": self.random.choice(_ITEMS),
            "amount": self.random.randint(1, 5),
            "tag": self.random.choice(_TAGS),
            "address": self._address(),
            "now": time_ns() // 1_000_000,
        }
        change = self.random.choice(_CHANGES).substitute(values)
        key = {"keyspace": self.keyspace, "customer": order[0], "number": order[1]}
        return template.substitute(values, **key, change=change)

    def _address(self) -> str:
        street, city = self.random.choice(_STREETS), self.random.choice(_CITIES)
        number, code = self.random.randint(1, 99), self.random.randrange(10_000, 99_999)
        return f"{{street: '{street} {number}', city: '{city}', zip: '{code}'}}"


@define
class Writer:
    """Executes statements in its own thread, with a pause of `pause` seconds after each."""

    execute: Callable[[str], object]
    statements: Iterator[str]
    pause: float
    written: int = 0
    _error: Exception | None = None
    _stop: threading.Event = Factory(threading.Event)
    _thread: threading.Thread | None = field(default=None)

    def start(self) -> None:
        """Start writing."""
        self._thread = threading.Thread(target=self._run, name="orders", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current statement and stop; raise the error if a statement failed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.pause):
                self.execute(next(self.statements))
                self.written += 1
        except Exception as error:  # noqa: BLE001 - raised by `stop`, in the caller's thread
            self._error = error
