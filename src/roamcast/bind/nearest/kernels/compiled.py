"""The decorator of the kernels here."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from roamcast.compiled import compiler

__all__ = ["kernel"]

kernel: Final = compiler(Path(__file__).parent)
