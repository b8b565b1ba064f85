"""Health: each problem is reported while it lasts, with its beginning."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from backbone import backbone
from nodes import RunningNode, bearer, beat, in_process_node, leave, problems, running_node, until

from roamcast.deliver.outbox import Outbox
from roamcast.journal.records import FORWARDED, Record
from roamcast.journal.writer import FileJournal
from roamcast.model import iso

HOUR = 3_600_000_000


def now() -> int:
    return time.time_ns() // 1_000


def age_of(at: int) -> float:
    """Seconds since `at`."""
    return (now() - at) / 1_000_000


def moment(text: str) -> float:
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with in_process_node(tmp_path) as node:
        yield node


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a file system is not permitted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_pipeline_that_was_never_started_is_a_problem(tmp_path: Path) -> None:
    """Since the start of the node. It is live and ready all the same. The first heartbeat ends it."""
    before = time.time()
    with in_process_node(tmp_path) as node:
        (problem,) = problems(node).values()
        assert (problem["kind"], "no pipeline" in problem["detail"]) == ("no_pipeline", True)
        assert before <= moment(problem["since"]) <= time.time()
        assert node.http.get("/healthz/live").status_code == 200
        assert node.http.get("/healthz/ready").status_code == 200
        time.sleep(0.05)
        assert problems(node)["no_pipeline"] == problem
        beat(tmp_path)
        assert problems(node) == {}


def test_a_silent_pipeline_is_a_problem(node: RunningNode) -> None:
    """Since its last heartbeat, with its last batch and the one that was running. An idle one is none."""
    beat(node.data)
    assert problems(node) == {}
    last = now() - HOUR
    beat(node.data, batch=7, written_at=last, running_batch=8, running_since=last - HOUR)
    problem = problems(node)["no_pipeline"]
    assert problem["since"] == iso(last)
    silent = re.search(r"silent for (\d+) s, after batch 7; batch 8 has been running since", problem["detail"])
    assert silent is not None
    assert 3600 <= int(silent[1]) <= age_of(last) + 1
    beat(node.data)
    assert problems(node) == {}


def test_a_pipeline_with_a_clock_ahead_is_not_alive_for_longer(tmp_path: Path) -> None:
    """What counts is when the node saw the status, if that is earlier."""
    with in_process_node(tmp_path, pipeline_silence=5.0) as node:
        before = now()
        beat(tmp_path, written_at=before + HOUR)
        assert problems(node) == {}
        heartbeat_age = node.service.health.heartbeat_age()
        assert heartbeat_age is not None
        assert 0 <= heartbeat_age <= age_of(before)
        until(lambda: "no_pipeline" in problems(node), "the pipeline to be missed")


def age(path: Path, seconds: float) -> int:
    """Make a file look older; returns its time in microseconds."""
    at = time.time_ns() - round(seconds * 1_000_000_000)
    os.utime(path, ns=(at, at))
    return at // 1_000


def journal_with_old_segments(data: Path, *ages: float) -> list[int]:
    """A journal with one segment of two records for each age; returns the times of the segments."""
    with in_process_node(data) as node:
        source = node.source()
        for _ in ages:
            source.publish([{"x": 1, "y": 1}] * 2)
    segments = sorted((data / "journal" / "local").glob("*.parquet"))
    return [age(segment, seconds) for segment, seconds in zip(segments, ages, strict=True)]


def test_records_that_wait_for_the_pipeline_are_a_problem(tmp_path: Path) -> None:
    """With their number and the age of the oldest, since it was journalled. Young ones are none."""
    old, _ = journal_with_old_segments(tmp_path, 1000, 0)
    with in_process_node(tmp_path, lag=500) as node:
        beat(tmp_path, read_offsets={"local": 1})
        problem = problems(node)["pipeline_lag"]
        assert problem["since"] == iso(old)
        waiting = re.match(r"3 records wait for the pipeline, the oldest for (\d+) s", problem["detail"])
        assert waiting is not None
        assert 1000 <= int(waiting[1]) <= age_of(old) + 1
        lag = node.http.get("/healthz").json()["lag"]
        assert lag["records"] == 3
        assert 1000 < lag["seconds"] <= age_of(old)
        beat(tmp_path, read_offsets={"local": 2})
        assert node.http.get("/healthz").json()["lag"]["records"] == 2
        assert problems(node) == {}
        beat(tmp_path, read_offsets={"local": 4})
        assert node.http.get("/healthz").json()["lag"] == {"records": 0, "seconds": 0.0}


def test_events_that_came_over_a_link_count_as_lag(tmp_path: Path) -> None:
    """They are in a journal of their own."""
    name = "south+0123abcd+7"
    journal = FileJournal(tmp_path / "journal", name)
    journal.append([Record(FORWARDED, "cam@south", seq, str(seq), 0, 1.0, 1.0) for seq in (1, 2)]).result()
    journal.close()
    (segment,) = (tmp_path / "journal" / name).glob("*.parquet")
    old = age(segment, 1000)
    with in_process_node(tmp_path, lag=500) as node:
        beat(tmp_path)
        assert problems(node)["pipeline_lag"]["since"] == iso(old)
        assert node.http.get("/healthz").json()["lag"]["records"] == 2
        beat(tmp_path, read_offsets={name: 2})
        assert problems(node) == {}
        assert node.http.get("/healthz").json()["lag"] == {"records": 0, "seconds": 0.0}


def test_lag_begins_with_its_first_record(tmp_path: Path) -> None:
    """While the pipeline is behind, its progress does not make the problem younger."""
    first, *_ = journal_with_old_segments(tmp_path, 1000, 900, 800)
    with in_process_node(tmp_path) as node:
        for read, unread in ((0, 6), (2, 4), (5, 1)):
            beat(tmp_path, read_offsets={"local": read})
            problem = problems(node)["pipeline_lag"]
            assert (problem["since"], problem["detail"].split()[0]) == (iso(first), str(unread))


def test_lag_grows_while_the_pipeline_reads_nothing(tmp_path: Path) -> None:
    """Until it does."""
    with in_process_node(tmp_path, lag=1.0) as node:
        beat(tmp_path)
        node.source().publish({"x": 1, "y": 1})
        until(lambda: "pipeline_lag" in problems(node), "the lag to be reported")
        beat(tmp_path, read_offsets={"local": 1})
        assert problems(node) == {}


def test_a_peer_that_has_stopped_is_a_problem(tmp_path: Path) -> None:
    """Since its last response. It ends when the peer is back, or when it is removed."""
    with backbone(tmp_path, "north", "south", silence=3.0) as nodes:
        north, south = nodes["north"], nodes["south"]
        beat(north.data)
        until(lambda: not problems(north), "the node to be well")

        def respond() -> str | None:
            """When it last responded, if the link with it does not fail either."""
            (peer,) = north.http.get("/v1/offices").json()["offices"]
            return None if north.service.links.failures() else peer["last_response_at"]

        response = until(respond, "a response")
        south.stop()
        problem = until(lambda: problems(north).get("peer_down"), "the peer to be missed")
        assert problem["detail"].startswith("south does not respond")
        assert moment(response) <= moment(problem["since"]) <= time.time() - 2.0  # not the time when it was missed
        assert north.http.get("/healthz/ready").status_code == 200
        with running_node(south.data, domain="south", silence=3.0):
            until(lambda: "peer_down" not in problems(north), "the peer to be back")
        until(lambda: "peer_down" in problems(north), "the peer to be missed again")
        north.operator().expel("south")
        until(lambda: "peer_down" not in problems(north), "the peer to be forgotten")


def test_a_journal_that_refuses_is_a_problem(node: RunningNode) -> None:
    """Also before the first append. Then the node is not ready. It ends without any request."""
    headers, folder = bearer(node.source()), node.data / "journal" / "local"
    beat(node.data)
    folder.rename(folder.with_name("away"))
    problem = problems(node)["journal_refusing"]
    assert str(folder) in problem["detail"]
    assert node.http.post("/v1/events", json={"x": 1, "y": 1}, headers=headers).status_code == 507
    assert problems(node)["journal_refusing"]["since"] == problem["since"]
    answer = node.http.get("/healthz/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
    assert [each["kind"] for each in answer.json()["problems"]] == ["journal_refusing"]
    assert node.http.get("/healthz/live").status_code == 200
    folder.with_name("away").rename(folder)
    until(lambda: not problems(node), "the journal to be written again")
    assert node.http.get("/healthz/ready").status_code == 200


def test_a_full_disk_is_several_problems(small_disk: Path) -> None:
    """Space is low, and journal and registry refuse what they get. All end once there is space."""
    with in_process_node(small_disk / "data", min_free=3_000_000) as node:
        source = node.source()
        beat(node.data)
        assert problems(node) == {}
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):  # noqa: PT012
            while file.write(bytes(4096)):
                pass
        assert "disk_low" in problems(node)
        event = {"x": 1, "y": 1}
        assert node.http.post("/v1/events", json=event, headers=bearer(source)).status_code == 507
        big = {"id": "big", "attributes": {str(n): "x" * 900 for n in range(60)}}
        until(lambda: node.http.post("/v1/sources", json=big).status_code == 507, "the registry to be full")
        assert {"disk_low", "journal_refusing", "registry_refusing"} <= problems(node).keys()
        filler.unlink()
        beat(node.data)
        until(lambda: not problems(node), "the node to be well")
        assert node.http.post("/v1/events", json=event, headers=bearer(source)).status_code == 202


def test_letters_that_are_not_read_are_a_problem(node: RunningNode) -> None:
    """If a batch waits in the outbox for too long, whatever the reason."""
    beat(node.data)
    node.service.outbox_reader.stop()
    leave(node.data, 1, ("anna", 1, "a"))
    assert problems(node) == {}
    outbox = Outbox(node.data / "outbox")
    since = age(outbox.waiting("local")[0], 100)
    problem = problems(node)["outbox_unread"]
    assert (problem["since"], problem["detail"][:20]) == (iso(since), "1 batches of letters")
    outbox.remove(outbox.waiting("local")[0])
    assert problems(node) == {}


def test_dead_letters_are_a_problem(node: RunningNode) -> None:
    """Since the oldest, until the pipeline reports none."""
    since = now() - HOUR
    beat(node.data, dead_letters=2, dead_letters_since=since)
    problem = problems(node)["dead_letters"]
    assert problem["detail"].startswith("2 records could not be processed")
    assert problem["since"] == iso(since)
    beat(node.data)
    assert problems(node) == {}


def test_metrics_have_lag_and_heartbeat(node: RunningNode) -> None:
    """The age is NaN until there is a pipeline."""

    def metric(name: str) -> str:
        lines = node.http.get("/metrics").text.splitlines()
        return next(line.split()[1] for line in lines if line.startswith(f"roamcast_{name} "))

    assert (metric("pipeline_heartbeat_age_seconds"), metric("problems")) == ("NaN", "1.0")
    published, written = now(), now() - 5_000_000
    node.source().publish([{"x": 1, "y": 1}] * 3)
    beat(node.data, read_offsets={"local": 1}, written_at=written)
    assert metric("pipeline_lag_records") == "2.0"
    assert 0 <= float(metric("pipeline_lag_seconds")) <= age_of(published)
    assert 5 <= float(metric("pipeline_heartbeat_age_seconds")) <= age_of(written)


def test_a_pipeline_that_does_not_archive_is_a_problem_of_a_node_that_does(tmp_path: Path) -> None:
    archive = {"problem": None, "problem_since": None}
    with in_process_node(tmp_path, archive=True) as node:
        beat(node.data)
        assert "does not archive" in problems(node)["archive"]["detail"]
        archive |= {"nodes": {}, "files": 0, "recent": 0, "bytes": 0, "erasing": 0}
        beat(node.data, archive=archive)
        assert problems(node) == {}
    with in_process_node(tmp_path) as node:
        assert "no tracks" in problems(node)["archive"]["detail"]


def test_an_archive_that_is_not_compacted_is_a_problem(node: RunningNode) -> None:
    counts = {"nodes": {}, "files": 0, "recent": 9, "bytes": 0, "erasing": 0}
    beat(node.data, archive={**counts, "problem": "the disk is full", "problem_since": 5_000_000})
    problem = problems(node)["archive"]
    assert (problem["since"], problem["detail"]) == (iso(5_000_000), "the archive: the disk is full")
