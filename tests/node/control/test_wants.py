"""What a node wants from its peers, and what they have confirmed."""

from __future__ import annotations

import random

import pytest

from roamcast.errors import CapacityError
from roamcast.journal.bodies import BindingBody, PositionBody, SubscriptionBody
from roamcast.journal.records import BINDING, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.journal.wants import end_want, want_of_source
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.model import LATEST, Box
from roamcast.node.control.links import Links
from roamcast.node.control.wants import UNKNOWN, NodeWants, WantsRequest
from roamcast.space import PLANAR
from roamcast.store.registry.values import WantAdded, WantRemoved

LINK = "0" * 32
BODY = SubscriptionBody(Box(0.0, 0.0, 1.0, 1.0), ("fire",), space="planar")


def subscription(id: str, body: SubscriptionBody = BODY, subscriber: str = "ann") -> Record:
    return Record(SUBSCRIPTION, subscriber, id=id, time=1, body=body.to_json())


def removal(id: str, subscriber: str = "ann") -> Record:
    return Record(REMOVAL, subscriber, id=id, time=2)


def binding(id: str, source: str, kind: str = BINDING) -> Record:
    return Record(kind, source, id=id, time=1, body=BindingBody("ann").to_json())


def position(x: float, y: float, subscriber: str = "ann") -> Record:
    return Record(POSITION, subscriber, time=1, x=x, y=y)


def node_wants(*peers: str) -> NodeWants:
    wants = NodeWants(lambda _: LINK, 7, PLANAR)
    for peer in peers:
        wants.add_peer(peer)
    return wants


class Home:
    """A peer that stores what is wanted of it, and may restart."""

    def __init__(self) -> None:
        self.registry = MemoryRegistry()
        self.records: list[Record] = []
        self.now = 0
        self.restart()

    def restart(self) -> None:
        self.links = Links(self.registry, 1_000)

    def respond(self, wants: NodeWants, peer: str, *, lose_response: bool = False) -> bool:
        """Exchange a request and its response; whether there is more to send."""
        request = wants.request(peer)
        self.now += 1
        version, update = self.links.apply("north", request, self.now)
        self.registry.apply([*update.changes], at=self.now)
        self.records += update.records
        if lose_response:
            return True
        more = wants.receive(peer, request, version)
        wants.show(peer)
        return more

    def synchronise(self, wants: NodeWants, peer: str) -> None:
        for _ in range(20):
            if not self.respond(wants, peer):
                return
        raise AssertionError("there is always more to send")

    @property
    def stored(self) -> set[str]:
        return {want.want for want in self.registry.wants()}


def test_a_subscription_waits_for_the_confirmation_of_every_peer() -> None:
    wants, south, west = node_wants("south", "west"), Home(), Home()
    assert wants.note([subscription("q")]) == {"south", "west"}
    assert wants.unconfirmed("q") == ["south", "west"]
    south.synchronise(wants, "south")
    assert wants.unconfirmed("q") == ["west"]
    west.synchronise(wants, "west")
    assert wants.unconfirmed("q") == []
    assert south.stored == west.stored == {BODY.to_json()}


def test_an_equal_region_is_confirmed_at_once() -> None:
    """And wanted until the last subscription with it is removed."""
    wants, south = node_wants("south"), Home()
    wants.note([subscription("q")])
    south.synchronise(wants, "south")
    assert wants.note([subscription("other")]) == set()
    assert wants.unconfirmed("other") == []
    assert wants.note([removal("q")]) == set()
    assert wants.note([removal("other")]) == {"south"}
    south.synchronise(wants, "south")
    assert south.stored == set()
    assert [record.kind for record in south.records] == [SUBSCRIPTION, REMOVAL]


