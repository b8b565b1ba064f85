"""What `roamcast up` refuses before it starts anything. That it runs is in tests/e2e/test_up.py."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scenario", "moon"), "no scenario 'moon'"),
        (("--scenario", "conference", "--domains", "2"), "needs 3 nodes"),
        (("--scenario", "conference", "--places", "mine.geojson"), "places of its own"),
    ],
)
def test_what_a_scenario_cannot_live_with_is_refused(options: tuple[str, ...], message: str) -> None:
    """With a hint what to leave out."""
    with pytest.raises(InputError, match=message) as refused:
        CliRunner().invoke(app, ["up", *options], catch_exceptions=False)
    assert refused.value.hint
