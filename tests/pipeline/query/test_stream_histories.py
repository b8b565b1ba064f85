"""Letters of the past for new subscriptions, in the pipeline's query."""

from __future__ import annotations

from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from archives import registered, snapshot
from pyspark.sql import SparkSession
from worlds import event, journal, letters, run, subscription

from roamcast.backtest import history as backtest_history
from roamcast.backtest.history import evaluate_history
from roamcast.deliver.outbox import Outbox
from roamcast.failures import wall_time
from roamcast.journal.records import HISTORY, Record
from roamcast.journal.tracking import HistoryBody
from roamcast.pipeline.query.stream import PipelineLimits
from roamcast.pipeline.state.manifests import StateFolder

pytestmark = pytest.mark.spark

LIMITS = PipelineLimits(archive_days=1.0, evaluate_history=evaluate_history)
LACL = 'Select all() Where &location in box(-10, -10, 10, 10) and &terms has ("fire")'


def history(id: str, at: int, period: int = 3_600_000_000) -> Record:
    return Record(HISTORY, "ann", at, id, at, body=HistoryBody(LACL, period).to_json())


@pytest.mark.parametrize("driver_events", [0, 100])
def test_a_subscription_begins_with_the_past(spark: SparkSession, tmp_path: Path, driver_events: int) -> None:
    """Each event before and after it once: those of earlier batches, of its own, and of later ones; and no others."""
    limits = PipelineLimits(records=4, driver_events=driver_events, archive_days=1.0, evaluate_history=evaluate_history)
    journal(tmp_path, snapshot(5, "cam"))
    run(spark, tmp_path, limits=limits)
    journal(tmp_path, [event("cam", 1), event("cam", 2, 50.0), event("cam", 3, terms=()), event("cam", 1)])
    run(spark, tmp_path, limits=limits)
    journal(
        tmp_path,
        [
            registered("ann", 6, kind="subscriber"),
            event("cam", 4),
            history("s", wall_time()),
            subscription("s", "ann"),
            event("cam", 5),
        ],
    )
    journal(tmp_path, [event("cam", 6)])
    run(spark, tmp_path, limits=limits)
    found = letters(tmp_path)
    assert sorted(event for _, _, _, event in found) == [f"cam:{seq}" for seq in (1, 4, 5, 6)]
    assert {(receiver, subscription) for receiver, _, subscription, _ in found} == {("ann", "s")}


def test_the_past_is_sent_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the batch is repeated, and the node has journalled its records twice."""
    at = wall_time()
    journal(tmp_path, snapshot(5, "cam"), [registered("ann", 6, kind="subscriber")])
    run(spark, tmp_path, limits=LIMITS)
    journal(tmp_path, [event("cam", 1)])
    asked = [history("s", at), subscription("s", "ann")]
    journal(tmp_path, asked, [event("cam", 2), *asked])
    publish = StateFolder.publish
    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "publish", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="division"):
            run(spark, tmp_path, limits=LIMITS)
    assert StateFolder.publish is publish
    run(spark, tmp_path, limits=LIMITS)
    outbox = Outbox(tmp_path / "outbox")
    read = [one for path in outbox.waiting("local") for one in outbox.read(path)]
    sent = {(one.sender, one.number, orjson.loads(one.body)["event"]["seq"]) for one in read}
    assert sorted(seq for _, _, seq in sent) == [1, 2]


@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_cut_before_the_subscription_loses_nothing(spark: SparkSession, tmp_path: Path, records: int) -> None:
    """Though its request for the past is in an earlier batch, with events of another node; and nothing comes twice."""
    limits = PipelineLimits(records=records, archive_days=1.0, evaluate_history=evaluate_history)
    journal(tmp_path, snapshot(5, "cam"))
    run(spark, tmp_path, limits=LIMITS)
    journal(tmp_path, [event("dog@other", 1)], node="aaa")
    journal(tmp_path, [event("cam", 1), history("s", wall_time()), subscription("s", "ann"), event("cam", 2)])
    journal(tmp_path, [event("dog@other", 2)], node="aaa")
    run(spark, tmp_path, limits=limits)
    assert sorted(event for _, _, _, event in letters(tmp_path)) == ["cam:1", "cam:2", "dog@other:1", "dog@other:2"]


def test_a_history_that_fails_does_not_stop_the_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the reason: it becomes a dead letter, and the subscription is active."""

    def fail(*_: object) -> pa.Table:
        raise ZeroDivisionError("a bug")

    journal(tmp_path, [history("s", wall_time()), subscription("s", "ann"), event("cam", 1)])
    run(spark, tmp_path, limits=PipelineLimits(archive_days=1.0, evaluate_history=fail))
    status = Outbox(tmp_path / "outbox").read_status()
    assert status is not None
    assert (status.counters["dead_letters"], len(letters(tmp_path))) == (1, 1)
    assert "ZeroDivisionError" in next((tmp_path / "pipeline/dead_letters").glob("*")).read_text()


def test_a_history_has_a_most_of_events(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with more becomes a dead letter."""
    monkeypatch.setattr(backtest_history, "_MOST", 1)
    journal(tmp_path, snapshot(5, "cam"))
    run(spark, tmp_path, limits=LIMITS)
    journal(tmp_path, [event("cam", 1), event("cam", 2), history("s", wall_time()), subscription("s", "ann")])
    run(spark, tmp_path, limits=LIMITS)
    status = Outbox(tmp_path / "outbox").read_status()
    assert status is not None
    assert (status.counters["dead_letters"], letters(tmp_path)) == (1, [])


def test_a_history_without_an_archive_is_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    journal(tmp_path, [history("s", wall_time()), subscription("s", "ann"), event("cam", 1)])
    run(spark, tmp_path, limits=PipelineLimits())
    status = Outbox(tmp_path / "outbox").read_status()
    assert status is not None
    assert (status.counters["dead_letters"], len(letters(tmp_path))) == (1, 1)
