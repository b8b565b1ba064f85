"""Bodies of the requests that other nodes send."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import FailFast, Field, NonNegativeInt

from roamcast.node.schemas import HIGHEST_SEQ, Domain, Name, RequestModel
from roamcast.validation import URL

__all__ = [
    "ForwardedEventsIn", "IntroductionIn", "JoinIn", "PassedEventsIn", "PublishProofIn", "VisitorRequestIn",
    "VisitorResponseIn", "VouchIn", "WantsIn",
]  # fmt: skip

_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class JoinIn(RequestModel):
    """A join request of an invited node. `proof` shows that it knows the invitation's secret."""

    id: str = Field(max_length=64)
    domain: Domain
    url: str = Field(max_length=300, pattern=URL)
    nonce: _Hex
    proof: _Hex


class IntroductionIn(RequestModel):
    """Another office, and the encrypted key to share with it."""

    domain: Domain
    url: str = Field(max_length=300, pattern=URL)
    nonce: _Hex
    key: _Hex


class VouchIn(RequestModel):
    """A move proof to verify."""

    name: Name
    epoch: int = Field(ge=1, le=HIGHEST_SEQ)
    move_proof: str = Field(max_length=200)


class PublishProofIn(RequestModel):
    """A publish proof to verify, of a source of the receiving node."""

    id: str
    proof: str


class VisitorRequestIn(RequestModel):
    """A request that a subscriber of the receiving node has sent to the node that it visits, in this epoch."""

    name: Name
    epoch: int = Field(ge=1, le=HIGHEST_SEQ)
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str = Field(pattern=r"^/v1/[!-~]*$", max_length=2_000)
    query: str = Field(pattern=r"^[!-~]*$", max_length=2_000)
    content_type: Literal["application/json", "application/x-ndjson"] = "application/json"
    body: str


class VisitorResponseIn(RequestModel):
    """The response of the home to such a request."""

    status: int = Field(ge=200, le=599)
    body: str


_Link = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_Wants = Annotated[list[str], FailFast(), Field(max_length=10_000)]
_Numbers = Annotated[dict[Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")], NonNegativeInt], Field(max_length=1_000)]


class WantsIn(RequestModel):
    """See `WantsRequest`. `after` is as in `ForwardedEventsIn`, if the sender wants to know what is drained."""

    link: _Link
    session: int
    base: int
    version: int
    added: _Wants
    removed: _Wants
    chunk: NonNegativeInt
    more: bool
    after: _Numbers | None


class ForwardedEventsIn(RequestModel):
    """Asks for the events of a link. `after` has the last numbers that are journalled, by pipeline."""

    link: _Link
    after: _Numbers
    wait: float = Field(ge=0, le=30)


class PassedEventIn(RequestModel):
    """An event that another node has checked. Its time is in microseconds."""

    seq: int = Field(ge=1, le=HIGHEST_SEQ)
    id: str
    time: int
    x: float
    y: float
    terms: tuple[str, ...]
    readings: dict[str, float]


class PassedEventsIn(PublishProofIn):
    """Events of a source of the receiving node that published at the sender, with its publish proof."""

    events: Annotated[tuple[PassedEventIn, ...], FailFast(), Field(min_length=1)]