def test_a_bound_source_is_wanted_from_its_home_only() -> None:
    wants, south, west = node_wants("south", "west"), Home(), Home()
    for peer, home in (("south", south), ("west", west)):
        home.synchronise(wants, peer)
    assert not wants.is_confirmed("b4@south")
    assert wants.note([binding("q", "b4@south"), binding("p", "local")]) == {"south"}
    assert not wants.is_confirmed("b4@south")
    south.synchronise(wants, "south")
    assert wants.is_confirmed("b4@south")
    assert wants.is_confirmed("local")
    assert (south.stored, west.stored) == ({want_of_source("b4")}, set())
    wants.note([binding("q", "b4@south", UNBINDING)])
    south.synchronise(wants, "south")
    assert [record.kind for record in south.records] == [BINDING, UNBINDING]


def test_a_move_counts_by_the_clocks_of_all_peers() -> None:
    """It counts from the earliest time on that it may be at a peer, and the position before until the latest."""
    peers = ["south", "west"]
    wants = NodeWants(lambda _: LINK, 7, PLANAR, lambda _: False, lambda: peers)
    for peer, ahead in (("south", 1_000), ("west", -300)):
        wants.add_peer(peer)
        wants.note_clock(peer, sent=500, received=540, time=520 + ahead)
    moved = [binding("q", "b4"), position(1, 2)]
    assert wants.add_times_of_moves(moved, 7_000) == [
        moved[0], moved[1]._replace(body=PositionBody(7_000 - 320, 7_000 + 1_020).to_json())
    ]  # fmt: skip
    peers.append("unknown")
    (move,) = wants.add_times_of_moves(moved[1:], 7_000)
    assert PositionBody.from_json(str(move.body)) == PositionBody(7_000 - 5_000_000, 7_000 + 5_000_000)
    (move,) = wants.add_times_of_moves(moved[1:], LATEST)
    assert PositionBody.from_json(str(move.body)).end == LATEST
    peers.clear()
    assert wants.add_times_of_moves(moved, 7_000) == moved


def test_a_moving_region_is_wanted_with_room_around_it() -> None:
    """A move within it changes nothing; after another one the new want comes before the old one ends."""
    body = SubscriptionBody(None, (), space="planar", moving_radius=10)
    wants, south = node_wants("south"), Home()
    south.synchronise(wants, "south")
    assert wants.note([subscription("q", body)]) == set()
    assert wants.note([position(0, 0)]) == {"south"}
    south.synchronise(wants, "south")
    assert wants.note([position(5, 0)]) == set()
    assert wants.note([position(5.5, 0)]) == {"south"}
    assert wants.unconfirmed("q") == ["south"]
    request = wants.request("south")
    assert (len(request.added), len(request.removed)) == (1, 1)
    box = SubscriptionBody.from_json(request.added[0]).box
    assert box is not None
    assert box.min_x <= -9.5
    assert box.max_x >= 20.5


def test_a_peer_that_lost_everything_gets_it_again() -> None:
    """Meanwhile nothing is confirmed."""
    wants, south = node_wants("south"), Home()
    wants.note([subscription("q")])
    south.synchronise(wants, "south")
    south = Home()
    assert south.respond(wants, "south")
    assert wants.unconfirmed("q") == ["south"]
    south.synchronise(wants, "south")
    assert south.stored == {BODY.to_json()}
    assert wants.unconfirmed("q") == []


def test_a_restart_of_either_side_changes_no_want() -> None:
    wants, south = node_wants("south"), Home()
    records = [subscription("q"), binding("p", "b4@south")]
    wants.note(records)
    south.synchronise(wants, "south")
    before = list(south.records)
    south.restart()
    south.synchronise(wants, "south")
    again = NodeWants(lambda _: LINK, 8, PLANAR)
    again.note(records)
    again.add_peer("south")
    south.synchronise(again, "south")
    assert south.records == before


def test_a_late_request_does_not_bring_back_what_was_wanted_before() -> None:
    """It may be overtaken by requests of the same session, and of the next one."""
    wants, south = node_wants("south"), Home()
    late = wants.request("south")
    south.synchronise(wants, "south")
    wants.note([subscription("q")])
    south.synchronise(wants, "south")
    version, update = south.links.apply("north", late, 9)
    assert (version, update.changes) == (UNKNOWN, [])
    again = NodeWants(lambda _: LINK, 8, PLANAR)
    again.note([subscription("q")])
    again.add_peer("south")
    south.synchronise(again, "south")
    assert south.links.apply("north", late._replace(version=99), 9)[0] == UNKNOWN
    assert south.stored == {BODY.to_json()}
    assert wants.unconfirmed("q") == []


