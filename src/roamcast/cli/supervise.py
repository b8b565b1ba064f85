"""Keep a child process running: restart it when it dies, give up when it reports an error."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from roamcast.errors import ExitCode, UnavailableError

__all__ = ["keep_running"]

log = logging.getLogger(__name__)

# The child has printed what is wrong; restarting it would only print it again.
_ERROR_CODES: Final = frozenset(ExitCode) - {ExitCode.OK, ExitCode.FAILED, ExitCode.INTERRUPTED}

_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0  # seconds
_GRACE = 10.0  # seconds between SIGTERM and SIGKILL


async def keep_running(
    name: str, command: Sequence[str], stop: asyncio.Event, environment: Mapping[str, str] | None = None
) -> None:
    """Run `command` until `stop`, then end it with SIGTERM, and with SIGKILL after ten seconds.

    `environment` is added to this process's own. Raises UnavailableError if the command ends with an error code.
    """
    delay = _FIRST_DELAY
    while not stop.is_set():
        started = asyncio.get_running_loop().time()
        # A session of its own: Ctrl-C reaches only this process, which then stops the child.
        process = await asyncio.create_subprocess_exec(
            *command, start_new_session=True, env={**os.environ, **(environment or {})}
        )
        try:
            code = await _wait_for_either(process, stop)
        finally:
            await _end(process)
        if stop.is_set():
            return
        if code in _ERROR_CODES:
            raise UnavailableError(f"the {name} stopped with an error", hint="see its message above")
        if asyncio.get_running_loop().time() - started > _LONGEST_DELAY:
            delay = _FIRST_DELAY
        log.warning("the %s ended with exit code %s; restarting in %.1f s", name, code, delay)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), delay)
        delay = min(2 * delay, _LONGEST_DELAY)


async def _wait_for_either(process: asyncio.subprocess.Process, stop: asyncio.Event) -> int | None:
    """The exit code, or None if `stop` was set first."""
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
