"""Finding Java, with fake programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.errors import UnavailableError
from roamcast.pipeline.query import session
from roamcast.pipeline.query.session import find_java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(session, "_JAVA_FOLDER", tmp_path / "jvm")


def install(home: Path, version: str, mode: int = 0o755) -> Path:
    """Create a `java` that prints this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho 'Picked up nothing' >&2\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n"
    )
    program.chmod(mode)
    return home


@pytest.mark.parametrize("version", ["17", "17.0.2", "21-ea", "25.0.1"])
def test_java_home_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """If it is new enough."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "mine", version)))
    install(tmp_path / "jvm" / "other", "21")
    assert find_java() == tmp_path / "mine"


def test_a_link_on_the_path_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The result is the home of the real program."""
    install(tmp_path / "real", "17.0.9")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(tmp_path / "real" / "bin" / "java")
    assert find_java() == tmp_path / "real"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16", "none"])
def test_an_old_java_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """If JAVA_HOME is too old, an installed one is used."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", version)))
    install(tmp_path / "jvm" / "java-11", "11.0.2")
    install(tmp_path / "jvm" / "java-17", "17.0.2")
    assert find_java() == tmp_path / "jvm" / "java-17"


def test_a_java_home_without_java_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed one is used."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    install(tmp_path / "jvm" / "java-17", "17.0.2")
    assert find_java() == tmp_path / "jvm" / "java-17"


def test_a_java_that_cannot_run_is_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It may be built for another machine."""
    home = install(tmp_path / "broken", "17")
    (home / "bin" / "java").write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(UnavailableError):
        find_java()


def test_without_java_the_error_says_how_to_get_it() -> None:
    """With the version that is needed."""
    with pytest.raises(UnavailableError, match=r"Java 17 or later, found none.*apt-get install.*JAVA_HOME"):
        find_java()


def test_the_error_names_a_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If there is no other."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", "11.0.2")))
    with pytest.raises(UnavailableError, match=f"found only {tmp_path / 'old'}"):
        find_java()
