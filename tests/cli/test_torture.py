"""`roamcast torture`."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from roamcast.cli import app
from roamcast.errors import InputError
from roamcast.lab.torture.variants import VARIANTS


def run(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["torture", "deliver", *arguments])
    return result.exit_code, result.output, result.exception


def test_sound_protocol_has_no_violation(tmp_path: Path) -> None:
    """Exit code 0, with the counts on standard output and in the file."""
    file = tmp_path / "figures.json"
    code, output, _ = run("--seeds", "7", "--out", str(file))
    figures = json.loads(file.read_bytes())
    assert (code, figures["seeds"], figures["failed_seeds"]) == (0, 1, [])
    assert min(figures["least_in_a_seed"].values()) >= 20
    assert (figures["letters"] >= 500, figures["migrations"] >= 50, figures["crashes"] >= 20) == (True, True, True)
    assert "no violations" in output
    assert f"letters {figures['letters']}" in output


def test_broken_protocol_is_detected() -> None:
    """Exit code 1; a single seed prints a trace that ends with the violation."""
    code, output, _ = run("--seeds", "1..2", "--variant", "received-left-behind")
    assert code == 1
    assert "roamcast torture deliver --seeds 2 --variant received-left-behind" in output
    code, output, _ = run("--seeds", "2", "--variant", "received-left-behind")
    assert code == 1
    lines = output.splitlines()
    assert lines[-1].startswith("violation: ")
    assert any(" MailboxChunk name=" in line for line in lines)
    assert any(line.endswith(" crashes") for line in lines)


def test_broken_protocols_are_listed() -> None:
    """Each with a description."""
    code, output, _ = run("--list-variants")
    assert (code, len(output.splitlines())) == (0, len(VARIANTS))
    assert all(name in output and variant.description in output for name, variant in VARIANTS.items())


def test_invalid_seeds_and_variants_are_refused() -> None:
    """InputError: exit code 2."""
    for seeds in ("", "5..2", "a..b", "1..", "-3"):
        assert isinstance(run(f"--seeds={seeds}")[2], InputError)
    assert isinstance(run("--seeds", "1", "--variant", "perfect")[2], InputError)


def test_links_between_hosts_are_simulated_too() -> None:
    result = CliRunner().invoke(app, ["torture", "federate", "--seeds", "7", "--json"])
    figures = json.loads(result.stdout)
    assert (result.exit_code, figures["seeds"], figures["failed_seeds"]) == (0, 1, [])
    assert figures["promised"] > 0
    failed = CliRunner().invoke(app, ["torture", "federate", "--seeds", "1..2", "--variant", "forward-everything"])
    assert failed.exit_code == 1
    assert "roamcast torture federate --seeds 1 --variant forward-everything" in failed.output
    listed = CliRunner().invoke(app, ["torture", "federate", "--list-variants", "--json"])
    assert len(json.loads(listed.stdout)) >= 12
