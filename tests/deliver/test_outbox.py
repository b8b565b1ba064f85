"""The outbox on a real folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.deliver.batch_records import FORMAT, LetterFile
from roamcast.deliver.outbox import LETTERS_SCHEMA, LetterFiles, Outbox, PipelineStatus, letter_path
from roamcast.errors import CorruptionError
from roamcast.model import Letter


def table(rows: Sequence[tuple[str, int, str]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, LETTERS_SCHEMA, strict=True)], LETTERS_SCHEMA)


@pytest.fixture
def outbox(tmp_path: Path) -> Outbox:
    return Outbox(tmp_path / "outbox")


def put_one(outbox: Outbox) -> Path:
    """A batch large enough that its pages are most of the file."""
    outbox.put("north", "pipe", 1, table([("r", n, f'{{"n": {n * 7919 % 1000}}}') for n in range(1, 301)]))
    (path,) = outbox.waiting("north")
    return path


def test_letters_come_back_in_the_order_they_were_put(outbox: Outbox) -> None:
    """An office reads what the pipeline left for it, with the pipeline as sender."""
    outbox.put("north", "pipe", 7, table([("b", 2, "{}"), ("a", 1, '"é"')]))
    (path,) = outbox.waiting("north")
    assert outbox.read(path) == [Letter("b", "pipe", 2, "{}"), Letter("a", "pipe", 1, '"é"')]


def test_a_batch_without_letters_is_a_batch(outbox: Outbox) -> None:
    """An empty batch can be put and read."""
    outbox.put("north", "pipe", 1, table([]))
    (path,) = outbox.waiting("north")
    assert outbox.read(path) == []


def test_the_lowest_batch_is_first(outbox: Outbox) -> None:
    """Batches wait in the order of their numbers, not of their digits or of being put."""
    for batch in (10, 9, 100):
        outbox.put("north", "pipe", batch, table([("r", batch, "{}")]))
    assert [outbox.read(path)[0].number for path in outbox.waiting("north")] == [9, 10, 100]


def letter_file(record: Path) -> Path:
    """The only letter file of a batch."""
    ((name, _),) = orjson.loads(record.read_bytes())["files"]
    return record.parent / "letters" / str(name)


def test_a_batch_put_again_replaces_itself(outbox: Outbox) -> None:
    """Batch N written twice waits once, as written last."""
    outbox.put("north", "pipe", 3, table([("r", 1, "first")]))
    outbox.put("north", "pipe", 3, table([("r", 1, "again")]))
    (path,) = outbox.waiting("north")
    assert [letter.body for letter in outbox.read(path)] == ["again"]


def test_offices_see_only_their_own(outbox: Outbox) -> None:
    """What waits for one office does not wait for another."""
    outbox.put("north", "pipe", 1, table([("r", 1, "{}")]))
    assert outbox.waiting("south") == []


def test_a_taken_batch_is_gone(outbox: Outbox) -> None:
    """A batch taken, even twice, waits no longer."""
    path = put_one(outbox)
    outbox.remove(path)
    outbox.remove(path)
    assert outbox.waiting("north") == []


def test_the_fullest_office_is_named(outbox: Outbox) -> None:
    """The pipeline can see which office lags most; nobody does while nothing was put."""
    assert outbox.fullest() == ("", 0)
    for batch, office in ((1, "north"), (1, "south"), (2, "south")):
        outbox.put(office, "pipe", batch, table([("r", batch, "{}")]))
    assert outbox.fullest() == ("south", 2)


def test_a_half_written_batch_is_not_seen(outbox: Outbox, tmp_path: Path) -> None:
    """What a crash leaves behind does not wait for anybody, and a later attempt removes it."""
    put_one(outbox)
    (tmp_path / "outbox" / "north" / f"{2:020d}.json.tmp").write_bytes(b"{")
    interrupted = LetterFiles(outbox.folder, "pipe", 2)
    interrupted.write("north", table([("r", 301, "{}")]))
    left, other = interrupted.close(), LetterFiles(outbox.folder, "another", 2)
    other.write("north", table([("r", 1, "{}")]))
    kept = other.close()
    assert len(outbox.waiting("north")) == 1
    outbox.put("north", "pipe", 2, table([("r", 301, "{}")]))
    paths = [letter_path(outbox.folder, file.office, file.name) for file in (*left, *kept)]
    assert [path.exists() for path in paths] == [False, True]


def attempt(outbox: Outbox, batch: int, pipeline: str = "pipe", office: str = "north") -> list[LetterFile]:
    """The files of an attempt at a batch with one letter."""
    files = LetterFiles(outbox.folder, pipeline, batch)
    files.write(office, table([("r", batch, "{}")]))
    return files.close()


def left(outbox: Outbox) -> set[str]:
    return {path.name for path in outbox.folder.glob("*/letters/*")}


def names(*attempts: list[LetterFile]) -> set[str]:
    return {file.name for files in attempts for file in files}


def test_late_attempts_are_removed_with_those_of_a_later_batch(outbox: Outbox) -> None:
    """Tasks of a batch may write files after it was committed. While its record is there, all of its files stay."""
    attempt(outbox, 1)
    first, elsewhere = attempt(outbox, 1), attempt(outbox, 1, office="a@b+c")
    outbox.commit("pipe", 1, first)
    outbox.sweep_attempts("pipe", 1, first)
    assert left(outbox) == names(first)
    late, newer, other = attempt(outbox, 1), attempt(outbox, 3), attempt(outbox, 1, "my-pipe")
    second = attempt(outbox, 2, office="south")
    outbox.commit("pipe", 2, second)
    outbox.sweep_attempts("pipe", 2, second)
    assert left(outbox) == names(first, late, newer, other, second)
    for path in outbox.waiting("north"):
        assert outbox.read(path) == [Letter("r", "pipe", 1, "{}")]
        outbox.remove(path)
    (outbox.folder / "a@b+c" / "letters" / f"{elsewhere[0].name}.x_y").write_bytes(b"half")
    outbox.sweep_attempts("pipe", 2, second)
    assert left(outbox) == names(newer, other, second)


@pytest.mark.parametrize("office", ["north", "north@b+c", "south"])
def test_letters_of_an_earlier_version_are_not_ignored(outbox: Outbox, office: str) -> None:
    """A node does not start over letters that it cannot read, also for its links. Those of others do not matter."""
    put_one(outbox)
    outbox.check("north")
    path = outbox.folder / office / f"{1:020d}-pipe.parquet"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PAR1")
    if office == "south":
        outbox.check("north")
    else:
        with pytest.raises(CorruptionError, match="earlier version") as caught:
            outbox.check("north")
        assert caught.value.where == str(path)


def test_a_record_is_gone_before_its_files(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """For good: the folder is synced in between. A crash of the machine brings back nothing that cannot be read."""
    put_one(outbox)
    (path,) = outbox.waiting("north")
    synced: list[tuple[Path, bool, int]] = []
    monkeypatch.setattr(
        "roamcast.deliver.outbox.sync_folder", lambda folder: synced.append((folder, path.exists(), len(left(outbox))))
    )
    outbox.remove(path)
    assert synced == [(path.parent, False, 1)]
    assert left(outbox) == set()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_no_record_names_is_removed_at_the_start(outbox: Outbox, is_damaged: bool) -> None:
    """By any pipeline, at any batch. If a record cannot be read, all files that it may name are kept."""
    first = attempt(outbox, 1)
    outbox.commit("pipe", 1, first)
    late = attempt(outbox, 1)
    attempt(outbox, 2)
    attempt(outbox, 7, "earlier", "south")
    (record,) = outbox.waiting("north")
    if is_damaged:
        record.write_bytes(record.read_bytes()[:-9])
    outbox.sweep()
    assert left(outbox) == (names(first, late) if is_damaged else names(first))


def test_a_batch_that_is_written_again_while_it_is_read(outbox: Outbox) -> None:
    """After a crash the pipeline writes it again, with the same letters in other files: that is no damage."""

    def write() -> None:
        attempt = []
        for receiver in "ab":
            files = LetterFiles(outbox.folder, "pipe", 1)
            files.write("north", table([(receiver, n, "{}") for n in (1, 2)]))
            attempt += files.close()
        outbox.commit("pipe", 1, attempt)
        outbox.sweep_attempts("pipe", 1, attempt)

    write()
    (path,) = outbox.waiting("north")
    reading = outbox.portions(path)
    read = next(reading)
    write()
    read += [letter for portion in reading for letter in portion]
    expected = [(receiver, n) for receiver in "ab" for n in (1, 2)]
    assert [(letter.receiver, letter.number) for letter in read] == [*expected[:2], *expected]
    assert [(letter.receiver, letter.number) for letter in outbox.read(path)] == expected


def test_letters_are_read_in_portions(outbox: Outbox) -> None:
    """A batch with very many or very large letters need not be in memory at once."""
    many = [("r", n, "{}") for n in range(1, 45_001)]
    large = [("r", n, '"' + "x" * 5_000_000 + '"') for n in range(45_001, 45_009)]
    outbox.put("north", "pipe", 1, table([*many, *large]))
    (path,) = outbox.waiting("north")
    portions = list(outbox.portions(path))
    assert [letter.number for portion in portions for letter in portion] == list(range(1, 45_009))
    assert max(map(len, portions)) <= 20_000
    assert max(sum(len(letter.body) for letter in portion) for portion in portions) <= 16 << 20


def test_a_record_with_a_flipped_bit_is_refused(outbox: Outbox) -> None:
    """It says whose letters these are."""
    path = put_one(outbox)
    content, letters = path.read_bytes(), outbox.read(path)
    for at in range(len(content)):
        broken = bytearray(content)
        broken[at] ^= 0x01
        path.write_bytes(broken)
        try:
            assert outbox.read(path) == letters
        except CorruptionError:
            continue
        pytest.fail(f"byte {at} may change")


def test_a_missing_letter_file_is_damage(outbox: Outbox) -> None:
    """The record says that it exists."""
    path = put_one(outbox)
    letter_file(path).unlink()
    with pytest.raises(CorruptionError, match="it is missing"):
        outbox.read(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("is_record", [False, True])
def test_a_truncated_file_is_corrupt(outbox: Outbox, share: float, is_record: bool) -> None:
    """A file cut off anywhere is refused with its name and a hint."""
    record = put_one(outbox)
    path = record if is_record else letter_file(record)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CorruptionError) as caught:
        outbox.read(record)
    assert caught.value.where == str(path)
    assert "from a backup" in str(caught.value.hint)  # a published batch is not written again


def test_a_flipped_bit_is_never_read_as_another_letter(outbox: Outbox) -> None:
    """A changed bit in any page is either harmless or refused: no letter comes out that was not put."""
    record = put_one(outbox)
    path = letter_file(record)
    content = path.read_bytes()
    letters = outbox.read(record)
    end_of_pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for at in range(4, end_of_pages, 7):
        broken = bytearray(content)
        broken[at] ^= 0x10
        path.write_bytes(broken)
        try:
            assert outbox.read(record) == letters
        except CorruptionError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("metadata", "content"),
    [
        ({"format": "roamcast-outbox/9"}, table([("r", 1, "{}")])),
        ({}, table([("r", 1, "{}")])),
        ({"format": FORMAT}, pa.table({"receiver": ["r"]})),
    ],
    ids=["another format", "no format", "other columns"],
)
def test_a_file_of_another_format_is_refused(outbox: Outbox, metadata: dict[str, str], content: pa.Table) -> None:
    """Only files of this very format are read."""
    path = put_one(outbox)
    pq.write_table(content.replace_schema_metadata(metadata), letter_file(path))
    with pytest.raises(CorruptionError):
        outbox.read(path)


def test_a_new_outbox_has_no_status(outbox: Outbox) -> None:
    """There is no status until a pipeline writes one."""
    assert outbox.read_status() is None


@pytest.mark.parametrize("left", [b"", b"\0" * 40])
def test_a_status_file_emptied_by_a_power_cut_counts_as_missing(outbox: Outbox, tmp_path: Path, left: bytes) -> None:
    """It is not synced, and the next batch writes it again."""
    outbox.write_status(PipelineStatus("pipe", 1, {}))
    (tmp_path / "outbox" / "status.json").write_bytes(left)
    assert outbox.read_status() is None


def test_the_format_of_the_status_is_pinned(outbox: Outbox) -> None:
    """A change of these fields needs a new version."""
    outbox.write_status(PipelineStatus("pipe", 1, {}, written_at=5))
    assert orjson.loads(outbox.status_path.read_bytes()) == {
        "format": "roamcast-outbox/7", "pipeline": "pipe", "batch": 1, "counters": {}, "metrics": {},
        "step_seconds": {}, "read_offsets": {}, "written_at": 5, "running_batch": None, "running_since": None,
        "dead_letters": 0, "dead_letters_since": None, "partitioning": None, "batches_by_jobs": 0, "batches_here": 0,
        "waiting_for_storage": None, "archive": None,
    }  # fmt: skip


def test_the_last_status_written_is_read(outbox: Outbox) -> None:
    """It has the identity, the progress and the counters of the pipeline."""
    outbox.write_status(PipelineStatus("pipe", 1, {"events": 5}))
    status = PipelineStatus("pipe", 2, {"events": 8}, {"segments": 3}, {"match": 0.5}, {"north": 9})
    outbox.write_status(status)
    assert outbox.read_status() == status


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"format": "roamcast-outbox/9", "pipeline": "p", "batch": 1, "counters": {}}',
        b'{"format": "roamcast-outbox/7", "pipeline": "p", "batch": 1, "counters": {}}',
    ],
)
def test_a_status_file_of_another_format_is_refused(outbox: Outbox, tmp_path: Path, content: bytes) -> None:
    """The error has a hint."""
    outbox.write_status(PipelineStatus("pipe", 1, {}))
    (tmp_path / "outbox" / "status.json").write_bytes(content)
    with pytest.raises(CorruptionError) as caught:
        outbox.read_status()
    assert caught.value.hint
