"""Where clients find a node and their tokens by default: environment variables, or the settings file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["DEFAULT_DATA", "DEFAULT_URL", "ClientDefaults", "client_defaults"]

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_DATA: Final = Path("roamcast-data")


class ClientDefaults(NamedTuple):
    """Settings of programs that call a node, from the environment and the settings file."""

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
