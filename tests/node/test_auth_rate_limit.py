"""How often one may ask."""

from __future__ import annotations

import pytest

from roamcast.errors import CapacityError
from roamcast.node.auth import RateLimiter


def test_so_many_a_second_and_no_more() -> None:
    """Time gives back what was used; others have their own."""
    now = [0.0]
    rate_limiter = RateLimiter(2, clock=lambda: now[0])
    rate_limiter.check("ann")
    rate_limiter.check("ann")
    with pytest.raises(CapacityError):
        rate_limiter.check("ann")
    rate_limiter.check("ben")
    now[0] = 0.5
    rate_limiter.check("ann")
    with pytest.raises(CapacityError):
        rate_limiter.check("ann")
