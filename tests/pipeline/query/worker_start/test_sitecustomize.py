"""The path of Spark's Python processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from roamcast.pipeline.query.session import worker_path

ARCHIVE = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"


def run(
    *path: Path,
    code: str = "from importlib.util import find_spec; print(find_spec('pyspark').origin)",
    python: str | Path = sys.executable,
) -> str:
    """What a process prints that Spark starts with this path."""
    environment = {
        "PYTHONPATH": os.pathsep.join([*map(str, path[:1]), worker_path(os.pathsep.join(map(str, path[1:])))])
    }
    command = [python, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_pyspark_is_imported_from_its_folder() -> None:
    """Not from the zip file in it, which comes first on the path."""
    assert run(ARCHIVE) == pyspark.__file__


def test_the_environment_may_be_a_link(tmp_path: Path) -> None:
    """Spark resolves it, Python does not."""
    link = tmp_path / "environment"
    link.symlink_to(sys.prefix)
    resolved = Path(os.path.realpath(ARCHIVE))
    assert run(resolved, python=link / "bin" / "python").startswith(str(link))


def test_an_archive_of_another_spark_is_kept(tmp_path: Path) -> None:
    """It may be another version."""
    other = shutil.copy(ARCHIVE, tmp_path)
    assert run(Path(other)).startswith(other)


def test_another_sitecustomize_runs(tmp_path: Path) -> None:
    """The one that it takes the place of."""
    (tmp_path / "sitecustomize.py").write_text("print('other')")
    assert run(ARCHIVE, tmp_path, code="") == "other"


def test_the_folder_is_on_the_path_once() -> None:
    """Also if another session has put it there."""
    once = worker_path(os.pathsep.join(["", "a", "b"]))
    assert once.split(os.pathsep)[1:] == ["a", "b"]
    assert worker_path(once) == once
