"""The compiled part of binding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

__all__ = ["inlined"]

F = TypeVar("F", bound=Callable[..., Any])


def inlined(function: F) -> F:
    """Decorate a small function that only kernels call: numba copies it into them instead of compiling it."""
    return cast(F, numba.njit(inline="always", error_model="numpy")(function))
