"""The decisions have the agreed form and are all in the index."""

from __future__ import annotations

import re

import pytest
from pages import ROOT

FOLDER = ROOT / "docs" / "decisions"
DECISIONS = sorted(FOLDER.glob("[0-9]*.md"))
STATUS = r"proposed|accepted|withdrawn|superseded by \d+"
INDEX = (FOLDER / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", [path.name for path in DECISIONS])
def test_a_decision_has_status_date_context_choice_and_consequence(name: str) -> None:
    """The header has number, title, status and date; three labelled parts follow."""
    text = (FOLDER / name).read_text("utf-8")
    header = re.match(rf"# (\d+)\. (.+)\n\nStatus: (?:{STATUS}) · Date: \d{{4}}-\d\d-\d\d\n\n", text)
    assert header
    assert int(header[1]) == int(name[:4])
    assert re.findall(r"^\*\*(Context|Choice|Consequence)\.\*\*", text, re.MULTILINE) == [
        "Context",
        "Choice",
        "Consequence",
    ]


def test_the_index_lists_every_decision() -> None:
    """Number, title, file, status and date of each row are those of the page; no number is missing."""
    rows = []
    for path in DECISIONS:
        header = re.match(r"# (\d+)\. (.+)\n\nStatus: (.+) · Date: (.+)\n", path.read_text("utf-8"))
        assert header
        rows.append(f"| {header[1]} | [{header[2]}]({path.name}) | {header[3]} | {header[4]} |")
    listed = [line for line in INDEX.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [line for line in listed if "not used" not in line] == rows
    assert [int(line.split("|")[1]) for line in listed] == list(range(1, len(listed) + 1))
