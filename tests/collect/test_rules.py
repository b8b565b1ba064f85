"""Each rule of the protocols, in a field made for it. Cells are 10 m wide."""

from __future__ import annotations

from math import inf

import pytest
from fields import FIELDS, SEEDS, small_world, standing
from hypothesis import given

from roamcast.collect.simulation.assembly import assemble
from roamcast.collect.simulation.community import find_communities
from roamcast.collect.simulation.contacts import entries_of, meetings
from roamcast.collect.simulation.energy import Radio
from roamcast.collect.simulation.field import Field, World, cell_of, draw
from roamcast.collect.simulation.kernels.living import live
from roamcast.collect.simulation.kernels.trees import scramble
from roamcast.collect.simulation.outcome import Outcome, figures
from roamcast.collect.simulation.protocols import CET, DG, Epidemic, RatePer
from roamcast.collect.simulation.reference.communities import Tree, communities, layers, neighbours
from roamcast.collect.simulation.reference.communities import scramble as slow_scramble
from roamcast.collect.simulation.schedule import schedule
from roamcast.collect.simulation.simulate import simulate

CHAIN = [(5.0, 5.0), (15.0, 5.0), (25.0, 5.0), (35.0, 5.0)]
"""Four sensors in a row, each in reach of the next alone."""
FAR = (95.0, 95.0)
MULE = 4
"""Its number in the log, where there are four sensors."""


def sent(world: World, protocol: CET | DG | Epidemic, radio: Radio | None = None) -> list[tuple[int, int, int, int]]:
    transfers = simulate(world, protocol, radio, log=True).transfers
    assert transfers is not None
    return [tuple(row) for row in transfers.tolist()]


def run(world: World, protocol: CET | DG | Epidemic) -> Outcome:
    return simulate(world, protocol)


def test_sensors_of_cells_that_touch_are_a_community() -> None:
    """Cells that share an edge or a corner connect; others do not; alone is a loner."""
    world = small_world([(5, 5), (15, 15), (35, 15), (95, 95), (96, 96)], [[standing(0, 0)]], [])
    found = find_communities(world)
    members = [found.member[a:b].tolist() for a, b in zip(found.first, found.first[1:], strict=False)]
    assert members == [[0, 1], [2], [3, 4]]
    assert found.size.tolist() == [2, 1, 1]


@given(FIELDS, SEEDS)
def test_communities_are_those_of_brute_force(field: Field, seed: int) -> None:
    """Members and sizes in cells are what a search by hand finds."""
    world = draw(field, seed)
    found, slow = find_communities(world), communities(neighbours(world))
    assert [found.member[a:b].tolist() for a, b in zip(found.first, found.first[1:], strict=False)] == slow
    cells = list(zip(*(column.tolist() for column in cell_of(field, world.x, world.y)), strict=True))
    assert found.size.tolist() == [len({cells[sensor] for sensor in members}) for members in slow]


def test_contact_times_are_those_of_the_lines() -> None:
    """At 1 m/s along a row, a sensor is reached when its neighbouring cell is entered and lost when it is left."""
    world = small_world([(35, 5)], [[(0, 90, 100, 5, 5, 95, 5)]], [])
    contacts = meetings(world, entries_of(world.field, world.legs))
    assert (contacts.begin.tolist(), contacts.end.tolist()) == ([15.0], [45.0])


def test_path_set_is_breadth_first() -> None:
    """Layer 1 are those that the leg touches, every other one is as many hops away as its layer says."""
    near = neighbours(small_world(CHAIN, [[standing(0, 0)]], []))
    assert layers(near, [1]) == {1: 1, 0: 2, 2: 2, 3: 3}


def test_events_climb_one_layer_a_tick() -> None:
    """From the fourth sensor of a chain to a mule at the first an event takes four ticks."""
    world = small_world(CHAIN, [[standing(5, 5, 50.0)]], [(1.0, 3)], rate=1.0)
    # The mule reaches the first two sensors of the chain.
    assert sent(world, CET()) == [(50, 3, 2, 0), (51, 2, 1, 0), (52, 1, MULE, 0)]


