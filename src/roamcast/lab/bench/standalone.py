"""A Spark standalone cluster on this machine: a master, and workers with a core each.

Each worker has an address of its own on the loopback interface, so that Spark takes them for different hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from roamcast.lab.bench.processes import until
from roamcast.pipeline.query.session import find_java, worker_path
from roamcast.pipeline.state.state_server import CACHE

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_DEPLOY = "org.apache.spark.deploy"
_MASTER = r"spark://127\.0\.0\.1:\d+"

__all__ = ["StandaloneCluster", "standalone"]


@dataclass
class Daemon:
    """A master or worker, in a process group of its own."""

    process: subprocess.Popen[bytes]
    log: Path


@dataclass
class StandaloneCluster:
    """Workers see the folder `hidden` as empty, if the system allows it.

    If they are `pinned`, the first worker computes on the first core of this machine, the next one on the next.
    """

    folder: Path
    hidden: Path
    pinned: bool = False
    daemons: dict[str, Daemon] = field(default_factory=dict)
    master: str = ""

    def start(self, workers: Sequence[str]) -> None:
        log = self._daemon("master", [f"{_DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", "0"]).log
        until(lambda: bool(_found(_MASTER, log)), 180, "the master")
        self.master = _found(_MASTER, log)
        self.start_workers(workers)

    def start_workers(self, workers: Sequence[str]) -> None:
        """Start those of the workers that do not run."""
        started = [self._worker(number, name) for number, name in enumerate(workers) if name not in self.daemons]
        until(lambda: all(_found("Successfully registered", worker.log) for worker in started), 180, "the workers")

    def _worker(self, number: int, name: str) -> Daemon:
        command = [f"{_DEPLOY}.worker.Worker", "--host", f"127.0.0.{number + 2}", "--cores", "1", "--memory", "1g"]
        daemon = self._daemon(name, [*command, "--work-dir", str(self.folder / name), self.master], hide=True)
        if self.pinned:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(daemon.process.pid, {cores[number % len(cores)]})  # before it has other threads
        return daemon

    def kill(self, name: str) -> None:
        """Kill a daemon and its executors with SIGKILL."""
        self.signal(name, signal.SIGKILL)
        self.daemons.pop(name).process.wait(30)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a daemon and its executors."""
        with suppress(ProcessLookupError):
            os.killpg(self.daemons[name].process.pid, number)

    def has_fetched(self, name: str) -> bool:
        """Whether the cache of a worker has files of the state."""
        return any(self._cache(name).glob("segments/*"))

    def clear_caches(self) -> None:
        for cache in self.folder.glob("*-cache"):
            shutil.rmtree(cache)

    def _cache(self, name: str) -> Path:
        return self.folder / f"{name}-cache"

    def _daemon(self, name: str, command: Sequence[str], *, hide: bool = False) -> Daemon:
        environment = {
            **os.environ,
            "JAVA_TOOL_OPTIONS": os.environ.get("SPARK_DAEMON_JAVA_OPTS", ""),  # executors inherit no other option
            "JAVA_HOME": str(find_java()),
            "PYTHONPATH": worker_path(os.pathsep.join(sys.path)),
            "SPARK_LOCAL_DIRS": str(self.folder / f"{name}-scratch"),
            CACHE: str(self._cache(name)),
        }
        whole = [str(_SPARK_CLASS), *command, "--webui-port", "0"]
        if command[-1].startswith("spark://"):  # the master comes last
            whole = [str(_SPARK_CLASS), *command[:-1], "--webui-port", "0", command[-1]]
        if hide and _can_hide():
            whole = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                f'mount -t tmpfs none "{self.hidden}" && exec "$@"',
                "sh",
                *whole,
            ]
        log = self.folder / f"{name}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own command
                whole, stdout=sink, stderr=sink, env=environment, start_new_session=True
            )
        daemon = Daemon(process, log)
        self.daemons[name] = daemon
        return daemon


@contextmanager
def standalone(
    folder: Path, workers: Sequence[str], *, hidden: Path, pinned: bool = False
) -> Iterator[StandaloneCluster]:
    """Run a cluster until the end of the block."""
    folder.mkdir(parents=True)
    hidden.mkdir(parents=True, exist_ok=True)
    cluster = StandaloneCluster(folder, hidden, pinned)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        for name in reversed([*cluster.daemons]):
            cluster.kill(name)


def _can_hide() -> bool:
    """Whether this system allows private mounts."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own command


def _found(pattern: str, log: Path) -> str:
    match = re.search(pattern, log.read_text(errors="replace"))
    return match[0] if match else ""
