"""Times as text mean the same to Arrow as to the models."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.node.columns.arrays import NO_TIME, read_times
from roamcast.node.schemas import micros

TIMES = [
    "2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5+05:30", "2026-01-31T12:00+0530", "2026-01-31T12Z",
    "20260131T120000Z", "2026-W05-6T12:00Z", "2026-01-31T12:00:00.1234567-14:00", "2026-01-31T23:59:60Z",
    "0000-01-01T00:00:00Z", "2024-02-29T24:00:00Z", "2026-01-31T12:00:00+23:59", "2026-01-31T12:00:00",
    "9999-12-31T23:59:59-00:01",
]  # fmt: skip


@st.composite
def almost_times(draw: st.DrawFn) -> str:
    """Times of which some characters are changed, added or missing."""
    text = list(draw(st.sampled_from(TIMES)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text) - 1))
        text[at : at + draw(st.integers(0, 1))] = draw(st.sampled_from(["", *"0123459TZ:-+. W"]))
    return "".join(text)


@given(text=almost_times())
def test_times_as_text_equal_the_reference(text: str) -> None:
    try:
        expected = micros(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011 - what kind does not matter
            read_times(pa.array([text, None]))
    else:
        assert read_times(pa.array([text, None])).tolist() == [expected, NO_TIME]
