"""How kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])

_FILES: Final = sorted(Path(__file__).parent.glob("*.py"))
_STAMP: Final = tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in _FILES)


def kernel(function: F) -> F:
    """Compiled at the first call, from then on taken from numba's cache; releases the interpreter lock.

    A kernel allocates nothing: it writes to arrays that it is given.
    """
    # Without references to count: counting them at every call costs several times the work itself.
    compiled = numba.njit(cache=True, nogil=True, forceinline=True, error_model="numpy", _nrt=False)(function)  # type: ignore[call-overload]
    # numba looks for changes in the function's own file only, but kernels call kernels of the other files here.
    if (cached := getattr(getattr(compiled, "_cache", None), "_cache_file", None)) is not None:
        cached._source_stamp = _STAMP
    return cast(F, compiled)
