"""A weaker reading of which categories an event is sent to: cells of a category's rectangle, and any shared term."""

from __future__ import annotations

from typing import Final

import numpy as np

from roamcast.match.index.dictionary import encode_terms
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.port import Events
from roamcast.match.routing.features import hash_terms

__all__ = ["weakly_admitted"]

INTERVAL: Final = 5.0
"""Of the clustering node's grid, in degrees (section 4)."""


def weakly_admitted(cluster: DrtCluster, events: Events) -> int:
    """How many pairs of an event and a category."""
    categories = cluster.categories
    lists = encode_terms(events.terms)
    owner, hashes = np.repeat(np.arange(len(events.x)), np.diff(lists.first)), hash_terms(lists)
    cell_x, cell_y = (np.floor(np.asarray(c) / INTERVAL) for c in (events.x, events.y))
    admitted = 0
    for category in categories.live.tolist():
        rows = categories.members(category)
        spans = [np.arange(categories.rows.first[row], categories.rows.first[row + 1]) for row in rows]
        terms = np.unique(categories.rows.term[np.concatenate(spans)])
        shares = np.zeros(len(events.x), np.bool_)
        shares[owner[np.isin(hashes, terms)]] = True
        west, south, east, north = np.floor(categories.slots.box[category] / INTERVAL)
        inside = (west <= cell_x) & (cell_x <= east) & (south <= cell_y) & (cell_y <= north)
        admitted += int((shares & inside).sum())
    return admitted
