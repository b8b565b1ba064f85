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


def test_a_read_only_view_is_contiguous_and_shares_memory() -> None:
    array = np.arange(6)
    view = read_only(array)
    assert not view.flags.writeable
    assert array.flags.writeable
    assert np.shares_memory(view, array)
    assert read_only(array[::2]).flags.c_contiguous
