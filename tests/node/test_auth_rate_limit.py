"""Rate limits."""

from __future__ import annotations

import pytest

from roamcast.errors import CapacityError
from roamcast.node.auth import RateLimiter


def test_requests_are_limited_per_caller() -> None:
    """Time refills the bucket; callers do not share one."""
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
