"""The one line that says why a copy ended."""

from __future__ import annotations

import re

from cdc_reader.errors import CdcError, MirrorError

_QUERY = "=== Streaming Query ==="
"""What Spark puts between an error and the plan of the query."""
_OURS = re.compile(r"\bcdc_reader\.errors\.(\w+): (.+)")
"""The class and the message of an error of the source, as Spark quotes it."""
_RAISED = re.compile(r"^(?:: )?([\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
"""The line in which Python or Java name an error, before or after the lines of its stack."""


def mirror_error(target: str, ended: Exception, raised: Exception | None) -> MirrorError:
    """Return the error for a query that ended with `ended`.

    `raised` is what was raised in this process when the micro-batch was merged, if anything was.
    """
    cause = ended if raised is None else raised
    error = MirrorError(f"the copy at {target} ended: {reason(cause)}")
    error.__cause__ = cause.with_traceback(None)  # Spark has logged the frames, among many others
    return error


def raised_class(error: BaseException | None) -> str:
    """Return the class of an error of the source, which Spark may have wrapped."""
    quoted: list[tuple[str, str]] = _OURS.findall(_text(error))
    return quoted[-1][0] if quoted else type(error).__name__


def _text(error: BaseException | None) -> str:
    return str(error).partition(_QUERY)[0].strip()


def reason(error: Exception) -> str:
    """Return the error in one line, with what to do."""
    if isinstance(error, CdcError):
        return str(error)
    text = _text(error)
    if ours := _OURS.findall(text):
        return str(ours[-1][1])
    name, line = type(error).__name__, next(iter(text.splitlines()), "")
    found: list[tuple[str, str]] = _RAISED.findall(text)
    if found:
        name, line = found[-1] if "Traceback" in text else found[0]
    kind = name.rpartition(".")[2]
    return f"{kind}: {line}; call mirror again when the cause is gone: it continues where it ended"
