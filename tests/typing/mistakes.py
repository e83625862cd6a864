"""A user's mistakes. Type checkers report each line that ends in `# wrong`."""

from __future__ import annotations

from cdc_reader import (
    AsyncChanges,
    CdcConsumer,
    CdcReader,
    Change,
    ChangeFormat,
    ConsumerConfig,
    ReadConfig,
)


def handle(change: Change) -> None:
    print(change.keys)  # wrong


CdcConsumer("scylla.example.com", "shop.orders", handle)  # wrong
CdcConsumer("scylla.example.com", "shop.orders", handle, application="a", readers=2)  # wrong
AsyncChanges("scylla.example.com", "shop.orders", name="printer")  # wrong
CdcReader("scylla.example.com", 7)  # wrong
CdcReader("scylla.example.com", "shop.orders", config=ConsumerConfig())  # wrong
ChangeFormat("rows")  # wrong
ChangeFormat(range_deletes="drop")  # wrong
ReadConfig(window=60)  # wrong
ReadConfig(delivery=None)  # wrong
