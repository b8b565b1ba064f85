"""A pipeline's identity: state and checkpoint are one unit with one owner."""

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
from roamcast.pipeline.query.identity import Pipeline, open_pipeline
from roamcast.pipeline.schemas import SOURCES, SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import Manifest
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import SubscriptionAdded


def opened(data: Path, **options: bool) -> Pipeline:
    """Open and close again."""
    pipeline = open_pipeline(data, **options)
    pipeline.close()
    return pipeline


def work(data: Path, *, state: int = 5, commits: int = 5, offsets: int = 5) -> Pipeline:
    """A pipeline that has run: its state at one batch, Spark's files up to others, and its card in the outbox."""
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


def test_the_first_start_makes_a_pipeline(tmp_path: Path) -> None:
    """Where nothing was, a pipeline begins before its first batch."""
    pipeline = opened(tmp_path / "data")
    assert len(pipeline.id) == 36
    assert pipeline.manifest == Manifest(pipeline.id)


def test_opening_again_finds_the_same(tmp_path: Path) -> None:
    """The identity and the newest state are what they were."""
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
    """While a process runs it no other can, with --new neither; the error names the process."""
    for new in (False, True):
        with pytest.raises(ConflictError, match=rf"process {holder.pid}\b.*stop it first"):
            open_pipeline(tmp_path, new=new)
    assert not list((tmp_path / "pipeline").glob("earlier-*"))


def test_a_killed_pipeline_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """When the process that held it is gone, the next one opens."""
    holder.kill()
    holder.wait(10)
    assert opened(tmp_path).manifest.batch == -1


def test_a_failed_start_leaves_no_lock(tmp_path: Path) -> None:
    """An error while opening lets go, so that --new can follow in the same process."""
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
def test_half_a_pipeline_is_refused(tmp_path: Path, loss: str) -> None:
    """Whatever of a pipeline that has worked is removed: it stops with a hint, and changes nothing."""
    work(tmp_path)
    LOSSES[loss](tmp_path)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"roamcast pipeline --new.*a second time"):
            open_pipeline(tmp_path)


def test_without_its_card_the_rest_still_tells(tmp_path: Path) -> None:
    """A checkpoint or a state that has begun is enough to refuse a new beginning."""
    for kept in ("checkpoint", "state"):
        data = tmp_path / kept
        work(data)
        shutil.rmtree(data / "outbox")
        LOSSES["identity"](data)
        LOSSES["state" if kept == "checkpoint" else "checkpoint"](data)
        with pytest.raises(ConflictError, match="its identity is gone"):
            open_pipeline(data)


