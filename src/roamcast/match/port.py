"""The port of matchers: columns in, pairs of row numbers out. Streams and files use the same matcher."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Events", "Matcher", "Matches", "Subscriptions"]


class Events(NamedTuple):
    """Columns of a batch of events. `terms` is list<string>; a null list counts as empty, repeated terms as one."""

    x: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    terms: pa.ListArray


class Subscriptions(NamedTuple):
    """Columns of subscriptions. Without a region the box is (-inf, -inf, inf, inf).

    A box with min_x > max_x crosses the antimeridian.
    """

    min_x: npt.NDArray[np.float64]
    min_y: npt.NDArray[np.float64]
    max_x: npt.NDArray[np.float64]
    max_y: npt.NDArray[np.float64]
    terms: pa.ListArray


class Matches(NamedTuple):
    """Pairs, one for each match: the row of the event, and the row or handle of the subscription. Ordered by both."""

    event: npt.NDArray[np.int64]
    subscription: npt.NDArray[np.int64]


class Matcher(Protocol):
    """Matches events with the subscriptions it was built from.

    Exact: an event matches if its point is in the closed box and it has all terms of the subscription.
    """

    def match(self, events: Events) -> Matches: ...
