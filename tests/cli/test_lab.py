"""Options of `roamcast bench`."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--saturate", "--growth"], "several things to measure"),
        (["--growth", "--workers", "1"], "several things to measure"),
        (["--workers", "1,none"], "--workers"),
        (["--peers", "all"], "add --saturate"),
        (["--saturate", "--peers", "percolator,solr"], "unknown peer 'solr'.*spark-sql, percolator, tile38"),
        (["--saturate", "--subscriptions", "10,x"], "--subscriptions"),
        (["--saturate", "--letters", "1.5"], "--letters"),
        (["--saturate", "--body", "xml"], "unknown body 'xml'.*use json or arrow"),
    ],
)
def test_bad_options_of_the_pipeline_benchmark_are_refused(options: list[str], message: str) -> None:
    """Before anything starts."""
    error = CliRunner().invoke(app, ["bench", "pipeline", *options]).exception
    assert isinstance(error, InputError)
    with pytest.raises(InputError, match=message):
        raise error
