"""Each rule of the protocols, in a small field. Cells are 10 m wide."""

from __future__ import annotations

from math import inf

import pytest
from fields import FIELDS, SEEDS, cells_by_sensor, small_world, stationary
from hypothesis import given
from profiles import thorough

from roamcast.collect.protocol.communities import HeadTree, find_layers, neighbours_of
from roamcast.collect.protocol.communities import find_communities as core_communities
from roamcast.collect.protocol.communities import tree_rank as core_tree_rank
from roamcast.collect.protocol.energy import Radio
from roamcast.collect.protocol.rules import CET, DG, Epidemic, RatePer
from roamcast.collect.simulation.communities import find_communities
from roamcast.collect.simulation.contacts import cell_entries, find_contacts
from roamcast.collect.simulation.field import Field, FieldWorld, draw_world
from roamcast.collect.simulation.kernel_state import build_field_state
from roamcast.collect.simulation.kernels.heads import tree_rank
from roamcast.collect.simulation.kernels.run import run_ticks
from roamcast.collect.simulation.results import SimulationResult, run_figures
from roamcast.collect.simulation.schedule import make_schedule
from roamcast.collect.simulation.simulate import simulate

CHAIN = [(5.0, 5.0), (15.0, 5.0), (25.0, 5.0), (35.0, 5.0)]
"""Four sensors in a row; each reaches only its neighbours."""
FAR = (95.0, 95.0)
MULE = 4
"""Number of the mule in the log of a field with four sensors."""


def sent(
    world: FieldWorld, protocol: CET | DG | Epidemic, radio: Radio | None = None
) -> list[tuple[int, int, int, int]]:
    transfers = simulate(world, protocol, radio, log=True).transfers
    assert transfers is not None
    return [tuple(row) for row in transfers.tolist()]


def run(world: FieldWorld, protocol: CET | DG | Epidemic) -> SimulationResult:
    return simulate(world, protocol)


def test_sensors_in_adjacent_cells_form_a_community() -> None:
    """Cells that share an edge or a corner are adjacent."""
    world = small_world([(5, 5), (15, 15), (35, 15), (95, 95), (96, 96)], [[stationary(0, 0)]], [])
    result = find_communities(world)
    members = [result.member[a:b].tolist() for a, b in zip(result.first, result.first[1:], strict=False)]
    assert members == [[0, 1], [2], [3, 4]]
    assert result.size.tolist() == [2, 1, 1]


@thorough()
@given(FIELDS, SEEDS)
def test_communities_equal_those_of_the_cores(field: Field, seed: int) -> None:
    """Members and sizes in cells."""
    world = draw_world(field, seed)
    fast, slow = find_communities(world), core_communities(cells_by_sensor(world))
    members = [tuple(fast.member[a:b].tolist()) for a, b in zip(fast.first, fast.first[1:], strict=False)]
    assert members == [community.members for community in slow]
    assert fast.size.tolist() == [community.size for community in slow]


def test_contact_times_are_the_crossing_times() -> None:
    """At 1 m/s, a contact begins when the mule enters an adjacent cell and ends when it leaves the last one."""
    world = small_world([(35, 5)], [[(0, 90, 100, 5, 5, 95, 5)]], [])
    contacts = find_contacts(world, cell_entries(world.field, world.legs))
    assert (contacts.begin.tolist(), contacts.end.tolist()) == ([15.0], [45.0])


def test_path_set_is_breadth_first() -> None:
    """Roots are in layer 1; the layer of other sensors is their distance in hops plus 1."""
    near = neighbours_of(cells_by_sensor(small_world(CHAIN, [[stationary(0, 0)]], [])))
    assert find_layers(near, [1]) == {1: 1, 0: 2, 2: 2, 3: 3}


def test_events_move_up_one_layer_per_tick() -> None:
    """An event of the fourth sensor of a chain needs three ticks to a mule at the first."""
    world = small_world(CHAIN, [[stationary(5, 5, 50.0)]], [(1.0, 3)], rate=1.0)
    # The mule reaches the first two sensors of the chain.
    assert sent(world, CET()) == [(50, 3, 2, 0), (51, 2, 1, 0), (52, 1, MULE, 0)]


