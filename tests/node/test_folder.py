"""The data folder and the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import running_node

from roamcast.errors import ConflictError, InputError, StorageError
from roamcast.node.folder import DataFolder
from roamcast.node.server import NodeServer
from roamcast.node.settings import settings_from


def test_a_folder_is_made_and_found_again(tmp_path: Path) -> None:
    """With a version in it."""
    for _ in range(2):
        DataFolder.open(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b" / "roamcast.json").read_text() == '{"format":"roamcast-data/1"}\n'


@pytest.mark.parametrize("content", ['{"format": "roamcast-data/2"}', "[]", "rubbish"])
def test_another_format_is_refused(tmp_path: Path, content: str) -> None:
    """With a hint, and untouched."""
    (tmp_path / "roamcast.json").write_text(content)
    with pytest.raises(ConflictError, match="--data"):
        DataFolder.open(tmp_path)
    assert (tmp_path / "roamcast.json").read_text() == content


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """StorageError that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        DataFolder.open(tmp_path / "file")


def test_a_token_cut_short_is_made_anew(tmp_path: Path) -> None:
    """A crash while it was written leaves no half token in use."""
    (tmp_path / "operator.token").write_text("half")
    folder = DataFolder.open(tmp_path)
    token = folder.operator_token()
    assert len(token) >= 40
    assert folder.operator_token() == token


def test_the_environment_sets_what_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments go before variables, variables before defaults."""
    monkeypatch.setenv("ROAMCAST_PORT", "9000")
    monkeypatch.setenv("ROAMCAST_DOMAIN", "north")
    monkeypatch.setenv("ROAMCAST_LIMITS__BULK", "5")
    settings = settings_from(domain="south", host=None)
    assert (settings.port, settings.domain, settings.host, settings.limits.bulk) == (9000, "south", "127.0.0.1", 5)


@pytest.mark.parametrize(
    ("name", "value"), [("port", 70000), ("space", "round"), ("domain", "../x"), ("domain", ""), ("scene", "maybe")]
)
def test_bad_settings_are_named(name: str, value: object) -> None:
    """InputError with the name of the setting."""
    with pytest.raises(InputError) as refusal:
        settings_from(**{name: value})
    assert refusal.value.where == name


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    """Before anything is opened."""
    first = NodeServer(settings_from(data=tmp_path, port=0))
    port = int(first.url.rpartition(":")[2])
    with pytest.raises(ConflictError, match="--port"):
        NodeServer(settings_from(data=tmp_path, port=port))
    first.close()


def test_a_second_node_on_the_same_data_is_refused(tmp_path: Path) -> None:
    """The first keeps running; the error comes out as it is."""
    with running_node(tmp_path) as node:
        with pytest.raises(ConflictError):
            NodeServer(settings_from(data=tmp_path, port=0)).run_node()
        assert node.http.get("/healthz").status_code == 200
