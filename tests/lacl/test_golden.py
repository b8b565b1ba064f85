"""Golden files: `lacl_golden` describes the format."""

from __future__ import annotations

from pathlib import Path

import pytest
from lacl_golden import pairs, result

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))
CASES = [(file.stem, text, expected) for file in FILES for text, expected in pairs(file)]


@pytest.mark.parametrize(("topic", "text", "expected"), CASES)
def test_golden(topic: str, text: str, expected: str) -> None:
    """The result is the canonical form or this error."""
    assert result(topic, text) == expected