@pytest.mark.parametrize("foreign", ["checkpoint", "state"])
def test_parts_of_two_pipelines_are_refused(tmp_path: Path, foreign: str) -> None:
    """A checkpoint or a state from elsewhere does not fit, at the same batch neither."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    work(mine)
    work(other)
    shutil.rmtree(mine / PIPELINE / foreign)
    shutil.copytree(other / PIPELINE / foreign, mine / PIPELINE / foreign)
    with pytest.raises(ConflictError, match=rf"the {foreign} of this pipeline is gone"):
        open_pipeline(mine)


@pytest.mark.parametrize(
    ("state", "commits", "offsets"),
    [(-1, -1, -1), (-1, -1, 0), (0, -1, 0), (5, 5, 5), (5, 5, 6), (6, 5, 6), (10, 10, 10)],
)
def test_what_a_crash_can_leave_is_accepted(tmp_path: Path, state: int, commits: int, offsets: int) -> None:
    """The state is at the batch that Spark has noted as done, or at the one that it was about to note."""
    work(tmp_path, state=state, commits=commits, offsets=offsets)
    assert opened(tmp_path).manifest.batch == state


@pytest.mark.parametrize(
    ("state", "commits", "offsets"),
    [(4, 5, 5), (4, 5, 6), (-1, 0, 0), (7, 5, 6), (6, 5, 5), (0, -1, -1), (9, 10, 10)],
)
def test_what_no_crash_can_leave_is_refused(tmp_path: Path, state: int, commits: int, offsets: int) -> None:
    """An old copy of either, or one that is ahead, would lose or double batches."""
    work(tmp_path, state=state, commits=commits, offsets=offsets)
    with pytest.raises(ConflictError, match=rf"state is at batch {state}, the checkpoint at {commits}.*--new"):
        open_pipeline(tmp_path)


@pytest.mark.parametrize("begun", ["nothing", "state", "state and checkpoint", "half a manifest"])
def test_a_beginning_that_was_cut_off_begins_again(tmp_path: Path, begun: str) -> None:
    """Until the identity is written nothing has begun."""
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
def test_new_begins_another_pipeline(tmp_path: Path, loss: str | None) -> None:
    """It has another identity and no state, whatever was left of the earlier one."""
    earlier = work(tmp_path)
    if loss:
        LOSSES[loss](tmp_path)
    pipeline = opened(tmp_path, new=True)
    assert pipeline.id != earlier.id
    assert pipeline.manifest == Manifest(pipeline.id)
    assert opened(tmp_path).id == pipeline.id


def test_new_puts_the_earlier_pipeline_aside(tmp_path: Path) -> None:
    """Nothing is deleted: identity, checkpoint, state and what was set aside move to a folder of their own."""
    earlier = work(tmp_path)
    earlier.set_aside.mkdir()
    (earlier.set_aside / f"{3:020d}.ndjson").write_text("{}\n")
    opened(tmp_path, new=True)
    (aside,) = (tmp_path / PIPELINE).glob("earlier-*")
    assert orjson.loads((aside / "identity.json").read_bytes())["pipeline"] == earlier.id
    assert (aside / "state" / "5.json").exists()
    assert (aside / "checkpoint" / "commits" / "5").exists()
    assert (aside / "set_aside" / f"{3:020d}.ndjson").exists()
    assert not earlier.set_aside.exists()


def test_new_where_nothing_was_is_a_first_start(tmp_path: Path) -> None:
    """There is nothing to put aside."""
    opened(tmp_path, new=True)
    assert not list((tmp_path / PIPELINE).glob("earlier-*"))


def test_new_keeps_the_letters_that_wait(tmp_path: Path) -> None:
    """What the earlier pipeline left for an office is not replaced by the new one's batch of the same number."""
    outbox = Outbox(tmp_path / "outbox")
    ids = []
    for _ in range(2):
        ids.append(opened(tmp_path, new=True).id)
        table = {"receiver": ["ann"], "number": [1], "body": [f'"{ids[-1]}"']}
        outbox.put("local", ids[-1], 0, pa.table(table))
    found = [letter for path in outbox.waiting("local") for letter in outbox.read(path)]
    assert {(letter.sender, letter.body) for letter in found} == {(id_, f'"{id_}"') for id_ in ids}


def live_rows(pipeline: Pipeline) -> list[tuple[str, str, str]]:
    rows = pipeline.state.parts.read_all(SUBSCRIPTIONS, pipeline.manifest.parts(SUBSCRIPTIONS.name)).to_pylist()
    return sorted((row["node"], row["id"], row["subscriber"]) for row in rows)


def a_row(id_: str, since: int, removed_in: int | None = None) -> dict[str, Any]:
    return {"node": "local", "since": since, "id": id_, "subscriber": "ann", "terms": [], "removed_in": removed_in}


def test_new_takes_over_subscriptions_and_numbers_seen(tmp_path: Path) -> None:
    """Out of the earlier state, live ones only; and it says that one batch at most may come twice."""
    earlier = work(tmp_path)
    rows = pa.Table.from_pylist([a_row("s1", 1), a_row("s2", 2, removed_in=3)], SUBSCRIPTIONS.schema)
    seen = pa.Table.from_pylist([{"node": "local", "source": "cam", "seen": "1-7"}], SOURCES.schema)
    tables = {t.name: (earlier.state.parts.write(t, r),) for t, r in ((SUBSCRIPTIONS, rows), (SOURCES, seen))}
    earlier.state.publish(Manifest(earlier.id, 5, tables, {"events": 9, "subscriptions": 1}))
    shutil.rmtree(earlier.checkpoint)
    pipeline = opened(tmp_path, new=True)
    assert live_rows(pipeline) == [("local", "s1", "ann")]
    assert pipeline.state.parts.read_all(SOURCES, pipeline.manifest.parts(SOURCES.name)) == seen
    assert pipeline.manifest.counters == {"subscriptions": 1}
    assert "one batch at most" in pipeline.inheritance


