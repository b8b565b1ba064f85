"""Mailboxes: letters of the outbox are delivered exactly once and in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from nodes import LIMIT, RunningNode, bearer, files_in, in_process_node, leave, letter_body, until

from roamcast.client import Client, Letter
from roamcast.client.streams import SseEvent, SseReader
from roamcast.errors import AuthenticationError, CapacityError, InputError


def ids(letters: list[Letter]) -> list[str]:
    return [letter.event["id"] for letter in letters]


def pulled(client: Client, count: int) -> list[Letter]:
    return until(lambda: letters if len(letters := client.pull(limit=1000)) >= count else None, f"{count} letters")


@contextmanager
def stream(
    node: RunningNode, client: Client, *, batch: int | None = None, **headers: str
) -> Iterator[Iterator[SseEvent]]:
    """The events of a mailbox stream as they arrive."""

    def events(response: httpx.Response) -> Iterator[SseEvent]:
        reader = SseReader()
        for piece in response.iter_bytes():
            yield from reader.feed(piece)

    path = "/v1/mailbox/stream" if batch is None else f"/v1/mailbox/stream?batch={batch}"
    with node.http.stream("GET", path, headers={**bearer(client), **headers}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response)


def test_letters_in_repeated_batches_are_delivered_once(node: RunningNode) -> None:
    """A batch that is repeated, whole or in part, adds nothing."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    pulled(anna, 2)
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"))
    leave(node.data, 2, ("anna", 2, "b"), ("anna", 3, "c"))
    assert ids(pulled(anna, 3)) == ["a", "b", "c"]
    until(lambda: not files_in(node.data / "outbox" / "local"), "the outbox to be empty")
    assert ids(anna.pull()) == ["a", "b", "c"]


def test_letters_wait_for_earlier_ones(node: RunningNode) -> None:
    """Number 2 is held back until number 1 arrives."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 2, "b"))
    until(lambda: not files_in(node.data / "outbox" / "local"), "the batch to be taken")
    assert anna.pull() == []
    leave(node.data, 2, ("anna", 1, "a"))
    assert ids(pulled(anna, 2)) == ["a", "b"]


def test_a_letter_stays_until_it_is_acknowledged(tmp_path: Path) -> None:
    """Also over a restart. Afterwards it never comes again, not even in another batch."""
    with in_process_node(tmp_path) as node:
        anna = node.subscriber()
        leave(tmp_path, 1, ("anna", 1, "a"), ("anna", 2, "b"), ("anna", 3, "c"))
        assert anna.acknowledge(pulled(anna, 3)[1]) == 2
    with in_process_node(tmp_path) as node:
        anna = node.client(anna.token)
        assert ids(anna.pull()) == ["c"]
        leave(tmp_path, 2, ("anna", 1, "a"), ("anna", 4, "d"))
        assert ids(pulled(anna, 2)) == ["c", "d"]


def test_pull_continues_after_an_offset(node: RunningNode) -> None:
    """`after` and `limit` select; `waiting` counts all."""
    anna = node.subscriber()
    leave(node.data, 1, *(("anna", n, str(n)) for n in range(1, 6)))
    offsets = [letter.offset for letter in pulled(anna, 5)]
    answer = node.http.get("/v1/mailbox", params={"after": offsets[1], "limit": 2}, headers=bearer(anna)).json()
    assert [letter["event"]["id"] for letter in answer["letters"]] == ["3", "4"]
    assert [letter["number"] for letter in answer["letters"]] == [3, 4]
    assert answer["waiting"] == 5


def test_a_response_is_bounded_in_bytes(tmp_path: Path) -> None:
    """It has at least one letter. Pulling on gets all of them, and so does a stream."""
    large = "x" * 9000
    with in_process_node(tmp_path, limits={"pull_bytes": 8000}) as node:
        anna = node.subscriber()
        events = [str(n) for n in range(1, 61)]
        events[20] = large
        leave(tmp_path, 1, *(("anna", number, event) for number, event in enumerate(events, start=1)))
        until(lambda: anna.pull(after=59), "the last letter")
        got: list[Letter] = []
        portions = []
        while portion := anna.pull(limit=1000, after=got[-1].offset if got else 0, wait=0.01):
            portions.append(len(portion))
            got += portion
        assert ids(got) == events
        assert portions == [20, 1, 39]
        with stream(node, anna) as sent:
            assert [next(sent).id for _ in events] == [str(letter.offset) for letter in got]


def test_streams_of_a_mailbox_are_limited(tmp_path: Path) -> None:
    """429 for one too many. Other subscribers are not affected; a stream that ends makes room."""
    with in_process_node(tmp_path, limits={"streams": 2}) as node:
        anna, ben = node.subscriber(), node.subscriber("ben")
        leave(tmp_path, 1, ("anna", 1, "a"), ("ben", 1, "b"))
        with stream(node, anna) as first:
            next(first)
            with stream(node, anna) as second:
                next(second)
                with pytest.raises(CapacityError, match="2 streams"):
                    next(anna.letters())
                assert next(ben.letters(ack=False)).event["id"] == "b"
        until(lambda: "roamcast_mailbox_waiters 0.0" in node.http.get("/metrics").text, "the streams to end")
        assert next(anna.letters(ack=False)).event["id"] == "a"


def test_an_unknown_offset_cannot_be_acknowledged(node: RunningNode) -> None:
    """422. Offset 0, before the first, is always valid."""
    anna = node.subscriber()
    with pytest.raises(InputError):
        anna.acknowledge(1)
    assert anna.acknowledge(0) == 0


def test_a_long_poll_returns_when_a_letter_arrives(node: RunningNode) -> None:
    """Not only when its time is over."""
    anna = node.subscriber()
    with ThreadPoolExecutor(1) as threads:
        polling = threads.submit(anna.pull, wait=30)
        until(lambda: "roamcast_mailbox_waiters 1.0" in node.http.get("/metrics").text, "the poll to wait")
        leave(node.data, 1, ("anna", 1, "a"))
        assert ids(polling.result(LIMIT)) == ["a"]


def test_a_long_poll_times_out_empty(node: RunningNode) -> None:
    assert node.subscriber().pull(wait=0.05) == []


def test_a_stream_sends_waiting_and_new_letters(node: RunningNode) -> None:
    """Each letter with its offset as id. It acknowledges nothing."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"))
    with stream(node, anna) as events:
        first = next(events)
        leave(node.data, 2, ("anna", 2, "b"))
        second = next(events)
    assert [(e.name, e.id) for e in (first, second)] == [("letter", "1"), ("letter", "2")]
    assert '"id":"a"' in first.data
    assert ids(anna.pull()) == ["a", "b"]