def test_a_late_request_is_refused_after_a_failure_of_the_registry_too() -> None:
    """Then what is in memory is read from the registry again."""
    wants, latest = node_wants("south"), dict[tuple[str, str], tuple[int, int]]()
    late = wants.request("south")
    Links(MemoryRegistry(), 10, latest).apply("north", late._replace(version=1), 1)
    assert Links(MemoryRegistry(), 10, latest).apply("north", late, 2)[0] == UNKNOWN


def test_chunks_of_different_versions_are_not_mixed() -> None:
    wants, south = node_wants("south"), Home()
    first = wants.request("south")._replace(version=5, more=True, added=(want_of_source("a"),))
    assert south.links.apply("north", first, 1)[0] == 0
    late = first._replace(version=4, chunk=2, more=False, added=(want_of_source("b"),))
    assert south.links.apply("north", late, 2)[0] == UNKNOWN


def test_what_two_nodes_of_a_folder_want_is_joined() -> None:
    """It begins with the first and ends with the last."""
    registry = MemoryRegistry()
    links = Links(registry, 10)
    kinds = []
    for peer, record in [("north", subscription("q")), ("west", subscription("q"))]:
        wants = node_wants("south")
        wants.note([record])
        _, update = links.apply(peer, wants.request("south"), 1)
        kinds.append([type(change) for change in update.changes] + [each.kind for each in update.records])
    for peer in ("north", "west"):
        update = links.remove_peer(peer, 2)
        kinds.append([type(change) for change in update.changes] + [each.kind for each in update.records])
    assert kinds == [[WantAdded, SUBSCRIPTION], [WantAdded], [WantRemoved], [WantRemoved, REMOVAL]]


