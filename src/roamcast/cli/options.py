"""Options that several commands share, and where their defaults come from."""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from roamcast.errors import MissingExtraError

__all__ = [
    "DEFAULT_DATA", "DEFAULT_URL", "AlwaysJson", "ClientDefaults", "Data", "Entity", "EntityOrVisitor", "Json",
    "OnError", "OperatorTokenFile", "Register", "SpaceName", "Url", "client_defaults", "require",
]  # fmt: skip

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_DATA: Final = Path("roamcast-data")

Url = Annotated[
    str | None, typer.Option("--url", envvar="ROAMCAST_URL", help="URL of the node.", show_default=DEFAULT_URL)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AlwaysJson = Annotated[bool, typer.Option("--json", help="Print JSON (always on).", show_default=False)]
Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber.")]
EntityOrVisitor = Annotated[
    str, typer.Argument(metavar="ENTITY", help="Id of the source or subscriber, or full name of a visitor.")
]
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


class ClientDefaults(NamedTuple):
    """Settings of commands that call a node, from the environment and the settings file."""

    url: str
    tokens: Path
    data: Path
    operator_token_file: Path | None


def client_defaults() -> ClientDefaults:
    """Read the settings; without a settings file, without importing pydantic, which is slow."""
    environment = os.environ
    if not environment.get("ROAMCAST_CONFIG") and not Path("roamcast.toml").is_file():
        token_file = environment.get("ROAMCAST_OPERATOR_TOKEN_FILE")
        return ClientDefaults(
            environment.get("ROAMCAST_URL", DEFAULT_URL),
            Path(environment.get("ROAMCAST_TOKENS", "~/.config/roamcast/tokens.json")).expanduser(),
            Path(environment.get("ROAMCAST_DATA", DEFAULT_DATA)),
            Path(token_file) if token_file else None,
        )
    from roamcast.settings import client_settings, node_settings

    client = client_settings()
    return ClientDefaults(client.url, client.tokens.expanduser(), node_settings().data, client.operator_token_file)


# Packages that tell whether an extra is installed.
_EXTRAS: Final = {
    "node": ("fastapi", "numba", "numpy", "prometheus_client", "pyarrow", "shapely", "sqlalchemy", "uvicorn"),
    "pipeline": ("numba", "numpy", "pandas", "pyarrow", "pyspark", "shapely"),
    "lab": ("matplotlib", "reverse_geocoder", "scipy"),
}


def require(*extras: str) -> None:
    """Raise MissingExtraError unless the packages of these extras are installed."""
    missing = [extra for extra in extras if not all(find_spec(package) for package in _EXTRAS[extra])]
    if missing:
        names = ",".join(missing)
        hint = f"in a clone of roamcast: pip install '.[{names}]'; otherwise: pip install 'roamcast[{names}]'"
        raise MissingExtraError("this command needs packages that are not installed", hint=hint)
