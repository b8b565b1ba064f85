"""Names of subscribers, from the ids that they register."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.deliver.addressing import Name, SubscriberNames
from roamcast.errors import InputError

ids = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", fullmatch=True)


@given(id=ids)
def test_an_id_has_a_distinct_name(id: str) -> None:
    """It is valid and gives the id back; or the id is refused."""
    names = SubscriberNames("north")
    if "_:" in id:
        with pytest.raises(InputError, match="_:"):
            names.check(id)
    else:
        names.check(id)
        assert str(Name.parse(names.of(id))) == names.of(id)
        assert names.id_of(names.of(id)) == id


def test_similar_ids_have_distinct_names() -> None:
    """A dot is not an underscore."""
    names = SubscriberNames("north")
    assert len({names.of(id) for id in ("a.b", "a_b", "a:b", "a-b")}) == 4


def test_a_name_of_another_domain_has_no_id_here() -> None:
    """Nor has one of another host."""
    assert [SubscriberNames("north").id_of(name) for name in ("south.node.ann", "north.pier.ann")] == [None, None]
