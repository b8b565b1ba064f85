"""How often one may ask."""

from __future__ import annotations

import pytest

from roamcast.errors import CapacityError
from roamcast.node.http.rate_limit import Rates


def test_so_many_a_second_and_no_more() -> None:
    """Time gives back what was used; others have their own."""
    now = [0.0]
    rates = Rates(2, clock=lambda: now[0])
    rates.check("ann")
    rates.check("ann")
    with pytest.raises(CapacityError):
        rates.check("ann")
    rates.check("ben")
    now[0] = 0.5
    rates.check("ann")
    with pytest.raises(CapacityError):
        rates.check("ann")
