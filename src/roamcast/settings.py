"""Settings: one TOML file, overridden by environment variables, overridden by command-line options.

The file is `roamcast.toml` in the working directory, or the one that ROAMCAST_CONFIG (`--config`) names. It has the
sections [node], [limits], [pipeline] and [client]. docs/configuration.md lists all keys; it is generated from here.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from roamcast.errors import InputError

__all__ = [
    "CONFIG_VARIABLE", "DOMAIN", "OTHER_VARIABLES", "SECTIONS", "ClientSettings", "EffectiveSetting", "NodeLimits",
    "NodeSettings", "PipelineSettings", "client_settings", "close_name", "effective_settings", "find_config_file",
    "known_variables", "node_settings", "pipeline_settings", "section_keys", "unknown_variables", "variable_name",
]  # fmt: skip

CONFIG_VARIABLE: Final = "ROAMCAST_CONFIG"
DEFAULT_FILE: Final = Path("roamcast.toml")
DOMAIN: Final = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9][A-Za-z0-9_-]{0,63})?$"
"""`domain`, or `system.domain`."""

OTHER_VARIABLES: Final = {
    CONFIG_VARIABLE: "Settings file, as with `--config`.",
    "ROAMCAST_CACHE": "Folder for state files on a Spark worker's host. Overrides `pipeline.cache` there.",
}
"""Variables that are not settings, and their meanings."""
_URL: Final = r"^https?://[^\s]+$"


class NodeLimits(BaseModel):
    """Limits of a node: what one request, response, mailbox or peer can take up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: PositiveInt = Field(default=8 * 1024 * 1024, description="Bytes in a request body.")
    anonymous_body: PositiveInt = Field(
        default=256 * 1024,
        description="Bytes in the body of a registration, an arrival or a bulk pull, which anybody may send.",
    )
    bulk: PositiveInt = Field(default=10_000, description="Events or positions in a request.")
    event_terms: PositiveInt = Field(default=1_000, description="Terms of an event.")
    subscription_terms: PositiveInt = Field(default=64, description="Terms of a subscription.")
    term_length: PositiveInt = Field(
        default=200, description="Characters of a term, or of the name of a reading or attribute."
    )
    readings: PositiveInt = Field(default=200, description="Readings of an event.")
    attributes: PositiveInt = Field(default=64, description="Attributes of an entity.")
    pull: PositiveInt = Field(default=1_000, description="Letters in a response.")
    pull_bytes: PositiveInt = Field(
        default=4 * 1024 * 1024, description="Bytes of letters in a response with more than one."
    )
    mailboxes: PositiveInt = Field(default=200, description="Mailboxes in a bulk request for several subscribers.")
    wait: float = Field(default=30.0, ge=0, le=300, description="Seconds that a long poll can wait.")
    ahead: float = Field(
        default=300.0, ge=0, allow_inf_nan=False, description="Seconds that a time can be in the future."
    )
    page: PositiveInt = Field(default=1_000, description="Subscriptions or bindings in a response.")
    streams: PositiveInt = Field(default=16, description="Concurrent streams of one mailbox.")
    letter: PositiveInt = Field(default=256 * 1024, description="Bytes of a letter to another subscriber.")
    arrivals: PositiveInt = Field(default=100, description="Arrivals and joins per second from one address.")
    features: PositiveInt = Field(default=20_000, description="Features of the scene, all layers together.")
    watchers: PositiveInt = Field(default=100, description="Concurrent viewers of the scene.")
    sources: PositiveInt = Field(default=100_000, description="Sources of one peer that this node keeps track of.")
    peer_response: PositiveInt = Field(default=16 * 1024 * 1024, description="Bytes read of a peer's response.")


