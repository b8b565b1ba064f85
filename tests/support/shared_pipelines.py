"""Pipelines on shared storage, without Spark: see `shared_driver`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import shared_driver

from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.schemas import RECEIVERS, SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import Manifest
from roamcast.storage.folder import FolderStorage
from roamcast.storage.port import Storage


def opened(data: Path, storage: Storage | None, *, new: bool = False) -> PipelineFolder:
    """Open, and give up the lock."""
    pipeline = open_pipeline(data, new=new, storage=storage)
    pipeline.close()
    return pipeline


def run(pipeline: PipelineFolder, storage: Storage, batches: int, *, last_is_recorded: bool = True) -> None:
    """Run the next batches. Spark may not have recorded the last one as done; then it does so before the next."""
    first = pipeline.manifest.batch + 1
    for batch in range(first, first + batches):
        record(pipeline, batch - 1)
        shared_driver.run_batch(pipeline, storage, batch)
    if last_is_recorded:
        record(pipeline, pipeline.manifest.batch)


def record(pipeline: PipelineFolder, batch: int) -> None:
    if batch >= 0:
        (pipeline.checkpoint / "commits").mkdir(exist_ok=True)
        (pipeline.checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def chain(pipeline: PipelineFolder) -> str:
    part = pipeline.manifest.parts(RECEIVERS)[-1]
    text: str = pipeline.state.parts.read(RECEIVERS, part)["receiver"][0].as_py()
    return text


def publish_row(pipeline: PipelineFolder, batch: int, id: str = "late") -> Manifest:
    """Commit a batch whose state has a subscription."""
    row = {"node": "local", "since": 1, "id": id, "subscriber": "ann", "terms": []}
    part = pipeline.state.parts.write(SUBSCRIPTIONS, pa.Table.from_pylist([row], SUBSCRIPTIONS.schema))
    manifest = replace(pipeline.manifest, batch=batch, tables={**pipeline.manifest.tables, SUBSCRIPTIONS.name: (part,)})
    pipeline.state.publish(manifest)
    return manifest


def subscriptions(pipeline: PipelineFolder) -> list[str]:
    ids: list[str] = pipeline.state.read_table(pipeline.manifest, SUBSCRIPTIONS)["id"].to_pylist()
    return ids


class Interrupted(FolderStorage):
    """A folder in which another process does something just before a call."""

    def __init__(self, folder: Path, calls: dict[str, Callable[[], None]]) -> None:
        super().__init__(folder)
        self._calls = calls

    def get_file(self, name: str, path: Path) -> bool:
        self._calls.pop("get_file", lambda: None)()
        return super().get_file(name, path)

    def create(self, name: str, content: bytes) -> bytes | None:
        self._calls.pop("create", lambda: None)()
        return super().create(name, content)