def test_sensor_with_two_above_takes_them_in_turn() -> None:
    """A sensor below two of layer 1 hands them its events alternately."""
    births = [(t, 2) for t in (1.0, 2.0, 3.0, 4.0)]
    world = small_world([(5, 25), (15, 25), (5, 35), FAR], [[standing(5, 15, 50.0)]], births, rate=1.0)
    ups = [receiver for _, sender, receiver, _ in sent(world, CET()) if sender == 2]
    assert ups == [0, 1, 0, 1]


def test_events_climb_their_whole_way_where_that_is_one_step() -> None:
    """Handed up all the way, an event is in layer 1 in the tick in which it sets out."""
    world = small_world(CHAIN, [[standing(5, 5, 50.0)]], [(1.0, 3)], rate=1.0)
    assert sent(world, CET(hand_up="way")) == [(50, 3, 2, 0), (50, 2, 1, 0), (51, 1, MULE, 0)]


def test_way_up_ends_where_there_is_no_room() -> None:
    """Below a full queue an event stays."""
    world = small_world(CHAIN, [[standing(5, 5, 50.0)]], [(1.0, 1), (2.0, 3)], rate=1.0)
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
def test_rate_is_that_of_nodes_or_of_links(rate_per: RatePer, transfers: list[tuple[int, int, int]]) -> None:
    """Two sensors with an event each, and two mules in reach of both."""
    ways = [[standing(5, 5, 50.0)], [standing(5, 6, 50.0)]]
    world = small_world([(5, 5), (5, 15)], ways, [(1.0, 0), (2.0, 1)], rate=1.0)
    for protocol in (CET(rate_per=rate_per), DG(rate_per=rate_per, resend="once")):
        assert [transfer[:3] for transfer in sent(world, protocol)] == transfers


@pytest.mark.parametrize(
    ("rate_per", "ticks"), [("node", [50, 51]), ("sender", [50, 51]), ("receiver", [50, 50]), ("link", [50, 50])]
)
def test_sensor_that_may_send_more_hands_up_to_all_above(rate_per: RatePer, ticks: list[int]) -> None:
    """A sensor below two of layer 1 gives both an event in one tick if its own sending is not limited."""
    births = [(1.0, 2), (2.0, 2)]
    world = small_world([(5, 25), (15, 25), (5, 35), FAR], [[standing(5, 15, 50.0)]], births, rate=1.0)
    assert [tick for tick, sender, *_ in sent(world, CET(rate_per=rate_per)) if sender == 2] == ticks


def test_owner_keeps_its_copy_and_relays_do_not() -> None:
    """After collection the event is in its source's queue alone."""
    outcome = run(small_world(CHAIN, [[standing(5, 5, 50.0)]], [(1.0, 3)], rate=1.0), CET())
    assert (outcome.held, outcome.under_way, len(outcome.delivered)) == (1, 0, 1)


def test_contact_that_ends_strands_what_is_on_its_way() -> None:
    """A mule that leaves after two ticks gets nothing from four hops away."""
    outcome = run(small_world(CHAIN, [[(0, 50, 47, 95, 5, 45, 5)]], [(1.0, 0)], rate=1.0), CET())
    assert (outcome.counts["stranded"], len(outcome.delivered)) == (1, 0)


@pytest.mark.parametrize(("left_behind", "deliveries"), [("dropped", 0), ("waits", 1)])
def test_what_is_left_behind_waits_or_goes(left_behind: str, deliveries: int) -> None:
    """A mule that leaves while an event is on its way up, and comes back, gets it only where that waits."""
    way = [(0.0, 50.0, 47.0, 95.0, 5.0, 45.0, 5.0), standing(45, 95, 47.0, 60.0), standing(45, 5, 60.0)]
    world = small_world(CHAIN, [way], [(1.0, 0)], rate=1.0)
    assert len(run(world, CET(left_behind=left_behind)).delivered) == deliveries  # type: ignore[arg-type]


