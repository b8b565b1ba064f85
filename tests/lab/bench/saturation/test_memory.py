"""The memory of processes."""

from __future__ import annotations

import subprocess
import sys

from roamcast.lab.bench.processes import until
from roamcast.lab.bench.saturation.memory import MemorySampler, memory_mb

# Says when it has taken 64 MB, and takes no more than the interpreter needs once it gets a line.
CHILD = """
import sys
block = b"x" * (64 << 20)
print("full", flush=True)
sys.stdin.readline()
del block
print("empty", flush=True)
sys.stdin.readline()
"""
PARENT = f"""
import subprocess, sys
sys.exit(subprocess.call([sys.executable, "-c", {CHILD!r}]))
"""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_the_highest_memory_is_kept() -> None:
    """Though the process has freed it since; and a process that ends is no error."""
    with start(CHILD) as process:
        memory = MemorySampler({"child": process.pid})
        with memory.running():
            assert heard(process) == "full"
            until(lambda: memory.peaks().get("child_mb", 0.0) >= 64, 30.0, "a sample")
            tell(process)
            assert heard(process) == "empty"
            assert memory_mb(process.pid) < 64
            tell(process)
            process.wait(30.0)
            assert memory_mb(process.pid) == 0
        assert 64 <= memory.peaks()["child_mb"] < 128


def test_processes_of_spark_are_counted_with_those_they_start() -> None:
    """The driver alone, and all others that are not Java together."""
    with start(PARENT) as process:
        memory = MemorySampler({}, spark=process.pid)
        with memory.running():
            assert heard(process) == "full"
            until(lambda: memory.peaks().get("workers_mb", 0.0) >= 64, 30.0, "a sample")
            tell(process)
            tell(process)
        peaks = memory.peaks()
    assert 0 < peaks["driver_mb"] < 64
    assert peaks["java_mb"] == 0
