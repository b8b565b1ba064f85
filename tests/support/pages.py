"""Code blocks, commands and links of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md") for page in ROOT.glob(pattern))

_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^(?: {4}.*)?\n)+", re.MULTILINE)


class Block(NamedTuple):
    """A code block, its language if the page names one, and where it begins in the text."""

    language: str
    code: str
    start: int


class Step(NamedTuple):
    """A command of a shell session, without the prompt, and the output that the page shows."""

    command: str
    output: str


def blocks(page: Path) -> list[Block]:
    """The fenced and the indented code blocks of a page, in order."""
    text = page.read_text("utf-8")
    fenced = [Block(match[1], match[2], match.start()) for match in _FENCED.finditer(text)]
    rest = _FENCED.sub(lambda match: re.sub(r"[^\n]", ".", match[0]), text)
    indented = [
        Block("", re.sub(r"^ {4}", "", match[0], flags=re.MULTILINE).strip("\n") + "\n", match.start())
        for match in _INDENTED.finditer(rest)
        if match[0].strip() and rest[: match.start()].endswith("\n")
    ]
    return sorted([*fenced, *indented], key=lambda block: block.start)


def steps(block: Block) -> list[Step]:
    """The commands of a block that is a shell session (`$ command`); none for other blocks."""
    code = block.code.replace("\\\n", " ")
    return [
        Step(*part.partition("\n")[::2]) for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:] if part.strip()
    ]


def commands(page: Path) -> Iterator[str]:
    """Every `roamcast …` command on a page: in sessions, in other blocks and within sentences."""
    for block in blocks(page):
        if block.language in ("", "sh", "console", "shell", "bash"):
            for line in block.code.splitlines():
                if match := re.match(r"(?:\$ )?(roamcast .*)", line):
                    yield re.split(r" {2,}", match[1])[0]  # a description may follow
    for match in re.finditer(r"`(roamcast\s[^`]*)`", _FENCED.sub("", page.read_text("utf-8"))):
        yield match[1]


def links(page: Path) -> Iterator[str]:
    """The targets of all links of a page that point into the repository."""
    text = _FENCED.sub("", page.read_text("utf-8"))
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", match[1]):
            yield match[1]
