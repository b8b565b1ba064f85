"""What users see of a partitioned index: its shards, their load, and what the partitioner did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from roamcast.pipeline.query.batch_state import BatchResult

__all__ = ["partitioning_status"]


def partitioning_status(result: BatchResult) -> Mapping[str, Any] | None:
    """The shards after a batch as JSON; None if the index is replicated.

    For each shard the `subscriptions` it holds, and of this batch the `messages` it received, the `checks` it made and
    the `matches` it found. `imbalance` is the load of the busiest shard (messages and checks) relative to the mean.
    `moved` counts subscriptions that went to another shard. With `drtcluster` there are also the categories.
    """
    sharded = result.manifest.index.sharded
    if sharded is None or result.policy is None:
        return None
    load = result.load.of_shards
    counts = np.zeros((len(sharded.shards), 3), np.int64)
    counts[load.worker] = np.stack(load[2:], axis=1)
    work = counts[:, :2].sum(axis=1)
    shards = [
        {
            "worker": worker,
            "subscriptions": sum(segment.live for segment in shard.stack),
            **dict(zip(("messages", "checks", "matches"), counts[worker].tolist(), strict=True)),
        }
        for worker, shard in enumerate(sharded.shards)
    ]
    imbalance = float(work.max() / work.mean()) if work.any() else 1.0
    return {**result.policy.describe(), "shards": shards, "imbalance": imbalance, "moved": sharded.moved}
