"""Addressing: events go to the shards of their receivers, in rows that are not too large."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.journal.bodies import LINK
from roamcast.pipeline.letters import by_source
from roamcast.pipeline.letters.by_source import address_matches
from roamcast.pipeline.letters.context import LetterContext, ShardTables
from roamcast.pipeline.schemas import BINDINGS, MATCHED_SCHEMA, SUBSCRIPTIONS
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.tasks.context import MatchContext

Row = dict[str, Any]


def tables(folder: Path, subscriptions: Sequence[Row], bindings: Sequence[Row] = ()) -> ShardTables:
    """With rows that are numbered as they come."""
    parts = PartFolder(folder)
    stacks = [
        (parts.write(table, pa.Table.from_pylist([{**row, "since": n, "handle": n} for n, row in rows], table.schema)),)
        for table, rows in ((SUBSCRIPTIONS, enumerate(subscriptions)), (BINDINGS, enumerate(bindings)))
    ]
    context = LetterContext(MatchContext(folder, 1, subscriptions=stacks[0], bindings=stacks[1]))
    return ShardTables(context, parts, [0])


def events(*rows: Mapping[str, Any]) -> pa.Table:
    """By default the n-th has offset n, and no matches."""
    plain = {"node": "local", "home": "local", "entity": "cam", "subscriptions": [], "bindings": []}
    return pa.Table.from_pylist([{**plain, "offset": n, **row} for n, row in enumerate(rows)], MATCHED_SCHEMA)


_wanted = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30)), max_size=60)  # (receiver, id)


@given(
    wanted=st.tuples(_wanted, _wanted),  # by subscriptions, and by bindings
    sizes=st.lists(st.none() | st.integers(0, 300), min_size=1, max_size=3),
    shards=st.integers(1, 3),
    data=st.data(),
)
def test_matches_are_divided_if_they_are_too_many(
    wanted: Sequence[list[tuple[int, int]]],
    sizes: list[int | None],
    shards: int,
    data: st.DataObject,
) -> None:
    """In letters or in bytes: by receiver, and then by subscription. What is numbered first is in the lower bucket."""
    rows = [[{"node": "local", "subscriber": f"r{name}", "id": f"s{id}"} for name, id in each] for each in wanted]
    lists = [
        [data.draw(st.lists(st.sampled_from(range(len(each))), unique=True)) if each else [] for each in rows]
        for _ in sizes
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_source, "LARGEST_PORTION", 8)
        patch.setattr(by_source, "LARGEST_TEXT", 1_000)
        texts = [None if size is None else "x" * size for size in sizes]
        matched = [
            {"event": text, "subscriptions": one, "bindings": two}
            for text, (one, two) in zip(texts, lists, strict=True)
        ]
        found = address_matches(events(*matched), tables(Path(folder), *rows), shards).to_pylist()
    count: Counter[tuple[int, int]] = Counter()
    in_order = defaultdict[tuple[int, str], list[tuple[int, str]]](list)
    for row in sorted(found, key=lambda row: row["bucket"]):
        most = max(1, min(8, 1_000 // max(1, sizes[row["offset"]] or 0)))
        matches = [rows[n][m] for n, name in enumerate(("subscriptions", "bindings")) for m in row[name]]
        copies = Counter((one["subscriber"], one["id"]) for one in matches)
        assert 1 <= len(matches) < most + max(most, *copies.values())
        assert row["event"] == texts[row["offset"]]
        for one in matches:
            assert shards_of([pa.array([one["subscriber"]])], shards)[0] == row["shard"]
            in_order[row["offset"], one["subscriber"]].append((row["bucket"], one["id"]))
        count[row["offset"], row["shard"]] += len(matches)
    for row in found:
        most = max(1, min(8, 1_000 // max(1, sizes[row["offset"]] or 0)))
        assert row["bucket"] == 1 or count[row["offset"], row["shard"]] > most
    for pairs in in_order.values():
        assert all(bucket <= other for bucket, id in pairs for other, later in pairs if id <= later)
    assert sum(count.values()) == sum(len(each) for both in lists for each in both)


def test_a_link_gets_an_event_once_however_often_it_wants_it(tmp_path: Path) -> None:
    """Only events of sources of its node. In a row of its own, which alone has the attributes of the source."""
    link = LINK + "f" * 32
    wants = [{"node": "local", "subscriber": link, "id": f"w{n}"} for n in range(500)]
    wants += [{"node": "west", "subscriber": link, "id": f"w{n}"} for n in range(500)]
    wants += [{"node": "local", "subscriber": "ann", "id": "s"}]
    both = {"event": "{}", "attributes": '{"kind":"lamp"}', "subscriptions": list(range(1_001))}
    found = address_matches(events(both, {**both, "home": "south"}), tables(tmp_path, wants), 1).to_pylist()
    assert [(row["offset"], row["subscriptions"], row["attributes"]) for row in found] == [
        (0, [0], '{"kind":"lamp"}'), (0, [1_000], None), (1, [1_000], None),
    ]  # fmt: skip