@pytest.mark.parametrize(("alpha", "deliveries"), [(0, 1), (1, 2), (2, 3), (20, 3)])
def test_event_with_more_than_alpha_successes_is_dropped(alpha: float, deliveries: int) -> None:
    """Three mules one after the other: alpha + 1 of them get the event."""
    ways = [[standing(5, 5, start, start + 5)] for start in (10.0, 20.0, 30.0)]
    assert len(run(small_world([(5, 5)], ways, [(1.0, 0)], rate=1.0), CET(alpha=alpha)).delivered) == deliveries


@pytest.mark.parametrize(("beta", "deliveries"), [(48.0, 0), (49.0, 1)])
@pytest.mark.parametrize("kind", [CET, DG, Epidemic])
def test_event_older_than_beta_is_dropped(kind: type[CET | DG | Epidemic], beta: float, deliveries: int) -> None:
    """A mule that comes 49 s after the birth gets the event iff beta is at least that."""
    world = small_world([(5, 5)], [[standing(5, 5, 50.0)]], [(1.0, 0)], rate=1.0)
    assert len(run(world, kind(beta=beta)).delivered) == deliveries


def test_full_queue_takes_no_new_event() -> None:
    """With K = 2 the third event is lost, and the first two are delivered."""
    outcome = run(
        small_world([(5, 5)], [[standing(5, 5, 50.0)]], [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0), CET(K=2)
    )
    assert (outcome.counts["full"], sorted(outcome.delivered[:, 2].tolist())) == (1, [0, 1])


def test_fewest_successes_go_first_then_the_youngest() -> None:
    """A second mule gets first what the first one had no time for, then the youngest of the others."""
    ways = [[standing(5, 5, 10.0, 12.0)], [standing(5, 5, 20.0)]]
    world = small_world([(5, 5)], ways, [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0)
    assert [(receiver, event) for _, _, receiver, event in sent(world, CET())] == [
        (1, 2),
        (1, 1),
        (2, 0),
        (2, 2),
        (2, 1),
    ]


def test_gathering_hands_over_the_newest_first() -> None:
    """Direct gathering knows no successes."""
    ways = [[standing(5, 5, 10.0, 12.0)], [standing(5, 5, 20.0)]]
    world = small_world([(5, 5)], ways, [(t, 0) for t in (1.0, 2.0, 3.0)], rate=1.0)
    assert [(receiver, event) for _, _, receiver, event in sent(world, DG())] == [
        (1, 2),
        (1, 1),
        (2, 2),
        (2, 1),
        (2, 0),
    ]


def test_gathering_relays_nothing() -> None:
    """Who is not in reach itself is not heard."""
    assert sent(small_world(CHAIN, [[standing(5, 5)]], [(1.0, 3)], rate=1.0), DG()) == []


@pytest.mark.parametrize(("resend", "times"), [("cell", 4), ("contact", 2), ("once", 1)])
def test_gathering_sends_again_as_it_is_read(resend: str, times: int) -> None:
    """Two passes of two cells each in reach: once for each cell, each contact, or once."""
    there, back = (0.0, 40.0, 50.0, 5.0, 5.0, 45.0, 5.0), (50.0, 90.0, 100.0, 45.0, 5.0, 5.0, 5.0)
    world = small_world([(5, 5)], [[there, back]], [(0.0, 0)], rate=1.0)
    assert len(sent(world, DG(resend=resend))) == times  # type: ignore[arg-type]


@pytest.mark.parametrize(("resend", "times"), [("subscriber", 1), ("contact", 2), ("missing", 1)])
def test_cet_sends_again_as_it_is_read(resend: str, times: int) -> None:
    """Two contacts: an own event goes once, in each, or until the mule has it."""
    there, back = (0.0, 40.0, 50.0, 5.0, 5.0, 45.0, 5.0), (50.0, 90.0, 100.0, 45.0, 5.0, 5.0, 5.0)
    world = small_world([(5, 5)], [[there, back]], [(0.0, 0)], rate=1.0)
    assert len(sent(world, CET(resend=resend))) == times  # type: ignore[arg-type]


PAIR = [(85.0, 95.0), (95.0, 95.0), (5.0, 95.0), (95.0, 5.0)]
"""A community of two, and two loners."""
WALK = [(0.0, 20.0, 30.0, 95.0, 5.0, 95.0, 95.0), (30.0, 40.0, 100.0, 95.0, 95.0, 95.0, 95.0)]
"""From a loner to the community."""


def test_events_of_small_communities_are_put_back() -> None:
    """What a mule took from a loner it gives to a community when it has heard nothing for a second."""
    world = small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0)
    gifts = [(receiver, event) for _, sender, receiver, event in sent(world, CET(gamma=1)) if sender == MULE]
    assert gifts == [(0, 0)]


def test_events_of_large_communities_are_not_put_back() -> None:
    """With gamma below the size of a loner nothing is put back."""
    assert run(small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0), CET(gamma=0)).counts["put_back"] == 0


