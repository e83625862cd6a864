"""Coverage-guided fuzzing of the compiled kernel, as ``make fuzz-kernel`` runs it.

``python -m tests.fuzzing.kernel FOLDER [libFuzzer's options]``. The first byte of an input selects
the columns. The rest is the body of a page. For each input, the kernel built with sanitizers must
neither crash nor read out of bounds, and must return the same result as the Python kernel: the same
valid Arrow data and the same Python objects made from it, or the same error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import atheris  # type: ignore[import-untyped]  # there for `make fuzz-kernel`

with atheris.instrument_imports(include=["cdc_reader.decoding"]):
    from cdc_reader.decoding import arrow_type, parse_metadata, python
    from cdc_reader.decoding.choice import MODULES
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings

from cdc_reader.changes.delta import DELETED
from cdc_reader.cql.schema import Column
from cdc_reader.cql.types import NATIVE_TYPES, Native
from cdc_reader.cql.values import converter, plain
from tests.cdc_reader.decoding.conftest import decoder
from tests.cdc_reader.decoding.schemas import Table, tables
from tests.cdc_reader.decoding.test_recorded_frames import without_metadata
from tests.cdc_reader.decoding.test_twins import ALL_BODIES, outcome

PLAIN = {arrow_type(Native(name)) for name in NATIVE_TYPES if converter(Native(name)) is plain}
_LARGEST = 8_192
_GENERATED, _BARE = 200, 40
"""Number of pages of each kind that provide columns: at most 256 in all, since a byte selects one.
"""
_LENGTHS = (-(2**31), -2, -1, 0, 1, 2, 3, 5, 16, 255, 2**16, 2**28, 2**30, 2**31 - 1)

Columns = Sequence[Column] | None


def generated() -> list[Table]:
    """Return tables of random nested types, the same in each run."""
    found: list[Table] = []

    @settings(
        max_examples=_GENERATED,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(tables(max_rows=4))
    def collect(table: Table) -> None:
        found.append(table)

    collect()
    return found[:_GENERATED]


def recorded() -> list[tuple[Columns, bytes]]:
    """Return small pages of a real server, with metadata."""
    return [(None, body) for body in ALL_BODIES if len(body) < _LARGEST]


def pages() -> list[tuple[Columns, bytes]]:
    """Return pages to mutate, each with its columns, or with None if the body describes them."""
    bare = []
    for _, body in recorded():
        columns = parse_metadata(body).columns or ()
        bare.append((columns, without_metadata(body)))
    return [*recorded(), *bare[:_BARE], *((table.columns, table.body) for table in generated())]


def prepare(folder: Path, known: list[Columns]) -> None:
    """Write the initial corpus, and a dictionary of lengths worth trying."""
    corpus = folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for number, (columns, body) in enumerate(pages()):
        (corpus / f"page-{number}").write_bytes(bytes([known.index(columns)]) + body)
    lengths = (length.to_bytes(4, "big", signed=True) for length in _LENGTHS)
    lines = ('"' + "".join(f"\\x{byte:02x}" for byte in length) + '"\n' for length in lengths)
    (folder / "lengths.dict").write_text("".join(lines))


def instrumented(folder: Path) -> ModuleType:
    """Import the extension with sanitizers from this directory."""
    path = folder / f"_native{EXTENSION_SUFFIXES[0]}"
    spec = spec_from_file_location(MODULES["cython"], path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def objects(kernel: ModuleType, body: bytes, columns: Columns) -> str:
    """Return the objects made from the columns that need no conversion, as text."""
    batch = decoder(kernel)(body, columns)
    fields, found = [], []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.type in PLAIN:
            values = kernel.values(column)
            fields += [kernel.Field(name, values), kernel.GivenField(f"{name}+", values, None)]
            kind = kernel.Wrapper
            fields.append(kernel.GivenField(f"{name}=", values, values, DELETED, kind))
        if column.type == pa.string():
            found.append(uuids(kernel, column))
    mappings = kernel.Mappings(bytes(batch.num_rows), [fields])
    return repr([found, *(mappings[row] for row in range(batch.num_rows))])


def uuids(kernel: ModuleType, texts: pa.Array) -> str:
    """Parse the texts as UUIDs. Return the repr of the result, or the message of the error."""
    try:
        return repr(list(kernel.uuids(texts)))
    except ValueError as error:
        return str(error)


def main() -> None:
    """Fuzz until a difference or a crash is found, or until libFuzzer's options stop it."""
    folder = Path(sys.argv[1]).resolve()
    known: list[Columns] = []
    for columns, _ in pages():
        if columns not in known:
            known.append(columns)
    prepare(folder, known)
    compiled = instrumented(folder)

    def test(data: bytes) -> None:
        columns, body = known[(data[:1] or b"\0")[0] % len(known)], data[1:]
        found = outcome(decoder(compiled), body, columns)
        expected = outcome(decoder(python), body, columns)
        if found != expected:
            raise AssertionError(f"{columns} {body.hex()}\n{found}\n{expected}")
        if not isinstance(expected, str):
            assert objects(compiled, body, columns) == objects(python, body, columns)

    options = (
        f"-dict={folder / 'lengths.dict'}",
        f"-max_len={_LARGEST}",
        f"-artifact_prefix={folder}/",
    )
    atheris.Setup([sys.argv[0], *options, *sys.argv[2:], str(folder / "corpus")], test)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
