"""Parts: immutable, checksummed files that hold rows of the tables of the state.

A table is a stack of parts, oldest first. Each batch adds at most one part; the merge policy of `roamcast.lsm` keeps
stacks short.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import storage_errors, sync_folder, write_atomic
from roamcast.errors import CorruptionError
from roamcast.lsm import first_to_merge
from roamcast.pipeline.schemas import KEY_HASH, StateTable
from roamcast.pipeline.state.hashing import hash_rows

__all__ = ["FORMAT", "RESTORE_HINT", "Obsolete", "Part", "PartFolder", "newest_rows"]

FORMAT: Final = "roamcast-part/9"
RESTORE_HINT: Final = "restore the whole pipeline folder, or start a new pipeline with --new"

_RATIO: Final = 2

Obsolete: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Returns which rows of a table may be deleted. It is given the newest row of each key."""


class Part(NamedTuple):
    """A file named by the checksum of its content."""

    checksum: str
    rows: int

    @property
    def name(self) -> str:
        return f"{self.checksum}.arrow"


class PartFolder:
    """Parts by checksum. Reading verifies the checksum."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, table: StateTable, rows: pa.Table) -> Part:
        """Write a part durably. The same rows make the same part.

        Rows are sorted by the table's `order`, or by the hash of the key. Of shared texts only those in use are
        written, each once.
        """
        sink = pa.BufferOutputStream()
        schema = table.stored.with_metadata(_metadata(table))
        ordered = _sort(table, rows.select(table.schema.names).cast(table.schema).combine_chunks())
        ordered = ordered.replace_schema_metadata(schema.metadata)
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(_drop_unused_texts(ordered))
        content = sink.getvalue()
        part = Part(hashlib.sha256(content).hexdigest(), rows.num_rows)
        path = self.folder / part.name
        if not path.exists():
            write_atomic(path, memoryview(content), shared=True)  # by other attempts at the same task
        else:  # perhaps from an attempt that was interrupted before its name was durable
            with storage_errors(path):
                sync_folder(self.folder)
        return part

    def read(self, table: StateTable, part: Part) -> pa.Table:
        """The rows of a part, mapped into memory: the processes of a host share one copy. Raises CorruptionError.

        The columns are those that are stored. What is not looked at is not mapped, so the file is verified before.
        """
        path = self.folder / part.name
        with storage_errors(path):
            try:
                with path.open("rb") as file:
                    checksum = hashlib.file_digest(file, "sha256").hexdigest()
            except FileNotFoundError as error:
                raise CorruptionError("a part of the state is missing", where=str(path), hint=RESTORE_HINT) from error
            if checksum != part.checksum:
                raise CorruptionError("a part of the state is damaged", where=str(path), hint=RESTORE_HINT)
            rows = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if rows.schema.metadata != _metadata(table) or not rows.schema.equals(table.stored):
            raise CorruptionError(f"not a {FORMAT} part of {table.name}", where=str(path), hint=RESTORE_HINT)
        return rows.replace_schema_metadata(None)

    def read_all(self, table: StateTable, parts: Sequence[Part]) -> pa.Table:
        """The newest row of each key, in a fixed order."""
        names = table.schema.names
        tables = [table.schema.empty_table(), *(self.read(table, part).select(names) for part in parts)]
        return newest_rows(table, pa.concat_tables(tables))

    def push(
        self,
        table: StateTable,
        parts: tuple[Part, ...],
        rows: pa.Table,
        obsolete: Obsolete | None = None,
        *,
        largest: float = math.inf,
    ) -> tuple[Part, ...]:
        """Return the stack with `rows` on top, merged as by `merge`."""
        if not rows.num_rows:
            return parts
        return self.merge(table, (*parts, self.write(table, rows)), obsolete, largest=largest)

    def merge(
        self,
        table: StateTable,
        stack: tuple[Part, ...],
        obsolete: Obsolete | None = None,
        *,
        largest: float = math.inf,
    ) -> tuple[Part, ...]:
        """Merge a stack as the policy says, unless that makes a part of more than `largest` rows.

        Then the policy is applied to what is above the lowest part that it would merge: so a part of nearly this size
        is not written again for a few rows. If all parts are merged, `obsolete` rows are deleted: there is no older row
        that they would uncover.
        """
        sizes = [part.rows for part in stack]
        first = first_to_merge(sizes, ratio=_RATIO)
        while sum(sizes[first:]) > largest:
            first += 1 + first_to_merge(sizes[first + 1 :], ratio=_RATIO)
        if first == len(stack):
            return stack
        merged = self.read_all(table, stack[first:])
        if first == 0 and obsolete is not None:
            merged = merged.filter(pa.array(~obsolete(merged)))
        return (*stack[:first], *([self.write(table, merged)] if merged.num_rows else []))

    def sweep(self, keep: frozenset[str]) -> None:
        """Delete all files except those with these names."""
        with storage_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name not in keep:
                    path.unlink(missing_ok=True)


def newest_rows(table: StateTable, rows: pa.Table) -> pa.Table:
    """The last row of each key, sorted by the table's `order` if it has one, else in the order of `rows`."""
    if not rows.num_rows:
        return rows
    if table.order is not None and not rows[table.order].null_count:
        numbers = rows[table.order].to_numpy()
        order = np.argsort(numbers, kind="stable")
        return rows.take(pa.array(order[np.append(np.diff(numbers[order]) != 0, True)])).combine_chunks()
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for key in table.keys:
        column = rows.column(key).combine_chunks().dictionary_encode()
        codes = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)
    last: npt.NDArray[np.int64] = np.zeros(codes.max() + 1, dtype=np.int64)
    np.maximum.at(last, codes, np.arange(rows.num_rows))
    return rows.take(pa.array(np.sort(last))).combine_chunks()


def _metadata(table: StateTable) -> dict[bytes, bytes]:
    return {b"format": FORMAT.encode(), b"table": table.name.encode()}


def _sort(table: StateTable, rows: pa.Table) -> pa.Table:
    if table.shard_by:
        hashes = hash_rows([rows.column(key).combine_chunks() for key in table.keys])
        order = np.argsort(hashes, kind="stable")
        return rows.take(pa.array(order)).append_column(table.stored.field(KEY_HASH), pa.array(hashes[order]))
    if table.order is None or not rows.num_rows:
        return rows
    numbers = rows[table.order]
    if not numbers.null_count and (np.diff(numbers.to_numpy()) > 0).all():
        return rows
    return rows.take(pc.sort_indices(numbers)).combine_chunks()


def _drop_unused_texts(rows: pa.Table) -> pa.Table:
    """Remove the entries of dictionaries that no row uses. `rows` are in one chunk."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and rows.num_rows:
            column = rows.column(number).combine_chunks()
            used = pc.unique(column.indices).drop_null()
            indices = pc.index_in(column.indices, used)
            rows = rows.set_column(number, field, pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used)))
    return rows
