"""The matcher's port: arrays in, index pairs out. The same matcher serves the stream and files."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Events", "Matcher", "Matches", "Subscriptions"]


class Events(NamedTuple):
    """Columns of a batch of events. `terms` is list<string>; an absent list counts as empty, duplicates as one."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    terms: pa.ListArray


class Subscriptions(NamedTuple):
    """Columns of the subscriptions. No box is (-inf, -inf, inf, inf); min_x > max_x crosses the antimeridian."""

    min_x: npt.NDArray[np.float64]
    min_y: npt.NDArray[np.float64]
    max_x: npt.NDArray[np.float64]
    max_y: npt.NDArray[np.float64]
    terms: pa.ListArray


class Matches(NamedTuple):
    """One pair of row numbers for each match, ordered by event, then subscription."""

    event: npt.NDArray[np.int64]
    subscription: npt.NDArray[np.int64]


class Matcher(Protocol):
    """Built from Subscriptions. Exact: event e matches q iff e's point is in q's closed box and q.terms ⊆ e.terms."""

    def match(self, events: Events) -> Matches: ...
