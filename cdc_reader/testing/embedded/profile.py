"""The differences between ScyllaDB versions that a CDC client can observe."""

from __future__ import annotations

from typing import Any

from attrs import Factory, field, frozen

from cdc_reader._log import get_logger

log = get_logger(__name__)

NEWEST = "2026.3"


def _since(*first: tuple[int, ...]) -> Any:
    """Return a field that is True for versions that have a behavior.

    The last release in `first` introduced the behavior. The other releases are backports: each is
    the first release of an older branch that has the behavior.
    """

    def has(made: Profile) -> bool:
        number = _number(made.version)
        backported = any(each <= number and each[:2] == number[:2] for each in first[:-1])
        return backported or number >= first[-1]

    return field(default=Factory(has, takes_self=True))


@frozen
class Profile:
    """The behavior of one version; `_since` lists the first versions with each behavior."""

    version: str = NEWEST
    # The log has `cdc$end_of_batch`.
    end_of_batch: bool = _since((4, 3))
    # `cdc_streams_descriptions_v2` has a row per token range of a generation, and the first
    # generation begins at once. In older versions, `cdc_streams_descriptions` has one row per
    # generation.
    generation_ranges: bool = _since((4, 4))
    # Preimages mark nulls as deleted, to distinguish them from columns that are not logged.
    marks_nulls: bool = _since((4, 6))
    # An ALTER of the CDC options must include `enabled`, and the values on and off are no longer
    # allowed.
    alter_names_enabled: bool = _since((5, 0))
    # Disabling CDC does not drop the log, which records the columns that are dropped from it.
    keeps_disabled_log: bool = _since((5, 1))
    # Many error messages have new texts, because statements are checked as expressions.
    new_words: bool = _since((5, 4))
    # Of two live cells with the same timestamp, the one that expires later wins, regardless of
    # their values.
    expiry_before_value: bool = _since((5, 4))
    # A keyspace with SimpleStrategy, or with one or two replicas, is created with a warning.
    warns_of_replication: bool = _since((5, 4))
    # The state of transactions on a table that uses tablets is in a separate table.
    paxos_tables: bool = _since((2025, 4))
    # CREATE KEYSPACE does not require `replication`.
    default_replication: bool = _since((2026, 1))
    # Unknown compaction options and flush periods below a minute are rejected; COMPACT STORAGE is
    # disabled.
    checks_options: bool = _since((2026, 1))
    # Tables use IncrementalCompactionStrategy and compression with dictionaries by default.
    newer_defaults: bool = _since((2026, 1))
    # TRUNCATE accepts USING TIMEOUT.
    truncates_with_timeout: bool = _since((5, 2))
    # DESCRIBE is a statement.
    describes: bool = _since((5, 2))
    # DESCRIBE KEYSPACES lists all keyspaces, even after USE.
    lists_all_keyspaces: bool = _since((2026, 1))
    # A write up to 5 s old may go to the generation before the current one.
    writes_to_previous_generation: bool = _since((5, 2, 16), (5, 4, 4))
    # Keyspaces may use tablets; `system_schema.scylla_keyspaces` lists those that do.
    tablets: bool = _since((6, 0))
    # Types may be vectors, and SELECT may return elements of maps and sets.
    vectors: bool = _since((2025, 1))
    # SSTables may be compressed with dictionaries.
    dictionaries: bool = _since((2025, 2))
    # Names of keyspaces and tables may have up to 192 characters instead of 48.
    long_names: bool = _since((2025, 2))
    # A log's columns cannot be altered.
    protects_log_columns: bool = _since((2025, 1, 10), (2025, 3))
    # A column dropped from a table with CDC cannot be added again for 5 s.
    delays_column_reuse: bool = _since((2025, 1, 10), (2025, 3, 1))
    # Tables in keyspaces that use tablets may have CDC.
    cdc_on_tablets: bool = _since((2025, 4))
    # Altering a base table does not change its log's properties.
    keeps_log_properties: bool = _since((2026, 1))
    # Deleting a row of a table without clustering columns logs its preimage.
    preimage_without_clustering: bool = _since((2026, 1))
    # Keyspaces have the option `consistency`; if it is strong, writes are not logged.
    strong_consistency: bool = _since((2026, 1))
    # The random half of `cdc$time` has the UUID variant bits.
    rfc_variant: bool = _since((2026, 1))


_RELEASES = {
    4: (0, 1, 2, 3, 4, 5, 6),
    5: (0, 1, 2, 4),
    6: (0, 1, 2),
    2025: (1, 2, 3, 4),
    2026: (1, 2, 3, 4),
}
"""Minor version numbers of the known releases, by major version number."""
_LAST = (max(_RELEASES), max(_RELEASES[max(_RELEASES)]))
_KNOWN = f"4.3, 5.2, 6.2, 2025.4 or {NEWEST}"


def profile(version: str = NEWEST) -> Profile:
    """Return the profile of a version, such as "5.2", "5.2.16" or "2026.1".

    A version newer than all known ones is treated as the newest, with a warning. Raises ValueError
    for a version that was never released, and for Enterprise versions, whose numbers are different.
    """
    if _number(version)[:2] > _LAST:
        log.warning("unknown_version", version=version, taken_as=NEWEST)
        return Profile()
    return Profile(version)


def _number(version: str) -> tuple[int, ...]:
    try:
        number = tuple(int(part) for part in version.split("."))
    except ValueError:
        number = ()
    is_known = len(number) > 1 and (number[1] in _RELEASES.get(number[0], ()) or number[:2] > _LAST)
    if not is_known:
        raise ValueError(f"ScyllaDB version {version!r}: expected a release such as {_KNOWN}")
    return number
