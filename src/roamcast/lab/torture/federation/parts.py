"""Parts of a host with small limits, so that every limit is reached."""

from __future__ import annotations

from typing import ClassVar, Final

from roamcast.node.control.wants import NodeWants

__all__ = ["MAX_BYTES", "SmallWants"]

MAX_BYTES: Final = 500
"""Of forwarded events in a response."""


class SmallWants(NodeWants):
    """Few wants in a request."""

    chunk: ClassVar = 3
