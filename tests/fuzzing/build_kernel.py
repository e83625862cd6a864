"""Builds the kernel for fuzzing: ``python -m tests.fuzzing.build_kernel FOLDER``.

The build includes clang's address and undefined-behavior sanitizers, and the counters that guide
the fuzzer.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from hatch_build import NotCompiledError, compile_kernel

# The sanitizers' runtime is loaded before Python, so the extension must not have its own copy.
TOOLS = {
    "CC": "clang",
    "LDSHARED": "clang -shared",
    "CFLAGS": (
        "-fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=all "
        "-fno-omit-frame-pointer -UNDEBUG"
    ),
}


def main() -> None:
    """Build the extension, and copy it to the directory."""
    folder = Path(sys.argv[1])
    if shutil.which("clang") is None:
        sys.exit("clang was not found: install it (Debian: apt-get install clang), and try again")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(TOOLS)
    try:
        built = compile_kernel(Path.cwd(), folder.resolve() / "work")
    except NotCompiledError as error:
        sys.exit(f"the kernel was not compiled: {error}")
    shutil.copy(built, folder)


if __name__ == "__main__":
    main()
