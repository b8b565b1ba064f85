"""Finding Java, with programs that say what a java says."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.errors import UnavailableError
from roamcast.pipeline.query import java


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "_INSTALLED", tmp_path / "jvm")


def install(home: Path, version: str, mode: int = 0o755) -> Path:
    """A java that answers like one of `version`."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho 'Picked up nothing' >&2\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n"
    )
    program.chmod(mode)
    return home


@pytest.mark.parametrize("version", ["17", "17.0.2", "21-ea", "25.0.1"])
def test_java_home_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """JAVA_HOME is used if it is new enough."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "mine", version)))
    install(tmp_path / "jvm" / "other", "21")
    assert java.find_java() == tmp_path / "mine"


def test_java_on_the_path_is_followed_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A link on PATH leads to the home of the java behind it."""
    install(tmp_path / "real", "17.0.9")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(tmp_path / "real" / "bin" / "java")
    assert java.find_java() == tmp_path / "real"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16", "none"])
def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    """Where JAVA_HOME is too old, one that is installed and new enough is found."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", version)))
    install(tmp_path / "jvm" / "java-11", "11.0.2")
    install(tmp_path / "jvm" / "java-17", "17.0.2")
    assert java.find_java() == tmp_path / "jvm" / "java-17"


def test_a_java_home_without_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stale JAVA_HOME does not hide a good one."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    install(tmp_path / "jvm" / "java-17", "17.0.2")
    assert java.find_java() == tmp_path / "jvm" / "java-17"


def test_a_java_that_cannot_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that this machine cannot execute is no Java."""
    home = install(tmp_path / "broken", "17")
    (home / "bin" / "java").write_bytes(b"\x7fELF of another machine")
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(UnavailableError):
        java.find_java()


def test_no_java_says_how_to_get_one() -> None:
    """The error says what is needed and what to do."""
    with pytest.raises(UnavailableError, match=r"Java 17 or later and found none.*apt-get install.*JAVA_HOME"):
        java.find_java()


def test_an_old_java_alone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says which Java was not good enough."""
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", "11.0.2")))
    with pytest.raises(UnavailableError, match=f"found only {tmp_path / 'old'}"):
        java.find_java()
