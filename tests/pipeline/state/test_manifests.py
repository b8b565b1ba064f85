"""Manifests: a published state is durable and complete."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from roamcast.errors import CorruptionError
from roamcast.pipeline.schemas import RECEIVERS
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.pipeline.state.parts import Part


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(tmp_path / "state")
    state.create("pipe", {})
    return state


def part(state: StateFolder, last: int) -> Part:
    row = {"office": "o", "receiver": "ann", "last": last}
    return state.parts.write(RECEIVERS, pa.Table.from_pylist([row], RECEIVERS.schema))


def publish(state: StateFolder, batch: int) -> Manifest:
    """Publish batch N with one part."""
    manifest = Manifest("pipe", batch, {"receivers/0": (part(state, batch),)}, {"letters": batch})
    state.publish(manifest)
    return manifest


def part_names(state: StateFolder) -> set[str]:
    return {path.name for path in state.parts.folder.iterdir()}


def test_a_new_state_is_before_the_first_batch(state: StateFolder) -> None:
    """It has the id of its pipeline and nothing else."""
    assert state.newest() == Manifest("pipe", -1, {}, {})


def test_without_a_folder_there_is_no_state(tmp_path: Path) -> None:
    """`newest` returns None."""
    assert StateFolder(tmp_path / "state").newest() is None


def test_the_last_published_state_is_the_newest(state: StateFolder) -> None:
    """Batches are compared as numbers, also in another process."""
    for batch in (0, 1, 2, 9, 10):
        manifest = publish(state, batch)
    assert StateFolder(state.folder).newest() == manifest
    assert manifest.batch == 10


def test_the_last_two_states_are_kept(state: StateFolder) -> None:
    """Older manifests and their parts are deleted."""
    manifests = [publish(state, batch) for batch in range(4)]
    assert {path.name for path in state.folder.glob("*.json")} == {"2.json", "3.json"}
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests[2:]}


def test_a_part_of_either_state_stays(state: StateFolder) -> None:
    """A part is deleted only when neither manifest names it."""
    first = publish(state, 0)
    state.publish(replace(first, batch=1))
    state.publish(replace(first, batch=2))
    assert part_names(state) == {first.parts(RECEIVERS)[0].name}


def test_publishing_again_changes_nothing(state: StateFolder) -> None:
    """A batch that is repeated publishes the same state."""
    publish(state, 0)
    again = [publish(state, 1), publish(state, 1)]
    assert state.newest() == again[0] == again[1]
    assert len(part_names(state)) == 2


def test_a_crash_before_publishing_leaves_the_previous_state(state: StateFolder) -> None:
    """Parts without a manifest, and an incomplete manifest, are ignored."""
    before = publish(state, 0)
    part(state, 1)
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    assert StateFolder(state.folder).newest() == before


def test_leftovers_of_a_crash_are_deleted(state: StateFolder) -> None:
    """By the next batch that is published."""
    before = publish(state, 0)
    orphan = part(state, 99)
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    after = publish(state, 1)
    assert orphan.name not in part_names(state)
    assert part_names(state) == {m.parts(RECEIVERS)[0].name for m in (before, after)}
    assert not list(state.folder.glob("*.tmp"))


def test_other_files_in_the_folder_are_ignored(state: StateFolder) -> None:
    """Only files named like a manifest count."""
    manifest = publish(state, 0)
    (state.folder / "notes.json").write_text("mine")
    assert state.newest() == manifest


def checked(content: dict[str, Any]) -> bytes:
    """A manifest with its checksum."""
    return orjson.dumps({"checksum": hashlib.sha256(orjson.dumps(content)).hexdigest(), **content})


INDEX = {"stack": [], "removed": [], "leaving": [], "next_handle": 0, "sharded": None}
SHARDED = {"shards": [], "cuts": {"at": []}, "secret": "", "routes": [], "stale": 0, "planned": None}
GOOD = {
    "format": "roamcast-state/12", "pipeline": "pipe", "batch": 3, "shards": 1, "tables": {}, "counters": {},
    "moving_regions": [], "index": INDEX,
}  # fmt: skip


def test_a_good_manifest_is_read(state: StateFolder) -> None:
    """So the others below are refused for the right reason."""
    (state.folder / "3.json").write_bytes(checked(GOOD))
    assert state.newest() == Manifest("pipe", 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        checked({**GOOD, "format": "roamcast-state/1"}),
        checked({**GOOD, "batch": 2}),
        checked({**GOOD, "moving_regions": ["planar"]}),
        checked({**GOOD, "tables": []}),
        checked({**GOOD, "index": {**INDEX, "sharded": SHARDED}}),
        checked({**GOOD, "index": {**INDEX, "sharded": []}}),
        checked({**GOOD, "tables": {"sources": [{"checksum": "1"}]}}),
        checked({key: value for key, value in GOOD.items() if key != "counters"}),
        orjson.dumps(GOOD),
        checked(GOOD).replace(b'"next_handle":0', b'"next_handle":1'),
        checked(GOOD).replace(
            b'"moving_regions":[]', b'"moving_regions":[{"space":"planar","version":"1","earlier":null}]'
        ),
    ],
)
def test_an_unreadable_manifest_is_corruption(state: StateFolder, content: bytes) -> None:
    """The error has a hint. An older state is not used instead."""
    (state.folder / "3.json").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"the manifest of batch 3 is unreadable.*--new"):
        state.newest()


def test_a_damaged_old_manifest_does_not_matter(state: StateFolder) -> None:
    """The next state is published; nothing is deleted until the damaged manifest is out of use."""
    manifests = [publish(state, 0), publish(state, 1)]
    (state.folder / "1.json").write_bytes(b"{")
    manifests.append(publish(state, 2))
    assert state.newest() == manifests[2]
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests}
    manifests += [publish(state, 3), publish(state, 4)]
    assert part_names(state) == {manifest.parts(RECEIVERS)[0].name for manifest in manifests[3:]}
