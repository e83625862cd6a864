"""How a consumer hands out changes; each value is validated when it is set."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from cdc_reader._settings import A_SECOND_OR_MORE, AT_LEAST_ONE, NOT_NEGATIVE, duration, member


class OnError(StrEnum):
    """What to do with a change whose handler failed in every attempt."""

    STOP = "stop"
    SKIP = "skip"


class OnHeld(StrEnum):
    """What a consumer does while another one holds its lease."""

    WAIT = "wait"
    FAIL = "fail"


def _on_error(value: str) -> OnError:
    return member("on_error", value, OnError)


def _on_held(value: str) -> OnHeld:
    return member("on_held", value, OnHeld)


@frozen
class ConsumerConfig:
    """How changes are handed out.

    `workers` is how many handlers run at a time; changes of one partition key of a table
    always go to the same one, in order. Reading waits while `max_changes` changes or
    `max_bytes` bytes of pages are in hand, a page for each table more at most: so memory is
    bounded, however slow the handler.

    A handler that raises is called up to `attempts` times in all, after a random pause of up
    to `pause`, then twice that and so on, a minute at most; then `on_error` says whether the
    consumer stops or goes on without the change.

    Checkpoints are saved every `checkpoint_interval` while something is acknowledged, and
    when windows end; if it is zero, after each change.

    Where the store has leases, the consumer holds one for each of its tables: it lasts `lease`,
    and is renewed every third of that. While another consumer holds one, `on_held` says whether
    this one waits or raises LeaseHeldError. The same goes for one whose lease was lost to another
    while it stood still: it waits again, or raises LeaseLostError.

    Durations are timedeltas, or texts such as ``500ms``; `on_error` and `on_held` are members of
    `OnError` and `OnHeld`, or their values.
    Raises ConfigurationError for values that cannot be used.
    """

    workers: int = field(default=4, validator=AT_LEAST_ONE)
    max_changes: int = field(default=10_000, validator=AT_LEAST_ONE)
    max_bytes: int = field(default=32 * 1024 * 1024, validator=AT_LEAST_ONE)
    attempts: int = field(default=3, validator=AT_LEAST_ONE)
    pause: timedelta = field(
        default=timedelta(milliseconds=500), converter=duration, validator=NOT_NEGATIVE
    )
    on_error: OnError = field(default=OnError.STOP, converter=_on_error)
    checkpoint_interval: timedelta = field(
        default=timedelta(seconds=1), converter=duration, validator=NOT_NEGATIVE
    )
    lease: timedelta = field(
        default=timedelta(seconds=30), converter=duration, validator=A_SECOND_OR_MORE
    )
    on_held: OnHeld = field(default=OnHeld.WAIT, converter=_on_held)
