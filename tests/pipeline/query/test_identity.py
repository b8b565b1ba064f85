"""The folder of a pipeline: state and checkpoint are one unit with one owner."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from worlds import event, journal

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.errors import ConflictError, CorruptionError, StorageError
from roamcast.journal.bodies import SubscriptionBody
from roamcast.model import Box, Subscription
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.schemas import SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import Manifest
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import SubscriptionAdded


def opened(data: Path, **options: bool) -> PipelineFolder:
    """Open and close again."""
    pipeline = open_pipeline(data, **options)
    pipeline.close()
    return pipeline


def work(data: Path, *, state: int = 5, commits: int = 5, offsets: int = 5) -> PipelineFolder:
    """A pipeline that has run: its state, Spark's files, and its status in the outbox."""
    pipeline = opened(data)
    for name, last in (("commits", commits), ("offsets", offsets)):
        folder = pipeline.checkpoint / name
        folder.mkdir()
        for batch in range(last + 1):
            (folder / str(batch)).write_text("v1\n{}")
            (folder / f".{batch}.crc").write_bytes(b"crc")
    if state >= 0:
        pipeline.state.publish(Manifest(pipeline.id, state))
    Outbox(data / "outbox").write_status(PipelineStatus(pipeline.id, state, {}))
    return pipeline


def test_the_first_start_creates_a_pipeline(tmp_path: Path) -> None:
    """It is before its first batch."""
    pipeline = opened(tmp_path / "data")
    assert len(pipeline.id) == 36
    assert pipeline.manifest == Manifest(pipeline.id)


def test_opening_again_returns_the_same_pipeline(tmp_path: Path) -> None:
    """With its identity and its newest state."""
    pipeline = work(tmp_path)
    again = opened(tmp_path)
    assert (again.id, again.manifest.batch) == (pipeline.id, 5)


_HOLD = """
import sys
from pathlib import Path
from roamcast.pipeline.query.identity import open_pipeline
pipeline = open_pipeline(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the pipeline of `tmp_path`."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_pipeline_is_refused(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """Even with --new. The error names the process that runs it."""
    for new in (False, True):
        with pytest.raises(ConflictError, match=rf"process {holder.pid}\b.*stop it first"):
            open_pipeline(tmp_path, new=new)
    assert not list((tmp_path / "pipeline").glob("earlier-*"))


def test_a_killed_pipeline_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """Another process can open it."""
    holder.kill()
    holder.wait(10)
    assert opened(tmp_path).manifest.batch == -1


def test_a_failed_start_leaves_no_lock(tmp_path: Path) -> None:
    """An error while opening releases it, so --new works in the same process."""
    work(tmp_path, state=3)
    with pytest.raises(ConflictError):
        open_pipeline(tmp_path)
    opened(tmp_path, new=True)


PIPELINE = Path("pipeline")

LOSSES: dict[str, Callable[[Path], Any]] = {
    "checkpoint": lambda data: shutil.rmtree(data / PIPELINE / "checkpoint"),
    "state": lambda data: shutil.rmtree(data / PIPELINE / "state"),
    "manifests": lambda data: [path.unlink() for path in (data / PIPELINE / "state").glob("*.json")],
    "identity": lambda data: (data / PIPELINE / "identity.json").unlink(),
    "identity and checkpoint": lambda data: [LOSSES["identity"](data), LOSSES["checkpoint"](data)],
    "identity and state": lambda data: [LOSSES["identity"](data), LOSSES["state"](data)],
    "whole pipeline": lambda data: shutil.rmtree(data / PIPELINE),
    "Spark's offsets": lambda data: shutil.rmtree(data / PIPELINE / "checkpoint" / "offsets"),
    "Spark's commits": lambda data: shutil.rmtree(data / PIPELINE / "checkpoint" / "commits"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_incomplete_pipeline_is_refused(tmp_path: Path, loss: str) -> None:
    """Whatever part is missing: opening fails with a hint and changes nothing."""
    work(tmp_path)
    LOSSES[loss](tmp_path)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"roamcast pipeline --new.*delivered twice"):
            open_pipeline(tmp_path)


def test_a_missing_identity_is_noticed_without_a_status_file(tmp_path: Path) -> None:
    """A used checkpoint or state is enough to refuse."""
    for kept in ("checkpoint", "state"):
        data = tmp_path / kept
        work(data)
        shutil.rmtree(data / "outbox")
        LOSSES["identity"](data)
        LOSSES["state" if kept == "checkpoint" else "checkpoint"](data)
        with pytest.raises(ConflictError, match="its identity is missing"):
            open_pipeline(data)


@pytest.mark.parametrize("foreign", ["checkpoint", "state"])
def test_parts_of_two_pipelines_are_refused(tmp_path: Path, foreign: str) -> None:
    """Even if both are at the same batch."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    work(mine)
    work(other)
    shutil.rmtree(mine / PIPELINE / foreign)
    shutil.copytree(other / PIPELINE / foreign, mine / PIPELINE / foreign)
    with pytest.raises(ConflictError, match=rf"the {foreign} of this pipeline is missing"):
        open_pipeline(mine)


