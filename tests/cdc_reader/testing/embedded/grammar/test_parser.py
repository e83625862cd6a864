"""Tests that CQL text is parsed to the right statement, or to an error with its position."""

from pathlib import Path

import pytest

from cdc_reader.testing.embedded.grammar.parser import build_parser


@pytest.mark.slow
def test_the_parser_s_tables_are_kept_for_later_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged cache file is replaced, and an unusable cache directory causes no error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cql = "SELECT a.b, count(*) FROM ks.t WHERE p IN (1, ?) AND c > :c"
    expected = build_parser().parse(cql)
    build = build_parser.__wrapped__
    assert build().parse(cql) == expected
    (kept,) = (tmp_path / "scylla-cdc").iterdir()
    assert build().parse(cql) == expected
    kept.write_bytes(kept.read_bytes()[:1000])
    assert build().parse(cql) == expected
    assert kept.stat().st_size > 1000
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    assert build().parse(cql) == expected
