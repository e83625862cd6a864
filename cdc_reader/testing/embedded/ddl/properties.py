"""The table properties of ``WITH ...``, including `cdc`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from cdc_reader.testing.embedded.errors import (
    ConfigurationError,
    InvalidRequest,
    InvalidSyntax,
    ServerError,
)
from cdc_reader.testing.embedded.grammar import ast
from cdc_reader.testing.embedded.profile import Profile
from cdc_reader.testing.embedded.schema.catalog import Catalog
from cdc_reader.testing.embedded.schema.cdc_options import CdcOptions
from cdc_reader.testing.embedded.schema.table import COMPRESSION

_MAPS = frozenset(
    "caching compaction compression tablets tombstone_gc per_partition_rate_limit "
    "scylla_encryption_options".split()
)
_NUMBERS = frozenset(
    "bloom_filter_fp_chance crc_check_chance dclocal_read_repair_chance default_time_to_live "
    "gc_grace_seconds max_index_interval memtable_flush_period_in_ms min_index_interval "
    "paxos_grace_seconds read_repair_chance".split()
)
_OTHERS = frozenset("comment id in_memory speculative_retry synchronous_updates version".split())
_LEAST_CHANCE = 6.71e-05
_LEAST_FLUSH_MS = 60_000
_COMPRESSORS = frozenset("LZ4Compressor SnappyCompressor DeflateCompressor ZstdCompressor".split())
_DICTIONARY_COMPRESSORS = frozenset(["LZ4WithDictsCompressor", "ZstdWithDictsCompressor"])
_COMPACTIONS = frozenset(
    f"{name}CompactionStrategy"
    for name in "SizeTiered Leveled TimeWindow DateTiered Incremental Null InMemory".split()
)
_COMPACTION_OPTIONS = frozenset(
    "class enabled tombstone_threshold tombstone_compaction_interval "
    "only_purge_repaired_tombstones unchecked_tombstone_compaction min_threshold "
    "max_threshold min_sstable_size bucket_low "
    "bucket_high cold_reads_to_omit sstable_size_in_mb sstable_size_in_mbs fragment_size_mb "
    "space_amplification_goal compaction_window_unit compaction_window_size timestamp_resolution "
    "expired_sstable_check_frequency_seconds max_window_size_seconds base_time_seconds "
    "max_sstable_age_days enable_optimized_twcs_queries".split()
)
_TABLET_OPTIONS = frozenset(
    "min_tablet_count max_tablet_count min_per_shard_tablet_count expected_data_size_in_gb".split()
)
_TOMBSTONE_MODES = ("timeout", "repair", "disabled", "immediate")
_NO_COMPACTION = (
    "Disabling compaction by setting compaction thresholds to 0 has been deprecated, set the "
    "compaction option 'enabled' to false instead."
)
_WINDOW_UNITS = ("MINUTES", "HOURS", "DAYS")
_RETRY = re.compile(
    r"([-+]?(?:(?:\d+\.?\d*|\.\d+)(?:E[-+]?\d+)?|INF|NAN))(MS|PERCENTILE)", re.ASCII
)
_RETRY_RANGES = {
    "MS": ("option", "the number of milliseconds must be non-negative and finite"),
    "PERCENTILE": ("PERCENTILE option", "must be between [0.0 and 100.0]"),
}


def table_options(properties: ast.Properties, catalog: Catalog, keyspace: str) -> dict[str, Any]:
    """Return all properties but `cdc`; raise CqlError for an unknown name or invalid value."""
    profile = catalog.profile
    options: dict[str, Any] = {n: value for n, value in properties.values.items() if n != "cdc"}
    for name, value in options.items():
        if name not in _MAPS | _NUMBERS | _OTHERS or (name == "tablets" and not profile.tablets):
            raise InvalidSyntax(f"Unknown property '{name}'")
        if isinstance(value, Mapping) is not (name in _MAPS):
            expected = "a map" if name in _MAPS else "a constant"
            raise InvalidSyntax(f"Invalid value for property '{name}'. It should be {expected}.")
    numbers = {name: _number(name, options[name]) for name in _NUMBERS & options.keys()}
    if "id" in options:
        options["id"] = _uuid(options["id"])
    if "tablets" in options and catalog.keyspace(keyspace).tablets is None:
        raise ConfigurationError(
            "tablet options cannot be used when tablets are disabled for the keyspace"
        )
    _check_tablets(options.get("tablets", {}))
    _check_tombstones(options.get("tombstone_gc", {}))
    _check_numbers(numbers, options, profile)
    _check_compaction(options.get("compaction", {}), profile)
    _check_caching(options.get("caching", {}))
    _check_compression(options.get("compression", {}), profile)
    if "speculative_retry" in options:
        options["speculative_retry"] = _retry(str(options["speculative_retry"]).upper())
    return options | numbers


def _retry(text: str) -> str:
    """Return the value of `speculative_retry` as ScyllaDB shows it; reject an invalid value."""
    if text in ("NONE", "ALWAYS"):
        return text
    found = _RETRY.fullmatch(text)
    if found is None and len(text) < len("PERCENTILE") and not text.endswith("MS"):
        raise ServerError("sstring out of range")  # ScyllaDB reads beyond the text
    if found is None:
        raise ConfigurationError(f"cannot convert {text} to speculative_retry\n")
    number, unit = float(found[1]), found[2]
    if unit == "MS" and 0 <= number < math.inf:
        return f"{number:.2f}ms"
    if unit == "PERCENTILE" and 0 <= number <= 100:
        return f"{number:.1f}PERCENTILE"
    kind, expected = _RETRY_RANGES[unit]
    raise ConfigurationError(f"Invalid value {text} for {kind} 'speculative_retry': {expected}")


def _check_numbers(
    numbers: Mapping[str, float], options: Mapping[str, Any], profile: Profile
) -> None:
    chance = numbers.get("bloom_filter_fp_chance", 1)
    if not _LEAST_CHANCE < chance <= 1:
        raise ConfigurationError(
            f"bloom_filter_fp_chance must be larger than {_LEAST_CHANCE} and less than or equal "
            f"to 1.0 (got {options['bloom_filter_fp_chance']})"
        )
    for name, default in (("default_time_to_live", 0), ("paxos_grace_seconds", 864_000)):
        if numbers.get(name, 0) < 0:
            raise ConfigurationError(f"{name} cannot be smaller than 0, (default {default})")
    least, most = (numbers.get(f"{end}_index_interval") for end in ("min", "max"))
    if least is not None and least <= 0:
        raise ConfigurationError("min_index_interval must be greater than 0")
    if most is not None and most <= (least or 128):
        raise ConfigurationError("max_index_interval must be greater than min_index_interval")
    flush = numbers.get("memtable_flush_period_in_ms", 0)
    if flush and flush < _LEAST_FLUSH_MS and profile.checks_options:
        raise ConfigurationError(
            f"memtable_flush_period_in_ms must be 0 or greater than {_LEAST_FLUSH_MS}"
        )


def _check_tablets(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in _TABLET_OPTIONS:
            raise ConfigurationError(f"Unknown tablet hint '{name}'")
        if not re.fullmatch(r"\d{1,6}(\.\d+)?", value):
            raise ConfigurationError(f"Invalid value '{value}' for tablet hint '{name}'")


def _uuid(given: object) -> UUID:
    try:
        return UUID(str(given))
    except ValueError:
        raise ConfigurationError("Invalid table id") from None


def _check_tombstones(options: Mapping[str, str]) -> None:
    unknown = options.keys() - {"mode", "propagation_delay_in_seconds"}
    if unknown or options.get("mode", "timeout") not in _TOMBSTONE_MODES:
        raise ConfigurationError(f"Invalid tombstone_gc options: {dict(options)}")


def _check_compaction(options: Mapping[str, str], profile: Profile) -> None:
    if options and "class" not in options:
        raise ConfigurationError("Missing sub-option 'class' for the 'compaction' option.")
    name = options.get("class", "SizeTieredCompactionStrategy").rpartition(".")[2]
    if name not in _COMPACTIONS:
        raise ConfigurationError(f"Unable to find compaction strategy class '{name}'")
    unknown = {key: options[key] for key in sorted(options.keys() - _COMPACTION_OPTIONS)}
    if unknown and profile.checks_options:
        raise ConfigurationError(
            f"Invalid compaction strategy options {json.dumps(unknown)} for chosen strategy type"
        )
    if any(str(options.get(f"{end}_threshold", 1)).strip("-0") == "" for end in ("min", "max")):
        raise ConfigurationError(_NO_COMPACTION)
    unit = options.get("compaction_window_unit", "DAYS")
    if name == "TimeWindowCompactionStrategy" and unit not in _WINDOW_UNITS:
        error = ConfigurationError if profile.new_words else InvalidSyntax
        raise error(f"Invalid window unit {unit} for compaction_window_unit")


def _check_caching(options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if name not in ("keys", "rows_per_partition", "enabled"):
            raise ConfigurationError(f"Invalid caching option: {name}")
        is_number = name == "rows_per_partition" and value.isdigit()
        if name != "enabled" and value not in ("ALL", "NONE") and not is_number:
            raise ConfigurationError(f"Invalid key value: {value}")


def _check_compression(options: Mapping[str, str], profile: Profile) -> None:
    if options.keys() - {"enabled"} and not options.keys() & {"sstable_compression", "class"}:
        raise ConfigurationError(
            "Missing sub-option 'sstable_compression' for the 'compression' option."
        )
    name = options.get("sstable_compression") or options.get("class") or "LZ4Compressor"
    known = _COMPRESSORS | (_DICTIONARY_COMPRESSORS if profile.dictionaries else set())
    if name.removeprefix(COMPRESSION) not in known:
        raise ServerError(f"Unknown sstable_compression: {name}")


def cdc_options(
    properties: ast.Properties, profile: Profile, altering: bool = False
) -> CdcOptions | None:
    """Return the value of the `cdc` property; None if it is absent.

    In newer versions, an ALTER that sets CDC options must include `enabled`.
    """
    given = properties.values.get("cdc")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidSyntax("Invalid value for property 'cdc'. It should be a map.")
    options = CdcOptions.parse(given, profile)
    must_name_enabled = altering and profile.alter_names_enabled
    if must_name_enabled and "enabled" not in {name.lower() for name in given}:
        # ScyllaDB's spelling
        raise InvalidRequest('Altering CDC options requires specyfing "enabled" flag')
    return options


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidSyntax(f"Invalid numeric value {value} for '{name}'") from None
    return int(number) if number.is_integer() else number
