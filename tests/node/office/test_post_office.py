"""Several nodes: subscribers move between them and send letters to each other."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backbone import backbone, leave_event, visitor
from nodes import RunningNode, running_node, until

from roamcast.client import Letter
from roamcast.errors import AuthenticationError, ConflictError, ElsewhereError, NotFoundError

ANN = "north.node.ann"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[dict[str, RunningNode]]:
    with backbone(tmp_path, "north", "south", "west") as nodes:
        yield nodes


def events(letters: list[Letter]) -> list[str]:
    return [letter.event["id"] for letter in letters]


def test_letters_follow_a_client_to_another_node(nodes: dict[str, RunningNode]) -> None:
    """Waiting and new ones, each once and in order; offsets continue."""
    ann = nodes["north"].subscriber("ann")
    leave_event(nodes["north"], "north", 1, "ann", 1, 2, 3)
    assert events(ann.pull(wait=10)) == ["1", "2", "3"]
    ann.acknowledge(1)
    there = visitor(nodes["south"], ANN, ann.token)
    assert [(letter.offset, letter.event["id"]) for letter in there.pull()] == [(2, "2"), (3, "3")]
    leave_event(nodes["north"], "north", 2, "ann", 4)
    assert events(there.pull(after=3, wait=10)) == ["4"]
    assert there.acknowledge(4) == 3


def test_a_mailbox_follows_from_office_to_office_and_home(nodes: dict[str, RunningNode]) -> None:
    """Subscriptions stay at home."""
    ann = nodes["north"].subscriber("ann")
    leave_event(nodes["north"], "north", 1, "ann", 1)
    for domain in ("south", "west", "south", "north", "west"):
        ann.migrate(nodes[domain].url)
        assert events(ann.pull(wait=10)) == ["1"]
        assert ann.subscribe(terms=["fire"], id="q") == "q"
    leave_event(nodes["north"], "north", 2, "ann", 2)
    assert events(ann.pull(after=1, wait=10)) == ["2"]


def test_bookkeeping_larger_than_a_request_migrates(nodes: dict[str, RunningNode]) -> None:
    """Over 8 MB of last numbers to many receivers, and a waiting letter."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
    ben.send(ANN, "precious")
    north, south = (nodes[domain].service.office.actor for domain in ("north", "south"))
    sent = {f"south.{'h' * 250}.{at}-{'i' * 240}": at for at in range(1, 17_000)}
    north.query(lambda store: store.put_bookkeeping(ANN, replace(store.bookkeeping(ANN), sent=sent))).result()
    ann.migrate(nodes["south"].url)
    assert [letter.message for letter in ann.pull()] == ["precious"]
    assert south.query(lambda store: store.bookkeeping(ANN).sent).result() == sent


def test_the_previous_office_says_where_the_mailbox_is(nodes: dict[str, RunningNode]) -> None:
    """With the epoch. The token given there opens nothing."""
    ann = nodes["north"].subscriber("ann")
    first = visitor(nodes["south"], ANN, ann.token)
    first.pull()
    second = visitor(nodes["west"], ANN, ann.token)
    assert second.pull() == []
    for _ in range(2):
        with pytest.raises(ElsewhereError):
            first.pull()
    headers = {"authorization": f"Bearer {ann.token}"}
    answer = nodes["north"].http.get("/v1/mailbox", headers=headers)
    assert answer.status_code == 409

    def home_error() -> dict[str, Any] | None:
        error: dict[str, Any] = nodes["north"].http.get("/v1/mailbox", headers=headers).json()["error"]
        return error if error["office"] == "west" else None

    error = until(home_error, "the home to hear of it")
    assert (error["code"], error["epoch"]) == ("elsewhere", 3)


def test_reading_at_home_fetches_the_mailbox_back(nodes: dict[str, RunningNode]) -> None:
    """A program that knows nothing of the migration just reads at home."""
    ann = nodes["north"].subscriber("ann")
    visitor(nodes["south"], ANN, ann.token).pull()
    leave_event(nodes["north"], "north", 1, "ann", 1)
    again = nodes["north"].client(ann.token)
    assert events(again.pull(wait=10)) == ["1"]
    visitor(nodes["south"], ANN, ann.token).pull()
    assert next(nodes["north"].client(ann.token).letters(ack=False)).event["id"] == "1"
    visitor(nodes["south"], ANN, ann.token).pull()
    with pytest.raises((AuthenticationError, ElsewhereError)):
        again.pull()


