"""Writing, compacting and reading an archive."""

from __future__ import annotations

from pathlib import Path

import pytest
from archives import (
    DAY,
    EAGER,
    HOUR,
    START,
    CrashingStorage,
    Journals,
    event,
    everything_in,
    memory_storage,
    registered,
    snapshot,
    track,
)
from storages import new_folder

from roamcast.archive.compaction import CompactionLimits
from roamcast.archive.reader import CoverageError, open_archive
from roamcast.archive.versions import newest_version
from roamcast.archive.writer import ArchiveWriter
from roamcast.errors import CorruptionError, NotFoundError, StorageError
from roamcast.journal.records import FORGOTTEN, LEFT, REMOVAL, STATE, UNTRACKED, Record, to_batch
from roamcast.model import Box
from roamcast.storage.port import Storage


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return new_folder(tmp_path / "storage") if request.param == "folder" else memory_storage()


@pytest.fixture
def journals(storage: Storage) -> Journals:
    return Journals(storage)


def test_a_record_is_read_as_it_was_written(journals: Journals) -> None:
    journals.add([event("cam", 1, 3, 4), track("ann", 7, 1, 2)])
    for _ in range(2):
        (row,) = journals.open().events_table().to_pylist()
        values = (row["node"], row["offset"], row["batch"], row["terms"], row["readings"], row["body"], row["x"])
        assert values == ("local", 1, 0, ["fire"], [("heat", 1.5)], '{"floor":2}', 3)
        assert row["written"].timestamp() * 1e6 == START
        journals.compact()


def test_only_what_counted_is_archived(journals: Journals) -> None:
    """Neither duplicates nor the control records of others."""
    journals.add([event("cam", 1), event("cam", 1), Record(REMOVAL, "ann", id="q", time=1)], {"local": {2}})
    assert journals.events() == [("local", 1)]
    assert [(each.first_offset, each.last_offset) for each in journals.open().coverage()["local"]] == [(1, 3)]


def test_a_repeated_batch_replaces_its_file(journals: Journals) -> None:
    journals.add([event("cam", 1)], times=2)
    journals.add([event("cam", 2)], commit=False)
    journals.compact()
    assert journals.events() == [("local", 1), ("local", 2)]
    journals.start()  # a crash before the commit
    journals.add([event("cam", 3)])
    assert journals.events() == [("local", 1), ("local", 2), ("local", 3)]
    assert len(journals.storage.files("archive/recent")) == 1


def test_a_range_of_time_is_a_range_of_offsets(journals: Journals) -> None:
    for hour in range(30):
        journals.add([event("cam", hour + 1)])
        if hour in (9, 20):
            journals.compact(CompactionLimits(recent=1))
    archive = journals.open()
    rows = archive.events_table(START + 5 * HOUR, START + 26 * HOUR)
    assert rows["offset"].to_pylist() == list(range(6, 27))
    days = {file.name.split("/")[2] for file in archive.files() if file.kind == "events"}
    assert days == {"date=2024-10-04"}


def test_days_have_folders_of_their_own(journals: Journals) -> None:
    for hour in (0, 24, 48):
        journals.add([event("cam", hour + 1), track("cam", hour)], written=START + hour * HOUR)
    journals.compact()
    folders = sorted({file.name.rpartition("/")[0] for file in journals.open().files()})
    assert [folder.split("/")[1:3] for folder in folders] == [
        [kind, f"date=2024-10-0{day}"] for kind in ("events", "tracks") for day in (4, 5, 6)
    ]


def test_a_box_prunes_files(journals: Journals) -> None:
    journals.add([event("cam", 1 + 10 * x + y, x, y) for x in range(10) for y in range(10)])
    journals.compact()
    archive = journals.open()
    rows = archive.events_table(box=Box(2, 3, 4, 3))
    assert sorted(rows["x"].to_pylist()) == [2, 3, 4]
    assert archive.counts.files_pruned > archive.counts.files > 0


def test_events_of_sources_are_found_wherever_they_were_published(journals: Journals) -> None:
    journals.add({"north": [event("cam", 1), event("dog", 1)], "south": [event("cam", 1), event("cam@north", 2)]})
    for _ in range(2):
        assert journals.events(sources=[("north", "cam")]) == [("north", 1), ("south", 2)]
        journals.compact()


