"""Compile kernels with numba."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import event
from numba.core.caching import IndexDataCacheFile

__all__ = ["expect_compilation", "inline_kernel", "kernel", "read_only"]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=np.generic)

log = logging.getLogger(__name__)

_njit: Final[Any] = numba.njit  # its stubs do not have all options
# Without reference counting (_nrt), which costs several times the work of a small kernel.
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "forceinline": True, "error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """Compile a function at its first call, or load it from numba's cache.

    A kernel releases the interpreter lock and allocates nothing: it writes to arrays that it is given. A function whose
    name begins with an underscore is an `inline_kernel`.
    """
    if function.__name__.startswith("_"):
        return inline_kernel(function)
    dispatcher = _njit(cache=True, **_OPTIONS)(function)
    if hasattr(cache := getattr(dispatcher, "_cache", None), "_cache_file"):
        _use_files_of_this_source(cache, Path(function.__code__.co_filename).parent)
    return cast(F, dispatcher)


def inline_kernel(function: F) -> F:
    """Compile a function that only kernels call, as a part of each of them.

    It is not cached and cannot be called from Python, which halves the time it takes to compile.
    """
    return cast(F, _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_OPTIONS)(function))


def read_only(array: npt.NDArray[T]) -> npt.NDArray[T]:
    """Return a contiguous, read-only view, or a copy if the array is not contiguous.

    numba compiles a kernel once for writable and once for read-only arguments; pass arrays through this function where
    callers may hand in either.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@contextmanager
def expect_compilation() -> Iterator[None]:
    """Do not log compilation inside this context: the caller asked for it."""
    before, _notice.is_due = _notice.is_due, False
    try:
        yield
    finally:
        _notice.is_due = before


def _use_files_of_this_source(cache: Any, folder: Path) -> None:
    """Let numba's cache of a kernel have files of its own for each content of the kernel's folder.

    numba checks only the kernel's own file, but kernels call those of other files. And it unpickles the cache before it
    checks, which fails if an earlier version had types in modules that are gone.
    """
    stamp = _source_stamp(folder)
    _remove_others(Path(cache.cache_path), stamp)
    base = f"{cache._impl.filename_base}.{stamp}"
    cache._cache_file = IndexDataCacheFile(cache.cache_path, base, stamp)  # type: ignore[no-untyped-call]
    # Without loading first what only compilation needs, which takes half of the time.
    cache.load_overload = cache._load_overload


@functools.cache
def _source_stamp(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


@functools.cache
def _remove_others(cache_path: Path, stamp: str) -> None:
    """Remove what was compiled from another source."""
    for file in cache_path.glob("*.nb[ci]"):
        if f".{stamp}." not in file.name:
            with suppress(OSError):  # the folder may be read-only, or another process was faster
                file.unlink()


class _CompilationNotice(event.Listener):
    """Logs once in a process that kernels are compiled. numba reports only what is not in its cache."""

    is_due = True

    def on_start(self, event: event.Event) -> None:
        if self.is_due:
            self.is_due = False
            log.info("compiling kernels; the result is cached")

    def on_end(self, event: event.Event) -> None:
        pass


_notice: Final = _CompilationNotice()
event.register("numba:compile", _notice)  # type: ignore[no-untyped-call]
