"""Finding a Java that Spark can use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from roamcast.errors import UnavailableError

__all__ = ["find_java"]

_NEEDED: Final = 17
_INSTALLED: Final = Path("/usr/lib/jvm")
_HINT: Final = "install it, e.g. 'apt-get install default-jre-headless', or set JAVA_HOME to one you have"


def find_java() -> Path:
    """The home of a Java that is new enough: of JAVA_HOME, PATH, or where Debian puts it. Raises UnavailableError."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path).resolve()] if on_path else []
    candidates += sorted(_INSTALLED.glob("*/bin/java"), reverse=True)
    for java in candidates:
        if java.is_file() and _major(java) >= _NEEDED:
            return java.parent.parent
    found = f"found only {candidates[0]}" if candidates else "found none"
    raise UnavailableError(f"Spark needs Java {_NEEDED} or later and {found}", hint=_HINT)


def _major(java: Path) -> int:
    command = [str(java), "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr  # noqa: S603 - just found
    except OSError:  # not a program for this machine
        return 0
    match = re.search(r'version "(\d+)', said)
    return int(match.group(1)) if match else 0
