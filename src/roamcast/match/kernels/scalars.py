"""Integers of kernels, which have a width. To the type checker they are anything: it knows Python's only."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["Whole", "i32", "i64", "u8", "u32", "u64"]

Whole: TypeAlias = Any

u8: Final[Any] = np.uint8
i32: Final[Any] = np.int32
u32: Final[Any] = np.uint32
i64: Final[Any] = np.int64
u64: Final[Any] = np.uint64
