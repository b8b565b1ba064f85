"""Conditions of subscriptions beyond box and terms: as a table, what events need for them, and their test.

The test is the one of the pipeline, on events of data frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.bodies import decode_condition
from roamcast.lacl.syntax import Between, Compare, Condition, Has, In, Inside, Leaf, Literal, Number, Text, leaves
from roamcast.match.index.index import Candidates, Index
from roamcast.match.port import Events, Matches
from roamcast.pipeline.tasks.event_columns import CONTEXT, EventColumns, satisfy_subscriptions

__all__ = [
    "CONDITIONS",
    "NO_NEEDS",
    "Needs",
    "condition_table",
    "have_conditions",
    "matches_of",
    "needs_of",
    "needs_of_conditions",
]

_TEXTS: Final = pa.dictionary(pa.int32(), pa.string())

CONDITIONS: Final = pa.schema(
    [("circle", pa.list_(pa.float64())), ("area", _TEXTS), ("source", _TEXTS), ("on", _TEXTS), ("space", _TEXTS)]
)
"""A row for each subscription, see SubscriptionBody. Null is no condition; only circles need a space."""


class Needs(NamedTuple):
    """What conditions test: names of readings, and attributes with the kinds of values that they are compared with.

    `plain`: some condition tests the reading that has the name of the source's context. Attributes have this `sigil`.
    `terms`: some query tests terms.
    """

    readings: frozenset[str] = frozenset()
    plain: bool = False
    attributes: Mapping[str, frozenset[str]] = MappingProxyType({})
    sigil: str = "&"
    terms: bool = False


NO_NEEDS: Final = Needs()


def condition_table(space: str, circle: Sequence[Sequence[float] | None], **texts: Sequence[str | None]) -> pa.Table:
    """Rows of CONDITIONS. `texts` are columns by name, null by default; conditions are encoded."""
    circles = pa.array(circle, CONDITIONS.field("circle").type)
    columns = {name: pa.array(texts.get(name, [None] * len(circle)), pa.string()) for name in ("area", "source", "on")}
    columns["space"] = pa.array([space] * len(circle), pa.string())
    encoded = (columns[name].dictionary_encode() for name in CONDITIONS.names[1:])
    return pa.table([circles, *encoded], CONDITIONS)


def have_conditions(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each row has a condition."""
    has = np.zeros(table.num_rows, np.bool_)
    for name in ("circle", "area", "source", "on"):
        has |= pc.is_valid(table[name]).to_numpy()
    return has


def needs_of(table: pa.Table) -> Needs:
    """What the conditions of a table need of events."""
    texts = (pc.unique(table[name].cast(pa.string())).drop_null().to_pylist() for name in ("on", "source"))
    on, source = ([decode_condition(text) for text in each] for each in texts)
    return needs_of_conditions(on, source)


def needs_of_conditions(on: Iterable[Condition], entity: Iterable[Condition], sigil: str = "&") -> Needs:
    """What conditions on readings, and on a source or subscriber, need."""
    attributes: dict[str, frozenset[str]] = {}
    entity = [*entity]
    for test in (test for condition in entity for test in leaves(condition)):
        if not isinstance(test, Has | Inside) and test.variable.name is not None:
            known = attributes.get(test.variable.name, frozenset())
            attributes[test.variable.name] = known | {_kind(value) for value in _values(test)}
    readings = {test.variable.name for condition in on for test in leaves(condition)}
    if None in readings:
        attributes[CONTEXT] = attributes.get(CONTEXT, frozenset()) | {"text"}
    terms = any(isinstance(test, Has) for condition in entity for test in leaves(condition))
    return Needs(frozenset(filter(None, readings)), None in readings, attributes, sigil, terms)


def _values(test: Leaf) -> Sequence[Literal]:
    match test:
        case Compare(_, _, value):
            return (value,)
        case Between(_, low, high):
            return low, high
        case In(_, values):
            return values
        case _:
            return ()


def _kind(value: Literal) -> str:
    return "text" if isinstance(value, Text) else "number" if isinstance(value, Number) else "boolean"


def matches_of(index: Index, conditions: pa.Table, points: Events, columns: EventColumns) -> Iterator[Matches]:
    """Yield the matches of a batch in chunks, at least one. `conditions` has the row of each handle."""
    for candidates in index.candidates(points):
        yield _test(candidates, conditions, columns)


def _test(candidates: Candidates, conditions: pa.Table, columns: EventColumns) -> Matches:
    matched = ~candidates.residual
    untested = np.flatnonzero(candidates.residual)
    if len(untested):
        rows, inverse = np.unique(candidates.subscription[untested], return_inverse=True)
        table = conditions.take(pa.array(rows))
        matched[untested] = satisfy_subscriptions(columns, candidates.event[untested], table, inverse)
    return Matches(candidates.event[matched], candidates.subscription[matched])
