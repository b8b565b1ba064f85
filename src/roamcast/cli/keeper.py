"""Keeping a child process running: started again when it dies, given up when it refuses."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence

from roamcast.errors import UnavailableError

__all__ = ["REFUSED", "keep_running"]

log = logging.getLogger(__name__)

# A command that ends like this said what is wrong; starting it again would only say it again.
REFUSED = 2

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_GRACE = 10.0


async def keep_running(
    name: str, command: Sequence[str], stop: asyncio.Event, environment: Mapping[str, str] | None = None
) -> None:
    """Run `command` until `stop`; then end it with SIGTERM, and after a while with SIGKILL. `environment` adds to ours.

    Raises UnavailableError when it refuses to run.
    """
    pause = _FIRST_PAUSE
    while not stop.is_set():
        began = asyncio.get_running_loop().time()
        # A group of its own: Ctrl-C reaches us alone, and we stop it in order.
        process = await asyncio.create_subprocess_exec(
            *command, start_new_session=True, env={**os.environ, **(environment or {})}
        )
        try:
            code = await _until_either(process, stop)
        finally:
            await _end(process)
        if stop.is_set():
            return
        if code == REFUSED:
            raise UnavailableError(f"the {name} refused to run", hint="see its message above")
        if asyncio.get_running_loop().time() - began > _LONGEST_PAUSE:
            pause = _FIRST_PAUSE
        log.warning("the %s ended with %s; starting it again in %.1f s", name, code, pause)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def _until_either(process: asyncio.subprocess.Process, stop: asyncio.Event) -> int | None:
    """The exit code, or None when we are to stop first."""
    waits = [asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return process.returncode


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE)
