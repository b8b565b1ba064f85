"""A real S3 server for tests: versitygw, on a folder and a loopback port."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from roamcast.lab.bench.processes import free_port, until

PROGRAM = Path(__file__).parents[2] / ".venv" / "bin" / "versitygw"
_KEY, _SECRET = "roamcast", "for-tests-only"


class NotAvailableError(Exception):
    """Why there is no server here."""


class S3Server:
    """A server that can be killed and started again. It keeps its objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "bucket").mkdir(parents=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """What its clients need in their environment."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        command = [str(PROGRAM), "--port", f"127.0.0.1:{self._port}", "--quiet", "--keep-alive", "posix"]
        environment = {**os.environ, "ROOT_ACCESS_KEY_ID": _KEY, "ROOT_SECRET_ACCESS_KEY": _SECRET}
        with (self.folder.parent / "versitygw.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--sidecar", str(self._sidecar), str(self.folder)],
                env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        until(self._answers, 30, "the S3 server to start")

    def stop(self) -> None:
        """Kill it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def _sidecar(self) -> Path:
        """Where it keeps what is not content: files in memory have no extended attributes."""
        folder = self.folder.with_name("sidecar")
        folder.mkdir(exist_ok=True)
        return folder

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5.0)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        except OSError:
            return False
        finally:
            connection.close()


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """Run a server with one bucket, `bucket`. Raises NotAvailableError."""
    if not PROGRAM.exists():
        raise NotAvailableError("versitygw is not installed; scripts/need-versitygw says why")
    if shutil.disk_usage(folder).free < 1 << 28:
        raise NotAvailableError("too little space")
    server = S3Server(folder / "s3")
    server.start()
    try:
        yield server
    finally:
        server.stop()
