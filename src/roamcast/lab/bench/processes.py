"""Real roamcast processes on this machine, for benchmarks and end-to-end tests."""

from __future__ import annotations

import contextlib
import http.client
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from roamcast.errors import UnavailableError

__all__ = ["Process", "answers", "free_port", "node", "pipeline", "until"]

_GRACE = 15.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(condition: Callable[[], bool], limit: float, what: str) -> None:
    """Wait until `condition` holds. Raises UnavailableError after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise UnavailableError(f"waited {limit:.0f} s for {what}", hint="see the log of the process")
        time.sleep(0.05)


class Process:
    """A `roamcast` command that can be started, killed and started again. Its output goes to `log`.

    `ready` gets the output since the last start and returns whether the process is ready. `program` are the arguments
    with which Python runs the command, `environment` variables that it has besides ours.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: Path,
        ready: Callable[[str], bool],
        limit: float = 90.0,
        program: Sequence[str] = ("-m", "roamcast"),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = [sys.executable, *program, *arguments]
        self.log = log
        self._ready = ready
        self._limit = limit
        self._environment = environment or {}
        self._output_before = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise UnavailableError("the process was never started")
        return self._process.pid

    @property
    def rss_mb(self) -> float:
        """The memory that the process has in use, in megabytes; NaN where the system does not tell."""
        status = Path(f"/proc/{self.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else ()
        return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmRSS:")), math.nan)

    @property
    def cpu_seconds(self) -> float:
        """The time that all threads of the process have computed; NaN where the system does not tell."""
        stat = Path(f"/proc/{self.pid}/stat")
        fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else math.nan

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> None:
        with self.log.open("ab") as output:
            self._output_before = output.tell()
            environment = {**os.environ, **self._environment}
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )
        if wait:
            until(self._is_up, self._limit, f"{' '.join(self._command[3:5])} to be ready")

    def kill(self) -> None:
        """Send SIGKILL to the process only, like a crash. Its children must notice by themselves."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM, wait, then send SIGKILL to the process group; return the exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _is_up(self) -> bool:
        output = self.log.read_bytes()[self._output_before :].decode(errors="replace")
        if self._process is not None and self._process.poll() is not None:
            raise UnavailableError(f"it exited with {self._process.returncode}: {output[-500:]}", where=str(self.log))
        return self._ready(output)


def answers(url: str) -> bool:
    """Whether a node of this machine is ready. Cheap enough to ask again and again."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=5.0)
    try:
        connection.request("GET", "/healthz/ready")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def node(data: Path, port: int, *arguments: str) -> Iterator[Process]:
    """Run a node until the end of the block. It is ready when the block starts."""
    command = ["node", "--data", str(data), "--port", str(port), *arguments]
    process = Process(command, data / "node.log", lambda _: answers(f"http://127.0.0.1:{port}"))
    try:
        process.start()
        yield process
    finally:
        process.stop()


@contextlib.contextmanager
def pipeline(data: Path, *arguments: str, **settings: float) -> Iterator[Process]:
    """Run a pipeline until the end of the block. It is ready when the block starts. `settings` are in [pipeline]."""
    log = data / "pipeline.log"
    environment = {f"ROAMCAST_PIPELINE__{key.upper()}": str(value) for key, value in settings.items()}
    command = ["pipeline", "--data", str(data), *arguments]
    process = Process(command, log, lambda output: "ready" in output, environment=environment)
    try:
        process.start()
        yield process
    finally:
        process.stop()