@pytest.mark.parametrize(
    ("state", "commits", "offsets"),
    [(-1, -1, -1), (-1, -1, 0), (0, -1, 0), (5, 5, 5), (5, 5, 6), (6, 5, 6), (10, 10, 10)],
)
def test_states_that_a_crash_can_leave_are_accepted(tmp_path: Path, state: int, commits: int, offsets: int) -> None:
    """The state is at the last batch that Spark recorded as done, or one ahead."""
    work(tmp_path, state=state, commits=commits, offsets=offsets)
    assert opened(tmp_path).manifest.batch == state


@pytest.mark.parametrize(
    ("state", "commits", "offsets"),
    [(4, 5, 5), (4, 5, 6), (-1, 0, 0), (7, 5, 6), (6, 5, 5), (0, -1, -1), (9, 10, 10)],
)
def test_states_that_no_crash_can_leave_are_refused(tmp_path: Path, state: int, commits: int, offsets: int) -> None:
    """An old backup of one of them would lose or repeat batches."""
    work(tmp_path, state=state, commits=commits, offsets=offsets)
    with pytest.raises(ConflictError, match=rf"state is at batch {state}, the checkpoint at {commits}.*--new"):
        open_pipeline(tmp_path)


@pytest.mark.parametrize("begun", ["nothing", "state", "state and checkpoint", "half a manifest"])
def test_an_interrupted_creation_is_repeated(tmp_path: Path, begun: str) -> None:
    """A pipeline exists once its identity is written."""
    first = opened(tmp_path)
    (tmp_path / PIPELINE / "identity.json").unlink()
    if begun in ("nothing", "state", "half a manifest"):
        shutil.rmtree(first.checkpoint)
    if begun in ("nothing", "half a manifest"):
        LOSSES["manifests"](tmp_path)
    if begun == "half a manifest":
        (first.state.folder / "-1.json.tmp").write_bytes(b"{")
    second = opened(tmp_path)
    assert second.id != first.id
    assert opened(tmp_path).id == second.id


@pytest.mark.parametrize("loss", [None, *LOSSES])
def test_new_starts_another_pipeline(tmp_path: Path, loss: str | None) -> None:
    """With another identity, whatever is left of the earlier one."""
    earlier = work(tmp_path)
    if loss:
        LOSSES[loss](tmp_path)
    pipeline = opened(tmp_path, new=True)
    assert pipeline.id != earlier.id
    assert pipeline.manifest == Manifest(pipeline.id)
    assert opened(tmp_path).id == pipeline.id


def test_new_moves_the_earlier_pipeline_away(tmp_path: Path) -> None:
    """Identity, checkpoint, state and dead letters are moved to a folder of their own."""
    earlier = work(tmp_path)
    earlier.dead_letters.mkdir()
    (earlier.dead_letters / f"{3:020d}.ndjson").write_text("{}\n")
    opened(tmp_path, new=True)
    (earlier_folder,) = (tmp_path / PIPELINE).glob("earlier-*")
    assert orjson.loads((earlier_folder / "identity.json").read_bytes())["pipeline"] == earlier.id
    assert (earlier_folder / "state" / "5.json").exists()
    assert (earlier_folder / "checkpoint" / "commits" / "5").exists()
    assert (earlier_folder / "dead_letters" / f"{3:020d}.ndjson").exists()
    assert not earlier.dead_letters.exists()


