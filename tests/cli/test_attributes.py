"""Attributes as texts."""

from __future__ import annotations

import pytest

from roamcast.cli.attributes import parse_attributes
from roamcast.errors import InputError

VALUES = {
    "12": 12, "-2": -2, "0": 0, "2.5": 2.5, "1e3": 1000.0, "-0.5E-2": -0.005, "true": True, "false": False,
    "00123": "00123", "+5": "+5", ".5": ".5", "1_000": "1_000", "0x10": "0x10", "True": "True", "": "", "１": "１",
    '"00123"': "00123", '"12"': "12", '"true"': "true", '"say \\"hi\\""': 'say "hi"', '""': "", "null": "null",
    "noise": "noise", "9007199254740991": 9007199254740991, '"nan"': "nan",
}  # fmt: skip


def test_attribute_values_are_parsed() -> None:
    """Numbers and booleans as in JSON; everything else is a string, and so is everything quoted."""
    parsed = {value: parse_attributes([f"a={value}"])["a"] for value in VALUES}
    assert parsed == VALUES
    assert [type(value) for value in parsed.values()] == [type(value) for value in VALUES.values()]


@pytest.mark.parametrize(
    "value", ["nan", "NaN", "inf", "-inf", "Infinity", "1e999", "9007199254740993", '"open', '"a"b']
)
def test_values_that_cannot_be_stored_are_refused(value: str) -> None:
    """The error names the option and the attribute, and suggests quotes."""
    with pytest.raises(InputError, match="quote") as error:
        parse_attributes([f"zip={value}"])
    assert error.value.where == "--attribute zip"
