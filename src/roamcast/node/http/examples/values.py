"""What an example is, and values that occur in several of them.

A value that a response returns, such as a token, is used as it is in the requests that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["ANNA", "BEN", "FIRE", "HUB", "MIC", "OPERATOR", "PIPELINE", "PROOF", "TIME", "Example", "Examples"]


class Example(NamedTuple):
    """A request and its response. `parameters` are those of the path and of the query. `caller` is a token."""

    summary: str
    response: Any = None
    status: int = 200
    caller: str | None = None
    parameters: Mapping[str, Any] = {}
    body: Any = None


Examples = Mapping[str, Mapping[str, Example]]
"""Examples by operation and name."""

ANNA: Final = "token-of-anna"
BEN: Final = "token-of-ben"
MIC: Final = "token-of-mic-1"
HUB: Final = "token-of-hub"
OPERATOR: Final = "operator-token"
PROOF: Final = "move-proof-of-ben"
PIPELINE: Final = "49670e27-7a0f-4a4e-9c80-0f6e2f6bd8a3"
TIME: Final = "2026-01-31T12:00:00Z"
FIRE: Final[Mapping[str, Any]] = {
    "x": 8.5,
    "y": 53.5,
    "terms": ["fire", "smoke"],
    "readings": {"temperature": 81.0},
}
