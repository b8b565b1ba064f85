"""Labels are ordered as the ids are, whatever is added and removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.nearest.id_order import IdOrder
from roamcast.errors import ConflictError


def assert_ordered(ids: list[str], label: np.ndarray) -> None:
    by_label = [ids[handle] for handle in np.argsort(label[: len(ids)], kind="stable")]
    assert by_label == sorted(ids)
    assert len(set(label[: len(ids)].tolist())) == len(ids)


@given(st.lists(st.lists(st.text(max_size=3), max_size=80), max_size=6))
def test_labels_are_ordered_as_ids(batches: list[list[str]]) -> None:
    """Batches large and small, in any order."""
    order, ids, label = IdOrder(), list[str](), np.zeros(600, np.int64)
    for batch in batches:
        new = list(dict.fromkeys(id for id in batch if id not in ids))
        order.add(new, range(len(ids), len(ids) + len(new)), label)
        ids += new
    assert_ordered(ids, label)


def test_there_is_always_a_label_between_two_ids() -> None:
    """Each new id sorts directly before the last one, a hundred times."""
    order, label = IdOrder(), np.zeros(200, np.int64)
    ids = ["a", "b"]
    order.add(ids, [0, 1], label)
    for n in range(100):
        ids.append("a" + "a" * (100 - n))
        order.add(ids[-1:], [len(ids) - 1], label)
    assert_ordered(ids, label)


def test_an_id_in_use_is_refused_until_it_is_removed() -> None:
    """Also an id that is repeated in a batch."""
    order, label = IdOrder(), np.zeros(4, np.int64)
    order.add(["a"], [0], label)
    for ids in (["a"], ["b", "b"]):
        with pytest.raises(ConflictError):
            order.check(ids)
    order.remove(0)
    order.check(["a"])
