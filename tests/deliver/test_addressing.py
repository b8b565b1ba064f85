"""Names of subscribers."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.addressing import Name, home_of
from roamcast.errors import InputError

parts = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_:-]{0,63}", fullmatch=True)


@given(parts, parts, parts, st.just("") | parts)
def test_a_name_is_read_as_it_is_written(domain: str, host: str, id: str, system: str) -> None:
    """Parsing gives back the name, with or without a system."""
    name = Name(domain, host, id, system)
    assert Name.parse(str(name)) == name


@given(parts, parts, parts, st.just("") | parts)
def test_the_home_is_told_by_the_name_alone(domain: str, host: str, id: str, system: str) -> None:
    """The quick way to the home agrees with the parsed name."""
    name = Name(domain, host, id, system)
    assert home_of(str(name)) == name.home


def test_the_home_of_a_name_with_a_system_is_in_that_system() -> None:
    """Equal domains of two systems are two homes."""
    assert Name.parse("harbour.north.pier.ann").home == "harbour.north"
    assert Name.parse("north.pier.ann").home == "north"


WRONG = (
    "",
    "ann",
    "north.ann",
    "a.b.c.d.e",
    "..",
    "north..ann",
    ".north.pier.ann",
    "a.b.c\n",
    "é.b.c",
    "-a.b.c",
    "a.b. c",
)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_name_is_refused(text: str) -> None:
    """With an error that says what a name looks like."""
    with pytest.raises(InputError) as caught:
        Name.parse(text)
    assert caught.value.hint


@given(st.text("ab.:-_ é", max_size=12))
def test_what_is_accepted_is_written_back_letter_by_letter(text: str) -> None:
    """Nothing is mended."""
    with contextlib.suppress(InputError):
        assert str(Name.parse(text)) == text