def test_a_stream_ends_when_the_mailbox_moves(nodes: dict[str, RunningNode]) -> None:
    """It says where to, and the stream of the other office continues."""
    ann = nodes["north"].subscriber("ann")
    leave_event(nodes["north"], "north", 1, "ann", 1)
    at_home = ann.letters(ack=False)
    assert next(at_home).event["id"] == "1"
    there = visitor(nodes["south"], ANN, ann.token).letters(ack=False)
    assert next(there).event["id"] == "1"
    with pytest.raises(ElsewhereError):
        next(at_home)
    leave_event(nodes["north"], "north", 2, "ann", 2)
    assert next(there).event["id"] == "2"


def test_subscribers_send_letters_to_each_other(nodes: dict[str, RunningNode]) -> None:
    """By name across domains, by id within one; in order; wherever they are."""
    ann, cleo = nodes["north"].subscriber("ann"), nodes["north"].subscriber("cleo")
    ben = nodes["south"].subscriber("ben")
    assert ann.send("south.node.ben", {"text": "hello"}, title="first").number == 1
    assert ann.send("cleo", "near").receiver == "north.node.cleo"
    (letter,) = ben.pull(wait=10)
    assert (letter.sender, letter.number, letter.title, letter.message) == (ANN, 1, "first", {"text": "hello"})
    assert [letter.message for letter in cleo.pull(wait=10)] == ["near"]
    ann.migrate(nodes["west"].url)
    ben.migrate(nodes["north"].url)
    for number in range(2, 6):
        assert ann.send("south.node.ben", number).number == number
    got = until(lambda: letters if len(letters := ben.pull(after=1)) == 4 else None, "four letters")
    assert [letter.message for letter in got] == [2, 3, 4, 5]


def test_a_letter_can_be_traced(nodes: dict[str, RunningNode]) -> None:
    """Readable, then acknowledged."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["south"].subscriber("ben")
    ann.send("south.node.ben", "hello")
    ben.pull(wait=10)
    until(lambda: ann.trace("south.node.ben", 1).state == "readable", "the letter to be there")
    ben.acknowledge(1)
    assert ann.trace("south.node.ben", 1).state == "acknowledged"
    ann.send("south.node.nobody", "hello?")
    assert ann.trace("south.node.nobody", 1).state == "queued"
    with pytest.raises(NotFoundError):
        ann.send("nobody", "at home it is known that there is none")


def test_a_letter_to_an_unknown_office_is_refused(nodes: dict[str, RunningNode]) -> None:
    """Alone or in a list; it would be queued forever."""
    ann = nodes["north"].subscriber("ann")
    with pytest.raises(NotFoundError, match="has not joined"):
        ann.send("nowhere.node.zed", 1)
    letters = [{"to": to, "message": to} for to in ("nowhere.node.zed", "ann")]
    answer = nodes["north"].http.post("/v1/letters", json=letters, headers={"authorization": f"Bearer {ann.token}"})
    refused, taken = answer.json()["letters"]
    assert (refused["error"]["code"], taken["number"]) == ("not_found", 1)


@pytest.mark.parametrize("receiver", ["ben", "south.node.cleo", "nowhere.node.zed"])
def test_tracing_a_letter_that_was_never_sent_fails(nodes: dict[str, RunningNode], receiver: str) -> None:
    """Whether its receiver is here, elsewhere or unknown."""
    ann, _, _ = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben"), nodes["south"].subscriber("cleo")
    with pytest.raises(NotFoundError, match="no letter with this number was sent"):
        ann.trace(receiver, 1)
    if receiver != "nowhere.node.zed":
        ann.send(receiver, "hello")
        with pytest.raises(NotFoundError, match="the last one has number 1"):
            ann.trace(receiver, 2)


def test_tracing_leaves_the_senders_mailbox_where_it_is(nodes: dict[str, RunningNode]) -> None:
    """What its home does not know is traced all the same."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
    token = ann.token
    ann.send("ben", "hello")
    ann.migrate(nodes["south"].url)
    assert nodes["north"].client(token).trace("ben", 1).state == "readable"
    assert ann.pull() == []
    assert len(ben.pull()) == 1


def test_expired_letters_are_counted(nodes: dict[str, RunningNode]) -> None:
    """When their receiver pulls."""
    ann = nodes["north"].subscriber("ann")
    ann.send("ann", "soon", ttl=0.001)
    until(lambda: ann.trace("ann", 1).state == "expired", "the end of its time")
    assert ann.pull() == []
    assert "roamcast_letters_expired_total 1.0" in nodes["north"].http.get("/metrics").text


