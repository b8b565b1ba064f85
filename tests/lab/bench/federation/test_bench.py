"""The federation benchmark, small: all letters that must come do, inside a domain and between two."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from streams import running_stream

from roamcast.lab.bench.federation import bench, load
from roamcast.lab.bench.federation.bench import bench_federation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_200)]


def test_events_between_domains_make_the_same_letters(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No letter is missing, doubled or unexpected; what crosses is what is wanted, and little more."""
    for module, name, value in (
        (bench, "_SUBSCRIBERS", 2),
        (bench, "_SOURCES", 10),
        (bench, "_SINGLE", 1),
        (load, "_WARM_UP_S", 0.5),
        (load, "_BULK", 100),
    ):
        monkeypatch.setattr(module, name, value)

    figures = bench_federation(300, 100, 1.0, 200, lambda _: None, partial(running_stream, spark))
    inside, between, link = figures["rows"]
    for row in (inside, between):
        assert (row["missing"], row["doubled"], row["unexpected"]) == (0, 0, 0)
        assert row["events"] == 350
    assert link["active"] == link["subscriptions"] == 300
    assert between["wanted"] <= link["crossed"] < between["events"]
    assert link["bytes_per_event"] > 0
    assert link["wants_bytes_per_subscription"] > 0
