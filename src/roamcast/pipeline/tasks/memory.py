"""What Spark's Python processes have loaded, and garbage collection."""

from __future__ import annotations

import gc
import sys

__all__ = ["exclude_modules_from_collection"]

_modules = 0  # that were loaded when objects were excluded last


def exclude_modules_from_collection() -> None:
    """Call this when a task starts: garbage collection then skips what is loaded, if this process is one of Spark's.

    Spark collects garbage after each task. The modules have half a million objects, so that took 70 ms of CPU time,
    most of the time of a small task. What is garbage now stays in memory, so it does nothing if there is no new module.
    """
    global _modules
    if "pyspark" not in sys.modules:
        return  # a backtest needs no Spark
    from pyspark import TaskContext

    if TaskContext.get() is not None and len(sys.modules) != _modules:
        _modules = len(sys.modules)
        gc.freeze()