def test_nothing_is_put_back_to_its_community_or_to_a_loner() -> None:
    """A mule that meets nobody else keeps what it has."""
    back = [*WALK[:1], (30.0, 50.0, 100.0, 95.0, 95.0, 95.0, 5.0)]
    assert run(small_world(PAIR[2:], [back], [(0.0, 1)], rate=1.0), CET(gamma=4)).counts["put_back"] == 0
    home = small_world(PAIR, [[standing(95, 95)]], [(0.0, 0)], rate=1.0)
    assert run(home, CET(gamma=4)).counts["put_back"] == 0


def test_community_refuses_what_was_put_back_there_before() -> None:
    """Two mules with the same event: only one can give it."""
    assert run(small_world(PAIR, [WALK, WALK], [(0.0, 3)], rate=1.0), CET(gamma=1)).counts["put_back"] == 1


def test_put_back_event_is_the_keepers_own() -> None:
    """A third mule gets it from the community, and the event is then in two queues: its source's and its keeper's."""
    ways = [WALK, [standing(85, 95, 60.0)]]
    outcome = run(small_world(PAIR, ways, [(0.0, 3)], rate=1.0), CET(gamma=1))
    assert (outcome.held, outcome.delivered[:, 1].tolist()) == (2, [0, 1])


@pytest.mark.parametrize(("stores", "gifts"), [("wanted", 0), ("all", 1)])
def test_mule_may_put_back_what_it_does_not_want(stores: str, gifts: int) -> None:
    """Where it stores all that it has received."""
    world = small_world(PAIR, [WALK], [(0.0, 3)], rate=1.0)
    world.want[:] = 0
    assert run(world, CET(gamma=1, stores=stores)).counts["put_back"] == gifts  # type: ignore[arg-type]


@pytest.mark.parametrize(("gives", "gifts"), [("moves", 1), ("copies", 2)])
def test_what_is_put_back_moves_or_is_copied(gives: str, gifts: int) -> None:
    """A mule that comes to a second community has the event no more, or gives it there as well."""
    sensors = [*PAIR[:2], (5.0, 85.0), (5.0, 95.0), (95.0, 5.0)]
    way = [*WALK[:1], standing(95, 95, 30.0, 60.0), standing(5, 95, 60.0)]
    outcome = run(small_world(sensors, [way], [(0.0, 4)], rate=1.0), CET(gamma=1, gives=gives))  # type: ignore[arg-type]
    assert outcome.counts["put_back"] == gifts


