"""Plain texts mean what the parser says they mean."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lacl_queries import texts

from roamcast.lacl import parse
from roamcast.lacl.plain import PlainQuery, read_plain
from roamcast.lacl.printing import quoted
from roamcast.lacl.syntax import And, BoxRegion, Has, Inside, Select, Text, Variable
from roamcast.model import Box

spaces = st.sampled_from([" ", " ", " ", "", "  ", "\n", "\u00a0", " -- a comment\n"])
numbers = st.sampled_from(["0", "1", "-2.5", "+3.", ".5e3", "1e400", "-0", "1 m", "1_0", "x", "\u0663"])
terms = st.one_of(
    st.sampled_from(["t1", "a-b", "a--b", "a.b", "true", "and", "m", "ſ", "'q'", '"a b"', '"\\n"', '""', "3b", "ü"]),
    texts.map(quoted),
)


@st.composite
def nearly_plain(draw: st.DrawFn) -> str:
    """A text that is plain, or slightly wrong."""

    def spaced(*parts: str) -> str:
        return draw(spaces).join(parts)

    box = spaced("box", "(", ",".join(draw(st.lists(numbers, min_size=3, max_size=5))), ")")
    listed = spaced("(", ", ".join(draw(st.lists(terms, max_size=3))), ")")
    inside = f"&location {draw(st.sampled_from(['in', 'In', 'not in']))} {box}"
    has = f"&terms {draw(st.sampled_from(['has', 'HAS', 'in']))}{draw(spaces)}{listed}"
    where = draw(st.sampled_from([inside, has, f"{inside} and {has}", f"{has} and {inside}", f"{inside} or {has}"]))
    select = draw(st.sampled_from(["Select all()", "select ALL ( )", "Select anyof()", "ſelect all()"]))
    end = draw(st.sampled_from(["", "", "\n", " Every 1 s"]))
    return f"{select}{draw(spaces)}Where{draw(spaces)}{where}{end}"


@given(nearly_plain() | texts)
@example("Select all() Where &terms has (a, a)")
def test_plain_texts_are_read_as_the_parser_reads_them(text: str) -> None:
    """Others are left to it."""
    plain = read_plain(text)
    if plain is None:
        return
    query = parse(text)
    tests = []
    if plain.box is not None:
        tests.append(Inside(Variable("&", "location"), BoxRegion(plain.box)))
    if plain.terms:
        tests.append(Has(Variable("&", "terms"), tuple(map(Text, plain.terms))))
    where = And(tuple(tests)) if len(tests) > 1 else tests[0]
    assert (query.select, query.where) == (Select("all"), where)
    assert (query.on, query.every, query.life_control) == (None, None, None)


def test_what_programs_send_is_plain() -> None:
    box = Box(-1.5, 2, 3e2, 4)
    for text, expected in {
        "Select all() Where &location in box(-1.5, 2, 3e2, 4) and &terms has (t1)": PlainQuery(box, ("t1",)),
        'select all() where &location in box(-1.5,2,3e2,4) and &terms has ("a b", c)': PlainQuery(box, ("a b", "c")),
        " Select all()\nWhere &location in box(-1.5, 2, 300, 4)\n": PlainQuery(box, ()),
        'Select all() Where &terms has ("ü")': PlainQuery(None, ("ü",)),
    }.items():
        assert read_plain(text) == expected


@pytest.mark.parametrize("term", ["true", "And", "m", '"\ud800"', '"\0"', '"a\\"b"'])
def test_unusual_terms_are_left_to_the_parser(term: str) -> None:
    assert read_plain(f"Select all() Where &terms has ({term})") is None