def test_many_small_files_become_few(journals: Journals) -> None:
    for hour in range(60):
        journals.add([event("cam", hour + 1)], written=START + hour)
        journals.compact(CompactionLimits(recent=1, small=20, grace=0.0))
    archive = journals.open()
    assert len(archive.files()) <= 8
    assert journals.events() == [("local", offset) for offset in range(1, 61)]
    journals.add([event("cam", 61)], written=START + DAY)
    journals.compact(CompactionLimits(recent=1, small=0, grace=0.0))
    assert len(journals.open().files()) == 2  # the day is over


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_change_loses_and_doubles_nothing(after: bool) -> None:
    for crash in range(1, 100):
        journals = Journals(memory_storage())
        whole = journals.storage
        batches = [
            [*snapshot(10, "cam"), event("cam", 1)],
            [event("cam", seq, seq, seq) for seq in range(2, 30)],
            [registered("dog", 20, 5.0), event("dog", 1), Record(LEFT, "dog", 30)],
            [event("cam", 30)],
        ]
        journals.storage = CrashingStorage(whole, crash, after=after)
        for records in batches:
            journals.records.setdefault("local", []).extend(records)
            for step in (journals.start, journals.add, journals.compact):
                try:
                    step()
                except StorageError:
                    journals.storage = whole
                    journals.start()
                    step()
        has_crashed = journals.storage is whole
        journals.storage = whole
        journals.compact()
        expected = [("local", offset) for offset in [4, *range(5, 33), 36]]
        assert journals.events() == expected, (crash, after)
        assert b"dog" not in everything_in(whole)
        if not has_crashed:
            return
    pytest.fail("more changes than expected")


def test_a_new_pipeline_archives_nothing_twice(journals: Journals) -> None:
    journals.add([event("cam", 1)])
    journals.compact()
    journals.add([event("cam", 2)])
    journals.start("p2")
    journals.add([event("cam", 3)])
    journals.compact()
    rows = journals.open().events_table()
    assert (rows["offset"].to_pylist(), rows["batch"].to_pylist()) == ([1, 2, 3], [0, 1, 2])


def test_another_journal_of_the_same_node_is_refused(journals: Journals) -> None:
    journals.add([event("cam", 1), event("cam", 2)])
    writer = ArchiveWriter(journals.storage, "p2", -1)
    with pytest.raises(CorruptionError, match="local up to offset 2, its journal up to 1"):
        writer.add(
            0, [to_batch("local", 1, [event("cam", 9)])], {"local": [(1, START)]}, {"local": 1}, {"local": 1}, {}
        )


def erasing(kind: str) -> list[Record]:
    return [
        *snapshot(5, "cam"),
        registered("dog", 10, 1.0),
        event("dog", 1),
        track("dog", 20),
        Record(STATE, "dog", 25, "q", 25, body='{"state":"stop","why":"dog"}'),
        event("cam", 1),
        Record(kind, "dog", 30),
        track("dog", 40, 7.0),
    ]


@pytest.mark.parametrize("kind", [LEFT, FORGOTTEN])
def test_what_is_erased_is_not_read_from_then_on(journals: Journals, kind: str) -> None:
    *before, removal, after = erasing(kind)
    journals.add(before)
    journals.compact()
    assert journals.events() == [("local", 5), ("local", 8)]
    assert journals.open().erased() == {}
    journals.add([removal, after])
    for _ in range(2):
        assert journals.events() == [("local", 8)]
        tracks = journals.open().tracks("local", START + HOUR).changes.to_pylist()
        left = [(row["kind"], row["entity"], row["x"]) for row in tracks]
        registration = [("registered", "dog", None)] if kind == FORGOTTEN else []
        assert left == [*registration, ("track", "dog", 7.0)]
        assert journals.open().erased() == {"local": START + HOUR}
        journals.compact()


def test_what_is_erased_is_removed_from_all_files(journals: Journals) -> None:
    """Also where its events were published, and from files that do not count any more."""
    journals.add({"local": erasing(LEFT)[:-2], "south": [event("dog@local", 7), event("dog", 1)]})
    journals.compact(CompactionLimits(recent=1, recent_age=0.0))
    assert b"'dog'" in everything_in(journals.storage)
    journals.add([Record(LEFT, "dog", 30)])
    journals.compact()
    assert b"dog@local" not in everything_in(journals.storage)
    assert journals.events() == [("local", 8), ("south", 2)]  # another source of that name
    journals.add({"south": [Record(LEFT, "dog", 40)]})
    journals.compact()
    assert b"dog" not in everything_in(journals.storage)


def test_files_that_do_not_count_stay_for_readers(journals: Journals) -> None:
    journals.add([event("cam", 1)])
    archive = journals.open()
    journals.compact(CompactionLimits(recent=1, grace=60.0))
    assert archive.events_table().num_rows == 1
    journals.compact(CompactionLimits(recent=1, grace=60.0), START + HOUR + 61_000_000)
    with pytest.raises(CorruptionError, match="missing"):
        archive.events_table()