def test_new_without_an_earlier_pipeline_is_a_first_start(tmp_path: Path) -> None:
    """There is nothing to move."""
    opened(tmp_path, new=True)
    assert not list((tmp_path / PIPELINE).glob("earlier-*"))


def test_new_keeps_waiting_letters(tmp_path: Path) -> None:
    """A batch of the earlier pipeline is not replaced by one of the new pipeline with the same number."""
    outbox = Outbox(tmp_path / "outbox")
    ids = []
    for _ in range(2):
        ids.append(opened(tmp_path, new=True).id)
        table = {"receiver": ["ann"], "number": [1], "body": [f'"{ids[-1]}"']}
        outbox.put("local", ids[-1], 0, pa.table(table))
    found = [letter for path in outbox.waiting("local") for letter in outbox.read(path)]
    assert {(letter.sender, letter.body) for letter in found} == {(id_, f'"{id_}"') for id_ in ids}


def live_rows(pipeline: PipelineFolder) -> list[tuple[str, str, str]]:
    rows = pipeline.state.parts.read_all(SUBSCRIPTIONS, pipeline.manifest.parts(SUBSCRIPTIONS)).to_pylist()
    return sorted((row["node"], row["id"], row["subscriber"]) for row in rows)


def a_row(id_: str, since: int, gone_in: int | None = None) -> dict[str, Any]:
    row = {"node": "local", "since": since, "id": id_, "subscriber": "ann", "terms": []}
    return row | {"removed_in": gone_in, "drained_in": gone_in}


def test_new_takes_over_subscriptions_and_seen_numbers(tmp_path: Path) -> None:
    """From the earlier state, live subscriptions only. Letters of at most one batch may be sent twice."""
    earlier = work(tmp_path)
    rows = pa.Table.from_pylist([a_row("s1", 1), a_row("s2", 2, gone_in=3)], SUBSCRIPTIONS.schema)
    seen = pa.Table.from_pylist([{"node": "local", "source": "cam", "seen": "1-7"}], SOURCES.schema)
    write = earlier.state.parts.write
    tables = {"subscriptions": (write(SUBSCRIPTIONS, rows),), "sources/0": (write(SOURCES, seen),)}
    earlier.state.publish(Manifest(earlier.id, 5, tables, {"events": 9, "subscriptions": 1}))
    shutil.rmtree(earlier.checkpoint)
    pipeline = opened(tmp_path, new=True)
    assert live_rows(pipeline) == [("local", "s1", "ann")]
    assert pipeline.state.parts.read_all(SOURCES, pipeline.manifest.parts(SOURCES)) == seen
    assert pipeline.manifest.counters == {"subscriptions": 1}
    assert "at most one batch" in pipeline.takeover_note


def test_new_after_an_interrupted_attempt_takes_over(tmp_path: Path) -> None:
    """The earlier pipeline was moved, but the new one not created."""
    earlier = work(tmp_path)
    rows = pa.Table.from_pylist([a_row("s1", 1)], SUBSCRIPTIONS.schema)
    parts = {SUBSCRIPTIONS.name: (earlier.state.parts.write(SUBSCRIPTIONS, rows),)}
    earlier.state.publish(Manifest(earlier.id, 5, parts))
    earlier_folder = tmp_path / PIPELINE / "earlier-1"
    earlier_folder.mkdir()
    for name in ("identity.json", "checkpoint", "state"):
        (tmp_path / PIPELINE / name).rename(earlier_folder / name)
    assert live_rows(opened(tmp_path, new=True)) == [("local", "s1", "ann")]


