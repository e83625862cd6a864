"""Faults on demand: the statements that fail, and how.

May import no other package of the server. Begin with `fault`, the values; `plan` matches statements
to faults, `errors` makes the answers.
"""

from __future__ import annotations

from cdc_reader.testing.embedded.faults.fault import SYNTAX, Fault, FaultKind, Statement, Strike
from cdc_reader.testing.embedded.faults.plan import FaultPlan

__all__ = ["SYNTAX", "Fault", "FaultKind", "FaultPlan", "Statement", "Strike"]
