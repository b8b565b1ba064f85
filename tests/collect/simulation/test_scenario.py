"""Scenario files."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from roamcast.collect.protocol.rules import CET, DG, Epidemic, Protocol, SprayAndWait
from roamcast.collect.simulation.field import Field, draw_world
from roamcast.collect.simulation.reports import message_stats, write_reports
from roamcast.collect.simulation.scenario import FieldScenario, load_scenario
from roamcast.collect.simulation.simulate import simulate
from roamcast.errors import InputError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "fields").glob("*.toml"))


def load(folder: Path, text: str) -> FieldScenario:
    path = folder / "field.toml"
    path.write_text(text)
    return load_scenario(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_can_be_loaded(path: Path) -> None:
    """Each example is a valid scenario."""
    scenario = load_scenario(path)
    assert scenario.world.field.sensors == len(scenario.world.x)


def test_there_are_five_examples() -> None:
    """The documentation says five."""
    assert len(EXAMPLES) == 5


def test_defaults_are_the_paper_s_field(tmp_path: Path) -> None:
    """Without tables, CET and DG run with the paper's parameters."""
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
        ("[field]\ncells = 1.5", "field.cells", "not an integer"),
        ("[field]\nside = nan", "field.side", "not a number"),
        ("[field]\nside = inf", "field.side", "too large"),
        ("[field]\nside = true", "field.side", "not a number"),
        ("[field]\nvalues = 1000000", "field.values", "too large"),
        ("[field]\nrate = 1e300", "field.rate", "too large"),
        ("[field]\nspeed_max = 1e6\npause_max_s = 0", "field.speed_max", "entries of mules into cells"),
        ("[field]\nsensors = 100000\ncells = 1", "field.cells", "in reach of each other"),
        (f"[field]\nside = 1{'0' * 400}", "field.side", "too large"),
        ("[cet]\nquiet_s = inf", "cet.quiet_s", "too large"),
        ("[cet]\nK = inf", "cet.K", "not an integer"),
        ("[cet]\nhand_up = 'slowly'", "cet.hand_up", "invalid value"),
        ("[dg]\nrate_per = 'cell'", "dg.rate_per", "invalid value"),
        ("[epidemic]\nK = 1.5", "epidemic.K", "not an integer"),
        ("[spray_and_wait]\nL = 0", "spray_and_wait.L", "too small"),
        ("[field]\nside = 'wide'", "field.side", "not a number"),
        ("[field]\ncell = 5", "field.cell", "unknown key"),
        ("[fields]\ncells = 5", "fields", "unknown key"),
        ("field = 5", "field", "not a table"),
        ("[field]\nspeed_min = 9", "field.speed_min", "greater than speed_max"),
        ("[field]\ngap_s = 1e-9", "field.gap_s", "events in all"),
        ("[cet]\nresend = 'often'", "cet.resend", "invalid value"),
        ("[cet]\nput_back = 1", "cet.put_back", "not a boolean"),
        ("[dg]\nalpha = 1", "dg.alpha", "unknown key"),
        ("seed = -1", "seed", "invalid seed"),
        ("until_death = 'yes'", "until_death", "not a boolean"),
        ("[sensors]\npoints = [[1, 2, 3]]", "sensors.points", "not a list of points"),
        ("[sensors]\npoints = []", "sensors.points", "not a list of points"),
        ("[sensors]\npoints = [[true, 1]]", "sensors.points", "not a list of points"),
        ("[field]\nsensors = 3\n[sensors]\npoints = [[1, 2]]", "field.sensors", "does not match the number of points"),
        ("[traces]\nmovement = 'a'\ncontacts = 'b'", "traces.contacts", "cannot be combined"),
        ("[radio]\ninitial_j = inf", "radio.initial_j", "too large"),
        ("[sensors]\npoints = [[1, 999]]", "sensors.points[0]", "outside"),
        ("[traces]\nmovement = 7", "traces.movement", "not a file name"),
        ("[radio]\ninitial_j = -1", "radio.initial_j", "too small"),
        ("[field", "field.toml", "invalid TOML"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, text: str, where: str, what: str) -> None:
    """Invalid values and unknown keys are refused with a hint."""
    with pytest.raises(InputError) as raised:
        load(tmp_path, text)
    assert str(raised.value.where).endswith(where)
    assert what in raised.value.message
    assert raised.value.hint


def test_limits_can_be_infinite(tmp_path: Path) -> None:
    """`inf` means no limit."""
    text = (
        "[field]\nrate = inf\n[cet]\nalpha = inf\nbeta = inf\ntheta = inf\ngamma = inf\n[epidemic]\nK = inf\nbeta = inf"
    )
    assert load(tmp_path, text).protocols == (CET(alpha=inf, beta=inf, theta=inf, gamma=inf), Epidemic())


@pytest.mark.parametrize(
    "protocol", [CET(K=1_000_000, left_behind="waits"), DG(K=1_000_000), Epidemic(), SprayAndWait()]
)
def test_a_field_that_does_not_fit_into_memory_is_refused(protocol: Protocol) -> None:
    """Before any memory is allocated."""
    world = draw_world(Field(side=2e4, cells=1000, sensors=5_000, mules=200, gap_s=50.0), 1)
    with pytest.raises(InputError, match="GB of memory"):
        simulate(world, protocol)


def test_errors_in_traces_name_the_line(tmp_path: Path) -> None:
    """The error names the file and the line."""
    (tmp_path / "walk.csv").write_text("time,id,x,y\n0,m0,1,1\n5,m77,1,1\n")
    with pytest.raises(InputError, match=r"walk\.csv, line 3: unknown id 'm77'"):
        load(tmp_path, "[traces]\nmovement = 'walk.csv'")


def test_reports_use_the_names_of_one(tmp_path: Path) -> None:
    """One row for each protocol, as CSV and Parquet."""
    scenario = load_scenario(next(path for path in EXAMPLES if path.stem == "islands"))
    result = simulate(scenario.world, CET())
    files = write_reports(tmp_path, scenario.world, {"CET": result})
    assert {"delivery_prob", "overhead_ratio", "latency_avg", "latency_med", "hopcount_avg"} <= message_stats(
        result
    ).keys()
    assert sorted(file.name for file in files) == [
        "deliveries_cet.csv", "deliveries_cet.parquet", "message_stats.csv", "message_stats.parquet",
    ]  # fmt: skip
    assert len((tmp_path / "deliveries_cet.csv").read_text().splitlines()) == len(result.delivered) + 1
