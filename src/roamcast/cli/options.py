"""Options that several commands share, and where their defaults come from."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from roamcast.errors import MissingExtraError

__all__ = [
    "AlwaysJson", "Data", "Entity", "EntityOrVisitor", "Json", "OnError", "OperatorTokenFile", "Register", "SpaceName",
    "Url", "require",
]  # fmt: skip

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="ROAMCAST_URL", help="URL of the node.", show_default="http://127.0.0.1:8080"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AlwaysJson = Annotated[bool, typer.Option("--json", help="Print JSON (always on).", show_default=False)]
Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source, subscriber or gateway.")]
EntityOrVisitor = Annotated[
    str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber, or full name of a visitor.")
]
Gateway = Annotated[str | None, typer.Option(help="Id of the gateway that the source belongs to.", show_default="none")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        envvar="ROAMCAST_DATA",
        help="Data folder of the node, which contains the operator token.",
        show_default="./roamcast-data",
    ),
]
OperatorTokenFile = Annotated[
    Path | None,
    typer.Option("--operator-token-file", envvar="ROAMCAST_OPERATOR_TOKEN_FILE", help="File with the operator token."),
]
Register = Annotated[bool, typer.Option("--register", help="Register the id first if it is not registered yet.")]


class OnError(StrEnum):
    """What to do with invalid rows of a file."""

    fail = "fail"
    skip = "skip"


class SpaceName(StrEnum):
    """Coordinate systems."""

    geographic = "geographic"
    planar = "planar"


# Packages that tell whether an extra is installed.
_EXTRAS: Final = {
    "node": ("fastapi", "numba", "numpy", "prometheus_client", "pyarrow", "shapely", "sqlalchemy", "uvicorn"),
    "pipeline": ("numba", "numpy", "pandas", "pyarrow", "pyspark", "shapely"),
    "lab": ("matplotlib", "reverse_geocoder", "scipy", "sedonadb"),
}


def require(*extras: str) -> None:
    """Raise MissingExtraError unless the packages of these extras are installed."""
    missing = [extra for extra in extras if not all(find_spec(package) for package in _EXTRAS[extra])]
    if missing:
        names = ",".join(missing)
        hint = f"in a clone of roamcast: pip install '.[{names}]'; otherwise: pip install 'roamcast[{names}]'"
        raise MissingExtraError("this command needs packages that are not installed", hint=hint)
