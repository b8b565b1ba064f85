"""Tests of roamcast.compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from roamcast.compiled import read_only

KERNELS = """
from roamcast.compiled import kernel
@kernel
def _twice(x):
    return 2 * x
@kernel
def four_times(x):
    return 2 * _twice(x)
@kernel
def one_more(x):
    return x + 1
"""
PROGRAM = """
import logging, sys
sys.path.insert(0, {folder!r})
logging.basicConfig(level=logging.INFO, format="%(message)s")
import roamcast.compiled
import roamcast_kernels as kernels
{call}
print(kernels.four_times(3), kernels.one_more(3))
"""
NOTICE = "compiling kernels; the result is cached"


def run(folder: Path, call: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(folder=str(folder), call=call)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "roamcast_kernels.py").write_text(KERNELS)
    return tmp_path


def test_compilation_is_logged_once_and_then_cached(folder: Path) -> None:
    first, second = run(folder), run(folder)
    assert (first.stdout, second.stdout) == ("12 4\n", "12 4\n")
    assert first.stderr.count(NOTICE) == 1
    assert NOTICE not in second.stderr


def test_expected_compilation_is_not_logged(folder: Path) -> None:
    call = "with roamcast.compiled.expect_compilation(): kernels.four_times(3), kernels.one_more(3)"
    assert NOTICE not in run(folder, call).stderr


def test_a_change_in_another_file_of_the_folder_invalidates_the_cache(folder: Path) -> None:
    run(folder)
    (folder / "other.py").write_text("")
    assert NOTICE in run(folder).stderr


def test_what_an_earlier_version_compiled_is_not_loaded(folder: Path) -> None:
    """Its types may be in modules that are gone. Its files are removed."""

    def write(module: str) -> None:
        (folder / f"{module}.py").write_text(
            "from typing import NamedTuple\nclass Pair(NamedTuple):\n    a: int\n    b: int"
        )
        kernels = f"from {module} import Pair\n@kernel\ndef add(pair):\n    return pair.a + pair.b\n"
        (folder / "roamcast_kernels.py").write_text(KERNELS + kernels)

    call = "print(kernels.add(kernels.Pair(1, 2)))"
    write("shapes")
    assert run(folder, call).stdout == "3\n12 4\n"
    before = set(folder.rglob("*.nb?"))
    (folder / "shapes.py").unlink()
    write("forms")
    assert run(folder, call).stdout == "3\n12 4\n"
    assert before
    assert not before & set(folder.rglob("*.nb?"))


def test_an_unchanged_copy_is_not_compiled_again(folder: Path) -> None:
    """As if the same version is installed again: the times of its files differ."""
    run(folder)
    (folder / "roamcast_kernels.py").touch()
    assert NOTICE not in run(folder).stderr


def test_a_read_only_view_is_contiguous_and_shares_memory() -> None:
    array = np.arange(6)
    view = read_only(array)
    assert not view.flags.writeable
    assert array.flags.writeable
    assert np.shares_memory(view, array)
    assert read_only(array[::2]).flags.c_contiguous
