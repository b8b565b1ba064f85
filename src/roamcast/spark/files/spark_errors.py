"""Spark's errors as ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from roamcast.errors import ConflictError, InputError, RoamcastError, StorageError, UnavailableError

__all__ = ["spark_errors"]

_REFUSALS: Final = ("No space left on device", "Read-only file system", "Permission denied", "Disk quota exceeded")
_JAVA_CALL: Final = "An error occurred while calling "
_FILE_SYSTEMS: Final = re.compile(r'No FileSystem for scheme "[^"]*"|Class \S*FileSystem not found')
_OURS: Final = "roamcast.errors.InputError: "
_CONDITIONS: Final[dict[str, Callable[[str], RoamcastError]]] = {
    "PATH_NOT_FOUND": lambda text: InputError(text, hint="check the path"),
    "PATH_ALREADY_EXISTS": lambda text: ConflictError(text, hint="pass another place for the result, or --overwrite"),
    "TABLE_OR_VIEW_NOT_FOUND": lambda text: InputError(text, hint="check the name"),
    "TABLE_OR_VIEW_ALREADY_EXISTS": lambda text: ConflictError(text, hint="pass another name, or --overwrite"),
    "UNABLE_TO_INFER_SCHEMA": lambda text: InputError(text, hint="is it empty, or does it have another format?"),
    "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE": lambda text: InputError(text, hint="leave it out, or pass another format"),
    "DATA_SOURCE_NOT_FOUND": lambda text: InputError(text, hint="check the format and Spark's packages"),
    "FAILED_READ_FILE": lambda text: InputError(text, hint="is it damaged, or does it have another format or header?"),
}


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn errors of Spark into ours: a file that cannot be read, a disk that refuses, an error in a task."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise _translate(str(error)) from error


def _translate(report: str) -> RoamcastError:
    for refusal in _REFUSALS:
        if refusal in report:
            hint = "free some space or choose another folder; nothing was written"
            return StorageError(f"cannot write: {refusal}", hint=hint)
    lines = [line.strip() for line in report.splitlines() if line.strip()] or ["no reason given"]
    ours = next((line for line in lines if line.startswith(_OURS)), None)
    if ours is not None:
        return InputError(ours.removeprefix(_OURS))
    condition = re.search(r"\[([A-Z_]+)(?:\.[A-Z_.]+)?\] (.*?)(?: SQLSTATE|$)", report, re.MULTILINE)
    if condition and condition[1] in _CONDITIONS:
        return _CONDITIONS[condition[1]](condition[2].rstrip("."))
    no_files = _FILE_SYSTEMS.search(report)
    if no_files:
        hint = "check the URI; if it is right, Spark needs the jars of its file system: see docs/spark.md"
        return InputError(no_files[0], hint=hint)
    # A Python worker's report ends with the error, Java's begins with it, after the call.
    lines = [line.removeprefix(": ") for line in lines if not line.startswith(_JAVA_CALL)] or lines
    reason = lines[-1] if "Traceback" in report else lines[0]
    return UnavailableError(f"Spark failed: {reason}", hint="nothing was written")
