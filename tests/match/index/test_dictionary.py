"""Tests of roamcast.match.index.dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peaks import peak_of
from profiles import thorough

from roamcast.match.index.dictionary import Dictionary, TermLists, encode_terms, unify_texts
from roamcast.match.kernels.texts import Texts

LISTS = st.lists(st.none() | st.lists(st.none() | st.text(max_size=20), max_size=6), max_size=12)


def words(texts: Texts) -> list[str]:
    return [bytes(texts.data[a:b]).decode() for a, b in zip(texts.start, texts.end, strict=True)]


def decoded(lists: TermLists) -> list[list[str]]:
    known = words(lists.texts)
    return [[known[c] for c in lists.code[a:b]] for a, b in zip(lists.first[:-1], lists.first[1:], strict=True)]


@given(LISTS, st.integers(0, 3), st.integers(0, 3))
@thorough()
def test_encoding_keeps_the_distinct_terms_of_each_list(lists: list[Any], skipped: int, more: int) -> None:
    """Without nulls and repetitions, from any slice of an array."""
    values = [["before"]] * skipped + lists + [["after"]] * more
    array = pa.array(values, pa.list_(pa.string())).slice(skipped, len(lists))
    expected = [list(dict.fromkeys(term for term in row or [] if term is not None)) for row in lists]
    assert decoded(encode_terms(array)) == expected


@pytest.mark.parametrize("kind", [pa.large_list(pa.string()), pa.list_(pa.large_string()), pa.list_(pa.string_view())])
def test_lists_of_other_arrow_types_are_cast(kind: pa.DataType) -> None:
    """Whatever Arrow can cast to lists of strings."""
    assert decoded(encode_terms(pa.array([["a", "b"], None, ["b"]], kind))) == [["a", "b"], [], ["b"]]


def test_dictionary_encoded_terms_are_decoded() -> None:
    """Arrow's own dictionary encoding."""
    values = pa.array(["x", "y", "x"]).dictionary_encode()
    assert decoded(encode_terms(pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), values))) == [
        ["x", "y"],
        ["x"],
    ]


def test_encoding_a_slice_costs_only_its_own_values() -> None:
    """However long the sliced array is."""
    whole = pa.array([[f"{n:x}", None] for n in range(100_000)], pa.list_(pa.string()))
    slices = [whole.slice(first, 2) for first in (0, 50_000, 99_998)]
    encode_terms(slices[0])
    lists, peak = peak_of(lambda: [decoded(encode_terms(some)) for some in slices])
    assert lists == [[["0"], ["1"]], [["c350"], ["c351"]], [["1869e"], ["1869f"]]]
    assert peak < 100_000


def test_many_terms_get_distinct_numbers() -> None:
    """The table grows with the terms."""
    terms = [f"{n:x}" for n in range(50_000)]
    lists = encode_terms(pa.array([terms, terms[::-1]], pa.list_(pa.string())))
    assert words(lists.texts) == terms
    assert lists.code.tolist() == [*range(50_000), *range(49_999, -1, -1)]


@given(st.lists(st.text(max_size=30), unique=True, max_size=50), st.lists(st.text(max_size=30), max_size=20))
@thorough()
def test_a_dictionary_finds_its_terms_and_no_others(known: list[str], others: list[str]) -> None:
    """Numbers count from 1 in the order given; -1 means unknown."""
    dictionary = Dictionary.of(encode_terms(pa.array([known], pa.list_(pa.string()))).texts)
    assert words(dictionary.texts()) == known
    terms = list(dict.fromkeys(known + others))
    found = dictionary.numbers(encode_terms(pa.array([terms], pa.list_(pa.string()))).texts)
    assert found.tolist() == [known.index(term) + 1 if term in known else -1 for term in terms]


def test_equal_terms_of_several_parts_get_one_code() -> None:
    parts = [encode_terms(pa.array([row], pa.list_(pa.string()))).texts for row in (["a", "b"], [], ["b", "c", "a"])]
    texts, codes = unify_texts(parts)
    assert words(texts) == ["a", "b", "c"]
    assert [part.tolist() for part in codes] == [[0, 1], [], [1, 2, 0]]


def test_the_seed_depends_on_all_terms() -> None:
    """Adding a term changes the hashes of all of them."""
    seeds = [Dictionary.of(encode_terms(pa.array([["a", last]])).texts).seed for last in ("b", "c")]
    assert (seeds[0] != seeds[1]).all()
    assert 0 not in np.concatenate(seeds)
