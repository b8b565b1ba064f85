"""Every golden text gives its golden result; the format is in `lacl_golden`."""

from __future__ import annotations

from pathlib import Path

import pytest
from lacl_golden import pairs, result

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
CASES = [(file.stem, text, wanted) for file in FILES for text, wanted in pairs(file)]


@pytest.mark.parametrize(("topic", "text", "wanted"), CASES)
def test_golden(topic: str, text: str, wanted: str) -> None:
    """A text becomes its canonical form, or exactly this error."""
    assert result(topic, text) == wanted
