"""The differences between versions of ScyllaDB, as far as a CDC client can tell."""

from __future__ import annotations

from typing import Any

from attrs import Factory, field, frozen

from cdc_reader._log import get_logger

log = get_logger(__name__)

NEWEST = "2026.3"


def _since(*first: tuple[int, ...]) -> Any:
    """Return a field: True in these releases, later ones of each branch, and all after the last."""

    def has(made: Profile) -> bool:
        number = _number(made.version)
        backported = any(each <= number and each[:2] == number[:2] for each in first[:-1])
        return backported or number >= first[-1]

    return field(default=Factory(has, takes_self=True))


@frozen
class Profile:
    """The behaviour of one version; in parentheses, the first that has it.

    Attributes:
        end_of_batch: the log has `cdc$end_of_batch` (4.3).
        generation_ranges: generations are described range by range, in
            `cdc_streams_descriptions_v2`, and the first one operates at once (4.4); before, a
            generation was one row of `cdc_streams_descriptions`.
        marks_nulls: a null in a preimage is marked as deleted, so that it differs from a column
            that is not shown (4.6).
        alter_names_enabled: ALTER of the cdc options must state whether CDC is enabled, and the
            values on and off are gone (5.0).
        keeps_disabled_log: a log stays when CDC is disabled, and remembers the columns that it
            loses (5.1).
        new_words: many refusals have new texts, because statements are checked as expressions
            (5.4).
        expiry_before_value: of two live cells with the same timestamp the one that expires later
            wins, whatever their values (5.4).
        paxos_tables: transactions on a table on tablets are kept in a separate table (2025.4).
        default_replication: a keyspace need not say how it is replicated (2026.1).
        checks_options: unknown options of compaction are refused, and flush periods below a
            minute; tables are never COMPACT STORAGE (2026.1).
        newer_defaults: tables use IncrementalCompactionStrategy and compression with dictionaries
            unless they say otherwise (2026.1).
        describes: DESCRIBE is a statement (5.2).
        writes_to_previous_generation: a write up to 5 s old may go to the generation before the
            current one (5.2.16, 5.4.4, 6.0).
        long_names: keyspaces and tables may have names of 192 characters, 48 before (2025.2).
        tablets: keyspaces may use tablets, shown in `system_schema.scylla_keyspaces` (6.0).
        protects_log_columns: a log's columns cannot be altered (2025.1.10, 2025.3).
        delays_column_reuse: a column dropped from a table with CDC cannot be added again for
            5 s (2025.1.10, 2025.3.1, 2025.4).
        cdc_on_tablets: tables of tablets keyspaces may have CDC (2025.4).
        keeps_log_properties: altering a base table leaves its log's properties alone (2026.1).
        preimage_without_clustering: deleting a row of a table without clustering columns logs its
            preimage (2026.1).
        strong_consistency: keyspaces have the option `consistency`; where it is strong, no write
            is logged (2026.1).
        rfc_variant: the random half of `cdc$time` carries the UUID variant bits (2026.1).
    """

    version: str = NEWEST
    end_of_batch: bool = _since((4, 3))
    generation_ranges: bool = _since((4, 4))
    marks_nulls: bool = _since((4, 6))
    alter_names_enabled: bool = _since((5, 0))
    keeps_disabled_log: bool = _since((5, 1))
    new_words: bool = _since((5, 4))
    expiry_before_value: bool = _since((5, 4))
    paxos_tables: bool = _since((2025, 4))
    default_replication: bool = _since((2026, 1))
    checks_options: bool = _since((2026, 1))
    newer_defaults: bool = _since((2026, 1))
    describes: bool = _since((5, 2))
    writes_to_previous_generation: bool = _since((5, 2, 16), (5, 4, 4))
    tablets: bool = _since((6, 0))
    long_names: bool = _since((2025, 2))
    protects_log_columns: bool = _since((2025, 1, 10), (2025, 3))
    delays_column_reuse: bool = _since((2025, 1, 10), (2025, 3, 1))
    cdc_on_tablets: bool = _since((2025, 4))
    keeps_log_properties: bool = _since((2026, 1))
    preimage_without_clustering: bool = _since((2026, 1))
    strong_consistency: bool = _since((2026, 1))
    rfc_variant: bool = _since((2026, 1))


_RELEASES = {
    4: (0, 1, 2, 3, 4, 5, 6),
    5: (0, 1, 2, 4),
    6: (0, 1, 2),
    2025: (1, 2, 3, 4),
    2026: (1, 2, 3, 4),
}
"""The second numbers of releases by their first ones."""
_LAST = (max(_RELEASES), max(_RELEASES[max(_RELEASES)]))
_KNOWN = f"4.3, 5.2, 6.2, 2025.4 or {NEWEST}"


def profile(version: str = NEWEST) -> Profile:
    """Return the profile of a version such as "5.2", "5.2.16" or "2026.1".

    Raises ValueError for a version that was never released, and for Enterprise versions, which are
    numbered by other years. A version newer than all known ones counts as the newest, with a
    warning.
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
