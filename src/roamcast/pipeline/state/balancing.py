"""Which cuts the next batch begins with, by what a batch matched."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.rows import index_rows, sample_evenly
from roamcast.match.partitioners.cuts import LoadSample
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.pipeline.state.indexing import wanted_by
from roamcast.pipeline.state.lookups import Integers, Lookups
from roamcast.pipeline.state.shards import Partition

__all__ = ["UNEVEN", "balanced"]

UNEVEN: Final = 1.2
"""The load of the busiest worker, beside the mean, from which on subscriptions move."""
_SAMPLE: Final = 20_000  # matches, and subscriptions
_DOUBT: Final = 3.0  # standard deviations of the events that a worker had in a sample: so far it may mislead
_PLACED: Final = ("handle", "min_x", "min_y", "max_x", "max_y", "terms", "around")


def balanced(partition: Partition, sifted: pa.Table, subscriptions: Lookups, uneven: float = UNEVEN) -> Partition:
    """With the cuts of the next batch, if the load is `uneven`. `sifted` has SIFTED_SCHEMA.

    Other cuts are a little better with every sample, and each time much would move for it.
    """
    pairs = sifted["subscriptions"].combine_chunks()
    some = sample_evenly(len(pairs.flatten()), _SAMPLE)
    event = np.repeat(np.arange(len(pairs)), pc.list_value_length(pairs).to_numpy())[some]
    place, still = _places(subscriptions, pairs.flatten().to_numpy()[some])
    held, _ = _places(subscriptions, subscriptions.some(_SAMPLE))
    looks, workers = LoadSample.of_candidates(event[still], place), len(partition.shares)
    each = max(len(np.unique(looks.event)), 1) / workers
    if partition.cuts.imbalance(workers, looks, held) < uneven * (1 + _DOUBT / np.sqrt(each)):
        return partition
    cuts = partition.cuts.rebalance(workers, looks, held)
    return partition if cuts == partition.cuts else partition._replace(planned=cuts)


def _places(subscriptions: Lookups, numbers: Integers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Of the rows with these numbers, but for regions that move; and which of them those are."""
    rows = subscriptions.take(numbers, _PLACED)
    still = pc.is_null(rows["around"])
    rows = rows.filter(still)
    return curve_keys_of_rows(index_rows(rows["handle"].to_numpy(), wanted_by(rows))), still.to_numpy()
