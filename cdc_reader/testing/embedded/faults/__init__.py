"""Faults on demand: which statements fail, and how.

`fault` has the values, `plan` decides which statement meets which, `errors` says what is answered.
"""

from __future__ import annotations

from cdc_reader.testing.embedded.faults.fault import SYNTAX, Fault, FaultKind, Statement, Strike
from cdc_reader.testing.embedded.faults.plan import FaultPlan

__all__ = ["SYNTAX", "Fault", "FaultKind", "FaultPlan", "Statement", "Strike"]
