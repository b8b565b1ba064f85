"""The package as users install it: a wheel, and spark-submit in another folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from spark_submit import EXPECTED, submit

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The Python of a new environment: it has the wheel, and beside it what is installed here, but not the sources."""
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wheels = tmp_path / "wheels"
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(wheels), str(sources)], check=True)
    (wheel,) = wheels.iterdir()
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    # A .pth file in a folder that is added by another one is not read, so the editable installation does not count.
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)], check=True)
    shutil.rmtree(sources)
    return python


def test_the_wheel_runs_with_spark_submit(environment: Path, tmp_path: Path) -> None:
    """Driver and tasks import it, from the new environment."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    found = submit(folder, "local[1]", environment, {})  # each Python process compiles the kernels once
    packages = found.pop("package")
    assert found == EXPECTED
    assert {Path(path).is_relative_to(tmp_path / "venv") for path in packages} == {True}
