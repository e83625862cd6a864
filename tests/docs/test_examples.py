"""The pages show the code of the examples unchanged."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/keep-a-copy-without-spark.md").read_text()
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines(code: str) -> str:
    """Return the code without indentation."""
    return "\n".join(line.strip() for line in code.splitlines())


def test_the_blocks_are_parts_of_the_examples() -> None:
    """The blocks may differ from the examples in indentation only."""
    examples = [lines(path.read_text()) for path in (ROOT / "examples").rglob("*.py")]
    blocks = [lines(block) for block in BLOCK.findall(PAGE)]
    assert len(blocks) == 2
    assert all(any(block in example for example in examples) for block in blocks)