def test_a_letter_may_be_sent_again_with_its_number(nodes: dict[str, RunningNode]) -> None:
    """It is one letter. A number that leaves a gap is refused."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
    headers = {"authorization": f"Bearer {ann.token}"}
    body = {"to": "ben", "message": "once", "number": 1}
    answers = [nodes["north"].http.post("/v1/letters", json=body, headers=headers).json() for _ in range(2)]
    assert [answer["new"] for answer in answers] == [True, False]
    assert nodes["north"].http.post("/v1/letters", json={**body, "number": 3}, headers=headers).status_code == 409
    assert len(ben.pull()) == 1


def test_letters_of_a_list_are_accepted_or_refused_separately(nodes: dict[str, RunningNode]) -> None:
    """To mailboxes here and elsewhere, in order."""
    ann, ben = nodes["north"].subscriber("ann"), nodes["north"].subscriber("ben")
    cleo = nodes["south"].subscriber("cleo")
    letters = [{"to": to, "message": number} for number, to in enumerate(["ben", "nobody", "south.node.cleo", "ben"])]
    answer = nodes["north"].http.post("/v1/letters", json=letters, headers={"authorization": f"Bearer {ann.token}"})
    assert answer.status_code == 202
    first, refused, elsewhere, second = answer.json()["letters"]
    assert first == {"receiver": "north.node.ben", "number": 1, "new": True}
    assert refused["error"]["code"] == "not_found"
    assert (elsewhere["receiver"], second["number"]) == ("south.node.cleo", 2)
    assert [letter.message for letter in ben.pull()] == [0, 3]
    assert [letter.message for letter in cleo.pull(wait=10)] == [2]


def test_a_subscriber_elsewhere_cannot_be_removed(nodes: dict[str, RunningNode]) -> None:
    """Its mailbox has to come home first."""
    ann = nodes["north"].subscriber("ann")
    ann.migrate(nodes["south"].url)
    with pytest.raises(ConflictError):
        ann.unregister()
    ann.migrate(nodes["north"].url)
    ann.unregister()


class Traffic:
    """Times letters and migrations between two offices, with a letter to a third before each."""

    def __init__(self, nodes: dict[str, RunningNode]) -> None:
        self.nodes = nodes
        self.ann, self.ben = nodes["north"].subscriber("ann"), nodes["south"].subscriber("ben")
        self.cleo = nodes["west"].subscriber("cleo")
        self.sent = 0

    def letter(self) -> float:
        """Seconds from sending to reading."""
        self.sent += 1
        self.ann.send("west.node.cleo", self.sent)
        begun = time.monotonic()
        self.ann.send("south.node.ben", self.sent)
        (letter,) = until(lambda: self.ben.pull(after=self.sent - 1, wait=5), "a letter to ben")
        assert letter.message == self.sent
        return time.monotonic() - begun

    def there_and_back(self) -> float:
        begun = time.monotonic()
        for domain in ("north", "south"):
            self.ben.migrate(self.nodes[domain].url)
            assert len(self.ben.pull(after=0)) == self.sent
        return time.monotonic() - begun


SLACK = 0.5  # seconds: twice what an office waits for an answer before it asks again


@pytest.mark.parametrize("silent", [False, True], ids=["dead", "silent"])
def test_an_unreachable_office_delays_no_other(nodes: dict[str, RunningNode], silent: bool) -> None:
    """Not running, or accepting connections silently: letters and migrations of others are as quick as before.

    No slower than the slowest before; one letter in ten may be, because others use the machine too.
    """
    traffic = Traffic(nodes)
    letters, migrations = [traffic.letter() for _ in range(20)], [traffic.there_and_back() for _ in range(3)]
    port = int(nodes["west"].url.rpartition(":")[2])
    nodes["west"].stop()
    with socket.socket() as deaf:
        if silent:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            deaf.bind(("127.0.0.1", port))
            deaf.listen()
        away = sorted(traffic.letter() for _ in range(20))
        assert away[17] <= max(letters) + SLACK
        assert min(traffic.there_and_back() for _ in range(3)) <= max(migrations) + SLACK
        assert traffic.ann.trace("west.node.cleo", traffic.sent).state == "queued"
    with running_node(nodes["west"].data, domain="west", port=port) as west:
        again = west.client(traffic.cleo.token)
        got = until(lambda: letters if len(letters := again.pull(wait=1)) == 40 else None, "all letters to cleo")
        assert [letter.message for letter in got] == list(range(1, 41))
