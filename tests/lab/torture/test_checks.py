"""The checkers find what is wrong, and no fault where there is none."""

from __future__ import annotations

from collections.abc import Callable

from roamcast.deliver.letters import key_of
from roamcast.deliver.messages import Deposit, Post, Posted, Transmit, Wire
from roamcast.deliver.port import Whereabouts
from roamcast.lab.torture.host import RULES, Letterhead
from roamcast.lab.torture.variants import SOUND
from roamcast.lab.torture.world import World
from roamcast.model import Letter

SOON = 10_000  # longer than a station waits for more messages to handle together, shorter than anybody else waits
ANN = "d1.h0.ann"
LETTERS = tuple(Letter(ANN, "pipeline", number, "") for number in range(1, RULES.bundle + 2))


class Still(World):
    """Nobody stirs, no timer rings and nothing arrives: what offices write is kept."""

    def __init__(self) -> None:
        self.written: list[tuple[str, Wire, Letterhead]] = []
        super().__init__(1, SOUND)

    def later(self, delay: int, event: Callable[[], None]) -> None:
        if delay < SOON:
            event()

    def transmit(self, source: str, effect: Transmit, head: Letterhead) -> None:
        self.written.append((effect.to, effect.message, head))


def test_nothing_is_settled_while_a_subscriber_does_not_know_that_its_mailbox_is_elsewhere() -> None:
    """Word of that may be lost; it finds out when it asks for letters, and must have the time to."""
    world = World(1, SOUND)
    world.run()
    assert list(world.unsettled()) == []
    name, person = next(iter(world.people.items()))
    disk = world.stations[person.at].disk
    with disk.transaction():
        disk.drop_tenure(name)
    assert person.content
    assert list(world.unsettled()) == [f"{name} has to find out that its mailbox is not at {person.at}"]


def test_a_letter_that_comes_back_where_nothing_was_learned_goes_in_a_circle() -> None:
    """Its way is known from office to office, with what each of them knew."""
    world = Still()
    office = world.stations["d0"]
    with office.disk.transaction():
        office.disk.put_whereabouts(Whereabouts(ANN, "d2", 3, acquaintance=True))
    post = Post(ANN, LETTERS[:1], origin="d1", known=1)
    office.receive(post, Letterhead(way=(("d2", 2),)))
    (to, passed_on, head), *_ = world.written
    assert (to, type(passed_on), head.way) == ("d2", Post, (("d2", 2), ("d0", 3)))
    assert world.ledger.violations == []
    office.receive(post, head)
    assert world.ledger.violations == [f"forwarding loop: a letter to {ANN} came by d2 d0"]


def test_letters_that_follow_others_begin_a_way_of_their_own() -> None:
    """They may go by the same offices: that is no circle, though the answer for those before has sent them off."""
    world = Still()
    office = world.stations["d0"]
    office.receive(Deposit(LETTERS))
    taken = tuple(map(key_of, LETTERS[:-1]))
    office.receive(Posted(ANN, taken, (), "d2", 3, friend=False), Letterhead(way=(("d1", 3),)))
    assert world.written[-1] == ("d2", Post(ANN, LETTERS[-1:], "d0", 3), Letterhead())
