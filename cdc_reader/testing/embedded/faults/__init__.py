"""Fault injection: which statements fail, and how.

This package may import no other package of the server. Begin with `fault`, which defines faults;
`plan` matches statements to faults, and `errors` creates the error responses.
"""

from __future__ import annotations

from cdc_reader.testing.embedded.faults.fault import SYNTAX, Fault, FaultKind, Statement, Strike
from cdc_reader.testing.embedded.faults.plan import FaultPlan

__all__ = ["SYNTAX", "Fault", "FaultKind", "FaultPlan", "Statement", "Strike"]