def test_a_sensor_with_two_upper_neighbours_alternates() -> None:
    """A sensor below two sensors of layer 1 relays to them in turn."""
    events = [(t, 2) for t in (1.0, 2.0, 3.0, 4.0)]
    world = small_world([(5, 25), (15, 25), (5, 35), FAR], [[stationary(5, 15, 50.0)]], events, rate=1.0)
    receivers = [receiver for _, sender, receiver, _ in sent(world, CET()) if sender == 2]
    assert receivers == [0, 1, 0, 1]


def test_events_move_to_layer_1_in_one_tick_with_hand_up_way() -> None:
    """An event is in layer 1 in the tick of its first hop."""
    world = small_world(CHAIN, [[stationary(5, 5, 50.0)]], [(1.0, 3)], rate=1.0)
    assert sent(world, CET(hand_up="way")) == [(50, 3, 2, 0), (50, 2, 1, 0), (51, 1, MULE, 0)]


def test_relaying_stops_below_a_full_queue() -> None:
    """The event stays in the last queue that has room."""
    world = small_world(CHAIN, [[stationary(5, 5, 50.0)]], [(1.0, 1), (2.0, 3)], rate=1.0)
    assert sent(world, CET(hand_up="way", K=1)) == [(50, 1, MULE, 0), (50, 3, 2, 1)]


@pytest.mark.parametrize(
    ("rate_per", "transfers"),
    [
        ("node", [(50, 0, 2), (50, 1, 3), (51, 1, 2), (51, 0, 3)]),
        ("receiver", [(50, 0, 2), (50, 0, 3), (51, 1, 2), (51, 1, 3)]),
        ("sender", [(50, 0, 2), (50, 1, 2), (51, 0, 3), (51, 1, 3)]),
        ("link", [(50, 0, 2), (50, 1, 2), (50, 0, 3), (50, 1, 3)]),
    ],
)
def test_rate_per_selects_what_the_rate_limits(rate_per: RatePer, transfers: list[tuple[int, int, int]]) -> None:
    """Two sensors with one event each, and two mules in reach of both."""
    legs = [[stationary(5, 5, 50.0)], [stationary(5, 6, 50.0)]]
    world = small_world([(5, 5), (5, 15)], legs, [(1.0, 0), (2.0, 1)], rate=1.0)
    for protocol in (CET(rate_per=rate_per), DG(rate_per=rate_per, resend="once")):
        assert [transfer[:3] for transfer in sent(world, protocol)] == transfers


@pytest.mark.parametrize(
    ("rate_per", "ticks"), [("node", [50, 51]), ("sender", [50, 51]), ("receiver", [50, 50]), ("link", [50, 50])]
)
def test_a_sensor_with_unlimited_sending_relays_to_all_upper_neighbours(rate_per: RatePer, ticks: list[int]) -> None:
    """In one tick, if its sending is not limited by the rate."""
    events = [(1.0, 2), (2.0, 2)]
    world = small_world([(5, 25), (15, 25), (5, 35), FAR], [[stationary(5, 15, 50.0)]], events, rate=1.0)
    assert [tick for tick, sender, *_ in sent(world, CET(rate_per=rate_per)) if sender == 2] == ticks


def test_owners_keep_their_copy_and_relays_do_not() -> None:
    """After collection only the source has the event in its queue."""
    result = run(small_world(CHAIN, [[stationary(5, 5, 50.0)]], [(1.0, 3)], rate=1.0), CET())
    assert (result.held, result.under_way, len(result.delivered)) == (1, 0, 1)


def test_relayed_copies_are_stranded_when_the_contact_ends() -> None:
    """A mule that leaves after two ticks gets nothing from four hops away."""
    result = run(small_world(CHAIN, [[(0, 50, 47, 95, 5, 45, 5)]], [(1.0, 0)], rate=1.0), CET())
    assert (result.counts["stranded"], len(result.delivered)) == (1, 0)


