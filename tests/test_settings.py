"""Settings from the TOML file, the environment and command-line options."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.errors import InputError
from roamcast.settings import (
    client_settings,
    drtcluster_settings,
    effective_settings,
    find_config_file,
    node_settings,
    pipeline_settings,
    settings_problems,
)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROAMCAST_CONFIG", raising=False)


def write(text: str, name: str = "roamcast.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def test_options_override_variables_and_variables_override_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults come last."""
    write('[node]\nport = 1\ndomain = "file"\nhost = "0.0.0.0"\n[limits]\nbulk = 1\npull = 2\n')
    monkeypatch.setenv("ROAMCAST_PORT", "9000")
    monkeypatch.setenv("ROAMCAST_DOMAIN", "north")
    monkeypatch.setenv("ROAMCAST_LIMITS__BULK", "5")
    settings = node_settings(domain="south", host=None)
    assert (settings.port, settings.domain, settings.host, settings.silence) == (9000, "south", "0.0.0.0", 5.0)
    assert (settings.limits.bulk, settings.limits.pull, settings.limits.page) == (5, 2, 1_000)


def test_every_section_is_read_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node, limits, pipeline and client; each has its variables."""
    write('[pipeline]\nrecords = 7\nplan = "replicated"\n[client]\nurl = "http://node.example:1"\n')
    monkeypatch.setenv("ROAMCAST_PIPELINE__RECORDS", "8")
    assert (pipeline_settings().records, pipeline_settings().plan) == (8, "replicated")
    assert pipeline_settings(records=9).records == 9
    monkeypatch.setenv("ROAMCAST_DRTCLUSTER__C_MAX_NUM_TH", "7")
    assert (drtcluster_settings().c_max_num_th, drtcluster_settings().merge) == (7, 1.0)
    assert client_settings().url == "http://node.example:1"


def test_node_address_and_public_url_are_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROAMCAST_URL is the node to call, ROAMCAST_PUBLIC_URL the node's own address."""
    monkeypatch.setenv("ROAMCAST_URL", "http://other.example:1")
    assert (client_settings().url, node_settings().public_url) == ("http://other.example:1", None)
    monkeypatch.setenv("ROAMCAST_PUBLIC_URL", "https://me.example")
    assert (client_settings().url, node_settings().public_url) == ("http://other.example:1", "https://me.example")


def test_config_variable_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """It replaces ./roamcast.toml; a missing file is an error."""
    assert find_config_file() is None
    write("[node]\nport = 1\n")
    write("[node]\nport = 2\n", "other.toml")
    assert node_settings().port == 1
    monkeypatch.setenv("ROAMCAST_CONFIG", "other.toml")
    assert node_settings().port == 2
    monkeypatch.setenv("ROAMCAST_CONFIG", "missing.toml")
    with pytest.raises(InputError, match="ROAMCAST_CONFIG"):
        node_settings()


def test_origins_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the file; in the variable they are separated by commas."""
    assert node_settings().cors_origins == ()
    write('[node]\ncors_origins = ["https://a.example", "http://localhost:5173"]\n')
    assert node_settings().cors_origins == ("https://a.example", "http://localhost:5173")
    monkeypatch.setenv("ROAMCAST_CORS_ORIGINS", "https://b.example, *")
    assert node_settings().cors_origins == ("https://b.example", "*")


BAD_FILES = {
    "not TOML": ("[node", "roamcast.toml"),
    "unknown section": ("[nodes]\nport = 1", "roamcast.toml: nodes"),
    "unknown key": ("[node]\nprot = 1", "roamcast.toml: node.prot"),
    "unknown limit": ("[limits]\nbulks = 1", "roamcast.toml: limits.bulks"),
    "not a section": ("port = 1", "roamcast.toml: port"),
    "invalid value": ("[node]\nport = 70000", "roamcast.toml: node.port"),
    "invalid limit": ("[limits]\nbulk = 0", "roamcast.toml: limits.bulk"),
    "origin with a path": ('[node]\ncors_origins = ["https://a.example/"]', "roamcast.toml: node.cors_origins"),
    "origins no list": ("[node]\ncors_origins = 5", "roamcast.toml: node.cors_origins"),
}


@pytest.mark.parametrize(("text", "where"), BAD_FILES.values(), ids=BAD_FILES)
def test_errors_name_the_file_and_the_key(text: str, where: str) -> None:
    """With a hint, such as the key that was probably meant."""
    write(text)
    with pytest.raises(InputError) as error:
        node_settings()
    assert error.value.where == where
    assert error.value.hint


def test_hint_names_the_key_that_was_probably_meant() -> None:
    """By similarity."""
    write("[node]\nprot = 1")
    with pytest.raises(InputError, match="did you mean 'port'"):
        node_settings()


@pytest.mark.parametrize(
    ("name", "value"), [("port", 70000), ("space", "round"), ("domain", "../x"), ("domain", ""), ("scene", "maybe")]
)
def test_errors_name_the_option_or_the_variable(name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever the value comes from."""
    with pytest.raises(InputError) as error:
        node_settings(**{name: value})
    assert error.value.where == f"--{name}"
    monkeypatch.setenv(f"ROAMCAST_{name.upper()}", str(value))
    with pytest.raises(InputError) as error:
        node_settings()
    assert error.value.where == f"ROAMCAST_{name.upper()}"


def test_paths_come_from_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ROAMCAST_PLACES."""
    monkeypatch.setenv("ROAMCAST_PLACES", str(tmp_path / "rooms.geojson"))
    assert node_settings().places == tmp_path / "rooms.geojson"


def test_lists_in_variables_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anything else is an error with an example."""
    monkeypatch.setenv("ROAMCAST_AT", "[8.5, 53.5]")
    assert node_settings().at == (8.5, 53.5)
    monkeypatch.setenv("ROAMCAST_AT", "8.5 53.5")
    with pytest.raises(InputError, match=r"^ROAMCAST_AT: .*\[8\.5, 53\.5\]"):
        node_settings()


@pytest.mark.parametrize("at", ["1", "[1]", "[1, 2, 3]", '"here"'])
def test_position_in_the_file_is_a_pair(at: str) -> None:
    """The error has an example."""
    write(f"[node]\nat = {at}\n")
    with pytest.raises(InputError, match=r"node\.at: must be a list of two numbers"):
        node_settings()


def test_limits_are_not_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own."""
    monkeypatch.setenv("ROAMCAST_LIMITS", "many")
    with pytest.raises(InputError, match="ROAMCAST_LIMITS__BULK"):
        node_settings()


def test_effective_settings_say_where_each_value_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Default, file or variable; secrets are marked."""
    write("[node]\nport = 1\n[limits]\npull = 2\n")
    monkeypatch.setenv("ROAMCAST_INVITATION", "secret")
    settings = {(s.section, s.key): s for s in effective_settings()}
    assert settings["node", "port"][2:] == (1, "roamcast.toml", False)
    assert settings["limits", "pull"][2:] == (2, "roamcast.toml", False)
    assert settings["node", "invitation"][2:] == ("secret", "ROAMCAST_INVITATION", True)
    assert settings["pipeline", "master"][2:] == ("local[2]", "default", False)


def test_unknown_variables_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt variable would otherwise be ignored."""
    for name in ("ROAMCAST_PROT", "ROAMCAST_PORT", "ROAMCAST_LIMITS__BULK", "ROAMCAST_CACHE"):
        monkeypatch.setenv(name, "1")
    assert [problem.where for problem in settings_problems()] == ["ROAMCAST_PROT"]
