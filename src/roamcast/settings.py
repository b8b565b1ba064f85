"""Settings: one TOML file, overridden by environment variables, overridden by command-line options.

The file is `roamcast.toml` in the working directory, or the one that ROAMCAST_CONFIG (`--config`) names. It has the
sections [node], [limits], [pipeline] and [client]. docs/configuration.md lists all keys; it is generated from here.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from roamcast.coordinates import COORDINATES
from roamcast.errors import InputError
from roamcast.validation import DOMAIN, STORE, URL, problem_text

__all__ = [
    "CONFIG_VARIABLE", "OTHER_VARIABLES", "SECTIONS", "ClientSettings", "EffectiveSetting", "NodeLimits",
    "NodeSettings", "PipelineSettings", "client_settings", "effective_settings", "find_config_file", "known_variables",
    "node_problems", "node_settings", "pipeline_settings", "section_keys", "settings_problems", "variable_name",
]  # fmt: skip

CONFIG_VARIABLE: Final = "ROAMCAST_CONFIG"
DEFAULT_FILE: Final = Path("roamcast.toml")

OTHER_VARIABLES: Final = {
    CONFIG_VARIABLE: "Settings file, as with `--config`.",
    "ROAMCAST_CACHE": "Folder for state files on a Spark worker's host. Overrides `pipeline.cache` there.",
}
"""Variables that are not settings, and their meanings."""
_HINT: Final = "see `roamcast config docs`"
_PAIR: Final = "must be a list of two numbers, such as [8.5, 53.5]"
_MESSAGES: Final = {"extra_forbidden": "unknown key", "missing": _PAIR, "too_long": _PAIR, "tuple_type": _PAIR}


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
        pattern=URL,
        description="URL at which peers and clients reach this node, if not where it listens.",
    )
    join: str | None = Field(default=None, pattern=URL, description="URL of a node to join.")
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
        pattern=STORE,
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

    url: str = Field(default="http://127.0.0.1:8080", pattern=URL, description="URL of the node to call.")
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


def effective_settings() -> list[EffectiveSetting]:
    """Every setting as a command would see it now, without options. Raises InputError for the first invalid value."""
    sources = _Sources(find_config_file())
    sections = sources.build_all()
    for problem in sources.problems:
        raise problem
    result = []
    for section, settings in sections.items():
        for key in section_keys(section):
            origin = "default"
            if variable_name(section, key) in os.environ:
                origin = variable_name(section, key)
            elif key in sources.content.get(section, {}):
                origin = str(sources.path)
            is_secret = key in getattr(settings, "secrets", ())
            result.append(EffectiveSetting(section, key, getattr(settings, key), origin, is_secret))
    return result


def settings_problems(file: Path | None = None) -> list[InputError]:
    """Everything that is wrong with a settings file and the environment."""
    sources = _Sources(file or find_config_file())
    node = sources.build_all().get("node")
    if isinstance(node, NodeSettings):
        for key, message, hint in node_problems(node):
            sources.add(message, sources.origin("node", key), hint)
    known = known_variables()
    for name in sorted(os.environ):
        if name.startswith("ROAMCAST_") and name not in known:
            sources.add("unknown variable", name, _close_name(name, known))
    return sources.problems


def node_problems(settings: NodeSettings) -> Iterator[tuple[str, str, str]]:
    """What keeps a node from starting, although each value is valid: key, message and hint."""
    for key in ("tls_cert", "tls_key", "ca", "places"):
        path = getattr(settings, key)
        if path is not None and not path.is_file():
            yield key, f"no such file: {path}", "check the path"
    if (settings.tls_cert is None) != (settings.tls_key is None):
        present, missing = ("tls_cert", "tls_key") if settings.tls_key is None else ("tls_key", "tls_cert")
        yield present, f"{missing} is missing", "set both or neither"
    if settings.at and (fault := COORDINATES[settings.space].point_fault(*settings.at)):
        yield "at", str(fault), fault.hint


def known_variables() -> list[str]:
    """All ROAMCAST_* environment variables that have a meaning."""
    return [variable_name(section, key) for section in SECTIONS for key in section_keys(section)] + [*OTHER_VARIABLES]


def _close_name(name: str, names: list[str]) -> str:
    """A hint that names what was probably meant."""
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def _load_section(model: type[S], section: str, overrides: Mapping[str, object]) -> S:
    sources = _Sources(find_config_file(), {key: value for key, value in overrides.items() if value is not None})
    settings = sources.build(model, section)
    if settings is None or sources.problems:
        raise sources.problems[0]
    return settings


class _Sources:
    """Where values come from: a file, the environment and options. Collects in `problems` what is wrong with them."""

    def __init__(self, path: Path | None, options: Mapping[str, object] | None = None) -> None:
        self.path = path
        self.problems: list[InputError] = []
        self.content = {} if path is None else self._read(path)
        """The known sections and keys of the file."""
        self._options = options or {}

    def add(self, message: str, where: str, hint: str) -> None:
        """Add a problem."""
        self.problems.append(InputError(message, where=where, hint=hint))

    def build_all(self) -> dict[str, BaseModel]:
        """The sections that are valid."""
        node = self.build(NodeSettings, "node")
        sections: dict[str, BaseModel | None] = {
            "node": node,
            "limits": node and node.limits,
            "pipeline": self.build(PipelineSettings, "pipeline"),
            "client": self.build(ClientSettings, "client"),
        }
        return {section: settings for section, settings in sections.items() if settings is not None}

    def build(self, model: type[S], section: str) -> S | None:
        """The settings of a section; None if a value is invalid."""
        environment: dict[str, Any] = {}
        try:
            environment = EnvSettingsSource(model)()
        except SettingsError:
            self.add("not JSON", "ROAMCAST_LIMITS", "set each limit in its own variable, such as ROAMCAST_LIMITS__BULK")
        values: dict[str, Any] = {**self.content.get(section, {}), **environment, **self._options}
        if section == "node":
            limits = self.content.get("limits", {}), environment.get("limits", {}), self._options.get("limits", {})
            values["limits"] = {key: value for source in limits for key, value in _as_dict(source).items()}
        try:
            return model(**values)
        except ValidationError as error:
            for problem in error.errors(include_url=False):
                message = _MESSAGES.get(problem["type"]) or problem_text(problem)
                where = self.origin(section, *map(str, problem["loc"]))
                self.add(message, where, "see --help" if where.startswith("--") else _HINT)
            return None

    def origin(self, section: str, key: str, *steps: str) -> str:
        """The option, the variable or the place in the file that a value comes from."""
        if key == "limits" and steps:
            section, key = "limits", steps[0]
        if key in self._options:
            return f"--{key.replace('_', '-')}"
        variable = variable_name(section, key)
        return variable if variable in os.environ else f"{self.path}: {section}.{key}"

    def _read(self, path: Path) -> dict[str, dict[str, Any]]:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            self.add(f"cannot read: {error.strerror}", str(path), "check the path")
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            self.add(f"not TOML: {error}", str(path), _HINT)
            return {}
        result = {}
        for section, keys in content.items():
            if section not in SECTIONS or not isinstance(keys, dict):
                self.add("unknown section", f"{path}: {section}", _close_name(section, list(SECTIONS)))
                continue
            known = list(section_keys(section))
            for key in keys:
                if key not in known:
                    self.add("unknown key", f"{path}: {section}.{key}", _close_name(key, known))
            result[section] = {key: value for key, value in keys.items() if key in known}
        return result


def _as_dict(value: object) -> dict[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else dict(value)  # type: ignore[call-overload]
