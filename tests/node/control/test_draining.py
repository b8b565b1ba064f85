"""Draining: the pipeline forgets removed subscriptions and earlier positions once no event is on its way to them."""

from __future__ import annotations

from roamcast.journal.bodies import PositionBody, RemovalBody
from roamcast.journal.records import POSITION, REMOVAL, Record
from roamcast.node.control.draining import Draining


class OurNode:
    """A node, its journal and its peers."""

    def __init__(self, *peers: str) -> None:
        self.peers = list(peers)
        self.journalled: int | None = 0
        self.draining = Draining(lambda: self.peers, lambda: self.journalled)

    def remove(self) -> None:
        """Remove a subscription."""
        self.journal(Record(REMOVAL, "ann", id="s", time=1, body=RemovalBody(1).to_json()))

    def journal(self, record: Record) -> None:
        self.draining.note([record])
        assert self.journalled is not None
        self.journalled += 1

    def ask(self, peer: str, end: int, drained: int | None) -> int | None:
        """Ask a peer, and journal what follows; returns the offset that is drained now."""
        self.draining.ask(peer)
        self.draining.answer(peer, {peer: end}, {} if drained is None else {peer: drained})
        return self.drained()

    def drained(self) -> int | None:
        record = self.draining.record(9)
        if record is not None:
            self.journal(record)
        return None if record is None else record.seq


def test_a_removal_is_drained_when_the_peer_has_read_so_far() -> None:
    """Its pipeline has read what was published before we asked, and all of it is here."""
    node = OurNode("south")
    node.remove()
    assert node.ask("south", end=7, drained=None) is None
    assert node.ask("south", end=9, drained=6) is None
    assert node.draining.is_waiting
    assert node.ask("south", end=9, drained=7) == 1
    assert not node.draining.is_waiting
    assert node.ask("south", end=9, drained=9) is None


def test_a_move_is_drained_like_a_removal() -> None:
    """Unless it applies to all events at once."""
    node = OurNode("south")
    assert [node.ask("south", 5, 5), node.ask("south", 5, 5)] == [None, 0]  # of before the start
    node.journal(Record(POSITION, "ann", time=1, x=0, y=0))
    assert not node.draining.is_waiting
    node.journal(Record(POSITION, "ann", time=2, x=1, y=0, body=PositionBody(1, 3).to_json()))
    assert node.draining.is_waiting
    assert [node.ask("south", 7, 5), node.ask("south", 7, 7)] == [None, 3]
    assert [node.ask("south", 9, 9), node.ask("south", 9, 9)] == [None, None]


def test_all_peers_count() -> None:
    """Also one that has not been asked; a peer that is removed does not."""
    node = OurNode("south", "west")
    node.remove()
    for _ in range(2):
        assert node.ask("south", end=7, drained=7) is None
    node.draining.forget("west")
    node.peers.remove("west")
    assert node.drained() == 1


def test_a_later_removal_waits_for_itself() -> None:
    """What is drained with the first one does not count for it."""
    node = OurNode("south")
    node.remove()
    node.ask("south", end=7, drained=None)
    node.remove()
    assert node.ask("south", end=8, drained=7) == 1
    assert node.draining.is_waiting
    assert node.ask("south", end=8, drained=8) == 2


def test_a_removal_that_is_not_journalled_yet_is_not_drained() -> None:
    """Its offset is not known: the disk is full."""
    node = OurNode("south")
    node.remove()
    node.ask("south", end=7, drained=None)
    node.ask("south", end=7, drained=7)
    node.remove()
    node.journalled = None
    assert node.ask("south", end=8, drained=8) is None
    node.journalled = 3
    node.ask("south", end=8, drained=8)
    assert node.ask("south", end=8, drained=8) == 3


def test_a_record_that_was_not_stored_is_offered_again() -> None:
    node = OurNode("south")
    node.remove()
    node.draining.ask("south")
    node.draining.answer("south", {"south": 7}, {})
    node.draining.answer("south", {"south": 7}, {"south": 7})
    assert node.draining.record(9) == node.draining.record(10)._replace(time=9)  # type: ignore[union-attr]
    assert node.drained() == 1


def test_a_peer_with_another_journal_does_not_stop_it() -> None:
    """Its journal is shorter than it was."""
    node = OurNode("south")
    node.remove()
    node.ask("south", end=700, drained=None)
    assert node.ask("south", end=7, drained=3) is None
    assert node.ask("south", end=8, drained=7) == 1


def test_after_a_while_nobody_waits_for_a_silent_peer() -> None:
    """One to two periods, since it is looked at once in a period."""
    node = OurNode("south")
    node.remove()
    node.draining.next_period()
    assert node.drained() is None
    node.remove()
    node.draining.next_period()
    assert node.drained() == 1
    node.draining.next_period()
    assert node.drained() == 2


def test_without_peers_everything_is_drained() -> None:
    """Removals from before the last peer was removed."""
    node = OurNode()
    node.remove()
    assert node.drained() == 1
    assert node.drained() is None


def test_all_nodes_of_the_data_folder_of_a_peer_count() -> None:
    """Another one may have journalled an event of a source of the peer."""
    node = OurNode("south")
    node.remove()
    ends = {"south": 7, "west": 3}
    for drained, expected in (({}, None), ({"south": 9}, None), ({"south": 9, "west": 2}, None), (ends, 1)):
        node.draining.ask("south")
        node.draining.answer("south", ends, drained)
        assert node.drained() == expected


def test_marks_do_not_pile_up() -> None:
    """While the pipeline of a peer is stopped, and subscriptions are removed."""
    node = OurNode("south")
    for end in range(1, 50):
        node.remove()
        assert node.ask("south", end, drained=0) is None
    assert node.ask("south", end=50, drained=1) == 1
    assert node.ask("south", end=50, drained=49) == 49
    assert not node.draining.is_waiting
