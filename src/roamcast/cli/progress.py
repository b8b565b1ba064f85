"""Progress of a command on the terminal, for whatever takes longer than two seconds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final, Self, TextIO

from rich.console import Console

__all__ = ["Progress"]

_PATIENCE: Final = 2.0
_PAUSE: Final = 0.5


class Progress:
    """Says what is being done, and how far it is if `measure` tells (done, of how many).

    One line on standard error that goes away at the end. Nothing where standard error is not a terminal: a script
    gets the result or the error, and no more.
    """

    def __init__(self, step: str, file: TextIO | None = None, *, patience: float = _PATIENCE) -> None:
        self.measure: Callable[[], tuple[int, int]] | None = None
        self._step = step
        # A duplicate, because standard error may be led elsewhere while Java starts.
        self._file = file or os.fdopen(os.dup(2), "w")
        self._console = Console(file=self._file)
        self._patience = patience
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def say(self, step: str) -> None:
        """From now on this is being done."""
        self._step = step

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file.close()

    def _show(self) -> None:
        if not self._console.is_terminal or self._over.wait(self._patience):
            return
        with self._console.status(self._text()) as status:
            while not self._over.wait(_PAUSE):
                status.update(self._text())

    def _text(self) -> str:
        done, of = self.measure() if self.measure else (0, 0)
        return f"{self._step} … {done} of {of} tasks" if of > 1 else f"{self._step} …"