def test_new_without_a_state_reads_the_registries(tmp_path: Path) -> None:
    """Subscriptions apply to all records that are still in the journal; the note names these."""
    work(tmp_path)
    shutil.rmtree(tmp_path / PIPELINE / "state")
    (tmp_path / "nodes" / "local").mkdir(parents=True)
    registry = SqlRegistry(open_sqlite(tmp_path / "nodes" / "local" / "store.sqlite", REGISTRY_FORMAT))
    body = SubscriptionBody(Box(0, 0, 1, 1), ("fire",)).to_json()
    registry.apply([SubscriptionAdded(Subscription(id_, "ann", "", body)) for id_ in ("s1", "s2")], at=1)
    registry.close()
    journal(tmp_path, [event("cam", 1)], [event("cam", 2), event("cam", 3)])
    sorted((tmp_path / "journal" / "local").glob("*.parquet"))[0].unlink()
    pipeline = opened(tmp_path, new=True)
    assert live_rows(pipeline) == [("local", "s1", "ann"), ("local", "s2", "ann")]
    rows = pipeline.state.parts.read_all(SUBSCRIPTIONS, pipeline.manifest.parts(SUBSCRIPTIONS)).to_pylist()
    assert all(row["since"] < 1 and row["terms"] == ["fire"] for row in rows)
    assert "local: offsets 2 to 3" in pipeline.takeover_note


@pytest.mark.parametrize("torn", [b"", b"v1\n", b'v1\n{"batchWat'])
@pytest.mark.parametrize("name", ["commits/5", "offsets/6"])
def test_torn_files_of_sparks_checkpoint_are_removed(tmp_path: Path, name: str, torn: bytes) -> None:
    """If they were not synced yet. Spark writes them again."""
    pipeline = work(tmp_path, state=5, commits=5, offsets=6)
    (pipeline.checkpoint / name).write_bytes(torn)
    assert opened(tmp_path).manifest.batch == 5
    assert not (pipeline.checkpoint / name).exists()


def test_synced_files_of_sparks_checkpoint_are_kept(tmp_path: Path) -> None:
    """Even if one is damaged; Spark reports it."""
    pipeline = work(tmp_path, state=5, commits=5, offsets=6)
    (pipeline.checkpoint / "offsets" / "5").write_bytes(b"")
    opened(tmp_path)
    assert (pipeline.checkpoint / "offsets" / "5").exists()
    assert (pipeline.checkpoint / "commits" / "5").exists()


def test_an_old_process_notices_that_it_was_replaced(tmp_path: Path) -> None:
    """If it lost its lock, it stops before it can publish."""
    old = open_pipeline(tmp_path)
    old.check_generation()
    old.close()
    successor = opened(tmp_path)
    successor.check_generation()
    with pytest.raises(ConflictError, match="another process has started this pipeline"):
        old.check_generation()


def test_an_old_process_notices_a_new_pipeline(tmp_path: Path) -> None:
    """Generations continue with another pipeline."""
    old = opened(tmp_path)
    opened(tmp_path, new=True)
    with pytest.raises(ConflictError):
        old.check_generation()


def test_a_pipeline_without_its_folder_stops(tmp_path: Path) -> None:
    """The error has a hint."""
    pipeline = opened(tmp_path)
    shutil.rmtree(pipeline.folder)
    with pytest.raises(StorageError, match="check the data folder"):
        pipeline.check_generation()


@pytest.mark.parametrize("name", ["identity.json", "checkpoint/roamcast.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": "roamcast-pipeline/1", "pipeline": "x"}'])
def test_an_unreadable_identity_is_corruption(tmp_path: Path, name: str, content: bytes) -> None:
    """So is another format."""
    work(tmp_path)
    (tmp_path / PIPELINE / name).write_bytes(content)
    with pytest.raises(CorruptionError, match=r"unreadable.*--new"):
        open_pipeline(tmp_path)


def test_an_unreadable_generation_is_corruption(tmp_path: Path) -> None:
    """It does not count as the first."""
    work(tmp_path)
    (tmp_path / PIPELINE / "generation").write_text("many")
    with pytest.raises(CorruptionError, match="generation"):
        open_pipeline(tmp_path)


def test_a_data_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    """With the reason of the operating system."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StorageError, match="File exists"):
        open_pipeline(tmp_path / "data")
