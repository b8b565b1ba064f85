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
def test_parse_inverts_str(domain: str, host: str, id: str, system: str) -> None:
    """With or without a system."""
    name = Name(domain, host, id, system)
    assert Name.parse(str(name)) == name


@given(parts, parts, parts, st.just("") | parts)
def test_home_of_agrees_with_the_parsed_name(domain: str, host: str, id: str, system: str) -> None:
    name = Name(domain, host, id, system)
    assert home_of(str(name)) == name.home


def test_home_includes_the_system() -> None:
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
def test_invalid_name_raises_input_error_with_hint(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Name.parse(text)
    assert caught.value.hint


@given(st.text("ab.:-_ é", max_size=12))
def test_accepted_name_is_not_changed(text: str) -> None:
    with contextlib.suppress(InputError):
        assert str(Name.parse(text)) == text
