"""Handles the differences between cassandra-driver and scylla-driver; either may be installed.

Both provide the package `cassandra`; scylla-driver is a fork that can send a query to a shard.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cassandra.cluster import Cluster
from cassandra.query import PreparedStatement

from cdc_reader._log import get_logger
from cdc_reader.cql.schema import Column

log = get_logger(__name__)

DRIVERS = ("cassandra-driver", "scylla-driver")
_UNKNOWN_TO_SOME = frozenset({"monitor_reporting_enabled"})


def open_cluster(settings: Mapping[str, Any]) -> Cluster:
    """Open a Cluster with these settings; omit settings that the installed driver lacks."""
    warn_of_two_drivers()
    known = inspect.signature(Cluster.__init__).parameters
    left_out = _UNKNOWN_TO_SOME - known.keys()
    return Cluster(**{name: value for name, value in settings.items() if name not in left_out})


def application(name: str) -> dict[str, Any]:
    """Return the settings that report the application's name to the server."""
    try:
        from cassandra.application_info import ApplicationInfo
    except ImportError:
        return {"application_name": name}
    return {"application_info": ApplicationInfo(application_name=name)}


def forget_columns(statement: PreparedStatement) -> None:
    """Make the server include the metadata in the next result again."""
    if hasattr(statement, "update_result_metadata"):
        statement.update_result_metadata(None, statement.result_metadata_id)
    else:
        statement.result_metadata = None


def keep_columns(statement: PreparedStatement, columns: Sequence[Column]) -> None:
    """Let later results omit their metadata, which has been checked against `columns`.

    If the server assigns an id to the metadata, scylla-driver sends the id with each request, and
    replaces the id and the metadata when the server reports a change. Metadata that the driver has
    already replaced is kept.
    """
    if not hasattr(statement, "update_result_metadata"):
        statement.result_metadata = columns
        return
    known, metadata_id = statement.result_metadata_and_id
    if known is None:
        statement.update_result_metadata(columns, metadata_id)


@functools.cache
def warn_of_two_drivers() -> None:
    """Warn, once per process, if both drivers are installed, because they share one directory."""
    found = installed_drivers()
    if len(found) > 1:
        log.warning(
            "two_drivers_installed",
            found=", ".join(f"{name} {number}" for name, number in found.items()),
            remedy="each overwrites files of the other: run 'pip uninstall -y "
            f"{' '.join(DRIVERS)}', then install one of them",
        )


def installed_drivers() -> dict[str, str]:
    """Return the versions of the drivers that are installed, by name."""
    found = {}
    for name in DRIVERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