def test_keepers_are_taken_in_the_order_of_the_tree_round_and_round() -> None:
    """Five events put back to a chain of four are kept by root, child after child, and the root again."""
    sensors = [*CHAIN, (95.0, 95.0)]
    way = [standing(95, 95, 0.0, 20.0), standing(5, 5, 20.0)]
    world = small_world(sensors, [way], [(float(t), 4) for t in range(5)], rate=1.0)
    state = assemble(world, CET(gamma=1), Radio(), find_communities(world), schedule(world), log=0)
    live(state, 100, 1_000, False)
    kept = {sensor: state.copy["event"][sensor, : state.sensor["used"][sensor]].tolist() for sensor in range(4)}
    tree = Tree(neighbours(world), 0, world.seed)
    assert tree.order == [0, 1, 2, 3]
    assert {sensor: sorted(events) for sensor, events in kept.items()} == {0: [0, 4], 1: [3], 2: [2], 3: [1]}


def test_full_keeper_is_passed_over() -> None:
    """The next in the order of the tree with room keeps what the full one cannot."""
    way = [standing(95, 95, 0.0, 20.0), standing(5, 5, 20.0)]
    births = [(0.0, 4), *((t, 0) for t in (1.0, 2.0))]
    world = small_world([*CHAIN, (95.0, 95.0)], [way], births, rate=1.0)
    gifts = [row for row in sent(world, CET(gamma=1, K=2)) if row[3] == 0 and row[1] != 4]
    assert [(sender, receiver) for _, sender, receiver, _ in gifts] == [(5, 0), (0, 1)]


def test_tree_is_walked_root_first_then_subtree_by_subtree() -> None:
    """Each sensor follows its parent, and all below a child come before the next child."""
    near = neighbours(small_world([*CHAIN, (5.0, 15.0), (5.0, 25.0)], [[standing(0, 0)]], []))
    tree = Tree(near, 1, 7)
    assert tree.order[0] == 1
    assert sorted(tree.order) == sorted(near)
    assert tree.order.index(3) == tree.order.index(2) + 1


def test_head_below_theta_makes_way() -> None:
    """When the first head has spent what it had above theta, another is chosen."""
    radio = Radio(initial_j=1e-4)
    world = small_world(CHAIN, [[standing(5, 5)]], [(float(t), 0) for t in range(40)], rate=1.0)
    outcome = simulate(world, CET(theta=0.9e-4), radio)
    assert outcome.counts["elections"] == 1


def test_run_to_the_first_death_ends_with_it() -> None:
    """A sensor that can send three events dies with the third."""
    radio = Radio(initial_j=3 * 250 * 50e-9)
    world = small_world([(5, 5)], [[standing(5, 5)]], [(float(t), 0) for t in range(40)], rate=1.0)
    outcome = simulate(world, DG(), radio, until_death=True)
    assert (outcome.counts["to_mules"], outcome.ended_s) == (3, outcome.first_death_s)


def test_figures_are_those_of_the_paper() -> None:
    """Ratio over pairs, copies over events, delay from birth to first receipt."""
    outcome = run(small_world([(5, 5)], [[standing(5, 5, 50.0)], [standing(*FAR)]], [(1.0, 0)], rate=1.0), CET())
    found = figures(outcome, 10.0)
    assert (found.delivery_ratio, found.copies, found.delay_s, found.hopcount) == (0.5, 1.0, 50.0, 1.0)


def test_chance_of_the_trees_is_the_same_in_both() -> None:
    """The compiled hash equals the plain one."""
    cases = [(seed, head, sensor) for seed in (0, 1 << 61) for head in (0, 5) for sensor in (0, 9_999)]
    assert [int(scramble(*case)) for case in cases] == [slow_scramble(*case) for case in cases]


def test_unlimited_rate_takes_no_time() -> None:
    """Where transfers take no time, an event is there when the contact begins."""
    outcome = run(small_world(CHAIN, [[standing(5, 5, 50.0)]], [(1.0, 3)], rate=inf), CET())
    assert outcome.delay_s.tolist() == [49.0]
