"""The memory of processes while a benchmark runs."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["MemorySampler", "memory_mb"]

_EVERY_S: Final = 0.5
_PROC: Final = Path("/proc")


def memory_mb(pid: int) -> float:
    """Memory of a process: its own pages, and its share of those it has in common with others (PSS).

    Where the system does not tell that, all its pages (RSS); 0 if there is no such process.
    """
    for name, pattern in (("smaps_rollup", rb"^Pss: +(\d+) kB"), ("status", rb"^VmRSS:\s+(\d+) kB")):
        try:
            found = re.search(pattern, (_PROC / str(pid) / name).read_bytes(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return int(found[1]) / 1024
    return 0.0


class MemorySampler:
    """Samples the memory of processes in a thread and keeps the highest sum of each name."""

    def __init__(self, processes: Mapping[str, int], spark: int | None = None) -> None:
        """`processes` are counted alone. `spark` is the process of a Spark driver, which is counted with its family.

        That has three names: `driver` (Python), `java`, and `workers`: all of Spark's Python processes.
        """
        self._processes = processes
        self._spark = spark
        self._peaks: dict[str, float] = {}
        self._over = threading.Event()

    def peaks(self) -> dict[str, float]:
        """The highest so far in megabytes, as `<name>_mb`."""
        return {f"{name}_mb": round(peak, 1) for name, peak in self._peaks.items()}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample until the end of the block, and once more then."""
        thread = threading.Thread(target=self._run, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._sample()
        self._sample()

    def _sample(self) -> None:
        sums = {name: memory_mb(pid) for name, pid in self._processes.items()}
        if self._spark is not None:
            sums |= _spark_memory(self._spark)
        for name, size in sums.items():
            self._peaks[name] = max(size, self._peaks.get(name, 0.0))


def _spark_memory(driver: int) -> dict[str, float]:
    memory = {"driver": memory_mb(driver), "java": 0.0, "workers": 0.0}
    for pid, name in _descendants(driver):
        memory["java" if name == "java" else "workers"] += memory_mb(pid)
    return memory


def _descendants(root: int) -> Iterable[tuple[int, str]]:
    """The processes that a process has started, and those that these have, with their names."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            try:
                stat = (_PROC / entry.name / "stat").read_text()
            except OSError:  # it has ended
                continue
            name, _, rest = stat.partition(" (")[2].rpartition(") ")
            parents[int(entry.name)], names[int(entry.name)] = int(rest.split()[1]), name
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return [(pid, names[pid]) for pid in family - {root}]
