"""What commands print: tables, JSON, figures and progress."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Self, TextIO

import typer

__all__ = [
    "OutFile", "Progress", "counted", "local_time", "print_json", "print_line", "print_result", "print_table", "table",
    "write_figures",
]  # fmt: skip

OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the figures to this file as JSON.")]

_PATIENCE: Final = 2.0  # seconds before progress is shown
_REFRESH: Final = 0.5  # seconds


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns as plain text."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows))
    return "\n".join(line.rstrip() for line in lines)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    typer.echo(table(head, rows))


def local_time(text: str | None) -> str:
    """An ISO 8601 time in the local time zone, to the second; empty for None."""
    return "" if text is None else datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def print_json(value: object) -> None:
    """Print one JSON value on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_result(value: object, text: str, *, as_json: bool) -> None:
    """Print one JSON value, or the text."""
    if as_json:
        print_json(value)
    else:
        typer.echo(text)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, such as 1 event, or 2,000 events."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def print_line(line: str) -> None:
    """Print a progress line on standard error."""
    typer.echo(line, err=True)


def write_figures(figures: Mapping[str, Any], file: Path | None) -> None:
    """Write figures as JSON, atomically; nothing if `file` is None."""
    import orjson

    from roamcast.durable import write_atomic

    if file is not None:
        write_atomic(file, orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), durable=False)


class Progress:
    """Shows the current step, and a bar if `measure` returns (done, total).

    One line on standard error, shown after two seconds and removed at the end. Nothing is shown if standard error is
    not a terminal.
    """

    def __init__(self, step: str, file: TextIO | None = None, *, patience: float = _PATIENCE) -> None:
        self.measure: Callable[[], tuple[int, int]] | None = None
        self._step = step
        # A duplicate, because standard error may be redirected while Java starts.
        self._file = file or os.fdopen(os.dup(2), "w")
        self._patience = patience
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def say(self, step: str) -> None:
        """Set the current step."""
        self._step = step

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file.close()

    def _show(self) -> None:
        if not self._file.isatty() or self._over.wait(self._patience):
            return
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
        from rich.table import Column

        text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))
        console = Console(file=self._file)
        with Bar(SpinnerColumn(), text, BarColumn(), TimeElapsedColumn(), console=console, transient=True) as bar:
            task = bar.add_task(self._step)
            while True:
                done, total = self.measure() if self.measure else (0, 0)
                bar.update(task, description=self._text(done, total), completed=done, total=total or None)
                if self._over.wait(_REFRESH):
                    return

    def _text(self, done: int, total: int) -> str:
        return f"{self._step} … {done} of {total} tasks" if total > 1 else f"{self._step} …"
