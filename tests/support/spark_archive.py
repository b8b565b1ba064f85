"""Write an archive of the Java classes that the pipeline uses, with which a JVM starts in half the time.

    python spark_archive.py FILE

Java ignores an archive of another version of itself or of Spark.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from streams import running_stream
from worlds import event, journal, removal, subscription

from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session


def main(archive: Path) -> None:
    """Java crashes if the archive is incomplete, so it gets its name at the end."""
    incomplete = archive.with_suffix(".incomplete")
    incomplete.unlink(missing_ok=True)
    quiet = "-Xlog:cds=off -Xlog:cds+dynamic=off"  # it has a line for each class that cannot be in an archive
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={incomplete} {quiet}"
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        spark = session("roamcast-archive", options=LOCAL_CHECKPOINT, log=data / "spark.log")
        journal(data, [subscription("s1", "ann"), subscription("s2", "bob"), event("cam", 1)])
        with running_stream(spark, data) as query:
            query.processAllAvailable()
            journal(data, [removal("s2", "bob"), event("cam", 2)])
            query.processAllAvailable()
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # ends the JVM, which then writes the archive
        gateway.proc.wait()
    incomplete.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