@pytest.mark.parametrize(("left_behind", "deliveries"), [("dropped", 0), ("waits", 1)])
def test_relayed_copies_are_dropped_or_wait(left_behind: str, deliveries: int) -> None:
    """A mule that leaves during relaying and comes back gets the event only with `waits`."""
    way = [(0.0, 50.0, 47.0, 95.0, 5.0, 45.0, 5.0), stationary(45, 95, 47.0, 60.0), stationary(45, 5, 60.0)]
    world = small_world(CHAIN, [way], [(1.0, 0)], rate=1.0)
    assert len(run(world, CET(left_behind=left_behind)).delivered) == deliveries  # type: ignore[arg-type]


@pytest.mark.parametrize(("alpha", "deliveries"), [(0, 1), (1, 2), (2, 3), (20, 3)])
def test_event_with_more_than_alpha_successes_is_dropped(alpha: float, deliveries: int) -> None:
    """Of three mules, one after the other, alpha + 1 get the event."""
    legs = [[stationary(5, 5, start, start + 5)] for start in (10.0, 20.0, 30.0)]
    assert len(run(small_world([(5, 5)], legs, [(1.0, 0)], rate=1.0), CET(alpha=alpha)).delivered) == deliveries


@pytest.mark.parametrize(("beta", "deliveries"), [(48.0, 0), (49.0, 1)])
@pytest.mark.parametrize("kind", [CET, DG, Epidemic])
def test_event_older_than_beta_is_dropped(kind: type[CET | DG | Epidemic], beta: float, deliveries: int) -> None:
    """A mule that arrives 49 s after creation gets the event iff beta is at least 49."""
    world = small_world([(5, 5)], [[stationary(5, 5, 50.0)]], [(1.0, 0)], rate=1.0)
    assert len(run(world, kind(beta=beta)).delivered) == deliveries


