"""A child process that is kept running."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from roamcast.cli import keeper
from roamcast.cli.keeper import keep_running
from roamcast.errors import UnavailableError

LIMIT = 20.0

# Each child says on a line of its own that it lives, then does what it is for.
ALIVE = "import os, signal, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')"
OBEDIENT = (
    f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('as told'))); {ALIVE}; time.sleep(60)"
)
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ALIVE}; time.sleep(60)"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_FIRST_PAUSE", 0.01)


def keep(tmp_path: Path, script: str, until: Callable[[list[int]], bool]) -> list[int]:
    """Keep `script` running until the ids of the processes it has had are so; then stop. All the ids."""
    log = tmp_path / "log"
    log.touch()

    def ids() -> list[int]:
        return [int(line) for line in log.read_text().splitlines()]

    async def kept() -> None:
        stop = asyncio.Event()
        command = [sys.executable, "-c", script, str(log)]
        keeping = asyncio.create_task(keep_running("child", command, stop))
        async with asyncio.timeout(LIMIT):
            while not keeping.done() and not until(ids()):
                await asyncio.sleep(0.01)
            stop.set()
            await keeping

    asyncio.run(kept())
    return ids()


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_child_that_refuses_is_not_started_again(tmp_path: Path) -> None:
    """Exit code 2 means that it said what is wrong."""
    with pytest.raises(UnavailableError, match="the child refused to run"):
        keep(tmp_path, f"{ALIVE}; sys.exit(2)", until=lambda ids: False)
    assert len((tmp_path / "log").read_text().splitlines()) == 1


@pytest.mark.parametrize("end", ["sys.exit(1)", "sys.exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_child_that_dies_is_started_again(tmp_path: Path, end: str) -> None:
    """Again and again, however it ended, one at a time."""
    ids = keep(tmp_path, f"{ALIVE}; {end}", until=lambda ids: len(ids) >= 3)
    assert len(set(ids)) == len(ids)
    assert all(map(is_gone, ids))


def test_pauses_grow(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as long each time."""
    monkeypatch.setattr(keeper, "_FIRST_PAUSE", 0.1)
    keep(tmp_path, f"{ALIVE}; sys.exit(1)", until=lambda ids: len(ids) >= 3)
    told = [record.getMessage().rpartition(" in ")[2] for record in caplog.records]
    assert told[:2] == ["0.1 s", "0.2 s"]


def test_a_child_is_ended_when_we_stop(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With SIGTERM, so that it can end in order."""
    (process,) = keep(tmp_path, OBEDIENT, until=lambda ids: len(ids) == 1)
    assert is_gone(process)
    assert capfd.readouterr().out == "as told\n"


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its grace is over."""
    monkeypatch.setattr(keeper, "_GRACE", 0.2)
    (process,) = keep(tmp_path, DEAF, until=lambda ids: len(ids) == 1)
    assert is_gone(process)


def test_stopping_does_not_wait_for_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that would be started again in a minute is not."""
    monkeypatch.setattr(keeper, "_FIRST_PAUSE", 60.0)
    ids = keep(tmp_path, f"{ALIVE}; sys.exit(1)", until=lambda ids: len(ids) == 1 and is_gone(ids[0]))
    assert len(ids) == 1