class SettingsSection(BaseSettings):
    """Base of the sections. Values come from `load_section` only; the environment is not read again."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")
    secrets: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class NodeSettings(SettingsSection):
    """The server of one domain: `roamcast node`, `roamcast up`."""

    model_config = SettingsConfigDict(env_prefix="ROAMCAST_", env_nested_delimiter="__")
    secrets = frozenset({"invitation", "store"})

    data: Path = Field(
        default=Path("roamcast-data"), description="Data folder. The pipeline and operator commands use it too."
    )
    domain: str = Field(
        default="local", pattern=DOMAIN, description="Domain that the node serves: `domain`, `system.domain`."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    public_url: str | None = Field(
        default=None,
        pattern=_URL,
        description="URL at which peers and clients reach this node, if not where it listens.",
    )
    join: str | None = Field(default=None, pattern=_URL, description="URL of a node to join.")
    invitation: str | None = Field(default=None, description="Invitation to join with; `roamcast invite` prints it.")
    tls_cert: Path | None = Field(default=None, description="Certificate (PEM); turns TLS on.")
    tls_key: Path | None = Field(default=None, description="Private key of the certificate (PEM).")
    ca: Path | None = Field(default=None, description="Certificates (PEM) to trust in other nodes.")
    space: Literal["geographic", "planar"] = Field(
        default="geographic",
        description="Coordinates: `geographic` (degrees) or `planar` (metres). Fixed for a data folder.",
    )
    places: Path | None = Field(default=None, description="GeoJSON file of the places that subscriptions can name.")
    store: str | None = Field(
        default=None,
        pattern=r"^postgresql://",
        description="PostgreSQL URL for registry and post office, instead of files.",
    )
    silence: float = Field(
        default=5.0,
        ge=3.0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds without a response after which a peer's sources count as gone.",
    )
    at: tuple[float, float] | None = Field(
        default=None, description="Position of the node, for clients that look for the nearest one."
    )
    history: float = Field(
        default=24.0, gt=0, le=24 * 366, allow_inf_nan=False, description="Hours that ended bindings are kept."
    )
    pipeline_silence: float = Field(
        default=15.0,
        ge=5.0,
        le=3600,
        allow_inf_nan=False,
        description="Seconds without a heartbeat of the pipeline after which the node is degraded.",
    )
    lag: float = Field(
        default=30.0,
        ge=1.0,
        le=24 * 3600,
        allow_inf_nan=False,
        description="Seconds that a record can wait for the pipeline, or a batch of letters for this node, before the "
        "node is degraded.",
    )
    min_free: int = Field(
        default=1024**3,
        ge=0,
        description="Bytes that must be free on the disk of the data folder; with less, the node is degraded.",
    )
    scene: bool = Field(default=False, description="Show positions to everybody on the page.")
    title: str = Field(default="", description="Title of the page.")
    limits: NodeLimits = NodeLimits()


class PipelineSettings(SettingsSection):
    """The Spark pipeline: `roamcast pipeline`."""

    model_config = SettingsConfigDict(env_prefix="ROAMCAST_PIPELINE__")

    master: str = Field(default="local[2]", description="Spark master.")
    host: str = Field(default="127.0.0.1", description="Address of the driver as the workers of a cluster reach it.")
    cache: Path | None = Field(
        default=None, description="Folder on each worker's host for state files; a temporary one by default."
    )
    plan: Literal["auto", "replicated", "partitioned"] = Field(
        default="auto",
        description="`replicated`: every worker holds the whole index; `partitioned`: each holds a shard; "
        "`auto`: by the size of the index.",
    )
    workers: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Shards of the partitioned plan; 0 keeps the current number, at first one per Spark core.",
    )
    records: PositiveInt = Field(default=50_000, description="Records that one batch takes at most.")
    outbox: PositiveInt = Field(
        default=1_000, description="Batches that can wait for an office before matching pauses."
    )
    history: float = Field(default=60.0, ge=0, description="Minutes that ended bindings are kept for late events.")


class ClientSettings(SettingsSection):
    """Commands that call a node."""

    model_config = SettingsConfigDict(env_prefix="ROAMCAST_")

    url: str = Field(default="http://127.0.0.1:8080", pattern=_URL, description="URL of the node to call.")
    tokens: Path = Field(
        default=Path("~/.config/roamcast/tokens.json"),
        description="File with the tokens of entities registered from here.",
    )
    operator_token_file: Path | None = Field(
        default=None, description="File with the operator token; by default `operator.token` in the data folder."
    )


SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    "node": NodeSettings,
    "limits": NodeLimits,
    "pipeline": PipelineSettings,
    "client": ClientSettings,
}
_PREFIXES: Final = {
    "node": "ROAMCAST_",
    "limits": "ROAMCAST_LIMITS__",
    "pipeline": "ROAMCAST_PIPELINE__",
    "client": "ROAMCAST_",
}

S = TypeVar("S", bound=SettingsSection)


def node_settings(**overrides: object) -> NodeSettings:
    """Load [node] and [limits]. `overrides` are command-line options; None means not given.

    Raises InputError that names the key, variable or option.
    """
    return _load_section(NodeSettings, "node", overrides)


def pipeline_settings(**overrides: object) -> PipelineSettings:
    """Load [pipeline], like `node_settings`."""
    return _load_section(PipelineSettings, "pipeline", overrides)


def client_settings(**overrides: object) -> ClientSettings:
    """Load [client], like `node_settings`."""
    return _load_section(ClientSettings, "client", overrides)


def variable_name(section: str, key: str) -> str:
    """The environment variable that overrides a key."""
    return (_PREFIXES[section] + key).upper()


def section_keys(section: str) -> dict[str, Any]:
    """The keys of a section of the file with their pydantic fields."""
    return {key: field for key, field in SECTIONS[section].model_fields.items() if key != "limits"}


def find_config_file() -> Path | None:
    """The file that ROAMCAST_CONFIG names, else ./roamcast.toml if there is one. Raises InputError if it is missing."""
    if name := os.environ.get(CONFIG_VARIABLE):
        if not Path(name).is_file():
            raise InputError("no such file", where=name, hint=f"check --config and {CONFIG_VARIABLE}")
        return Path(name)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


class EffectiveSetting(NamedTuple):
    """The value of a key and where it comes from: `default`, a file, or an environment variable."""

    section: str
    key: str
    value: object
    origin: str
    is_secret: bool


def effective_settings(file: Path | None = None) -> list[EffectiveSetting]:
    """Every setting as a command would see it now, without options. Raises InputError for the first invalid value."""
    path = file or find_config_file()
    content = _read_file(path)
    result = []
    values: Mapping[str, BaseModel] = {
        "node": (node := _build(NodeSettings, "node", {}, path, content)),
        "limits": node.limits,
        "pipeline": _build(PipelineSettings, "pipeline", {}, path, content),
        "client": _build(ClientSettings, "client", {}, path, content),
    }
    for section, settings in values.items():
        for key in section_keys(section):
            origin = "default"
            if variable_name(section, key) in os.environ:
                origin = variable_name(section, key)
            elif key in content.get(section, {}):
                origin = str(path)
            is_secret = key in getattr(settings, "secrets", ())
            result.append(EffectiveSetting(section, key, getattr(settings, key), origin, is_secret))
    return result


def unknown_variables() -> list[str]:
    """ROAMCAST_* environment variables that no setting reads, sorted: probably typos."""
    known = known_variables()
    return sorted(name for name in os.environ if name.startswith("ROAMCAST_") and name not in known)


def known_variables() -> list[str]:
    """All ROAMCAST_* environment variables that have a meaning."""
    return [variable_name(section, key) for section in SECTIONS for key in section_keys(section)] + [*OTHER_VARIABLES]


def close_name(name: str, names: list[str]) -> str:
    """A hint that names what was probably meant."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def _load_section(model: type[S], section: str, overrides: Mapping[str, object]) -> S:
    path = find_config_file()
    options = {key: value for key, value in overrides.items() if value is not None}
    return _build(model, section, options, path, _read_file(path))