def test_chunks_are_stored_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they never come to an end, what is not wanted any more is removed with the next that do."""
    monkeypatch.setattr(NodeWants, "chunk", 2)
    south = Home()
    south.links = Links(south.registry, 5)
    former, wants = node_wants("south"), node_wants("south")
    former.note(binding("q", f"{number}@south") for number in range(4))
    wants.note(binding("q", f"{number}@south") for number in range(1, 6))
    assert south.respond(former, "south")
    assert south.stored == {want_of_source("0"), want_of_source("1")}
    south.synchronise(wants, "south")
    assert south.stored == {want_of_source(str(number)) for number in range(1, 6)}
    assert wants.is_confirmed("5@south")
    assert [record.entity for record in south.records if record.kind == UNBINDING] == ["0"]


def test_a_peer_cannot_want_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeWants, "chunk", 2)
    wants, south = node_wants("south"), Home()
    south.links = Links(south.registry, 3)
    wants.note(binding("q", f"{number}@south") for number in range(4))
    assert south.respond(wants, "south")
    with pytest.raises(CapacityError):
        south.respond(wants, "south")
    assert len(south.stored) <= 3


def test_a_peer_has_one_link_at_a_time() -> None:
    """Its data folder may be a new one. And the limit is for all that a peer wants."""
    registry = MemoryRegistry()
    links = Links(registry, 10)
    wanted = [want_of_source(id) for id in ("a", "b")]
    for session, link in enumerate(("1" * 32, "2" * 32)):
        request = WantsRequest(link, session, UNKNOWN, 1, tuple(wanted), (), 1, False)
        version, update = links.apply("north", request, 1)
        registry.apply(update.changes, at=1)
        assert version == 1
    assert [(want.link, want.want) for want in registry.wants()] == [("2" * 32, want) for want in wanted]
    assert [(record.kind, record.id) for record in update.records[:2]] == [
        (record.kind, record.id) for record in (end_want("1" * 32, want, 1) for want in wanted)
    ]
    assert (links.has("north", "1" * 32), links.has("north", "2" * 32)) == (False, True)


def test_many_moving_regions_of_a_subscriber_follow_it() -> None:
    """A new one is wanted where the subscriber is known to be; the others stay as they are."""
    body = SubscriptionBody(None, (), space="planar", moving_radius=10)
    wants = node_wants("south")
    wants.note([subscription("p", body), position(0, 0)])
    before = wants._of_subscription["p"]
    wants.note([position(1, 0), subscription("q", body), position(1, 0)])
    assert wants._of_subscription["p"] == before
    box = SubscriptionBody.from_json(wants._of_subscription["q"]).box
    assert box is not None
    assert (box.min_x + box.max_x) / 2 == pytest.approx(1)


def test_a_confirmation_is_seen_once_what_follows_is_journalled() -> None:
    wants, south = node_wants("south"), Home()
    south.synchronise(wants, "south")
    wants.note([subscription("q")])
    request = wants.request("south")
    wants.receive("south", request, south.links.apply("north", request, 1)[0])
    assert wants.unconfirmed("q") == ["south"]
    wants.show("south")
    assert wants.unconfirmed("q") == []


def test_the_clock_of_a_peer_is_known_within_bounds() -> None:
    """The tightest of all responses; five seconds before the first."""
    wants = node_wants("south")
    assert wants.clock_bounds("b4") == (0, 0)
    assert wants.clock_bounds("b4@west") == (0, 0)
    assert wants.clock_bounds("b4@south") == (-5_000_000, 5_000_000)
    wants.note_clock("south", 100, 300, 1_250)
    assert wants.clock_bounds("b4@south") == (950, 1_150)
    wants.note_clock("south", 400, 440, 1_430)
    assert wants.clock_bounds("b4@south") == (990, 1_030)
    wants.note_clock("south", 500, 540, 40)
    assert wants.clock_bounds("b4@south") == (-500, -460)


def test_a_peer_that_has_not_been_added_yet_is_unknown() -> None:
    """After a start, bindings are restored first. Only nodes with the same data folder have the same clock."""
    wants = NodeWants(lambda _: LINK, 7, PLANAR, lambda node: node == "west")
    assert wants.clock_bounds("b4@west") == (0, 0)
    assert wants.is_confirmed("b4@west")
    assert wants.clock_bounds("b4@south") == (-5_000_000, 5_000_000)
    assert not wants.is_confirmed("b4@south")


@pytest.mark.parametrize("seed", range(30))
def test_peers_have_what_is_wanted_whatever_gets_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests and responses get lost, the peer restarts, and everything is sent in small chunks."""
    monkeypatch.setattr(NodeWants, "chunk", 2)
    draw = random.Random(seed)
    wants, south = node_wants("south"), Home()
    live: dict[str, str | None] = {}
    for step in range(60):
        choice = draw.random()
        if choice < 0.35:
            box = Box(draw.randrange(5), 0, 9, 9)
            live[f"q{step}"] = None
            wants.note([subscription(f"q{step}", SubscriptionBody(box, (), space="planar"))])
        elif choice < 0.5:
            live[f"q{step}"] = f"s{draw.randrange(4)}@south"
            wants.note([binding(f"q{step}", str(live[f"q{step}"]))])
        elif choice < 0.7 and live:
            id = draw.choice(sorted(live))
            source = live.pop(id)
            wants.note([removal(id) if source is None else binding(id, source, UNBINDING)])
        elif choice < 0.75:
            south.restart()
        else:
            south.respond(wants, "south", lose_response=draw.random() < 0.3)
        confirmed = [id for id in live if not wants.unconfirmed(id)]
        for id in confirmed:
            source = live[id]
            want = wants._of_subscription[id] if source is None else want_of_source(source.partition("@")[0])
            assert want in south.stored
    for _ in range(50):
        south.respond(wants, "south")
    request = wants.request("south")
    assert (request.base, request.added, request.removed, request.chunk) == (request.version, (), (), 0)
    regions = {wants._of_subscription[id] for id, source in live.items() if source is None}
    sources = {want_of_source(source.partition("@")[0]) for source in live.values() if source is not None}
    assert south.stored == regions | sources
    assert UNKNOWN not in (request.base, request.version)