def test_a_full_queue_drops_new_events() -> None:
    """With K = 2 the third event is lost, and the first two are delivered."""
    result = run(
        small_world([(5, 5)], [[stationary(5, 5, 50.0)]], [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0), CET(K=2)
    )
    assert (result.counts["full"], sorted(result.delivered[:, 2].tolist())) == (1, [0, 1])


def test_priority_is_fewest_successes_then_youngest() -> None:
    """A second mule first gets the event that the first mule missed, then the youngest of the others."""
    legs = [[stationary(5, 5, 10.0, 12.0)], [stationary(5, 5, 20.0)]]
    world = small_world([(5, 5)], legs, [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0)
    assert [(receiver, event) for _, _, receiver, event in sent(world, CET())] == [
        (1, 2),
        (1, 1),
        (2, 0),
        (2, 2),
        (2, 1),
    ]


def test_direct_gathering_sends_the_newest_first() -> None:
    """Direct gathering does not count successes."""
    legs = [[stationary(5, 5, 10.0, 12.0)], [stationary(5, 5, 20.0)]]
    world = small_world([(5, 5)], legs, [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0)
    assert [(receiver, event) for _, _, receiver, event in sent(world, DG())] == [
        (1, 2),
        (1, 1),
        (2, 2),
        (2, 1),
        (2, 0),
    ]


def test_direct_gathering_does_not_relay() -> None:
    """A sensor out of reach of the mule sends nothing."""
    assert sent(small_world(CHAIN, [[stationary(5, 5)]], [(1.0, 3)], rate=1.0), DG()) == []


@pytest.mark.parametrize(("resend", "times"), [("cell", 4), ("contact", 2), ("once", 1)])
def test_direct_gathering_resends_by_its_parameter(resend: str, times: int) -> None:
    """Two passes of two cells: once for each cell, for each contact, or once."""
    there, back = (0.0, 40.0, 50.0, 5.0, 5.0, 45.0, 5.0), (50.0, 90.0, 100.0, 45.0, 5.0, 5.0, 5.0)
    world = small_world([(5, 5)], [[there, back]], [(0.0, 0)], rate=1.0)
    assert len(sent(world, DG(resend=resend))) == times  # type: ignore[arg-type]


@pytest.mark.parametrize(("resend", "times"), [("subscriber", 1), ("contact", 2), ("missing", 1)])
def test_cet_resends_by_its_parameter(resend: str, times: int) -> None:
    """Two contacts: an owner sends once, in each contact, or until the mule has the event."""
    there, back = (0.0, 40.0, 50.0, 5.0, 5.0, 45.0, 5.0), (50.0, 90.0, 100.0, 45.0, 5.0, 5.0, 5.0)
    world = small_world([(5, 5)], [[there, back]], [(0.0, 0)], rate=1.0)
    assert len(sent(world, CET(resend=resend))) == times  # type: ignore[arg-type]


PAIR = [(85.0, 95.0), (95.0, 95.0), (5.0, 95.0), (95.0, 5.0)]
"""A community of two sensors, and two isolated ones."""
WALK = [(0.0, 20.0, 30.0, 95.0, 5.0, 95.0, 95.0), (30.0, 40.0, 100.0, 95.0, 95.0, 95.0, 95.0)]
"""From an isolated sensor to the community."""


def test_events_of_small_communities_are_put_back() -> None:
    """A mule puts an event of an isolated sensor back after a second without receiving."""
    world = small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0)
    put_back = [(receiver, event) for _, sender, receiver, event in sent(world, CET(gamma=1)) if sender == MULE]
    assert put_back == [(0, 0)]


def test_events_of_large_communities_are_not_put_back() -> None:
    """With gamma below the size of an isolated sensor nothing is put back."""
    assert run(small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0), CET(gamma=0)).counts["put_back"] == 0


def test_nothing_is_put_back_to_its_community_or_to_an_isolated_sensor() -> None:
    """A mule that meets no other community keeps its events."""
    back = [*WALK[:1], (30.0, 50.0, 100.0, 95.0, 95.0, 95.0, 5.0)]
    assert run(small_world(PAIR[2:], [back], [(0.0, 1)], rate=1.0), CET(gamma=4)).counts["put_back"] == 0
    home = small_world(PAIR, [[stationary(95, 95)]], [(0.0, 0)], rate=1.0)
    assert run(home, CET(gamma=4)).counts["put_back"] == 0


def test_a_community_refuses_an_event_put_back_there_before() -> None:
    """Of two mules with the same event, only one can put it back."""
    assert run(small_world(PAIR, [WALK, WALK], [(0.0, 3)], rate=1.0), CET(gamma=1)).counts["put_back"] == 1


def test_a_keeper_treats_a_put_back_event_as_its_own() -> None:
    """Another mule gets it from the community; the event is then in the queues of its source and of its keeper."""
    legs = [WALK, [stationary(85, 95, 60.0)]]
    result = run(small_world(PAIR, legs, [(0.0, 3)], rate=1.0), CET(gamma=1))
    assert (result.held, result.delivered[:, 1].tolist()) == (2, [0, 1])


@pytest.mark.parametrize(("stores", "put_back"), [("wanted", 0), ("all", 1)])
def test_a_mule_may_put_back_events_it_does_not_want(stores: str, put_back: int) -> None:
    """If it stores all events that it receives."""
    world = small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0)
    world.want[:] = 0
    assert run(world, CET(gamma=1, stores=stores)).counts["put_back"] == put_back  # type: ignore[arg-type]


@pytest.mark.parametrize(("gives", "put_back"), [("moves", 1), ("copies", 2)])
def test_put_back_moves_or_copies_the_event(gives: str, put_back: int) -> None:
    """At a second community the mule has the event only with `copies`."""
    sensors = [*PAIR[:2], (5.0, 85.0), (5.0, 95.0), (95.0, 5.0)]
    way = [*WALK[:1], stationary(95, 95, 30.0, 60.0), stationary(5, 95, 60.0)]
    result = run(small_world(sensors, [way], [(0.0, 4)], rate=1.0), CET(gamma=1, gives=gives))  # type: ignore[arg-type]
    assert result.counts["put_back"] == put_back


