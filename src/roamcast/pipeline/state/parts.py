"""The parts of a state: immutable, checksummed files, each a few rows of one table.

A table is a stack of parts, oldest first. Each batch adds at most one part; neighbours of like size are merged, so that
a stack stays logarithmic in its rows and a row is rewritten a logarithmic number of times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import storage_errors, sync_folder, write_atomic
from roamcast.errors import CorruptionError
from roamcast.pipeline.schemas import Table

__all__ = ["FORMAT", "Ended", "Part", "PartFolder", "newest_rows"]

FORMAT = "roamcast-part/6"

Ended: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]
"""Which rows of a table need not be kept: each the newest of its key."""


class Part(NamedTuple):
    """A file named by the checksum of its content."""

    checksum: str
    rows: int

    @property
    def name(self) -> str:
        return f"{self.checksum}.arrow"


class PartFolder:
    """Parts by checksum. Reading verifies; what does not verify is never used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, table: Table, rows: pa.Table) -> Part:
        """Durable when it returns. The same rows make the same part; they lie in the order of the table, if it has one.

        Texts that rows share are written once, and those of no row not at all.
        """
        sink = pa.BufferOutputStream()
        schema = table.schema.with_metadata(_metadata(table))
        laid_out = _in_order(table, rows.select(schema.names).cast(schema).combine_chunks())
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(_compact(laid_out))
        content = sink.getvalue()
        part = Part(hashlib.sha256(content).hexdigest(), rows.num_rows)
        path = self.folder / part.name
        if not path.exists():
            write_atomic(path, memoryview(content))
        else:  # perhaps from a try that was cut off before its name was durable
            with storage_errors(path):
                sync_folder(self.folder)
        return part

    def read(self, table: Table, part: Part) -> pa.Table:
        """The rows, mapped into memory: the processes of a host share one copy."""
        path = self.folder / part.name
        hint = "restore the whole pipeline folder, or start a new pipeline with --new"
        with storage_errors(path):
            try:
                empty = not path.stat().st_size  # which cannot be mapped
                content = pa.py_buffer(b"") if empty else pa.memory_map(str(path)).read_buffer()
            except FileNotFoundError as error:
                raise CorruptionError("a part of the state is missing", where=str(path), hint=hint) from error
        if hashlib.sha256(content).hexdigest() != part.checksum:
            raise CorruptionError("a part of the state is damaged", where=str(path), hint=hint)
        rows = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        if rows.schema.metadata != _metadata(table) or not rows.schema.equals(table.schema):
            raise CorruptionError(f"not a {FORMAT} part of {table.name}", where=str(path), hint=hint)
        return rows.replace_schema_metadata(None)

    def read_all(self, table: Table, parts: Sequence[Part]) -> pa.Table:
        """The rows in force, each key once, in a fixed order; ended ones are among them."""
        if not parts:
            return table.schema.empty_table()
        return newest_rows(table, pa.concat_tables([self.read(table, part) for part in parts]))

    def push(
        self, table: Table, parts: tuple[Part, ...], rows: pa.Table, ended: Ended | None = None
    ) -> tuple[Part, ...]:
        """The stack with `rows` on top, merged where neighbours are of like size.

        Where a merge reaches the bottom, rows that have `ended` are left out: nothing below needs their word.
        """
        if not rows.num_rows:
            return parts
        stack = [*parts, self.write(table, rows)]
        first = len(stack) - 1
        weight = stack[first].rows
        while first and stack[first - 1].rows <= 2 * weight:
            first -= 1
            weight += stack[first].rows
        if first == len(stack) - 1:
            return tuple(stack)
        merged = self.read_all(table, stack[first:])
        if first == 0 and ended is not None:
            merged = merged.filter(pa.array(~ended(merged)))
        return (*stack[:first], *([self.write(table, merged)] if merged.num_rows else []))

    def sweep(self, keep: frozenset[str]) -> None:
        """Remove the parts that nobody refers to."""
        with storage_errors(self.folder):
            for path in self.folder.iterdir():
                if path.name not in keep:
                    path.unlink(missing_ok=True)


def _metadata(table: Table) -> dict[bytes, bytes]:
    return {b"format": FORMAT.encode(), b"table": table.name.encode()}


def _in_order(table: Table, rows: pa.Table) -> pa.Table:
    if table.order is None or not rows.num_rows:
        return rows
    numbers = rows[table.order]
    if not numbers.null_count and (np.diff(numbers.to_numpy()) > 0).all():
        return rows
    return rows.take(pc.sort_indices(numbers)).combine_chunks()


def _compact(rows: pa.Table) -> pa.Table:
    """Without the shared texts that no row has. `rows` are in one chunk."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type) and rows.num_rows:
            column = rows.column(place).combine_chunks()
            used = pc.unique(column.indices).drop_null()
            indices = pc.index_in(column.indices, used)
            few = pa.DictionaryArray.from_arrays(indices, column.dictionary.take(used))
            rows = rows.set_column(place, field, few)
    return rows


def newest_rows(table: Table, rows: pa.Table) -> pa.Table:
    """Of rows with equal keys the last one, in the order of the last ones, or in that of the table, if it has one."""
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
