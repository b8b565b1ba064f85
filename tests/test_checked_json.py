"""JSON files with a format and a checksum."""

from __future__ import annotations

import pytest

from roamcast.checked_json import pack, unpack


@pytest.mark.parametrize("indent", [False, True])
def test_what_is_packed_is_unpacked(indent: bool) -> None:
    """In the same order of keys."""
    content = {"b": [1, 2.5, None], "a": {"é": "x"}}
    written = pack("test/1", content, indent=indent)
    assert list(unpack(written, "test/1").items()) == list(content.items())


@pytest.mark.parametrize(
    "written",
    [b"", b"{", b"[]", b"{}", b'"x"', pack("test/2", {"a": 1}), pack("test/1", {"a": 1}).replace(b"1}", b"2}"),
     pack("test/1", {})[:-1], pack("test/1", {}).replace(b"checksum", b"sum")],
)  # fmt: skip
def test_anything_else_is_an_error(written: bytes) -> None:
    """Other formats, damage, other JSON."""
    with pytest.raises(ValueError, match=r"."):
        unpack(written, "test/1")