def test_keepers_take_turns_in_the_order_of_the_tree() -> None:
    """Five events put back to a chain of four: the root, each child, and the root again."""
    sensors = [*CHAIN, (95.0, 95.0)]
    way = [stationary(95, 95, 0.0, 20.0), stationary(5, 5, 20.0)]
    world = small_world(sensors, [way], [(float(t), 4) for t in range(5)], rate=1.0)
    state = build_field_state(world, CET(gamma=1), Radio(), find_communities(world), make_schedule(world), log_room=0)
    run_ticks(state, 100, 1_000, False)
    kept = {sensor: state.copy["event"][sensor, : state.sensor["queue_length"][sensor]].tolist() for sensor in range(4)}
    tree = HeadTree(neighbours_of(cells_by_sensor(world)), 0, world.seed)
    assert tree.order == [0, 1, 2, 3]
    assert {sensor: sorted(events) for sensor, events in kept.items()} == {0: [0, 4], 1: [3], 2: [2], 3: [1]}


def test_a_full_keeper_is_skipped() -> None:
    """The next sensor in tree order that has room keeps the event."""
    way = [stationary(95, 95, 0.0, 20.0), stationary(5, 5, 20.0)]
    events = [(0.0, 4), *((t, 0) for t in (1.0, 2.0))]
    world = small_world([*CHAIN, (95.0, 95.0)], [way], events, rate=1.0)
    put_back = [row for row in sent(world, CET(gamma=1, K=2)) if row[3] == 0 and row[1] != 4]
    assert [(sender, receiver) for _, sender, receiver, _ in put_back] == [(5, 0), (0, 1)]


def test_the_tree_order_is_pre_order() -> None:
    """A sensor follows its parent, and a whole subtree comes before the next child."""
    near = neighbours_of(cells_by_sensor(small_world([*CHAIN, (5.0, 15.0), (5.0, 25.0)], [[stationary(0, 0)]], [])))
    tree = HeadTree(near, 1, 7)
    assert tree.order[0] == 1
    assert sorted(tree.order) == sorted(near)
    assert tree.order.index(3) == tree.order.index(2) + 1


def test_a_head_below_theta_is_replaced() -> None:
    """When the energy of the first head falls below theta, another is elected."""
    radio = Radio(initial_j=1e-4)
    world = small_world(CHAIN, [[stationary(5, 5)]], [(float(t), 0) for t in range(40)], rate=1.0)
    result = simulate(world, CET(theta=0.9e-4), radio)
    assert result.counts["elections"] == 1


def test_a_run_until_death_ends_with_the_first_death() -> None:
    """A sensor with energy for three events dies with the third."""
    radio = Radio(initial_j=3 * 250 * 50e-9)
    world = small_world([(5, 5)], [[stationary(5, 5)]], [(float(t), 0) for t in range(40)], rate=1.0)
    result = simulate(world, DG(), radio, until_death=True)
    assert (result.counts["to_mules"], result.ended_s) == (3, result.first_death_s)


def test_figures_are_defined_as_in_the_paper() -> None:
    """Ratio of pairs, copies per event, delay from creation to first receipt."""
    result = run(small_world([(5, 5)], [[stationary(5, 5, 50.0)], [stationary(*FAR)]], [(1.0, 0)], rate=1.0), CET())
    figures = run_figures(result, 10.0)
    assert (figures.delivery_ratio, figures.copies, figures.delay_s, figures.hopcount) == (0.5, 1.0, 50.0, 1.0)


def test_tree_ranks_equal_the_reference() -> None:
    """The compiled hash equals the Python one."""
    cases = [(seed, head, sensor) for seed in (0, 1 << 61) for head in (0, 5) for sensor in (0, 9_999)]
    assert [int(tree_rank(*case)) for case in cases] == [core_tree_rank(*case) for case in cases]


def test_transfers_take_no_time_with_an_infinite_rate() -> None:
    """An event is delivered when the contact begins."""
    result = run(small_world(CHAIN, [[stationary(5, 5, 50.0)]], [(1.0, 3)], rate=inf), CET())
    assert result.delay_s.tolist() == [49.0]
