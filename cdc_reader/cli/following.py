"""The options of commands that follow logs: from when to when, how, and which part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
from attrs import frozen

from cdc_reader.cli.failure import told
from cdc_reader.clock import SystemClock
from cdc_reader.config import DeliveryMode, LateRowsMode, ReadConfig
from cdc_reader.duration import micros, parse_duration
from cdc_reader.errors import ConfigurationError
from cdc_reader.shard import Shard
from cdc_reader.strategy import Strategy
from cdc_reader.timestamp import format_timestamp, parse_timestamp
from cdc_reader.window import BEGINNING

EARLIEST, NOW = "earliest", "now"
_NAMES = "start end eager late_rows strategy confidence_window shard".split()


@frozen
class FollowOptions:
    """From `start` on, in µs, all there is if it is BEGINNING; to `end`, or for good if None."""

    start: int
    end: int | None
    read: ReadConfig
    shard: Shard

    def __attrs_post_init__(self) -> None:
        if self.end is not None and self.end < self.start:
            remedy = f"give a time after that of --from, {format_timestamp(self.start)}"
            raise ConfigurationError("--until", format_timestamp(self.end), remedy)


def follow_options(
    start: str, late_rows: LateRowsMode
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of following; it gets them as `follow`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(**values: Any) -> None:
            given = {name: values.pop(name) for name in _NAMES}
            with told():
                follow = _parsed(**given)
            command(follow=follow, **values)

        for option in reversed(_options(start, late_rows)):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def _options(start: str, late_rows: LateRowsMode) -> tuple[Callable[..., Any], ...]:
    return (
        click.option(
            "--from",
            "start",
            metavar="TIME",
            default=start,
            show_default=True,
            help="Where to begin: earliest, now, so long ago (-10m, -2h) or a point in time "
            "(ISO 8601, or ms since 1970). What has been read before is not read again if "
            "there is a checkpoint.",
        ),
        click.option(
            "--until",
            "end",
            metavar="TIME",
            help="Stop at this time: now, so long ago or a point in time; by default go on for "
            "good.",
        ),
        click.option(
            "--eager",
            is_flag=True,
            help="Take changes as soon as they can be seen; those of a stream may come out of "
            "order. By default they are taken once settled: in order, a confidence window late.",
        ),
        click.option(
            "--late-rows",
            type=click.Choice([str(mode) for mode in LateRowsMode]),
            default=str(late_rows),
            show_default=True,
            help="What to do about rows that arrive far behind the time they are written at.",
        ),
        click.option(
            "--strategy",
            type=click.Choice([str(way) for way in Strategy]),
            default=str(Strategy.STREAMS),
            show_default=True,
            help="How to read: chunks of streams, ranges of the ring, or what measures better.",
        ),
        click.option(
            "--confidence-window",
            metavar="DURATION",
            default="30s",
            show_default=True,
            help="How long a row may take to arrive, and clocks may differ.",
        ),
        click.option(
            "--shard",
            metavar="I/N",
            default="1/1",
            show_default=True,
            help="Follow the I-th of N equal parts, the others being other processes' work.",
        ),
    )


def _parsed(
    start: str,
    end: str | None,
    eager: bool,
    late_rows: str,
    strategy: str,
    confidence_window: str,
    shard: str,
) -> FollowOptions:
    now = SystemClock().now()
    read = ReadConfig(
        confidence_window=parse_duration(confidence_window, "--confidence-window"),
        delivery=DeliveryMode.EAGER if eager else DeliveryMode.SETTLED,
        late_rows=late_rows,
        strategy=strategy,
    )
    return FollowOptions(
        BEGINNING if start == EARLIEST else _moment(start, "--from", now),
        None if end is None else _moment(end, "--until", now),
        read,
        Shard.parse(shard),
    )


def _moment(text: str, option: str, now: int) -> int:
    """A point in time in µs; ``-10m`` is ten minutes ago."""
    if text == NOW:
        return now
    try:
        if text.startswith("-"):
            return max(BEGINNING, now - micros(parse_duration(text[1:], option)))
        return parse_timestamp(text, option)
    except ConfigurationError:
        earliest = "'earliest', " if option == "--from" else ""
        remedy = (
            f"give {earliest}'now', so long ago such as '-10m', an ISO-8601 time such as "
            "'2026-11-21T05:30:00Z' (UTC if no zone is given), or milliseconds since 1970"
        )
        raise ConfigurationError(option, text, remedy) from None


def seconds(duration: timedelta) -> str:
    """A duration for people."""
    return f"{duration.total_seconds():g} s"


def since(position: int) -> str:
    """A position for people."""
    return "the earliest change there is" if position <= BEGINNING else format_timestamp(position)
