"""The examples in docs/lacl.md are correct."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from roamcast.cli.inspect import lacl
from roamcast.lacl import LaclError, check, parse, to_text
from roamcast.lacl.vocabulary import FUNCTIONS, KEYWORDS, REGIONS
from roamcast.space import GEOGRAPHIC

PAGE = (Path(__file__).parents[2] / "docs" / "lacl.md").read_text("utf-8")
EXAMPLES = re.findall(r"^\| `(Select.*?|select.*?)` \| (.*?) \|$", PAGE.split("## Examples")[1], re.MULTILINE)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SESSIONS = [block.split("\n", 1) for _, block in BLOCKS if block.startswith("$ ")]


def result_of(text: str) -> str:
    """The result in the form of the table: the lines of the canonical form in backquotes, or the error."""
    try:
        return " ".join(f"`{line}`" for line in to_text(check(parse(text), space=GEOGRAPHIC)).split("\n"))
    except LaclError as error:
        return f"error: {error.message}"


def test_the_page_has_examples() -> None:
    """The pattern finds all rows of the table."""
    assert len(EXAMPLES) == PAGE.split("## Examples")[1].split("##")[0].count("\n| ") - 2


@pytest.mark.parametrize(("text", "expected"), EXAMPLES)
def test_example(text: str, expected: str) -> None:
    """Each row of the table has the correct result."""
    assert result_of(text) == expected


def test_the_first_example_is_canonical() -> None:
    """The first query on the page is in canonical form."""
    first = BLOCKS[0][1].strip()
    assert to_text(check(parse(first))) == first


@pytest.mark.parametrize(("command", "output"), SESSIONS)
def test_session(command: str, output: str) -> None:
    """Each command prints the output on the page."""
    run = CliRunner().invoke(lacl, shlex.split(command)[3:])
    printed = run.output if run.exception is None else f"roamcast: {run.exception}\n"
    assert printed == output


def test_the_grammar_is_complete() -> None:
    """The EBNF has all keywords, functions and regions."""
    ebnf = next(block for kind, block in BLOCKS if kind == "ebnf")
    assert [word for word in [*KEYWORDS.values(), *FUNCTIONS, *REGIONS] if f'"{word}"' not in ebnf] == []
