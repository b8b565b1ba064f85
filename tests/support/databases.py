"""A PostgreSQL server for tests: in a temporary folder, on its own port, with fsync on."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["NotAvailableError", "postgresql"]

_USER = "postgres"  # the server does not run as root
_PATIENCE = 60.0  # seconds


class NotAvailableError(Exception):
    """Why there is no server."""


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database. Raises NotAvailableError."""
    programs = _programs()
    become = _become()
    with tempfile.TemporaryDirectory(prefix="roamcast-pg-") as folder:
        home = Path(folder)
        if become:
            shutil.chown(home, _USER)
        data, port = home / "data", _free_port()

        def run(program: str, *arguments: str) -> None:
            done = subprocess.run(
                [*become, str(programs / program), *arguments], capture_output=True, text=True, cwd=home, check=False
            )
            if done.returncode:
                raise NotAvailableError(f"{program} failed: {(done.stderr or done.stdout).strip()[-300:]}")

        run("initdb", "-D", str(data), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-k", str(home)]
        with (home / "log").open("wb") as log:
            # It ends with the tests, also when they are killed.
            ends = become or ["setpriv"]
            server = subprocess.Popen([*ends, "--pdeathsig", "INT", *command], stdout=log, stderr=log, cwd=home)
        try:
            _wait(lambda: _answers(programs, port), server)
            yield f"postgresql://{_USER}@127.0.0.1:{port}/postgres"
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nobody needs the data any more
            server.wait()


def _answers(programs: Path, port: int) -> bool:
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(ready, check=False).returncode == 0


def _wait(condition: Callable[[], bool], server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if server.poll() is not None or time.monotonic() > end:
            raise NotAvailableError("the server does not start")
        threading.Event().wait(0.05)


def _programs() -> Path:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if versions:
        return versions[-1]
    found = shutil.which("initdb")
    if found is None:
        raise NotAvailableError("PostgreSQL is not installed, and could not be: `apt-get install postgresql` as root")
    return Path(found).parent


def _become() -> list[str]:
    """Command prefix to run as a user other than root."""
    if os.geteuid():
        return []
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        raise NotAvailableError(f"PostgreSQL does not run as root, and there is no user {_USER}") from None
    return ["setpriv", "--reuid", _USER, "--regid", _USER, "--init-groups"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
