"""Settings of a consumer; each value is validated when it is set."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from cdc_reader._settings import (
    A_SECOND_OR_MORE,
    AT_LEAST_ONE,
    NOT_NEGATIVE,
    between,
    duration,
    member,
)


class OnError(StrEnum):
    """What to do with a change whose handler failed at every attempt."""

    STOP = "stop"
    SKIP = "skip"


class OnHeld(StrEnum):
    """What a consumer does while another consumer holds the lease that it needs."""

    WAIT = "wait"
    FAIL = "fail"


def _on_error(value: str) -> OnError:
    return member("on_error", value, OnError)


def _on_held(value: str) -> OnHeld:
    return member("on_held", value, OnHeld)


@frozen
class ConsumerConfig:
    """Settings of a consumer: workers, retries, checkpoints and leases.

    At most `workers` handlers run at a time. Changes of one partition key of a table always go to
    the same worker, in order. Reading waits while 10,000 changes or `max_bytes` bytes of pages are
    in flight. Each table may exceed these limits by one page, so memory is bounded, however slow
    the handler is.

    A failing handler is called up to `attempts` times in all. The pauses between calls are random:
    at most 0.5 s before the second call, then at most twice that, and so on up to a minute. After
    the last attempt, `on_error` decides whether the consumer stops or skips the change.

    Checkpoints are saved every `checkpoint_interval` if changes were acknowledged, and when windows
    end. With an interval of zero, they are saved after each change.

    If the store has leases, the consumer holds one for each of its tables. A lease lasts for
    `lease`, and is renewed after a third of that time. While another consumer holds a lease,
    `on_held` decides whether this consumer waits or raises LeaseHeldError. If this consumer was
    suspended and another consumer took over its lease, this consumer waits again or raises
    LeaseLostError.

    Durations are timedeltas, or strings such as ``500ms``; `on_error` and `on_held` are members of
    `OnError` and `OnHeld`, or their values. Raises ConfigurationError for values that cannot be
    used.
    """

    workers: int = field(default=1, validator=between(1, 1_024))
    max_bytes: int = field(default=32 * 1024 * 1024, validator=AT_LEAST_ONE)
    attempts: int = field(default=3, validator=AT_LEAST_ONE)
    on_error: OnError = field(default=OnError.STOP, converter=_on_error)
    checkpoint_interval: timedelta = field(
        default=timedelta(seconds=1), converter=duration, validator=NOT_NEGATIVE
    )
    lease: timedelta = field(
        default=timedelta(seconds=30), converter=duration, validator=A_SECOND_OR_MORE
    )
    on_held: OnHeld = field(default=OnHeld.WAIT, converter=_on_held)
