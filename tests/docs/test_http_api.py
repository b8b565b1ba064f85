"""The page on the HTTP API names all operations, errors and words as they are. Its program runs in test_browsers.py."""

from __future__ import annotations

import re

from contract import all_operations
from pages import ROOT

from roamcast.node.http.schemas.errors import ERRORS

TEXT = (ROOT / "docs/http-api.md").read_text("utf-8")


def test_all_public_operations_are_listed() -> None:
    """With their method and path."""
    listed = re.findall(r"^\| `(\w+) (/\S+)` \| `(\w+)` \|", TEXT, re.MULTILINE)
    known = {(one.method, one.path, one.id) for one in all_operations().values() if not one.is_of_peers}
    assert set(listed) == known
    assert len(listed) == len(known)


def test_all_errors_are_listed() -> None:
    """With the codes of their examples."""
    rows = re.findall(r"^\| (\d+(?:, \d+)*) \| (.+?) \|", TEXT, re.MULTILINE)
    listed = {int(status): codes for statuses, codes in rows for status in statuses.split(", ")}
    assert listed.keys() == ERRORS.keys()
    for status, error in ERRORS.items():
        assert f"`{error.example['error']['code']}`" in listed[status]