def _build(
    model: type[S], section: str, overrides: Mapping[str, object], path: Path | None, content: Mapping[str, Any]
) -> S:
    try:
        environment = EnvSettingsSource(model)()
    except SettingsError as error:
        hint = 'lists are written as JSON, such as ROAMCAST_AT="[8.5, 53.5]"'
        raise InputError(str(error), where="environment", hint=hint) from error
    values: dict[str, Any] = {**content.get(section, {}), **environment, **overrides}
    if section == "node":
        sources = content.get("limits", {}), environment.get("limits", {}), overrides.get("limits", {})
        values["limits"] = {key: value for source in sources for key, value in _as_dict(source).items()}
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
        where, hint = _where(section, [str(part) for part in first["loc"]], overrides, path)
        raise InputError(message, where=where, hint=hint) from error


def _where(section: str, steps: list[str], overrides: Mapping[str, object], path: Path | None) -> tuple[str, str]:
    """Where an invalid value comes from, and what to do about it."""
    if steps[0] == "limits" and len(steps) > 1:
        section, steps = "limits", steps[1:]
    key = steps[0]
    if key in overrides:
        return f"--{key.replace('_', '-')}", "see --help"
    if (variable := variable_name(section, key)) in os.environ:
        return variable, "see docs/configuration.md, or `roamcast config check`"
    return f"{path}: {section}.{key}", "see docs/configuration.md, or `roamcast config check`"


def _read_file(path: Path | None) -> dict[str, Any]:
    """The sections of a file. Raises InputError for what is not TOML, and for unknown sections and keys."""
    if path is None:
        return {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=str(path), hint="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not TOML: {error}", where=str(path), hint="see docs/configuration.md") from error
    for section, keys in content.items():
        if section not in SECTIONS or not isinstance(keys, dict):
            raise InputError("unknown section", where=f"{path}: {section}", hint=close_name(section, list(SECTIONS)))
        known = list(section_keys(section))
        for key in keys:
            if key not in known:
                raise InputError("unknown key", where=f"{path}: {section}.{key}", hint=close_name(key, known))
    return content


def _as_dict(value: object) -> dict[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else dict(value)  # type: ignore[call-overload]
