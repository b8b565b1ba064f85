"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

__all__ = ["compiler"]

F = TypeVar("F", bound=Callable[..., Any])


def compiler(folder: Path) -> Callable[[F], F]:
    """A decorator for the kernels of one folder.

    A kernel is compiled at the first call, from then on taken from numba's cache; it releases the interpreter lock. It
    allocates nothing: it writes to arrays that it is given.
    """
    files = sorted(folder.glob("*.py"))
    stamp = tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files)

    def kernel(function: F) -> F:
        # Without references to count: counting them at every call costs several times the work itself.
        compiled = numba.njit(cache=True, nogil=True, forceinline=True, error_model="numpy", _nrt=False)(function)  # type: ignore[call-overload]
        # numba looks for changes in the function's own file only, but kernels call kernels of the other files here.
        if (cached := getattr(getattr(compiled, "_cache", None), "_cache_file", None)) is not None:
            cached._source_stamp = stamp
        return cast(F, compiled)

    return kernel
