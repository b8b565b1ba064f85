"""Tests of roamcast.match.warm_up."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matching import WORLD, events_of, subscriptions_of
from numba.core.dispatcher import Dispatcher

from roamcast.compiled import read_only
from roamcast.match import kernels
from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.moving import MovingRegions
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions
from roamcast.match.warm_up import warm_up
from roamcast.space import PLANAR


def signatures() -> dict[str, list[Any]]:
    """The compiled signatures of each kernel."""
    return {name: list(kernel.signatures) for name, kernel in kernel_functions()}


def kernel_functions() -> Iterator[tuple[str, Any]]:
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == module.name:
                yield f"{module.name}.{name}", value


def arrow(values: Any) -> Any:
    """Arrow arrays as Spark hands them over: in memory that numpy sees as read-only."""
    table = pa.table({"value": values})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()["value"].combine_chunks()


def test_the_replicated_plan_needs_no_kernel_that_is_not_warm(tmp_path: Path) -> None:
    """Whether arrays are writable or read-only, contiguous or not."""
    warm_up()
    warm = signatures()
    store, count = IndexStore(tmp_path), 50
    side = np.arange(3.0 * count)[::3]
    terms = [["a", "b", None], None, []]
    box = subscriptions_of([(n, n, n + 1, n + 1, terms[n % 3]) for n in range(count)])
    frozen = Subscriptions(*(read_only(column) for column in box[:4]), arrow(box.terms))
    further = read_only(np.arange(count) % 7 == 0)
    stack = store.apply((), added=index_rows(np.arange(count), box))
    stack = store.apply(stack, added=index_rows(read_only(np.arange(count, 2 * count)), frozen, further))
    crossing = subscriptions_of([(170, -1, -170, 1, ["a"])] * 40 + [(*WORLD, None)])
    stack = store.apply(stack, removed=read_only(np.arange(3)), added=index_rows(np.arange(200, 241), crossing))
    regions = MovingRegions(PLANAR)
    moved = regions.add(np.arange(5, 9), side[:4], side[:4], np.ones(4))
    stack = store.compact(store.replace_boxes(stack, moved.handle, moved.box))
    index = store.open(stack)
    for events in (
        events_of([(x, x, ["a", "b"]) for x in range(600)]),
        Events(side, side, pa.array([["a"]] * count)),
        Events(read_only(side), read_only(side), arrow(pa.array([["a", None], None] * (count // 2)))),
        events_of([]),
    ):
        assert sum(len(chunk.event) for chunk in index.candidates(events)) >= 0
    assert signatures() == warm


def test_each_kernel_is_compiled_once() -> None:
    """In a new process, which has called no kernel before."""
    program = "import test_warm_up as t; t.warm_up(); print(max(map(len, t.signatures().values())))"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
