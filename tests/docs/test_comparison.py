"""The comparison page quotes the published results of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs/explanation"
QUOTED = re.compile(
    r"^\| scylla-cdc as (Arrow batches|`Change` objects) vs (\w+) \| ([\d.]+) \| ([\d.]+) \|$",
    re.MULTILINE,
)


def test_the_quoted_ratios_are_those_of_the_results() -> None:
    """The ratios quoted on the comparison page equal those on the page of results."""
    results = (DOCS / "performance.md").read_text()
    quoted = QUOTED.findall((DOCS / "comparison.md").read_text())
    assert len(quoted) == 6
    for what, library, rows, cpu in quoted:
        figure = f"{'batches' if 'Arrow' in what else 'changes'}_{library.lower()}"
        for name, ratio in ((figure, rows), (f"{figure}_cpu", cpu)):
            assert re.search(rf"^\| `{name}` \| [^|]+ \| {ratio} \|", results, re.MULTILINE), name
