"""A node's settings: arguments first, then environment variables that begin with ROAMCAST_."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from roamcast.errors import InputError

__all__ = ["DOMAIN", "Limits", "Settings", "settings_from"]

DOMAIN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9][A-Za-z0-9_-]{0,63})?$"
"""`domain`, or `system.domain`."""


class Limits(BaseModel):
    """What one request may carry at most. Set one with, for example, ROAMCAST_LIMITS__BULK=1000."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: PositiveInt = 8 * 1024 * 1024  # bytes
    bulk: PositiveInt = 10_000  # events or positions in a request
    event_terms: PositiveInt = 1_000
    subscription_terms: PositiveInt = 64
    term_length: PositiveInt = 200  # characters
    readings: PositiveInt = 200
    attributes: PositiveInt = 64
    pull: PositiveInt = 1_000  # letters in an answer
    pull_bytes: PositiveInt = 4 * 1024 * 1024  # of letters in an answer that has more than one
    mailboxes: PositiveInt = 200  # in a request for those who host many subscribers
    wait: float = Field(default=30.0, ge=0, le=300)  # seconds of a long poll
    ahead: float = Field(default=300.0, ge=0, allow_inf_nan=False)  # seconds that a time may be after the node's
    page: PositiveInt = 1_000  # subscriptions or bindings in an answer
    streams: PositiveInt = 16  # of one mailbox, at a time
    letter: PositiveInt = 256 * 1024  # bytes of a letter to another subscriber
    arrivals: PositiveInt = 100  # and joins, in a second, from one address
    features: PositiveInt = 20_000  # of the scene, all layers together
    watchers: PositiveInt = 100  # of the scene, at a time
    sources: PositiveInt = 100_000  # of one other node that are known here
    answer: PositiveInt = 16 * 1024 * 1024  # bytes of what another node answers


class Settings(BaseSettings):
    """`domain` names the node, its journal and its office. Port 0 takes any free port.

    `join` is the address of a node to join with an `invitation`; `url` is where others reach this node, if not where it
    listens. `tls_cert` and `tls_key` make it listen with TLS; `ca` has the certificates to trust in other nodes.
    `store` is the URL of a PostgreSQL database that has registry and post office instead of files in the data folder.
    `at` is where the node is, for those who look for the nearest; `silence` is after how many seconds without an answer
    the sources of another node are taken for gone. `places` is a GeoJSON file with the places that subscriptions may
    name. `history` is for how many hours a binding is remembered after it has ended.
    """

    model_config = SettingsConfigDict(env_prefix="ROAMCAST_", env_nested_delimiter="__", frozen=True, extra="ignore")

    data: Path = Path("roamcast-data")
    domain: str = Field(default="local", pattern=DOMAIN)
    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    join: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    invitation: str | None = None
    url: str | None = Field(default=None, pattern=r"^https?://[^\s]+$")
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca: Path | None = None
    space: Literal["geographic", "planar"] = "geographic"
    places: Path | None = None
    store: str | None = Field(default=None, pattern=r"^postgresql://")
    silence: float = Field(default=5.0, ge=3.0, le=3600, allow_inf_nan=False)
    at: tuple[float, float] | None = None
    history: float = Field(default=24.0, gt=0, le=24 * 366, allow_inf_nan=False)
    scene: bool = False
    title: str = ""
    limits: Limits = Limits()


def settings_from(**given: object) -> Settings:
    """Settings from what is given and not None, then the environment. Raises InputError naming the setting."""
    try:
        return Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            first["msg"], where=where, hint="see `roamcast node --help`, and the variables ROAMCAST_*"
        ) from error
