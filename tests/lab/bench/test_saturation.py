"""The benchmark of the whole path, in small."""

from __future__ import annotations

import pytest

from roamcast.errors import InputError
from roamcast.lab.bench.saturation import SaturationLoad, bench_saturation, body_format

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_every_letter_of_a_saturated_path_is_read_once() -> None:
    """The benchmark checks each letter, and says how many are missing."""
    (row,) = bench_saturation([SaturationLoad(600, 3, seconds=1.0, warm_up_s=1.0)], lambda _: None)["rows"]
    assert row["missing"] == 0
    assert row["letters"] > row["events"] * 2.9 > 0
    assert min(row["lag_p50_ms"], row["node_mb"], row["java_mb"]) > 0


def test_unknown_bodies_are_refused() -> None:
    """With the known ones."""
    with pytest.raises(InputError, match=r"unknown body 'xml'.*use json or arrow"):
        body_format("xml")
