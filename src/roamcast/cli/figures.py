"""Figures that a command gives: `--json FILE`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["JsonFile", "write_figures"]

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")]


def write_figures(figures: Mapping[str, Any], file: Path | None) -> None:
    """As JSON, whole or not at all; nowhere if no file was asked for."""
    import orjson

    from roamcast.durable import write_atomic

    if file is not None:
        write_atomic(file, orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE), durable=False)
