"""`roamcast reproduce postoffice`: the figures of the post office paper, by formula and by running the protocol.

Figure 4: the time of one communication against q, for several (rho1, rho2). Figure 5: the messages of a hundred
migrations against xi, for several eta. Each curve of the formula is shown with the same quantity counted while the real
offices run over a simulated network, and with everything they send, including what the paper leaves out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from roamcast.durable import make_folder
from roamcast.lab.experiments.plots import Curve, Plot
from roamcast.lab.experiments.postoffice.model import Costs, Mix, migration_messages
from roamcast.lab.experiments.postoffice.run import CountingNetwork, LetterCost
from roamcast.lab.experiments.statistics import write_csv

__all__ = ["ETAS", "MIXES", "figure4", "figure5", "reproduce"]

Row = dict[str, float]

MIXES = ((0.1, 0.1), (0.1, 0.5), (0.3, 0.3), (0.5, 0.3), (0.8, 0.1))
"""(rho1, rho2); the first is the paper's."""
QS = tuple(step / 10 for step in range(11))
ETAS = (0.05, 0.1, 0.2)
"""A domain border every 20, 10 and 5 moves (section 4)."""
XIS = tuple(step / 10 for step in range(1, 11))
MIGRATIONS = 100
COMMUNICATIONS = 20
"""Communications of the migrating instance; a fraction xi of them goes to different domains."""


def reproduce(folder: Path, say: Callable[[str], None], *, letters: int = 200) -> dict[str, Any]:
    """Write both figures to `folder` as PNG and CSV, and return their data. `letters` per point of figure 4."""
    plots = Plot()
    make_folder(folder)
    costs = Costs()
    say(f"figure 4: {len(MIXES) * len(QS)} points of {letters} letters")
    fourth = figure4(costs, letters)
    say(f"figure 5: {len(ETAS) * len(XIS)} points of {MIGRATIONS} migrations")
    fifth = figure5(costs)
    files = [
        write_csv(folder / "postoffice-figure4.csv", fourth),
        write_csv(folder / "postoffice-figure5.csv", fifth),
        plots.draw(
            folder / "postoffice-figure4.png",
            "Time of one communication",
            ("q, the chance that the receiver is between domains", "time, in units of 1k over the network"),
            _curves(fourth, ("rho1", "rho2"), "q", ("time_formula", "time_counted", "time_elapsed")),
        ),
        plots.draw(
            folder / "postoffice-figure5.png",
            f"Messages spent on {MIGRATIONS} migrations",
            ("xi, domains involved for each communication", "messages"),
            _curves(fifth, ("eta",), "xi", ("messages_formula", "messages_counted", "messages_everything")),
        ),
    ]
    return {
        "figure4": fourth,
        "figure5": fifth,
        "largest_deviation": {
            "time": _deviation(fourth, "time"),
            "traffic": _deviation(fourth, "traffic"),
            "messages": _deviation(fifth, "messages"),
        },
        "files": [str(file) for file in files],
    }


def figure4(costs: Costs, letters: int) -> list[Row]:
    """Formulas (1) and (2) against q."""
    rows = []
    for (rho1, rho2), q in itertools.product(MIXES, QS):
        mix = Mix(rho1, rho2, q)
        costs_of_letters = _write(mix, costs, letters)
        rows.append(
            {
                "rho1": rho1,
                "rho2": rho2,
                "q": q,
                "time_formula": mix.time(costs),
                "time_counted": _mean([cost.time for cost in costs_of_letters]),
                "time_elapsed": _mean([cost.elapsed for cost in costs_of_letters]),
                "traffic_formula": mix.traffic(costs),
                "traffic_counted": _mean([cost.traffic for cost in costs_of_letters]),
                "traffic_everything": _mean([cost.everything for cost in costs_of_letters]),
            }
        )
    return rows


def figure5(costs: Costs) -> list[Row]:
    """Formula (3) for the whole journey, against xi."""
    rows = []
    for eta, xi in itertools.product(ETAS, XIS):
        friends = round(xi * COMMUNICATIONS)
        counted, everything = _travel(eta, friends, costs)
        rows.append(
            {
                "eta": eta,
                "xi": xi,
                "friends": friends,
                "messages_formula": eta * MIGRATIONS * migration_messages(friends),
                "messages_counted": counted,
                "messages_everything": everything,
            }
        )
    return rows


def _write(mix: Mix, costs: Costs, letters: int) -> list[LetterCost]:
    """Send letters in the proportions of the mix, each to its own receiver. Returns the cost of each."""
    network = CountingNetwork(("a", "b", "c", "home"), costs)
    network.create("a.host.sender")
    local, book = round(mix.rho1 * letters), round(mix.rho2 * letters)
    costs_of_letters = []
    for kind, count in (("local", local), ("book", book), ("home", letters - local - book)):
        moving = round(mix.q * count)
        for at in range(count):
            receiver = f"{'a' if kind == 'local' else 'home'}.host.{kind}{at}"
            network.create(receiver, None if kind == "local" else "b")
            if kind == "book":
                network.write("a.host.sender", receiver)
            moves_to = "c" if at < moving and kind != "local" else None
            costs_of_letters.append(network.write("a.host.sender", receiver, moves_to=moves_to))
    return costs_of_letters


def _travel(eta: float, friends: int, costs: Costs) -> tuple[int, int]:
    """Move an instance with `friends` friend domains a hundred times. Returns the messages as in the paper, and all.

    Random moves cross a domain border, as in the paper. Inside a domain the mailbox stays and nobody is notified.
    """
    rng = Random(friends)  # noqa: S311  # not for security
    crossings = set(rng.sample(range(MIGRATIONS), round(eta * MIGRATIONS)))
    domains = [f"friend{at}" for at in range(friends)]
    network = CountingNetwork((*domains, "home", "x", "y"), costs)
    network.create("home.host.agent", "x")
    for domain in domains:
        network.create(f"{domain}.host.peer")
    for at in range(COMMUNICATIONS):
        network.write("home.host.agent", f"{domains[at % friends]}.host.peer")
    here, there = "x", "y"
    counted = everything = 0
    for move in range(MIGRATIONS):
        if move in crossings:
            here, there = there, here
            cost = network.migrate("home.host.agent", here)
            counted += cost.messages
            everything += cost.everything
    return counted, everything


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(rows: Sequence[Row], what: str) -> float:
    """The largest relative deviation of the counted values from the formula."""
    return max(abs(row[f"{what}_counted"] / row[f"{what}_formula"] - 1) for row in rows)


def _curves(rows: Sequence[Row], groups: Sequence[str], x: str, ys: Sequence[str]) -> list[Curve]:
    """One curve for each group, with the three given columns."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        curves.setdefault(", ".join(f"{group} {row[group]:g}" for group in groups), []).append(row)
    return [Curve(name, *([row[column] for row in group] for column in (x, *ys))) for name, group in curves.items()]