def test_a_stream_resumes_after_the_last_id(node: RunningNode) -> None:
    """Without Last-Event-ID, everything unacknowledged comes again."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"), ("anna", 2, "b"), ("anna", 3, "c"))
    pulled(anna, 3)
    with stream(node, anna, **{"last-event-id": "2"}) as events:
        assert next(events).id == "3"
    anna.acknowledge(1)
    with stream(node, anna) as events:
        assert [next(events).id, next(events).id] == ["2", "3"]


def test_a_stream_can_send_many_letters_in_an_event(node: RunningNode) -> None:
    """At most `batch`, with the offset of the last as id."""
    anna = node.subscriber()
    leave(node.data, 1, *(("anna", number, str(number)) for number in range(1, 6)))
    pulled(anna, 5)
    with stream(node, anna, batch=3) as events:
        first, second = next(events), next(events)
        leave(node.data, 2, ("anna", 6, "6"))
        third = next(events)
    assert [(event.name, event.id) for event in (first, second, third)] == [
        ("letters", "3"),
        ("letters", "5"),
        ("letters", "6"),
    ]
    letters = [letter for event in (first, second, third) for letter in json.loads(event.data)]
    assert letters == node.http.get("/v1/mailbox", headers=bearer(anna)).json()["letters"]


def test_a_stream_ends_when_its_token_is_renewed(node: RunningNode) -> None:
    """At once, and without the letters that come then."""
    anna = node.subscriber()
    leave(node.data, 1, ("anna", 1, "a"))
    with stream(node, anna) as events:
        assert next(events).id == "1"
        node.operator().renew_token("anna")
        leave(node.data, 2, ("anna", 2, "b"))
        assert list(events) == []


def test_a_long_poll_returns_nothing_once_its_token_is_renewed(node: RunningNode) -> None:
    anna = node.subscriber()
    with ThreadPoolExecutor(1) as threads:
        polling = threads.submit(anna.pull, wait=30)
        until(lambda: "roamcast_mailbox_waiters 1.0" in node.http.get("/metrics").text, "the poll to wait")
        node.operator().renew_token("anna")
        leave(node.data, 1, ("anna", 1, "a"))
        with pytest.raises(AuthenticationError):
            polling.result(LIMIT)


@pytest.mark.parametrize("offset", ["x", "-1", "9" * 5000])
def test_an_invalid_last_event_id_is_refused(shared_node: RunningNode, offset: str) -> None:
    """422."""
    anna = shared_node.subscriber(f"mary-{offset[:2]}")
    headers = {**bearer(anna), "last-event-id": offset}
    assert shared_node.http.get("/v1/mailbox/stream", headers=headers).status_code == 422


def test_a_body_of_several_lines_is_one_event(node: RunningNode) -> None:
    """JSON may contain line breaks; a server-sent event may not."""
    import pyarrow as pa

    from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox

    anna = node.subscriber()
    body = "\n" + json.dumps(letter_body("a\u2028b"), indent=1, ensure_ascii=False).replace(",\n", ",\r\n") + "\n"
    row = {"receiver": "anna", "number": 1, "body": body}
    Outbox(node.data / "outbox").put("local", "p", 1, pa.Table.from_pylist([row], schema=LETTERS_SCHEMA))
    with stream(node, anna) as events:
        assert "a\u2028b" in next(events).data
    assert ids(anna.pull()) == ["a\u2028b"]


def test_open_streams_and_polls_do_not_keep_the_node_from_stopping(tmp_path: Path) -> None:
    """They end when the node stops."""
    ended = threading.Event()

    def watch(node: RunningNode, client: Client) -> None:
        with stream(node, client) as events:
            assert list(events) == []
        ended.set()

    with in_process_node(tmp_path) as node, ThreadPoolExecutor(2) as threads:
        anna = node.subscriber()
        watching = threads.submit(watch, node, anna)
        polling = threads.submit(anna.pull, wait=30)
        until(lambda: "roamcast_mailbox_waiters 2.0" in node.http.get("/metrics").text, "both to wait")
        node.stop()
        watching.result(LIMIT)
        assert polling.result(LIMIT) == []
    assert ended.is_set()
