"""What differs between versions of ScyllaDB, as far as a CDC client can tell."""

from __future__ import annotations

from attrs import frozen

NEWEST = "2026.2"


@frozen
class Profile:
    """The behaviour of one version.

    `writes_to_previous_generation`: a write up to 5 s old may go to the generation before the
    current one (5.2.16, 5.4.4, 6.0). `preimage_without_clustering`: deleting a row of a table
    without clustering columns logs its preimage (2026.1). `rfc_variant`: the random half of
    `cdc$time` carries the UUID variant bits (2026.1). `tablets`: keyspaces may use tablets, and
    say so in `system_schema.scylla_keyspaces` (6.0).
    """

    version: str = NEWEST
    writes_to_previous_generation: bool = True
    preimage_without_clustering: bool = True
    rfc_variant: bool = True
    tablets: bool = True


def profile(version: str = NEWEST) -> Profile:
    """The profile of a version such as "5.2", "5.2.16" or "2026.1"; ValueError if it is none."""
    number = _number(version)
    return Profile(
        version=version,
        writes_to_previous_generation=number >= (5, 4, 4) or (5, 2, 16) <= number < (5, 3),
        preimage_without_clustering=number >= (2026, 1),
        rfc_variant=number >= (2026, 1),
        tablets=number >= (6, 0),
    )


def _number(version: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in version.split("."))
    except ValueError:
        raise ValueError(
            f"ScyllaDB version {version!r}: expected numbers such as 5.2 or {NEWEST}"
        ) from None
