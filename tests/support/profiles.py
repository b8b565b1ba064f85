"""How many examples hypothesis tries, relative to the loaded profile.

`tests/conftest.py` defines the profiles: `suite` for `make test`, `soak` for `make soak`. A test that needs more or
fewer examples than the profile says so with one of these, so that both profiles scale all tests alike.
"""

from __future__ import annotations

from hypothesis import settings


def thorough(*, longer: int = 1) -> settings:
    """Three times the examples: models of a whole component, and kernels with many special cases.

    `longer` multiplies the steps of a state machine whose states take many steps to reach.
    """
    return _scaled(3.0, longer)


def extensive() -> settings:
    """Six times the examples: each one is cheap, and rare coincidences matter."""
    return _scaled(6.0, 1)


def brief() -> settings:
    """A quarter of the examples: each one is expensive, or only varies a model that is tested thoroughly elsewhere."""
    return _scaled(0.25, 1)


def _scaled(factor: float, longer: int) -> settings:
    profile = settings()
    return settings(
        max_examples=round(factor * profile.max_examples), stateful_step_count=longer * profile.stateful_step_count
    )
