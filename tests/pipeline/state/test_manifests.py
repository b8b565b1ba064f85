"""State by batch number: what was published is there, whatever happens around it."""

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
    """Batch N, with one part of its own."""
    manifest = Manifest("pipe", batch, {"receivers": (part(state, batch),)}, {"letters": batch})
    state.publish(manifest)
    return manifest


def parts_there(state: StateFolder) -> set[str]:
    return {path.name for path in state.parts.folder.iterdir()}


def test_a_new_state_is_before_the_first_batch(state: StateFolder) -> None:
    """It has its pipeline's identity, and nothing else."""
    assert state.newest() == Manifest("pipe", -1, {}, {})


def test_no_folder_has_no_state(tmp_path: Path) -> None:
    """Where nothing was published there is no newest."""
    assert StateFolder(tmp_path / "state").newest() is None


def test_what_was_published_last_is_the_newest(state: StateFolder) -> None:
    """Batches are compared as numbers, and another process reads what was written."""
    for batch in (0, 1, 2, 9, 10):
        manifest = publish(state, batch)
    assert StateFolder(state.folder).newest() == manifest
    assert manifest.batch == 10


def test_the_last_two_states_are_whole(state: StateFolder) -> None:
    """After each batch the state before it can still be read; older manifests and their parts are gone."""
    manifests = [publish(state, batch) for batch in range(4)]
    assert {path.name for path in state.folder.glob("*.json")} == {"2.json", "3.json"}
    assert parts_there(state) == {manifest.parts("receivers")[0].name for manifest in manifests[2:]}


def test_a_part_that_both_states_need_stays(state: StateFolder) -> None:
    """A part is removed only when neither manifest names it."""
    first = publish(state, 0)
    state.publish(replace(first, batch=1))
    state.publish(replace(first, batch=2))
    assert parts_there(state) == {first.parts("receivers")[0].name}


def test_publishing_again_changes_nothing(state: StateFolder) -> None:
    """A batch that is repeated publishes the same state."""
    publish(state, 0)
    again = [publish(state, 1), publish(state, 1)]
    assert state.newest() == again[0] == again[1]
    assert len(parts_there(state)) == 2


def test_a_crash_before_the_manifest_leaves_the_state_before(state: StateFolder) -> None:
    """Parts without a manifest, and half a manifest, are as if they were not there."""
    before = publish(state, 0)
    part(state, 1)
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    assert StateFolder(state.folder).newest() == before


def test_what_a_crash_left_is_swept(state: StateFolder) -> None:
    """The next batch that is published clears away what belongs to no state."""
    before = publish(state, 0)
    orphan = part(state, 99)
    (state.parts.folder / "0123.arrow.tmp").write_bytes(b"half")
    (state.folder / "1.json.tmp").write_bytes(b'{"format"')
    after = publish(state, 1)
    assert orphan.name not in parts_there(state)
    assert parts_there(state) == {m.parts("receivers")[0].name for m in (before, after)}
    assert not list(state.folder.glob("*.tmp"))


def test_other_files_in_the_folder_are_ignored(state: StateFolder) -> None:
    """What is not named like a manifest is none."""
    manifest = publish(state, 0)
    (state.folder / "notes.json").write_text("mine")
    assert state.newest() == manifest


def checked(content: dict[str, Any]) -> bytes:
    """A manifest with its checksum."""
    return orjson.dumps({"checksum": hashlib.sha256(orjson.dumps(content)).hexdigest(), **content})


GOOD = {
    "format": "roamcast-state/7", "pipeline": "pipe", "batch": 3, "tables": {}, "counters": {}, "regions": {},
    "index": {"stack": [], "leaving": [], "handles": 0}, "partition": None,
}  # fmt: skip


def test_a_good_manifest_is_read(state: StateFolder) -> None:
    """So that those below are refused for what is wrong with them."""
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
        checked({**GOOD, "regions": ["planar"]}),
        checked({**GOOD, "tables": []}),
        checked({**GOOD, "partition": {"shares": [], "cuts": {"at": []}, "routes": [], "stale": 0, "planned": None}}),
        checked({**GOOD, "partition": []}),
        checked({**GOOD, "tables": {"sources": [{"checksum": "1"}]}}),
        checked({key: value for key, value in GOOD.items() if key != "counters"}),
        orjson.dumps(GOOD),
        checked(GOOD).replace(b'"handles":0', b'"handles":1'),
        checked(GOOD).replace(b'"regions":{}', b'"regions":{"planar":"1"}'),
    ],
)
def test_an_unreadable_manifest_is_corruption(state: StateFolder, content: bytes) -> None:
    """It names the file and the way out, and no older state is taken in its place."""
    (state.folder / "3.json").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"the manifest of batch 3 is unreadable.*--new"):
        state.newest()


def test_a_damaged_manifest_that_nobody_needs_stops_nothing(state: StateFolder) -> None:
    """The next state is published beside it; nothing is cleared away until it has gone by itself."""
    manifests = [publish(state, 0), publish(state, 1)]
    (state.folder / "1.json").write_bytes(b"{")
    manifests.append(publish(state, 2))
    assert state.newest() == manifests[2]
    assert parts_there(state) == {manifest.parts("receivers")[0].name for manifest in manifests}
    manifests += [publish(state, 3), publish(state, 4)]
    assert parts_there(state) == {manifest.parts("receivers")[0].name for manifest in manifests[3:]}
