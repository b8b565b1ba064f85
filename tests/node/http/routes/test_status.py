"""Health, metrics and the page."""

from __future__ import annotations

import pytest
from nodes import RunningNode, beat, leave, problems, until

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.model import iso


def metric(node: RunningNode, name: str) -> float:
    lines = node.http.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def test_health_has_the_pipelines_last_batch(node: RunningNode) -> None:
    """As in its status file."""
    written = beat(node.data, "p", 7, counters={"events": 2}, running_batch=8, running_since=1_000_000)
    health = node.http.get("/healthz").json()
    assert health == {
        "status": "ok", "problems": [], "domain": "local", "space": "geographic",
        "lag": {"records": 0, "seconds": 0.0},
        "pipeline": {
            "id": "p", "batch": 7, "counters": {"events": 2}, "written_at": iso(written.written_at),
            "running_batch": 8, "running_since": "1970-01-01T00:00:01Z", "waiting_for_storage": None,
            "partitioning": None, "archive": None,
        },
    }  # fmt: skip


def test_counters_add_up_node_and_pipeline(node: RunningNode) -> None:
    """Events accepted, letters posted, delivered and dropped, dead letters."""
    anna = node.subscriber()
    node.source().publish([{"x": 1, "y": 1}] * 3)
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    anna.acknowledge(anna.pull(wait=10)[0])
    leave(node.data, 2, ("anna", 1, "a"), ("anna", 3, "c"))
    Outbox(node.data / "outbox").write_status(PipelineStatus("p", 2, {"dead_letters": 4, "duplicates_dropped": 10}))
    until(lambda: metric(node, "roamcast_duplicates_dropped_total") == 11, "copies to be counted")
    assert metric(node, "roamcast_events_accepted_total") == 3
    assert metric(node, "roamcast_letters_posted_total") == 3
    assert metric(node, "roamcast_letters_delivered_total") == 1
    assert metric(node, "roamcast_dead_letters_total") == 4
    assert metric(node, "roamcast_journal_seconds_count") == 1


def test_metrics_have_the_pipelines_last_batch(node: RunningNode) -> None:
    """Nothing before its first status."""
    assert "roamcast_pipeline_segments" not in node.http.get("/metrics").text
    figures = {
        "postings_scanned": 30, "matches": 4, "segments": 2, "state_bytes": 5000, "moving_regions": 7, "other": 1
    }  # fmt: skip
    steps = {"control": 0.25, "match": 0.5}
    status = PipelineStatus("p", 2, {}, figures, steps, batches_by_jobs=5, batches_here=6)
    Outbox(node.data / "outbox").write_status(status)
    until(lambda: "roamcast_pipeline_segments 2.0" in node.http.get("/metrics").text, "the card to be seen")
    assert metric(node, "roamcast_pipeline_postings_scanned_per_match") == 7.5
    assert metric(node, "roamcast_pipeline_state_bytes") == 5000
    assert metric(node, "roamcast_pipeline_moving_regions") == 7
    assert metric(node, 'roamcast_pipeline_step_seconds{step="match"}') == 0.5
    assert metric(node, 'roamcast_pipeline_batches_total{by="job"}') == 5
    assert metric(node, 'roamcast_pipeline_batches_total{by="driver"}') == 6


def test_metrics_have_shards_and_categories(node: RunningNode) -> None:
    """With the worker as a label; of categories those with the most load."""
    shards = [{"worker": n, "subscriptions": 10 + n, "messages": n, "checks": 4, "matches": 1} for n in range(2)]
    categories = [{"category": n, "worker": n % 2, "size": n, "load": 2 * n} for n in range(200, 0, -1)]
    partitioning = {
        "partitioner": "drtcluster", "imbalance": 1.5, "moved": 8, "shards": shards, "categories": categories,
        "category_count": 200, "merges": 6,
    }  # fmt: skip
    beat(node.data, batch=1, partitioning=partitioning)
    until(lambda: "roamcast_pipeline_imbalance 1.5" in node.http.get("/metrics").text, "the status to be seen")
    assert metric(node, 'roamcast_pipeline_partitioner{partitioner="drtcluster"}') == 1
    assert metric(node, 'roamcast_pipeline_shard_subscriptions{worker="1"}') == 11
    assert metric(node, 'roamcast_pipeline_shard_checks{worker="0"}') == 4
    assert (metric(node, "roamcast_pipeline_moved_total"), metric(node, "roamcast_pipeline_merges_total")) == (8, 6)
    assert metric(node, "roamcast_pipeline_categories") == 200
    assert metric(node, 'roamcast_pipeline_category_load{category="200",worker="0"}') == 400
    text = node.http.get("/metrics").text
    assert text.count("roamcast_pipeline_category_size{") == 100


def test_a_damaged_batch_is_never_skipped(node: RunningNode) -> None:
    """The outbox reader stops and reports it; later batches stay in the outbox."""
    anna = node.subscriber()
    folder = node.data / "outbox" / "local"
    folder.mkdir(parents=True)
    leave(node.data, 2, ("anna", 1, "a"))
    anna.acknowledge(until(lambda: anna.pull(), "the good batch")[0])
    rubbish = folder / f"{3:020d}-p.json"
    rubbish.write_bytes(b"rubbish")
    problem = until(lambda: problems(node).get("outbox_unread"), "the problem to be reported")
    assert str(rubbish) in problem["detail"]
    leave(node.data, 4, ("anna", 2, "b"))
    assert anna.pull(wait=0.3) == []
    assert (min(folder.glob("*.json")), len(list(folder.glob("*.json")))) == (rubbish, 2)


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/static/leaflet/leaflet.js", "/docs"])
def test_the_page_and_its_files_are_served(shared_node: RunningNode, path: str) -> None:
    assert shared_node.http.get(path).status_code == 200


def test_the_page_needs_no_other_host(shared_node: RunningNode) -> None:
    """It works offline: nothing is loaded from elsewhere."""
    assert 'src="http' not in shared_node.http.get("/").text


def test_a_damaged_status_does_not_stop_letters(node: RunningNode) -> None:
    """It is reported as a problem; the next status ends it."""
    anna = node.subscriber()
    outbox = node.data / "outbox"
    outbox.mkdir()
    (outbox / "status.json").write_bytes(b"{")
    until(lambda: "outbox_unread" in problems(node), "the problem to be reported")
    leave(node.data, 1, ("anna", 1, "a"))
    assert [letter.event["id"] for letter in anna.pull(wait=20)] == ["a"]
    Outbox(outbox).write_status(PipelineStatus("p", 1, {}))
    until(lambda: not problems(node), "the node to be well again")


def test_subscriptions_bindings_and_moves_are_counted(node: RunningNode) -> None:
    """Subscriptions by state, live bindings, agents, accepted and stale moves."""
    node.source("a", x=0, y=0)
    anna = node.subscriber(x=1, y=0)
    anna.subscribe("Select Where &location in nearest", id="q")
    anna.subscribe("Select anyof() Where &context = noise and &location in rang:loc(1)", id="r")
    anna.subscribe(terms=["fire"], id="s")
    anna.move(2, 0)
    anna.move(3, 0, time="2001-01-01T00:00:00Z")
    counted = {
        'roamcast_subscriptions{state="active"}': 2,
        'roamcast_subscriptions{state="start"}': 1,
        "roamcast_bindings": 1,
        "roamcast_agents": 2,
        "roamcast_moves_accepted_total": 1,
        "roamcast_moves_stale_total": 1,
        "roamcast_move_group_seconds_count": 2,
    }
    assert {name: metric(node, name) for name in counted} == counted
