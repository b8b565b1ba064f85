"""Tests of roamcast.bind.warm_up."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    SourceRegistered,
    SourceRemoved,
    Subscribed,
    SubscriberRegistered,
    SubscriberRemoved,
    Unsubscribed,
)
from roamcast.bind.nearest import kernels
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import GEOGRAPHIC

QUERIES = {
    "nearest": "Select Where &location in nearest",
    "three": "Select Where &location in nearest(3)",
    **{
        function: f"Select {function}() Where &location in rang:loc(3 km)"
        for function in ("anyof", "nearof", "remoteof")
    },
}


def signatures() -> dict[str, list[Any]]:
    """The compiled signatures of each kernel that Python calls."""
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            is_kernel = isinstance(value, Dispatcher) and value.targetoptions.get("_nrt") is False
            if is_kernel and not name.startswith("_") and value.py_func.__module__ == module.name:
                found[f"{module.name}.{name}"] = list(value.signatures)
    return found


def use_everything() -> None:
    """Subscribe in all ways; move; remove a bound source, a subscription, a subscriber; restart."""
    binder = Binder(GEOGRAPHIC)
    sources = [SourceRegistered(id, {}, Position(id, number * 1e-4, 0, 1)) for number, id in enumerate("abcdefgh")]
    ann = SubscriberRegistered("ann", {}, Position("ann", 0, 0, 1))
    for message in (*sources, ann):
        binder.handle(message, 1)
    subscribed = [Subscribed(id, "ann", check(parse(text))) for id, text in QUERIES.items()]
    for subscription in subscribed:
        binder.handle(subscription, 2)
    binder.handle_moves(["ann", "b"], [1e-4, 0], [0, 1e-4], [3, 3], 3)
    binder.handle(SourceRemoved(binder.status("nearest").sources[0]), 4)
    binder.handle(Unsubscribed("anyof"), 5)
    binder.handle(SubscriberRemoved("ann"), 6)
    Binder(GEOGRAPHIC).restore([*sources, ann, *subscribed], [], [], 7)


def test_a_node_needs_no_kernel_that_is_not_warm() -> None:
    """In a new process, which has called no kernel before."""
    program = (
        "import test_warm_up as t; from roamcast.bind.warm_up import warm_up; warm_up(); warm = t.signatures(); "
        "t.use_everything(); now = t.signatures(); "
        "print([name for name in now if now[name] != warm[name]], max(map(len, warm.values())))"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("[] 1\n", 0), done.stderr
