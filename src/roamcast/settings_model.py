"""All settings: sections, keys, types, defaults and descriptions. docs/configuration.md is generated from here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from roamcast.validation import DOMAIN, ORIGIN, STORE, URL

__all__ = [
    "CONFIG_VARIABLE", "OTHER_VARIABLES", "SECTIONS", "ClientSettings", "DrtClusterSettings", "NodeLimits",
    "NodeSettings", "PipelineSettings", "SettingsSection", "section_keys", "variable_name",
]  # fmt: skip

CONFIG_VARIABLE: Final = "ROAMCAST_CONFIG"

OTHER_VARIABLES: Final = {
    CONFIG_VARIABLE: "Settings file, as with `--config`.",
    "ROAMCAST_CACHE": "Folder for state files on a Spark worker's host. Overrides `pipeline.cache` there.",
}
"""Variables that are not settings, and their meanings."""


class NodeLimits(BaseModel):
    """Limits of a node: what one request, response, mailbox or peer can take up."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: PositiveInt = Field(default=8 * 1024 * 1024, description="Bytes in a request body.")
    decoded: PositiveInt = Field(
        default=64 * 1024 * 1024, description="Bytes of an Arrow or Parquet body when it is decoded."
    )
    anonymous_body: PositiveInt = Field(
        default=256 * 1024,
        description="Bytes in the body of a registration, an arrival or a bulk pull that is sent without a token.",
    )
    bulk: PositiveInt = Field(default=10_000, description="Events or positions in a request.")
    subscriptions: PositiveInt = Field(default=100_000, description="Subscriptions in a request.")
    event_terms: PositiveInt = Field(default=1_000, description="Terms of an event.")
    subscription_terms: PositiveInt = Field(default=64, description="Terms of a subscription.")
    since: float = Field(
        default=3600.0,
        ge=0,
        le=31 * 24 * 3600,
        allow_inf_nan=False,
        description="Seconds of the past that a new subscription can begin with, from the archive; 0: none.",
    )
    term_length: PositiveInt = Field(
        default=200, description="Characters of a term, or of the name of a reading or attribute."
    )
    readings: PositiveInt = Field(default=200, description="Readings of an event.")
    attributes: PositiveInt = Field(default=64, description="Attributes of an entity.")
    pull: PositiveInt = Field(default=1_000, description="Letters in a response.")
    pull_bytes: PositiveInt = Field(
        default=4 * 1024 * 1024, description="Bytes of letters in a response with more than one."
    )
    mailboxes: PositiveInt = Field(default=10_000, description="Mailboxes in a bulk pull.")
    wait: float = Field(default=30.0, ge=0, le=300, description="Seconds that a long poll can wait.")
    ahead: float = Field(
        default=300.0, ge=0, allow_inf_nan=False, description="Seconds that a time can be in the future."
    )
    page: PositiveInt = Field(default=1_000, description="Subscriptions or bindings in a response.")
    streams: PositiveInt = Field(default=16, description="Concurrent streams of one mailbox.")
    tickets: PositiveInt = Field(default=100_000, description="Tickets for streams that are valid at the same time.")
    letter: PositiveInt = Field(default=256 * 1024, description="Bytes of a letter to another subscriber.")
    arrivals: PositiveInt = Field(default=100, description="Arrivals and joins per second from one address.")
    features: PositiveInt = Field(default=20_000, description="Features of the scene, all layers together.")
    watchers: PositiveInt = Field(default=100, description="Concurrent viewers of the scene.")
    sources: PositiveInt = Field(default=100_000, description="Sources of one peer that this node keeps track of.")
    wants: PositiveInt = Field(default=1_000_000, description="Regions and sources that one peer can want events of.")
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


