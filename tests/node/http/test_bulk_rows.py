"""Rows of a request in bulk."""

from __future__ import annotations

import orjson
import pytest

from roamcast.errors import InputError
from roamcast.node.http.bulk_rows import NDJSON, read_json, read_rows


def test_lines_and_lists_have_the_same_rows() -> None:
    values = [{"terms": ["a"]}, {"terms": ["b"]}]
    lines = b"\n".join(map(orjson.dumps, values)) + b"\n\n"
    assert (
        list(map(read_json, read_rows(lines, NDJSON, "rows", 2)))
        == read_rows(orjson.dumps(values), "", "rows", 2)
        == values
    )


@pytest.mark.parametrize(
    ("body", "media_type"), [(b"", NDJSON), (b"[]", ""), (b"{}\n{}\n{}", NDJSON), (b"[1,2,3]", "")]
)
def test_the_number_of_rows_is_limited(body: bytes, media_type: str) -> None:
    with pytest.raises(InputError, match="rows in one request"):
        read_rows(body, media_type, "rows", 2)


def test_a_list_that_is_not_json_is_refused() -> None:
    with pytest.raises(InputError, match="not JSON"):
        read_rows(b"[1", "", "rows", 2)
