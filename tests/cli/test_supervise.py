"""Supervision of a child process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roamcast.cli import supervise
from roamcast.cli.supervise import keep_running
from roamcast.errors import UnavailableError

LIMIT = 20.0

# Each child writes its process id to the log when it starts.
ALIVE = "import os, signal, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')"
EXITS_ON_SIGTERM = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('terminated')))"
WELL_BEHAVED = f"{EXITS_ON_SIGTERM}; {ALIVE}; time.sleep(60)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ALIVE}; time.sleep(60)"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "_FIRST_DELAY", 0.01)


def keep(tmp_path: Path, script: str, until: Callable[[list[int]], bool]) -> list[int]:
    """Keep `script` running until its process ids satisfy `until`, then stop. Returns the ids."""
    log = tmp_path / "log"
    log.touch()

    def ids() -> list[int]:
        return [int(line) for line in log.read_text().splitlines()]

    async def run() -> None:
        stop = asyncio.Event()
        command = [sys.executable, "-c", script, str(log)]
        keeping = asyncio.create_task(keep_running("child", command, stop))
        async with asyncio.timeout(LIMIT):
            while not keeping.done() and not until(ids()):
                await asyncio.sleep(0.01)
            stop.set()
            await keeping

    asyncio.run(run())
    return ids()


def has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("code", [2, 5, 9])
def test_child_with_an_error_code_is_not_restarted(tmp_path: Path, code: int) -> None:
    """It has printed what is wrong."""
    with pytest.raises(UnavailableError, match="the child stopped with an error"):
        keep(tmp_path, f"{ALIVE}; sys.exit({code})", until=lambda ids: False)
    assert len((tmp_path / "log").read_text().splitlines()) == 1


@pytest.mark.parametrize("end", ["sys.exit(1)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_child_that_dies_is_restarted(tmp_path: Path, end: str) -> None:
    """However it ended, one process at a time."""
    ids = keep(tmp_path, f"{ALIVE}; {end}", until=lambda ids: len(ids) >= 3)
    assert len(set(ids)) == len(ids)
    assert all(map(has_ended, ids))


def test_delays_double(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each restart."""
    monkeypatch.setattr(supervise, "_FIRST_DELAY", 0.1)
    keep(tmp_path, f"{ALIVE}; sys.exit(1)", until=lambda ids: len(ids) >= 3)
    delays = [record.getMessage().rpartition(" in ")[2] for record in caplog.records]
    assert delays[:2] == ["0.1 s", "0.2 s"]


def test_child_is_terminated_on_stop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With SIGTERM, so that it can clean up."""
    (process,) = keep(tmp_path, WELL_BEHAVED, until=lambda ids: len(ids) == 1)
    assert has_ended(process)
    assert capfd.readouterr().out == "terminated\n"


def test_child_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace period."""
    monkeypatch.setattr(supervise, "_GRACE", 0.2)
    (process,) = keep(tmp_path, IGNORES_SIGTERM, until=lambda ids: len(ids) == 1)
    assert has_ended(process)


def test_stop_does_not_wait_for_a_delay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart that is due in a minute is cancelled."""
    monkeypatch.setattr(supervise, "_FIRST_DELAY", 60.0)
    ids = keep(tmp_path, f"{ALIVE}; sys.exit(1)", until=lambda ids: len(ids) == 1 and has_ended(ids[0]))
    assert len(ids) == 1
