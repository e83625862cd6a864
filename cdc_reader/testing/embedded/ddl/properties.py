"""``WITH ...`` of a table: which properties there are, and CDC's among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_reader.testing.embedded.cdc.options import CdcOptions
from cdc_reader.testing.embedded.errors import (
    ConfigurationError,
    InvalidRequest,
    SyntaxError,  # noqa: A004 - the protocol's own word
)
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.profile import Profile

_MAX_TTL = 630_720_000
_MAPS = frozenset(
    "caching compaction compression tombstone_gc per_partition_rate_limit "
    "scylla_encryption_options".split()
)
_NUMBERS = frozenset(
    "bloom_filter_fp_chance crc_check_chance dclocal_read_repair_chance default_time_to_live "
    "gc_grace_seconds max_index_interval memtable_flush_period_in_ms min_index_interval "
    "paxos_grace_seconds read_repair_chance".split()
)
_OTHERS = frozenset("comment id in_memory speculative_retry synchronous_updates version".split())


def table_options(properties: ast.Properties) -> dict[str, Any]:
    """The properties other than `cdc`; SyntaxError for an unknown one."""
    options = {name: value for name, value in properties.values.items() if name != "cdc"}
    for name, value in options.items():
        if name not in _MAPS | _NUMBERS | _OTHERS:
            raise SyntaxError(f"Unknown property '{name}'")
        if isinstance(value, Mapping) is not (name in _MAPS):
            expected = "a map" if name in _MAPS else "a constant"
            raise SyntaxError(f"Invalid value for property '{name}'. It should be {expected}")
    if "default_time_to_live" in options:
        _check_ttl(options["default_time_to_live"])
    return {name: _number(name, v) if name in _NUMBERS else v for name, v in options.items()}


def cdc_options(
    properties: ast.Properties, profile: Profile, altering: bool = False
) -> CdcOptions | None:
    """The `cdc` property, None if it is not given; ALTER must say whether it is enabled."""
    given = properties.values.get("cdc")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise SyntaxError("Invalid value for property 'cdc'. It should be a map.")
    options = CdcOptions.parse(given, profile)
    must_name_enabled = altering and profile.alter_names_enabled
    if must_name_enabled and "enabled" not in {name.lower() for name in given}:
        # The server's own spelling.
        raise InvalidRequest('Altering CDC options requires specyfing "enabled" flag')
    return options


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SyntaxError(f"Invalid numeric value {value} for '{name}'") from None
    return int(number) if number.is_integer() else number


def _check_ttl(value: Any) -> None:
    ttl = _number("default_time_to_live", value)
    if ttl < 0:
        raise ConfigurationError("default_time_to_live cannot be smaller than 0")
    if ttl > _MAX_TTL:
        raise ConfigurationError(
            f"default_time_to_live must be less than or equal to {_MAX_TTL} (got {ttl})"
        )
