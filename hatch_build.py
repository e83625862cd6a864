"""Compiles the decoding kernel into wheels, and beside its sources for editable installs.

Without a C compiler or Python's headers, the kernel is left out, a one-line message says why, and
the plain Python kernel is used. The environment variable ``CDC_READER_KERNEL`` overrides this:
``python`` leaves the kernel out, and ``cython`` turns a failure to compile it into an error.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "CDC_READER_KERNEL"
MODULE = "cdc_reader.decoding._native"
PACKAGE = Path("cdc_reader", "decoding")


class NotCompiledError(Exception):
    """The kernel was not compiled; the message is one line that says why."""


class KernelBuildHook(BuildHookInterface):  # type: ignore[type-arg] # of any configuration
    """Compiles the kernel; Hatchling calls it before and after it builds a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the kernel if wanted and possible, and set the wheel's contents and tag."""
        root = Path(self.root)
        beside = root / PACKAGE / built_name()
        if version == "editable":  # the kernel of an earlier build may no longer be wanted
            beside.unlink(missing_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="scylla-cdc-kernel-"))
        try:
            built = compile_kernel(root, self._folder)
        except NotCompiledError as reason:
            self._remove_folder()
            self._leave_out(str(reason))
            return
        if version == "editable":
            shutil.copy(built, beside)
            return
        build_data["force_include"][str(built)] = str(PACKAGE / built.name)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(
        self,
        version: str,  # noqa: ARG002 - hatchling's signature
        build_data: dict[str, Any],  # noqa: ARG002
        artifact_path: str,  # noqa: ARG002
    ) -> None:
        """Remove temporary files."""
        self._remove_folder()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _leave_out(self, reason: str) -> None:
        if os.environ.get(VARIABLE) == "cython":
            self.app.abort(f"{VARIABLE} is 'cython', but the kernel was not compiled: {reason}")
        self.app.display_warning(
            f"The kernel is not compiled, so the plain Python one will run: {reason}"
        )


def built_name() -> str:
    """Return the extension's file name, which contains Python's version and the platform."""
    return f"{MODULE.rpartition('.')[2]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def compile_kernel(root: Path, folder: Path) -> Path:
    """Build the extension in `folder`; raises NotCompiledError if that is impossible."""
    if missing := what_is_missing():
        raise NotCompiledError(missing)
    # Isolated builds install these requirements; without isolation, they may be missing.
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
        from setuptools.errors import CCompilerError, ExecError, PlatformError
    except ImportError as error:
        raise NotCompiledError(str(error)) from error
    source = str(PACKAGE / "_native.pyx")
    with chdir(root):
        extensions = cythonize(  # type: ignore[no-untyped-call] # has hints for some functions only
            Extension(MODULE, [source], extra_compile_args=["-O3", "-g0"]),
            build_dir=str(folder),
            quiet=True,
        )
        command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib = str(folder / "lib")
        command.build_temp = str(folder / "temp")
        command.ensure_finalized()
        try:
            command.run()
        except (CCompilerError, ExecError, PlatformError) as error:
            raise NotCompiledError("the C compiler failed") from error
    return folder / "lib" / PACKAGE / built_name()


def what_is_missing() -> str | None:
    """Return why the kernel cannot or should not be compiled here, or None."""
    if os.environ.get(VARIABLE) == "python":
        return f"{VARIABLE} is 'python'"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(compiler.split()[0]) is None:
        return f"there is no C compiler {compiler!r}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.exists() else f"there is no {header}"
