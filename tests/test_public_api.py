"""The public API: it changes only on purpose, and its types are right."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api as mypy

import roamcast
from roamcast import lacl, spark

SNAPSHOT = Path(__file__).parent / "public_api.txt"
ROOT = Path(__file__).parents[1]

PROGRAM = """
import asyncio
from collections.abc import Mapping

from pyspark.sql import DataFrame
from roamcast import AsyncClient, Client, Letter, NotFoundError, PublishReceipt, RoamcastError, Subscription
from roamcast import lacl, spark


def read(url: str) -> list[tuple[int, str, float]]:
    with Client.connect_subscriber("ben", url, attributes={"role": "guard", "floor": 2}) as ben:
        token: str | None = ben.token
        id: str = ben.subscribe(box=(8.0, 53.0, 9.0, 54.0), terms=["fire"])
        subscription: Subscription = ben.subscription(id)
        query: str = subscription.lacl
        letters: list[Letter] = ben.pull(limit=10, wait=1.0)
        rows = [(letter.offset, letter.sender, float(letter.event["x"])) for letter in ben.letters(after=5)]
        count: int = ben.acknowledge(letters[-1])
        print(token, subscription.state, subscription.sources[0], count)
        return rows


async def publish(url: str) -> PublishReceipt:
    async with await AsyncClient.connect_source("camera", url, x=8.5, y=53.5) as camera:
        await camera.set_attributes({"kind": "camera"})
        task: asyncio.Task[None] = camera.on_demand(lambda demanded: print(not demanded))
        async for demanded in camera.demand():
            flag: bool = demanded
            break
        task.cancel()
        return await camera.publish({"terms": ["fire"], "readings": {"temperature": 81.0}})


def explain(text: str) -> Mapping[str, object]:
    try:
        query: lacl.Query = lacl.check(lacl.parse(text))
    except lacl.LaclError as error:
        print(error.line, error.column, error.hint)
        raise
    except NotFoundError as not_found:
        base: RoamcastError = not_found
        print(base.code)
        return {}
    return lacl.explain(query)


def matches(events: DataFrame, boxes: DataFrame) -> int:
    with spark.compile(boxes, id="name", space="planar", on_bad_rows="skip") as compiled:
        bad: int = compiled.bad_rows.num_rows
        found: DataFrame = spark.match(events, compiled, x="lon", terms=None, columns=["id", *compiled.columns])
        return bad + compiled.count + found.count()
"""

WRONG = """
from roamcast import Client, Letter, spark

Client(5)
number: str = Letter.offset
spark.match("events", "subscriptions")
Client().no_such_method()
"""


def describe(name: str, value: object) -> list[str]:
    """A public name with its signature; of a class, also its public methods and attributes."""
    if inspect.ismodule(value):
        return [f"{name}: module"]
    if not inspect.isclass(value):
        return [f"{name}{inspect.signature(value)}" if callable(value) else f"{name}: {type(value).__name__}"]
    public = {kind for module in (roamcast, lacl, spark) for kind in map(module.__getattribute__, module.__all__)}
    parts = [base for base in value.__mro__[1:] if base.__module__.startswith("roamcast") and base not in public]
    bases = [base.__name__ for base in value.__bases__ if base not in parts]
    lines = [f"class {name}({', '.join(bases or ['object'])})"]
    members = {key: member for kind in (*reversed(parts), value) for key, member in vars(kind).items()}
    if "__init__" in members:
        lines.append(f"    __init__{inspect.signature(value.__init__)}")
    annotations = vars(value).get("__annotations__", {})
    lines += [f"    {key}: {kind}" for key, kind in annotations.items() if not key.startswith("_")]
    for key, member in sorted(members.items()):
        if key.startswith("_"):
            continue
        if isinstance(member, property):
            lines.append(f"    {key}: property -> {inspect.signature(member.fget).return_annotation}")  # type: ignore[arg-type]
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            function = getattr(value, key)
            prefix = "async " if inspect.iscoroutinefunction(function) else ""
            lines.append(f"    {prefix}{key}{inspect.signature(function)}")
        elif key not in annotations and not inspect.ismemberdescriptor(member):
            lines.append(f"    {key} = {member!r}")
    return lines


def surface() -> str:
    modules = {"roamcast": roamcast, "roamcast.lacl": lacl, "roamcast.spark": spark}
    lines = []
    for title, module in modules.items():
        lines += [f"# {title}", ""]
        for name in sorted(module.__all__):
            lines += describe(name, getattr(module, name))
        lines.append("")
    return "\n".join(lines)


def test_surface_changes_only_on_purpose() -> None:
    """See docs/api-policy.md for how to update the snapshot."""
    if os.environ.get("UPDATE_PUBLIC_API"):
        SNAPSHOT.write_text(surface())
    assert surface() == SNAPSHOT.read_text()


def test_unknown_name_is_an_attribute_error() -> None:
    """Like in any module."""
    with pytest.raises(AttributeError, match="no_such_name"):
        roamcast.no_such_name  # noqa: B018
    assert set(roamcast.__all__) <= set(dir(roamcast))


def test_import_is_light() -> None:
    """`import roamcast` imports neither httpx nor pydantic nor the parser."""
    code = (
        "import sys, roamcast; print([m for m in ('httpx', 'pydantic', 'lark', 'numpy', 'rich') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_client_does_not_import_pyarrow() -> None:
    """Unless the user has."""
    code = "import sys, roamcast; roamcast.Client().close(); print('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_types_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed user program passes mypy in strict mode, and a wrong one does not."""
    monkeypatch.setenv("MYPYPATH", str(ROOT / "src"))
    cache = ROOT / ".mypy_cache" / "public_api"  # for other options than that of `make check`
    options = ["--strict", "--config-file", "", "--follow-imports", "silent", "--cache-dir", str(cache)]
    for name, code in (("program", PROGRAM), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(code)
    output, errors, status = mypy.run([*options, *map(str, tmp_path.glob("*.py"))])
    assert (status, errors) == (1, ""), output
    assert "program.py:" not in output
    assert all(word in output for word in ("arg-type", "assignment", "attr-defined")), output
