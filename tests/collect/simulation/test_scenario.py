"""Fields in TOML."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from roamcast.collect.simulation.field import Field, draw
from roamcast.collect.simulation.protocols import CET, DG, Epidemic
from roamcast.collect.simulation.reports import message_stats, write_reports
from roamcast.collect.simulation.scenario import Scenario, load_scenario
from roamcast.collect.simulation.simulate import simulate
from roamcast.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "fields").glob("*.toml"))


def load(folder: Path, text: str) -> Scenario:
    path = folder / "field.toml"
    path.write_text(text)
    return load_scenario(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_loaded(path: Path) -> None:
    """Each example describes a field with mules and sensors."""
    scenario = load_scenario(path)
    assert scenario.world.field.sensors == len(scenario.world.x)


def test_there_are_five_examples() -> None:
    """As many as are promised."""
    assert len(EXAMPLES) == 5


def test_empty_file_is_the_papers_field(tmp_path: Path) -> None:
    """Without a word both protocols run with the paper's parameters."""
    scenario = load_scenario(EXAMPLES[0].parent / "paper.toml")
    (tmp_path / "empty.toml").write_text("seed = 1")
    empty = load_scenario(tmp_path / "empty.toml")
    assert empty.world.field == scenario.world.field
    assert empty.protocols == (CET(), DG())


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[field]\nside = -1", "field.side", "too small"),
        ("[field]\ncells = 0", "field.cells", "too small"),
        ("[field]\ncells = 1000000000", "field.cells", "too large"),
        ("[field]\ncells = 1.5", "field.cells", "no whole number"),
        ("[field]\nside = nan", "field.side", "no number"),
        ("[field]\nside = inf", "field.side", "too large"),
        ("[field]\nside = true", "field.side", "no number"),
        ("[field]\nvalues = 1000000", "field.values", "too large"),
        ("[field]\nrate = 1e300", "field.rate", "too large"),
        ("[field]\nspeed_max = 1e6\npause_max_s = 0", "field.speed_max", "would enter a cell"),
        ("[field]\nsensors = 100000\ncells = 1", "field.cells", "would hear each other"),
        (f"[field]\nside = 1{'0' * 400}", "field.side", "too large"),
        ("[cet]\nquiet_s = inf", "cet.quiet_s", "too large"),
        ("[cet]\nK = inf", "cet.K", "no whole number"),
        ("[cet]\nhand_up = 'slowly'", "cet.hand_up", "none of its values"),
        ("[dg]\nrate_per = 'cell'", "dg.rate_per", "none of its values"),
        ("[epidemic]\nK = 1.5", "epidemic.K", "no whole number"),
        ("[field]\nside = 'wide'", "field.side", "no number"),
        ("[field]\ncell = 5", "field.cell", "unknown key"),
        ("[fields]\ncells = 5", "fields", "unknown key"),
        ("field = 5", "field", "no table"),
        ("[field]\nspeed_min = 9", "field.speed_min", "above speed_max"),
        ("[field]\ngap_s = 1e-9", "field.gap_s", "would be born"),
        ("[cet]\nresend = 'often'", "cet.resend", "none of its values"),
        ("[cet]\nput_back = 1", "cet.put_back", "not true or false"),
        ("[dg]\nalpha = 1", "dg.alpha", "unknown key"),
        ("seed = -1", "seed", "no seed"),
        ("until_death = 'yes'", "until_death", "true or false"),
        ("[sensors]\npoints = [[1, 2, 3]]", "sensors.points", "no list of points"),
        ("[sensors]\npoints = []", "sensors.points", "no list of points"),
        ("[sensors]\npoints = [[true, 1]]", "sensors.points", "no list of points"),
        ("[field]\nsensors = 3\n[sensors]\npoints = [[1, 2]]", "field.sensors", "not the number of points"),
        ("[traces]\nmovement = 'a'\ncontacts = 'b'", "traces.contacts", "movement too"),
        ("[radio]\ninitial_j = inf", "radio.initial_j", "too large"),
        ("[sensors]\npoints = [[1, 999]]", "sensors.points[0]", "outside"),
        ("[traces]\nmovement = 7", "traces.movement", "no file name"),
        ("[radio]\ninitial_j = -1", "radio.initial_j", "too small"),
        ("[field", "field.toml", "no TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(tmp_path: Path, text: str, where: str, what: str) -> None:
    """Bad values and unknown keys are refused, each with a hint."""
    with pytest.raises(InputError) as raised:
        load(tmp_path, text)
    assert str(raised.value.where).endswith(where)
    assert what in raised.value.message
    assert raised.value.hint


def test_no_limit_is_infinite(tmp_path: Path) -> None:
    """Where there may be none, `inf` says so."""
    text = (
        "[field]\nrate = inf\n[cet]\nalpha = inf\nbeta = inf\ntheta = inf\ngamma = inf\n[epidemic]\nK = inf\nbeta = inf"
    )
    assert load(tmp_path, text).protocols == (CET(alpha=inf, beta=inf, theta=inf, gamma=inf), Epidemic())


@pytest.mark.parametrize("protocol", [CET(K=1_000_000, left_behind="waits"), DG(K=1_000_000), Epidemic()])
def test_field_that_does_not_fit_into_memory_is_refused(protocol: CET | DG | Epidemic) -> None:
    """Before anything is taken of it."""
    world = draw(Field(side=2e4, cells=1000, sensors=5_000, mules=200, gap_s=50.0), 1)
    with pytest.raises(InputError, match="GB of memory"):
        simulate(world, protocol)


def test_line_of_a_trace_is_named(tmp_path: Path) -> None:
    """What is wrong in a trace is said with its file and line."""
    (tmp_path / "walk.csv").write_text("time,id,x,y\n0,m0,1,1\n5,m77,1,1\n")
    with pytest.raises(InputError, match=r"walk\.csv, line 3: unknown id 'm77'"):
        load(tmp_path, "[traces]\nmovement = 'walk.csv'")


def test_reports_have_the_names_of_the_one(tmp_path: Path) -> None:
    """One row for each protocol, as CSV and Parquet."""
    scenario = load_scenario(next(path for path in EXAMPLES if path.stem == "islands"))
    outcome = simulate(scenario.world, CET())
    files = write_reports(tmp_path, scenario.world, {"CET": outcome})
    assert {"delivery_prob", "overhead_ratio", "latency_avg", "latency_med", "hopcount_avg"} <= message_stats(
        outcome
    ).keys()
    assert sorted(file.name for file in files) == [
        "deliveries_cet.csv", "deliveries_cet.parquet", "message_stats.csv", "message_stats.parquet",
    ]  # fmt: skip
    assert len((tmp_path / "deliveries_cet.csv").read_text().splitlines()) == len(outcome.delivered) + 1
