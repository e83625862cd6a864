"""How changes are handed out; each value checked when it is set."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from attrs import field, frozen

from cdc_reader.errors import ConfigurationError


class OnError(StrEnum):
    """What becomes of a change whose handler has failed as often as it may."""

    STOP = "stop"
    SKIP = "skip"


def _on_error(value: str) -> OnError:
    if value not in list(OnError):
        raise ConfigurationError("on_error", value, f"give one of {', '.join(OnError)}")
    return OnError(value)


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
    Raises ConfigurationError for values that cannot be used.
    """

    workers: int = 4
    max_changes: int = 10_000
    max_bytes: int = 32 * 1024 * 1024
    attempts: int = 3
    pause: timedelta = timedelta(milliseconds=500)
    on_error: OnError = field(default=OnError.STOP, converter=_on_error)
    checkpoint_interval: timedelta = timedelta(seconds=1)

    def __attrs_post_init__(self) -> None:
        for name in ("workers", "max_changes", "max_bytes", "attempts"):
            if not isinstance(number := getattr(self, name), int) or number < 1:
                raise ConfigurationError(name, number, "give a whole number of at least 1")
        for name in ("pause", "checkpoint_interval"):
            if (duration := getattr(self, name)) < timedelta(0):
                raise ConfigurationError(name, duration, "give a duration of zero or more")