def test_new_after_a_try_that_was_cut_off_takes_over_too(tmp_path: Path) -> None:
    """The earlier pipeline was put aside, but the new one not yet made."""
    earlier = work(tmp_path)
    rows = pa.Table.from_pylist([a_row("s1", 1)], SUBSCRIPTIONS.schema)
    parts = {SUBSCRIPTIONS.name: (earlier.state.parts.write(SUBSCRIPTIONS, rows),)}
    earlier.state.publish(Manifest(earlier.id, 5, parts))
    aside = tmp_path / PIPELINE / "earlier-1"
    aside.mkdir()
    for name in ("identity.json", "checkpoint", "state"):
        (tmp_path / PIPELINE / name).rename(aside / name)
    assert live_rows(opened(tmp_path, new=True)) == [("local", "s1", "ann")]


def test_new_without_a_state_asks_the_registries(tmp_path: Path) -> None:
    """Subscriptions come from the nodes' stores, in force for all that is still in the journal, which it names."""
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
    rows = pipeline.state.parts.read_all(SUBSCRIPTIONS, pipeline.manifest.parts(SUBSCRIPTIONS.name)).to_pylist()
    assert all(row["since"] < 1 and row["terms"] == ["fire"] for row in rows)
    assert "local: offsets 2 to 3" in pipeline.inheritance


@pytest.mark.parametrize("torn", [b"", b"v1\n", b'v1\n{"batchWat'])
@pytest.mark.parametrize("name", ["commits/5", "offsets/6"])
def test_what_a_power_cut_tore_of_sparks_log_is_cleared_away(tmp_path: Path, name: str, torn: bytes) -> None:
    """The files that were not synced yet; Spark writes them again."""
    pipeline = work(tmp_path, state=5, commits=5, offsets=6)
    (pipeline.checkpoint / name).write_bytes(torn)
    assert opened(tmp_path).manifest.batch == 5
    assert not (pipeline.checkpoint / name).exists()


def test_what_was_synced_of_sparks_log_is_never_cleared_away(tmp_path: Path) -> None:
    """A whole file stays; so does a damaged one that a power cut cannot have torn, and Spark says so."""
    pipeline = work(tmp_path, state=5, commits=5, offsets=6)
    (pipeline.checkpoint / "offsets" / "5").write_bytes(b"")
    opened(tmp_path)
    assert (pipeline.checkpoint / "offsets" / "5").exists()
    assert (pipeline.checkpoint / "commits" / "5").exists()


def test_a_survivor_notices_that_it_was_replaced(tmp_path: Path) -> None:
    """A run that lost its lock without knowing stops before it can publish."""
    survivor = open_pipeline(tmp_path)
    survivor.check_generation()
    survivor.close()
    successor = opened(tmp_path)
    successor.check_generation()
    with pytest.raises(ConflictError, match="started again by another process"):
        survivor.check_generation()


def test_a_survivor_of_new_notices_too(tmp_path: Path) -> None:
    """Generations go on when another pipeline begins."""
    survivor = opened(tmp_path)
    opened(tmp_path, new=True)
    with pytest.raises(ConflictError):
        survivor.check_generation()


def test_a_pipeline_whose_folder_is_removed_stops(tmp_path: Path) -> None:
    """It does not go on without a place for its state."""
    pipeline = opened(tmp_path)
    shutil.rmtree(pipeline.folder)
    with pytest.raises(StorageError, match="check the data folder"):
        pipeline.check_generation()


@pytest.mark.parametrize("name", ["identity.json", "checkpoint/roamcast.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": "roamcast-pipeline/2", "pipeline": "x"}'])
def test_an_unreadable_identity_is_corruption(tmp_path: Path, name: str, content: bytes) -> None:
    """Another format is refused, never guessed."""
    work(tmp_path)
    (tmp_path / PIPELINE / name).write_bytes(content)
    with pytest.raises(CorruptionError, match=r"unreadable.*--new"):
        open_pipeline(tmp_path)


def test_an_unreadable_generation_is_corruption(tmp_path: Path) -> None:
    """It is not taken for the first one."""
    work(tmp_path)
    (tmp_path / PIPELINE / "generation").write_text("many")
    with pytest.raises(CorruptionError, match="generation"):
        open_pipeline(tmp_path)


def test_a_place_that_cannot_hold_a_pipeline_is_named(tmp_path: Path) -> None:
    """What the operating system refuses becomes an error with a hint."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(StorageError, match="File exists"):
        open_pipeline(tmp_path / "data")
