"""The reference matcher: exact and plain. Faster matchers are compared with it."""

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
    """Posts the rows of a batch of events under their terms, then asks the subscriptions, many at once.

    A subscription's candidates are the events under the rarest of its terms (all events, if it names none);
    of these the box and then the other terms decide. About `pairs_at_once` candidates are looked at together,
    which bounds the memory of a call: the default takes some hundred megabytes at worst.
    """

    def __init__(self, subscriptions: Subscriptions, *, pairs_at_once: int = 1 << 20) -> None:
        self._pairs_at_once = pairs_at_once
        self._boxes = np.stack(subscriptions[:4]).astype(np.float64)
        count = self._boxes.shape[1]
        owners, terms = _flat(subscriptions.terms)
        codes = terms.dictionary_encode()
        self._code_of: Codes = {t: c for c, t in enumerate(codes.dictionary.to_pylist())}
        # Pairs (subscription, term), each once, ordered by subscription.
        width = max(len(self._code_of), 1)
        pairs = np.unique(owners * width + codes.indices.to_numpy())
        self._owner, self._term = np.divmod(pairs, width)
        self._terms_each = np.bincount(self._owner, minlength=count).astype(np.int64)
        self._first = np.cumsum(self._terms_each) - self._terms_each

    def match(self, events: Events) -> Matches:
        found = [self._decide(events, *chunk) for chunk in self._candidates(events)]
        event = np.concatenate([np.empty(0, np.int64), *(e for e, _ in found)])
        subscription = np.concatenate([np.empty(0, np.int64), *(s for _, s in found)])
        order = np.lexsort((subscription, event))
        return Matches(event[order], subscription[order])

    def _candidates(self, events: Events) -> Iterator[tuple[_Postings, Integers, Integers]]:
        """Pairs (event, subscription) that may match, a bounded number at a time."""
        postings = _post(events, self._code_of)
        everything = np.arange(len(events.x), dtype=np.int64)
        rarest = self._rarest(postings)
        # The events of all lists one after another, the list of "all events" last.
        lists = np.concatenate([postings.event, everything])
        start = np.append(postings.first, len(postings.event))[rarest]
        length = np.append(postings.length, len(everything))[rarest]
        wanted = np.flatnonzero(length)
        chunk = np.cumsum(length[wanted]) // self._pairs_at_once
        for subscriptions in np.split(wanted, np.flatnonzero(np.diff(chunk)) + 1):
            each = length[subscriptions]
            rows = np.repeat(start[subscriptions], each) + _count_up(each)
            yield postings, lists[rows], np.repeat(subscriptions, each)

    def _rarest(self, postings: _Postings) -> Integers:
        """For each subscription the term with the fewest events; without terms, the list of all events."""
        rarest = np.full(len(self._terms_each), len(postings.length), np.int64)
        named = np.flatnonzero(self._terms_each)
        if len(named):
            length = postings.length[self._term]
            fewest = np.minimum.reduceat(length, self._first[named])
            least = length == np.repeat(fewest, self._terms_each[named])
            rarest[self._owner[least]] = self._term[least]
        return rarest

    def _decide(
        self, events: Events, postings: _Postings, event: Integers, subscription: Integers
    ) -> tuple[Integers, Integers]:
        min_x, min_y, max_x, max_y = self._boxes[:, subscription]
        inside = contains(min_x, min_y, max_x, max_y, events.x[event], events.y[event])
        event, subscription = event[inside], subscription[inside]
        each = self._terms_each[subscription]
        pair = np.repeat(np.arange(len(event)), each)
        term = self._term[np.repeat(self._first[subscription], each) + _count_up(each)]
        missing = ~postings.holds(event[pair], term)
        good = np.ones(len(event), np.bool_)
        good[pair[missing]] = False
        return event[good], subscription[good]


class _Postings(NamedTuple):
    """Which events of a batch carry which term, in lists by term, each ordered by event."""

    event: Integers
    key: Integers  # term * events + event, ascending
    first: Integers  # by term: where its list begins
    length: Integers
    events: int

    def holds(self, event: Integers, term: Integers) -> npt.NDArray[np.bool_]:
        if not len(self.key):
            return np.zeros(len(event), np.bool_)
        wanted = term * self.events + event
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        found: npt.NDArray[np.bool_] = self.key[at] == wanted
        return found


def _post(events: Events, code_of: Codes) -> _Postings:
    """Terms that no subscription names are left out."""
    rows, terms = _flat(events.terms)
    distinct = terms.dictionary_encode()
    known = np.array([code_of.get(t, -1) for t in distinct.dictionary.to_pylist()], np.int64)
    codes = known[distinct.indices.to_numpy()]
    used = codes >= 0
    count = max(len(events.x), 1)
    key = np.unique(codes[used] * count + rows[used])
    length = np.bincount(key // count, minlength=len(code_of)).astype(np.int64)
    return _Postings(key % count, key, np.cumsum(length) - length, length, count)


def _flat(lists: pa.ListArray[Any]) -> tuple[Integers, pa.StringArray]:
    """Row numbers and values of all list elements; absent lists and absent elements have none."""
    rows, values = pc.list_parent_indices(lists), pc.list_flatten(lists)
    present = pc.is_valid(values)
    strings: pa.StringArray = values.filter(present).cast(pa.string())
    return rows.filter(present).to_numpy().astype(np.int64), strings


def _count_up(lengths: Integers) -> Integers:
    """0, 1, … for each length in turn: [2, 3] gives 0 1 0 1 2."""
    total = int(lengths.sum())
    return np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
