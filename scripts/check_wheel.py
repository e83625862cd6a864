"""Checks a wheel as a user gets it: in an empty environment, on a machine without a compiler.

``python -m scripts.check_wheel [--python PYTHON] DIRECTORY`` installs the wheel for PYTHON from the
directory, then runs the demo, the tutorial, tests and a benchmark. It prints the size of the wheel
and the number of modules that importing each package loads. The programs run in a directory that
contains the tests and the documentation, but not the packages.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = "tests docs examples README.md CHANGELOG.md pyproject.toml".split()
COMPILERS = re.compile(r"(.*-)?(cc|gcc|g\+\+|c\+\+|cpp|c89|c99|clang(\+\+)?|ld|as)([-.0-9]*)?")
TESTS = ("tests/cdc_reader", "tests/connectors")
LIBRARY = "cdc_reader pyspark_scylla_cdc".split()
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORTED = """
import sys
import {package}
parts = [name for name in sys.modules if name.partition(".")[0] in {library}]
testing = [name for name in parts if name.startswith("cdc_reader.testing")]
spark = [name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j")]
assert not testing, testing
assert "{package}" != "cdc_reader" or not spark, spark
print(len(parts))
"""


def main() -> None:
    """Check the wheel. Exit at the first command that fails, with its output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the wheel's version of Python")
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    tag = run(given.python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])").strip()
    pattern = f"*-{tag}-{tag}-manylinux*.whl"
    found = sorted(given.directory.resolve().glob(pattern))
    if len(found) != 1:
        sys.exit(f"{given.directory} has {len(found)} wheels {pattern}: expected one; build it")
    [wheel] = found
    say(f"{wheel.name}: {weight(wheel)}")
    with tempfile.TemporaryDirectory(prefix="scylla-cdc-wheel-") as folder:
        check(wheel, given.python, Path(folder))


def check(wheel: Path, python: str, folder: Path) -> None:
    """Install the wheel in a new environment in `folder`, and run the programs that users run."""
    run(python, "-m", "venv", folder / "venv")
    machine = Machine(folder)
    machine.install("--upgrade", "pip")
    machine.install(f"{wheel}[cli,spark,embedded]")
    for package in ("cdc_reader", "pyspark_scylla_cdc"):
        count = machine.run("python", "-c", IMPORTED.format(package=package, library=LIBRARY))
        say(f"import {package} loads {count.strip()} of the package's modules, no test kit")
    version = machine.run("scylla-cdc", "version").strip()
    if "(kernel: cython)" not in version:
        sys.exit(f"{version}: expected the compiled kernel; build the wheel with a compiler")
    say(version)
    say(machine.run("scylla-cdc", "demo", "--seed", "1").strip().splitlines()[-1])
    machine.run("python", "-c", tutorial())
    say("the tutorial runs word for word")
    machine.install(f"{wheel}[docker,metrics]", "--group", "dev")
    options = "-q --no-header -p no:cacheprovider -n 2 -m".split()
    tests = machine.run("python", "-m", "pytest", *options, "not slow and not cluster", *TESTS)
    say(f"{' '.join(TESTS)}: {tests.strip().splitlines()[-1]}")
    say(machine.run("python", "-m", "tests.benchmarks", "decode").strip())


def tutorial() -> str:
    """Return the Python code of the tutorial."""
    return "\n".join(BLOCK.findall((ROOT / "docs/tutorial/first-dataframe.md").read_text()))


def weight(wheel: Path) -> str:
    """Return the size of the wheel, and the sizes of its largest parts when installed."""
    sizes: Counter[str] = Counter()
    for file in zipfile.ZipFile(wheel).infolist():
        sizes[part_of(file.filename)] += file.file_size
    parts = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in sizes.most_common(4))
    return f"{wheel.stat().st_size / 1e6:.2f} MB, installed {sizes.total() / 1e6:.2f} MB ({parts})"


def part_of(file: str) -> str:
    """Return the part of the wheel to which the file belongs."""
    if file.endswith(".so"):
        return "compiled kernel"
    return "test kit" if file.startswith("cdc_reader/testing/") else file.partition("/")[0]


class Machine:
    """A machine that has the environment and the tests, but no compiler."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "work"
        self._folder.mkdir()
        for name in COPIED:
            copied = ROOT / name
            make = shutil.copytree if copied.is_dir() else shutil.copy
            make(copied, self._folder / name)
        self._python = folder / "venv/bin/python"
        tools = folder / "tools"
        link_tools(tools)
        self._environment = {
            **{name: value for name, value in os.environ.items() if "PYTHON" not in name},
            "PATH": f"{folder / 'venv/bin'}:{tools}",
            "CC": "/nonexistent",
            "PYSPARK_PYTHON": str(self._python),
        }

    def install(self, *what: str | Path) -> None:
        """Install with pip."""
        self.run("python", "-m", "pip", "install", "--quiet", *what)

    def run(self, *command: str | Path) -> str:
        """Run the command. Return its output, or exit with that output if the command fails."""
        return run(*command, environment=self._environment, folder=self._folder)


def link_tools(folder: Path) -> None:
    """Fill `folder` with links to all programs on the path except compilers and Pythons."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*"):
            link = folder / program.name
            if link.exists() or program.name.startswith(("python", "pip")):
                continue
            if not COMPILERS.fullmatch(program.name):
                link.symlink_to(program.resolve())


def run(
    *command: str | Path, environment: dict[str, str] | None = None, folder: Path = ROOT
) -> str:
    """Run a command, which must succeed. Return its standard output."""
    program = shutil.which(command[0], path=environment["PATH"] if environment else None)
    result = subprocess.run(  # noqa: S603 - runs this program's own commands
        [program or command[0], *command[1:]],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]}\n{result.stdout}{result.stderr}")
    return result.stdout


def say(line: str) -> None:
    """Print a result."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
