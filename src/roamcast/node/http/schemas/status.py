"""Health, and the scene that the page draws."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from roamcast.node.http.schemas.base import ResponseModel, Time

__all__ = ["ArchiveOut", "HealthOut", "LiveOut", "ReadyOut", "SceneChangedOut", "SceneOut"]


class ProblemOut(ResponseModel):
    """Something that needs attention."""

    kind: str = Field(description="A stable name; docs/operations.md lists them.")
    since: Time
    detail: str


class LagOut(ResponseModel):
    """What the pipeline has not read of this node's journal."""

    records: int
    seconds: float = Field(description="Age of the oldest of them.")


class ArchivedOut(ResponseModel):
    """Up to where the archive has what a node journalled, without a gap."""

    since: Time
    time: Time
    offset: int


class ArchiveOut(ResponseModel):
    """The archive of the pipeline."""

    nodes: dict[str, ArchivedOut]
    files: int = Field(description="Files that are compacted.")
    recent: int = Field(description="Batches that are not.")
    bytes: int
    erasing: int = Field(description="Erasures that are not carried out in all files. Nobody can read what they erase.")


class PipelineOut(ResponseModel):
    """The last report of the pipeline."""

    id: str
    batch: int
    counters: dict[str, int]
    written_at: Time
    running_batch: int | None
    running_since: Time | None
    waiting_for_storage: str | None = Field(description="Why the running batch cannot go on, if storage fails.")
    partitioning: dict[str, Any] | None = Field(description="Shards and categories, if the index is partitioned.")
    archive: ArchiveOut | None


class HealthOut(ResponseModel):
    """The state of a node. `degraded`: it works, but has problems."""

    status: Literal["ok", "degraded"]
    problems: list[ProblemOut] = Field(description="Oldest first.")
    domain: str
    space: Literal["geographic", "planar"]
    lag: LagOut
    pipeline: PipelineOut | None


class LiveOut(ResponseModel):
    """The process serves requests."""

    status: Literal["ok"] = "ok"


class ReadyOut(ResponseModel):
    """Whether the node accepts events and changes."""

    status: Literal["ok", "stopping", "not_ready"]
    problems: list[ProblemOut]


class FeatureOut(BaseModel):
    """A feature. A subscription that is not simply active has `state`, `since` and `why`."""

    geometry: dict[str, Any] | None = Field(description="A GeoJSON geometry; null if there is nothing to draw.")
    label: str
    kind: str
    state: str | None = None
    since: Time | None = None
    why: str | None = None


class SceneOut(ResponseModel):
    """What the page draws: layers of features by id."""

    title: str
    space: Literal["geographic", "planar"]
    layers: dict[str, dict[str, FeatureOut]]
    counters: dict[str, int]


class SceneChangedOut(ResponseModel):
    """How many features were set."""

    set: int
