"""The reference matcher: exact and simple. Tests compare faster matchers with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.port import Events, Matches, Subscriptions
from roamcast.space import contains

__all__ = ["ReferenceMatcher"]

Integers: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = dict[Any, int]  # a term's number


class ReferenceMatcher:
    """Lists the events of a batch by term, then tests each subscription against a list.

    The candidates of a subscription are the events with its rarest term, or all events if it has no terms. They are
    tested for the box, then for the other terms. About `pairs_at_once` candidates are tested together, which bounds the
    memory of a call: some hundred megabytes with the default.
    """

    def __init__(self, subscriptions: Subscriptions, *, pairs_at_once: int = 1 << 20) -> None:
        self._pairs_at_once = pairs_at_once
        self._boxes = np.stack(subscriptions[:4]).astype(np.float64)
        count = self._boxes.shape[1]
        owners, terms = _flatten(subscriptions.terms)
        codes = terms.dictionary_encode()
        self._code_of: Codes = {t: c for c, t in enumerate(codes.dictionary.to_pylist())}
        # Pairs (subscription, term), each once, ordered by subscription.
        width = max(len(self._code_of), 1)
        pairs = np.unique(owners * width + codes.indices.to_numpy())
        self._owner, self._term = np.divmod(pairs, width)
        self._term_count = np.bincount(self._owner, minlength=count).astype(np.int64)
        self._first = np.cumsum(self._term_count) - self._term_count

    def match(self, events: Events) -> Matches:
        parts = [self._filter(events, *chunk) for chunk in self._candidates(events)]
        event = np.concatenate([np.empty(0, np.int64), *(e for e, _ in parts)])
        subscription = np.concatenate([np.empty(0, np.int64), *(s for _, s in parts)])
        order = np.lexsort((subscription, event))
        return Matches(event[order], subscription[order])

    def _candidates(self, events: Events) -> Iterator[tuple[_EventsByTerm, Integers, Integers]]:
        """Yield pairs (event, subscription) that may match, a bounded number at a time."""
        postings = _list_by_term(events, self._code_of)
        all_events = np.arange(len(events.x), dtype=np.int64)
        rarest = self._rarest(postings)
        # The lists of all terms, followed by the list of all events.
        lists = np.concatenate([postings.event, all_events])
        start = np.append(postings.first, len(postings.event))[rarest]
        length = np.append(postings.length, len(all_events))[rarest]
        nonempty = np.flatnonzero(length)
        chunk = np.cumsum(length[nonempty]) // self._pairs_at_once
        for subscriptions in np.split(nonempty, np.flatnonzero(np.diff(chunk)) + 1):
            lengths = length[subscriptions]
            rows = np.repeat(start[subscriptions], lengths) + _count_up(lengths)
            yield postings, lists[rows], np.repeat(subscriptions, lengths)

    def _rarest(self, postings: _EventsByTerm) -> Integers:
        """Return the term of each subscription with the fewest events; without terms, the list of all events."""
        rarest = np.full(len(self._term_count), len(postings.length), np.int64)
        with_terms = np.flatnonzero(self._term_count)
        if len(with_terms):
            length = postings.length[self._term]
            fewest = np.minimum.reduceat(length, self._first[with_terms])
            least = length == np.repeat(fewest, self._term_count[with_terms])
            rarest[self._owner[least]] = self._term[least]
        return rarest

    def _filter(
        self, events: Events, postings: _EventsByTerm, event: Integers, subscription: Integers
    ) -> tuple[Integers, Integers]:
        min_x, min_y, max_x, max_y = self._boxes[:, subscription]
        inside = contains(min_x, min_y, max_x, max_y, events.x[event], events.y[event])
        event, subscription = event[inside], subscription[inside]
        count = self._term_count[subscription]
        pair = np.repeat(np.arange(len(event)), count)
        term = self._term[np.repeat(self._first[subscription], count) + _count_up(count)]
        missing = ~postings.contain(event[pair], term)
        matched = np.ones(len(event), np.bool_)
        matched[pair[missing]] = False
        return event[matched], subscription[matched]


class _EventsByTerm(NamedTuple):
    """The events of a batch in lists by term, each ordered by event."""

    event: Integers
    key: Integers  # term * events + event, ascending
    first: Integers  # by term: the start of its list
    length: Integers
    events: int

    def contain(self, event: Integers, term: Integers) -> npt.NDArray[np.bool_]:
        if not len(self.key):
            return np.zeros(len(event), np.bool_)
        key = term * self.events + event
        at = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        contained: npt.NDArray[np.bool_] = self.key[at] == key
        return contained


def _list_by_term(events: Events, code_of: Codes) -> _EventsByTerm:
    """List events by term, without terms that no subscription has."""
    rows, terms = _flatten(events.terms)
    distinct = terms.dictionary_encode()
    known = np.array([code_of.get(t, -1) for t in distinct.dictionary.to_pylist()], np.int64)
    codes = known[distinct.indices.to_numpy()]
    used = codes >= 0
    count = max(len(events.x), 1)
    key = np.unique(codes[used] * count + rows[used])
    length = np.bincount(key // count, minlength=len(code_of)).astype(np.int64)
    return _EventsByTerm(key % count, key, np.cumsum(length) - length, length, count)


def _flatten(lists: pa.ListArray[Any]) -> tuple[Integers, pa.StringArray]:
    """Return the row numbers and values of all list elements, without nulls."""
    rows, values = pc.list_parent_indices(lists), pc.list_flatten(lists)
    valid = pc.is_valid(values)
    strings: pa.StringArray = values.filter(valid).cast(pa.string())
    return rows.filter(valid).to_numpy().astype(np.int64), strings


def _count_up(lengths: Integers) -> Integers:
    """Count from 0 for each length: [2, 3] gives 0 1 0 1 2."""
    total = int(lengths.sum())
    return np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