def test_old_days_are_deleted(journals: Journals) -> None:
    for day in range(6):
        journals.add([*snapshot(day + 1, "cam"), event("cam", day + 1)], written=START + day * DAY)
    journals.compact(CompactionLimits(recent=1, days=2.0), START + 5 * DAY + HOUR)
    archive = journals.open()
    assert journals.events() == [("local", 4 * day + 4) for day in (4, 5)]
    assert archive.tracks("local", START + 4 * DAY, START + 4 * DAY).changes.num_rows == 0
    coverage = [((each.begin - START) // HOUR, each.first_offset > 1) for each in archive.coverage()["local"]]
    assert coverage == [(3 * 24 + 1, True)]


def test_a_node_whose_records_are_all_deleted_has_none_of_them(journals: Journals) -> None:
    """The archive does not say that it has what it deleted."""
    journals.add([*snapshot(1, "cam"), event("cam", 1)])
    now = START + 9 * DAY
    journals.compact(CompactionLimits(recent=1, days=2.0), now)
    (left,) = journals.open().coverage()["local"]
    assert (left.begin, left.first_offset > 1, journals.events()) == (now - 2 * DAY, True, [])


def test_erasures_count_from_their_batch_on(journals: Journals) -> None:
    journals.add(erasing(LEFT))
    versions = [newest_version(journals.storage)]
    journals.compact()
    versions.append(newest_version(journals.storage))
    assert [version is not None and journals.writer.erasing(version) for version in versions] == [1, 0]


def test_tracks_begin_with_the_last_complete_snapshot(journals: Journals) -> None:
    journals.add([*snapshot(10, "cam", "dog"), track("cam", 20, 5)])
    journals.add([track("dog", 30, 6), *snapshot(40, "cam")[:-1]])
    for _ in range(2):
        tracks = journals.open().tracks("local", START + 2 * HOUR)
        assert tracks.body.entities == 2
        assert tracks.snapshot["entity"].to_pylist() == [None, "cam", "dog", None]
        assert tracks.changes["kind"].to_pylist() == ["track", "track", "snapshot", "registered"]
        assert journals.open().tracks("local", START + HOUR, START + HOUR).changes["entity"].to_pylist() == ["cam"]
        journals.compact()
    with pytest.raises(CoverageError, match="is not archived"):
        journals.open().tracks("local", START)


def test_records_that_a_node_repeated_are_read_once(journals: Journals) -> None:
    moves = [track("cam", 20, 5), track("dog", 20, 5)]
    journals.add([*snapshot(10, "cam", "dog"), *moves[:1]])
    journals.add([*moves, track("cam", 30, 6)])
    changes = journals.open().tracks("local", START + HOUR).changes
    assert changes["offset"].to_pylist() == [5, 7, 8]


def test_gaps_are_not_replayed(journals: Journals) -> None:
    journals.add(snapshot(10, "cam"))
    journals.add([Record(UNTRACKED), event("cam", 1)])
    with pytest.raises(CoverageError, match="started without the archive"):
        journals.open().tracks("local", START + HOUR)
    journals.add(snapshot(20, "cam"))
    assert journals.open().tracks("local", START + 3 * HOUR).changes.num_rows == 0
    assert journals.open().first_snapshot("local", START) == START + 2 * HOUR
    journals.records["local"].append(track("cam", 30))  # a batch that is not archived
    journals.read["local"] = len(journals.records["local"])
    journals.add([track("cam", 40)])
    assert len(journals.open().coverage()["local"]) == 2
    with pytest.raises(CoverageError, match="records of local are missing"):
        journals.open().tracks("local", START + 4 * HOUR)


def test_the_newest_event_of_a_source_is_found(journals: Journals) -> None:
    journals.add([event("cam", 2), event("cam", 1), event("dog", 1)])
    journals.compact()
    journals.add([event("dog", 2)], written=START + DAY)
    wanted = [("local", "cam"), ("local", "dog"), ("local", "elk")]
    newest = journals.open().newest_events(wanted, START + 2 * DAY)
    assert sorted(newest["id"].to_pylist()) == ["cam-2", "dog-2"]
    assert sorted(journals.open().newest_events(wanted, START + DAY)["id"].to_pylist()) == ["cam-2", "dog-1"]


def test_a_folder_without_an_archive_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no archive"):
        open_archive(tmp_path)


def test_damage_is_reported(tmp_path: Path) -> None:
    journals = Journals(new_folder(tmp_path / "data"))
    journals.add([event("cam", seq) for seq in range(1, 100)])
    journals.compact(EAGER)
    archive = open_archive(tmp_path / "data")
    file = next(file for file in archive.files() if file.kind == "events")
    path = tmp_path / "data" / file.name
    content = bytearray(path.read_bytes())
    content[40] ^= 255
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match="unreadable"):
        archive.events_table()
    (version,) = sorted((tmp_path / "data/archive/versions").iterdir())[-1:]
    version.write_bytes(b"{}")
    with pytest.raises(CorruptionError, match="unreadable"):
        open_archive(tmp_path / "data")
