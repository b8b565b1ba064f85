"""What a segment holds: arrays, in memory as in its file."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["LAST", "Body"]

LAST: Final = 1 << 31


class Body(NamedTuple):
    """Rows are subscriptions, in an order that suits the search; `handle` says which. Terms are numbered from 1.

    A row's *wish* is what a search needs at once, one after another in `wish`: the number of the row times two, plus
    one if it is residual; then its terms, the one it is posted under first, 0 if it has none, LAST added to the last.
    The dictionary is `text` to `seed` (see `dictionary`), the grid `scale` to `cell_at` (see `grid`), what is posted in
    its cells `cell_first` to `posting` (see `kernels.postings`).
    """

    handle: npt.NDArray[np.int64]
    box: npt.NDArray[np.float64]  # min_x, min_y, max_x, max_y of each row
    wish: npt.NDArray[np.uint32]
    termless: npt.NDArray[np.bool_]  # of one element: whether any row has no terms
    text: npt.NDArray[np.uint8]
    text_first: npt.NDArray[np.uint32]
    slots: npt.NDArray[np.uint32]
    seed: npt.NDArray[np.uint64]
    scale: npt.NDArray[np.float64]  # by level
    wraps: npt.NDArray[np.bool_]
    curve: npt.NDArray[np.float64]  # of its one scale: events ordered along the Z-order curve at it are searched fast
    table_first: npt.NDArray[np.int64]  # where the level's hash table of cells begins; its size is a power of two
    cell_key: npt.NDArray[np.uint64]
    cell_at: npt.NDArray[np.int32]  # the number of the cell in a slot, or -1
    cell_first: npt.NDArray[np.uint32]  # by cell: its first word
    word: npt.NDArray[np.uint64]
    rank: npt.NDArray[np.uint32]
    start: npt.NDArray[np.uint32]
    posting: npt.NDArray[np.uint64]
