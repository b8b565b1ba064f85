"""`roamcast simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roamcast.cli.figures import JsonFile, write_figures
from roamcast.cli.progress import Progress

__all__ = ["simulate"]


def simulate(
    field: Annotated[Path, typer.Argument(help="A field in TOML; there are some in examples/fields.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write reports and traces there.")] = None,
    json: JsonFile = None,
) -> None:
    """Let a sensor field live, with each protocol that its file names, and report what was delivered.

    Example: roamcast simulate examples/fields/paper.toml --out results
    """
    from dataclasses import asdict

    from roamcast.cli.tables import table
    from roamcast.collect.simulation.contacts import cell_entries, find_contacts
    from roamcast.collect.simulation.reports import message_stats, write_reports
    from roamcast.collect.simulation.results import run_figures
    from roamcast.collect.simulation.scenario import load_scenario, mule_names, sensor_names
    from roamcast.collect.simulation.simulate import simulate
    from roamcast.collect.simulation.traces import contact_lines, movement_lines, write_lines

    scenario = load_scenario(field)
    world, outcomes = scenario.world, {}
    done = 0.0

    def note(part: float) -> None:
        nonlocal done
        done = part

    with Progress("compiling") as progress:
        progress.measure = lambda: (round(100 * done), 100)
        for protocol in scenario.protocols:
            progress.say(f"simulating {protocol.name}")
            outcomes[protocol.name] = simulate(
                world,
                protocol,
                scenario.radio,
                contacts=scenario.contacts,
                until_death=scenario.until_death,
                progress=note,
            )
    stats = {name: message_stats(outcome) for name, outcome in outcomes.items()}
    names = list(next(iter(stats.values())))
    rows = [[name, *(f"{stats[protocol][name]:.6g}" for protocol in stats)] for name in names]
    typer.echo(table(["", *stats], rows))
    if out is not None:
        for file in write_reports(out, world, outcomes):
            typer.echo(file)
        mules, sensors = mule_names(world.field.mules), sensor_names(world.field.sensors)
        contacts = scenario.contacts or find_contacts(world, cell_entries(world.field, world.legs))
        write_lines(out / "contacts.txt", contact_lines(contacts, mules, sensors))
        if scenario.contacts is None:
            size = {"side": world.field.side, "duration_s": world.field.duration_s}
            write_lines(out / "movement.txt", movement_lines(world.legs, mules, **size, is_csv=False))
            write_lines(out / "movement.csv", movement_lines(world.legs, mules, **size, is_csv=True))
    initial = scenario.radio.initial_j
    write_figures({name: asdict(run_figures(outcome, initial)) for name, outcome in outcomes.items()}, json)