def _split_commas(value: object) -> object:
    """A list in an environment variable."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


_Origin = Annotated[str, Field(pattern=ORIGIN)]


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
    forwarding: float = Field(
        default=3600.0,
        gt=0,
        le=31 * 24 * 3600,
        allow_inf_nan=False,
        description="Seconds that events wait for a peer that does not take them. Later ones are dropped and counted.",
    )
    cors_origins: Annotated[tuple[_Origin, ...], NoDecode, BeforeValidator(_split_commas)] = Field(
        default=(),
        description="Origins of web pages on other hosts that may call this node, such as `https://app.example`; `*` "
        "is any. In the variable, separated by commas.",
    )
    storage: str | None = Field(
        default=None,
        min_length=1,
        description="Storage of the pipeline, if it has one: the node reads letters from the outbox there instead of "
        "in the data folder.",
    )
    storage_poll: float = Field(
        default=0.5,
        ge=0.02,
        le=60,
        allow_inf_nan=False,
        description="Seconds between two looks into an outbox on `storage`.",
    )
    archive: bool = Field(
        default=False,
        description="Journal positions, attributes and states for the archive; the pipeline needs the same setting.",
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
    partitioner: Literal["curve", "drtcluster", "kdtree", "hashing"] = Field(
        default="curve",
        description="Decides which shards of the partitioned plan hold a subscription: `curve` (space-filling curve), "
        "`drtcluster` (categories, see [drtcluster]), `kdtree` (parts of the plane) or `hashing` (rarest term). If it "
        "is changed, all subscriptions are placed again at the next start.",
    )
    matcher: Literal["index", "one_by_one"] = Field(
        default="index",
        description="How shards of the partitioned plan match: `index` (grid and rarest term), or `one_by_one`, for "
        "experiments: as in the paper on DRt-Cluster, an event is compared with every subscription of the categories "
        "it is sent to. Other partitioners have as many leaves or ranges as `c_max_num_th`, or a unit for each term.",
    )
    lambda_events: PositiveInt = Field(
        default=100_000,
        description="Events after which the load of shards is balanced: λ in the paper's *load balancing*. For all "
        "partitioners but `hashing`.",
    )
    records: PositiveInt = Field(default=50_000, description="Records that one batch takes at most.")
    interval: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="Seconds between the starts of batches that take less. Fewer and larger ones need less CPU time, "
        "and letters come later.",
    )
    driver_events: int = Field(
        default=20_000,
        ge=0,
        description="Batches with at most this many events are processed by the driver itself, because a Spark job "
        "takes longer; 0: none.",
    )
    driver_letters: int = Field(
        default=20_000,
        ge=0,
        description="Batches with more matches than this are processed by a Spark job, however few events they have.",
    )
    keep_warm: bool = Field(
        default=True,
        description="Keep Spark's Python processes ready for a large batch, by a job without events every 45 s. "
        "Otherwise the first one after a quiet time takes two seconds longer.",
    )
    letter_shards: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Number of shards of the state of sources and receivers: so many tasks make the letters of a "
        "batch; 0: as many as Spark had cores when the pipeline was created. It may be changed at any start.",
    )
    outbox: PositiveInt = Field(
        default=1_000, description="Batches that can wait for an office before matching pauses."
    )
    history: float = Field(default=60.0, ge=0, description="Minutes that ended bindings are kept for late events.")
    archive: bool = Field(
        default=False,
        description="Keep events, and what nodes journal for it, in an archive. The nodes need the same setting, in "
        "[node].",
    )
    archive_days: float = Field(
        default=30.0, gt=0, le=36_600, allow_inf_nan=False, description="Days that the archive keeps what it has."
    )
    storage: str | None = Field(
        default=None,
        min_length=1,
        description="Storage that hosts share, such as `s3://bucket/prefix` or a mounted folder: state, checkpoint "
        "and outbox are there, and another host can continue the pipeline. The nodes need the same setting, in [node].",
    )


class DrtClusterSettings(SettingsSection):
    """The partitioner `drtcluster`: parameters of the paper by their names there, and ours for what it leaves open."""

    model_config = SettingsConfigDict(env_prefix="ROAMCAST_DRTCLUSTER__")

    alpha: float = Field(
        default=0.5, ge=0, lt=1, description="α: weight of terms against space in similarity (paper: Rt-Cluster)."
    )
    new_th: float = Field(
        default=0.5,
        ge=0,
        allow_inf_nan=False,
        description="NewTh: a subscription less similar than this to all categories founds one (paper: Rt-Cluster).",
    )
    c_max_num_th: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="CMaxNumTh: categories are merged if there are more (paper: Rt-Cluster, merging; no value given). "
        "If it is changed, subscriptions are clustered again.",
    )
    merge: float = Field(
        default=1.0,
        ge=0,
        allow_inf_nan=False,
        description="Below this MergeJudgePara, categories are merged between workers (paper: DRt-Cluster, merging).",
    )
    overload: float = Field(
        default=2.0,
        gt=0,
        allow_inf_nan=False,
        description="Ours; the paper has 2: a worker with at least this many times the mean load is overloaded.",
    )
    size_cap: float = Field(
        default=4.0,
        ge=2,
        allow_inf_nan=False,
        description="Ours: most subscriptions of a category, in multiples of the mean.",
    )
    window: int = Field(
        default=1024,
        ge=1,
        le=1_000_000,
        description="Ours: events that correlation is computed from. If it is changed, subscriptions are clustered "
        "again.",
    )
    matches: int = Field(
        default=16,
        ge=2,
        le=1_000,
        description="Ours: matches of each of them that count. If it is changed, subscriptions are clustered again.",
    )


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
    "drtcluster": DrtClusterSettings,
    "client": ClientSettings,
}
_PREFIXES: Final = {
    "node": "ROAMCAST_",
    "limits": "ROAMCAST_LIMITS__",
    "pipeline": "ROAMCAST_PIPELINE__",
    "drtcluster": "ROAMCAST_DRTCLUSTER__",
    "client": "ROAMCAST_",
}


def variable_name(section: str, key: str) -> str:
    """The environment variable that overrides a key."""
    return (_PREFIXES[section] + key).upper()


def section_keys(section: str) -> dict[str, Any]:
    """The keys of a section of the file with their pydantic fields."""
    return {key: field for key, field in SECTIONS[section].model_fields.items() if key != "limits"}
