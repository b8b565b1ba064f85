"""Runs a `roamcast` command that kills itself when it calls a method for the nth time.

Run as a program: `planted_stop.py MODULE CLASS.METHOD N ARGUMENTS…`.
"""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import sys
from typing import Any


def plant(module: str, path: str, calls: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send this process a signal just before the nth call."""
    owner_name, _, name = path.partition(".")
    owner = getattr(importlib.import_module(module), owner_name)
    method, count = getattr(owner, name), itertools.count(1)

    def stop(*arguments: Any, **options: Any) -> Any:
        if next(count) == calls:
            os.kill(os.getpid(), number)
        return method(*arguments, **options)

    setattr(owner, name, stop)


if __name__ == "__main__":
    from roamcast.cli import main

    plant(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.argv = ["roamcast", *sys.argv[4:]]
    main()
