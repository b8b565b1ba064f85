"""`roamcast up` as a process: it starts everything, restarts a killed pipeline, and stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from roamcast.lab.bench.processes import Process, answers, free_port, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_200)]


LIMIT = 240.0  # seconds; only a machine that is very slow or busy comes near it


class Family(NamedTuple):
    """A process and all processes that it started."""

    process: Process
    seen: dict[int, str]  # process id -> its command line

    def update(self) -> dict[int, str]:
        """The child processes that run now. They are also added to `seen`."""
        parents = {int(entry.name): parent_of(entry) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
        family = {self.process.pid}
        while children := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= children
        commands = {pid: command_of(pid) for pid in sorted(family - {self.process.pid})}
        living = {pid: command for pid, command in commands.items() if command}
        self.seen.update(living)
        return living

    def pipeline(self) -> int:
        (pid,) = (pid for pid, command in self.update().items() if " pipeline " in command and " roamcast " in command)
        return pid

    def left(self) -> list[str]:
        """The commands of all processes ever seen that still run."""
        return [command for pid, command in self.seen.items() if command_of(pid) == command]


def parent_of(entry: Path) -> int | None:
    """None for a process that has ended."""
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(parent)


def command_of(pid: int) -> str:
    """Empty for a process that has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def roamcast_up(data: Path, url: str) -> Iterator[Family]:
    """Run `roamcast up`. At the end no process of it is left, whatever happened."""
    port = url.rpartition(":")[2]
    process = Process(
        ["up", "--port", port, "--data", str(data)], data.with_suffix(".log"), lambda _: answers(url), limit=LIMIT
    )
    family = Family(process, {})
    try:
        process.start()
        yield family
    finally:
        family.update()
        process.stop()
        for pid, command in family.seen.items():
            if command_of(pid) == command:
                os.kill(pid, signal.SIGKILL)


def letters_delivered(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("roamcast_letters_delivered_total ")).split()[1])


def last_batch(http: httpx.Client) -> int:
    health: dict[str, Any] = http.get("/healthz").json()
    return int(health["pipeline"]["batch"])


def test_up_delivers_letters_restarts_its_pipeline_and_stops(tmp_path: Path) -> None:
    """Letters of the scenario arrive, a killed pipeline is restarted and continues, and SIGTERM ends with code 0."""
    url = f"http://127.0.0.1:{free_port()}"
    with roamcast_up(tmp_path / "data", url) as family, httpx.Client(base_url=url, timeout=10.0) as http:
        until(lambda: letters_delivered(http) > 0, LIMIT, "the first letters")
        killed = family.pipeline()
        os.kill(killed, signal.SIGKILL)
        letters, batch = letters_delivered(http), last_batch(http)
        until(lambda: letters_delivered(http) > letters, LIMIT, "letters after the pipeline was killed")
        until(lambda: last_batch(http) > batch, LIMIT, "batches after the pipeline was killed")
        assert family.pipeline() != killed
        assert family.process.stop() == 0
        until(lambda: not family.left(), LIMIT, "all that it started to end")
