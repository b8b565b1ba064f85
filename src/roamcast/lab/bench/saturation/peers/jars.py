"""Published Java libraries by their coordinates, through Ivy, which Spark brings along.

Ivy keeps them in its own folder in the user's home, so that they are downloaded once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from roamcast.errors import UnavailableError
from roamcast.pipeline.query.session import find_java

__all__ = ["fetch_jars", "spark_jar"]

_TIMEOUT_S = 900.0


def spark_jar(pattern: str) -> Path:
    """A library of the installed Spark. Raises UnavailableError."""
    import pyspark

    for jar in sorted((Path(pyspark.__file__).parent / "jars").glob(pattern)):
        return jar
    raise UnavailableError(f"Spark has no {pattern}", hint="install pyspark with pip")


def fetch_jars(coordinates: Sequence[str], folder: Path) -> list[Path]:
    """Copy libraries, given as organisation:name:version, and all they need into a folder. Raises UnavailableError."""
    wanted = [coordinate.split(":") for coordinate in coordinates]
    dependencies = "".join(
        f'<dependency org={quoteattr(org)} name={quoteattr(name)} rev={quoteattr(version)} conf="default->default"/>'
        for org, name, version in wanted
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="roamcast" module="bench"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )
    jars = folder / "jars"
    command = [
        str(find_java() / "bin" / "java"), "-jar", str(spark_jar("ivy-*.jar")), "-error", "-ivy", str(module),
        "-confs", "default", "-retrieve", str(jars / "[artifact]-[revision](-[classifier]).[ext]"),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)  # noqa: S603 - our own
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"Ivy needs more than {_TIMEOUT_S:.0f} s", hint="try again: it continues") from error
    if done.returncode:
        raise UnavailableError(
            f"Ivy does not find {', '.join(coordinates)}: {_reason(done.stdout + done.stderr)}",
            hint="it needs Maven Central, once",
        )
    return sorted(jars.glob("*.jar"))


def _reason(output: str) -> str:
    """The most telling line of Ivy's output."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line or "not found" in line), lines[-1] if lines else "")
