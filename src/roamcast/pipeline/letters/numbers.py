"""Numbering: pending letters get numbers, dense for each receiver."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import LINK
from roamcast.pipeline.schemas import RECEIVERS, TEXT
from roamcast.pipeline.state.lookups import Integers

__all__ = ["LastNumbers", "NumberedLetters", "journal_ranks", "number_letters", "order_letters"]


_CONTROL: Final = r"[\x00-\x1f]"

LastNumbers: TypeAlias = Callable[[pa.Array, pa.Array], Integers]
"""For offices and receivers, both in arrays of the same length: the last number of each, 0 if there is none."""


class NumberedLetters(NamedTuple):
    """Letters by office, and rows of RECEIVERS: the last number of each receiver with new letters."""

    by_office: Mapping[str, pa.Table]
    receivers: pa.Table


def order_letters(pending: pa.Table) -> pa.Table:
    """Sort pending letters as they are numbered: for each receiver by (node, offset, subscription), each once.

    Those that are `first` come before the others. The journals of a peer, which count as nodes, are in order of their
    numbers: the events of its sources are in order across them.
    A subscription that was created several times within the batch may match an event several times; one letter is left.
    """
    if not pending.num_rows:
        return pending
    codes = {name: _rank(pending[name])[0] for name in ("subscription", "receiver", "office")}
    codes["node"] = journal_ranks(pending["node"])
    offset, is_later = pending["offset"].to_numpy(), ~pc.fill_null(pending["first"], False).to_numpy()
    keys = np.stack([codes["subscription"], offset, codes["node"], is_later, codes["receiver"], codes["office"]])
    order = np.lexsort(keys)
    order = order[(np.diff(keys[:, order], prepend=-1) != 0).any(axis=0)]
    return pending.take(pa.array(order))


def number_letters(pending: pa.Table, last_numbers: LastNumbers) -> NumberedLetters:
    """Number letters that are in order. `last_numbers` are those of earlier batches."""
    if not pending.num_rows:
        return NumberedLetters({}, RECEIVERS.schema.empty_table())
    office, offices = _rank(pending["office"])
    name, _ = _rank(pending["receiver"])
    first = np.flatnonzero((np.diff(office, prepend=-1) != 0) | (np.diff(name, prepend=-1) != 0))
    count = np.diff(first, append=pending.num_rows)
    receivers = pending.select(["office", "receiver"]).take(pa.array(first)).combine_chunks()
    before = last_numbers(*(receivers.column(key).combine_chunks() for key in RECEIVERS.keys))
    numbers = np.arange(1, pending.num_rows + 1) + np.repeat(before - first, count)
    letters = pa.table({"receiver": pending["receiver"], "number": numbers, "body": _bodies(pending)})
    by_office = {name: letters.filter(pa.array(office == code)) for code, name in enumerate(offices)}
    return NumberedLetters(by_office, receivers.append_column(RECEIVERS.schema.field("last"), pa.array(before + count)))


def journal_ranks(nodes: pa.ChunkedArray) -> Integers:
    """The places of these journals in the order in which letters are numbered."""
    return _rank(nodes, _journal_order)[0]


def _rank(column: pa.ChunkedArray, key: Callable[[str], Any] = str) -> tuple[Integers, list[str]]:
    """The rank of each value among the distinct values, and these in order of their keys."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    ordered = sorted(values, key=key)
    rank = {value: code for code, value in enumerate(ordered)}
    codes = np.array([rank[value] for value in values], dtype=np.int64)
    return codes[encoded.indices.to_numpy(zero_copy_only=False)], ordered


def _journal_order(node: str) -> tuple[str, int]:
    """The journals of a link end with the number before their first event."""
    name, _, before = node.rpartition("+")
    return (name, int(before)) if name else (node, 0)


def _bodies(pending: pa.Table) -> pa.ChunkedArray:
    """The JSON that a receiver reads: the subscription, why it matched, and the event.

    For a link, the kind of the record that its node makes of it, the attributes of the source, and the event.
    """
    ids, whys = (_quote(pending[name]) for name in ("subscription", "why"))
    events = pending["event"].combine_chunks()
    bodies = _join('{"subscription":', ids, ',"why":', whys, ',"event":', events, "}")
    is_link = pc.starts_with(pending["receiver"], LINK)
    if not pc.any(is_link).as_py():
        return bodies
    attributes = pc.fill_null(pending["attributes"].combine_chunks(), "null")
    links = _join('{"kind":', whys, ',"attributes":', attributes, ',"event":', events, "}")
    return pc.if_else(is_link, links, bodies)


def _join(*pieces: str | pa.Array) -> pa.Array:
    """The texts of each row, one after the other. `pieces` are columns of them, or the same for all rows."""
    columns = [pa.scalar(piece, TEXT) if isinstance(piece, str) else piece for piece in pieces]
    return pc.binary_join_element_wise(*columns, pa.scalar("", TEXT))


def _quote(texts: pa.ChunkedArray) -> pa.Array:
    """Each text as JSON."""
    encoded = texts.combine_chunks().cast(TEXT).dictionary_encode()
    distinct = encoded.dictionary
    if pc.any(pc.match_substring_regex(distinct, _CONTROL)).as_py():
        quoted = pa.array([orjson.dumps(text).decode() for text in distinct.to_pylist()], TEXT)
    else:
        escaped = pc.replace_substring(pc.replace_substring(distinct, "\\", "\\\\"), '"', '\\"')
        quoted = _join('"', escaped, '"')
    return quoted.take(encoded.indices)
