"""Packages stay small, so that modules are easy to find."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from cdc_reader import testing

CODE = Path(testing.__file__).parents[1]
CONNECTOR = CODE.parent / "connectors" / "pyspark_scylla_cdc"
EMBEDDED = CODE / "testing" / "embedded"
MOST = 15


def test_modules_of_a_package() -> None:
    """Packages have at most `MOST` modules. The embedded server, a product in itself, is exempt."""
    modules = [path for code in (CODE, CONNECTOR) for path in code.rglob("*.py")]
    counts = Counter(
        path.parent
        for path in modules
        if path.name != "__init__.py" and not path.is_relative_to(EMBEDDED)
    )
    assert counts[CODE / "reading"], "expected the packages beside the tests, found none"
    crowded = {
        str(package.relative_to(CODE.parent)): n for package, n in counts.items() if n > MOST
    }
    assert not crowded, f"packages of more than {MOST} modules: {crowded}"
