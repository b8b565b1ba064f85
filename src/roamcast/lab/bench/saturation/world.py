"""The subscriptions and events of the saturation benchmark, and the letters that must follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.errors import InputError

__all__ = ["BodyFormat", "EventBatch", "Ints", "SaturationLoad", "World", "body_format", "event_batches"]

BodyFormat: TypeAlias = Literal["json", "arrow"]
Ints: TypeAlias = npt.NDArray[np.int64]

_EVENTS_PER_BODY: Final[dict[BodyFormat, int]] = {"json": 500, "arrow": 5_000}
_BATCHES: Final = 40
_KINDS: Final = 50
_READINGS: Final = pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True, slots=True)
class SaturationLoad:
    """`letters` is the mean number of letters that an event makes: a fraction below 1, or a whole number."""

    subscriptions: int
    letters: float
    seconds: float = 30.0
    warm_up_s: float = 15.0
    body: BodyFormat = "json"


class EventBatch(NamedTuple):
    """Events, and for each the cell whose subscriptions it matches, or -1."""

    cells: Ints
    table: pa.Table


@dataclass(frozen=True, slots=True)
class World:
    """The world is a grid of cells. As many subscriptions as an event makes letters have a box inside each cell.

    The last row of the grid may have fewer cells.
    """

    columns: int
    rows: int
    cells: int
    copies: int

    @classmethod
    def of(cls, subscriptions: int, letters: float) -> World:
        copies = max(1, round(letters))
        cells = max(1, subscriptions // copies)
        columns = max(1, int((2 * cells) ** 0.5))
        return cls(columns, -(-cells // columns), cells, copies)

    @property
    def subscriptions(self) -> int:
        return self.cells * self.copies

    @property
    def cell_size(self) -> tuple[float, float]:
        return 360.0 / self.columns, 160.0 / self.rows

    def box(self, number: int) -> tuple[float, float, float, float]:
        x, y = self._corner(number // self.copies)
        width, height = self.cell_size
        return x, y, x + width / 2, y + height / 2

    def terms(self, number: int) -> list[str]:
        return [f"kind{number // self.copies % _KINDS}"]

    def subscription(self, number: int) -> dict[str, Any]:
        return {"id": f"s{number}", "box": list(self.box(number)), "terms": self.terms(number)}

    def random_events(self, count: int, share: float, rng: np.random.Generator) -> EventBatch:
        """Events in random cells, of which this share matches."""
        return self.events(rng.integers(0, self.cells, count), rng.random(count) < share)

    def events(self, cells: Ints, hits: npt.NDArray[np.bool_]) -> EventBatch:
        """One event in each of these cells; `hits` says whether it matches."""
        shift = np.where(hits, 0.25, 0.75)  # boxes fill the lower left quarter of their cells
        corners = np.array([self._corner(cell) for cell in cells.tolist()]).reshape(-1, 2)
        width, height = self.cell_size
        table = pa.table(
            {
                "x": corners[:, 0] + shift * width,
                "y": corners[:, 1] + shift * height,
                "terms": [[f"kind{cell % _KINDS}", "reading", f"zone{cell % 7}"] for cell in cells.tolist()],
                "readings": pa.array([[("level", float(cell % 100))] for cell in cells.tolist()], _READINGS),
            }
        )
        return EventBatch(np.where(hits, cells, -1), table)

    def letters_of(self, cells: Ints) -> int:
        """How many letters events of these cells make."""
        return int((cells >= 0).sum()) * self.copies

    def wrong_matches(self, cells: Ints, events: Ints, subscriptions: Ints) -> int:
        """How many pairs of event and subscription are missing, unexpected or repeated.

        `cells` has the cell of each event, -1 if it matches nothing; `events` and `subscriptions` are the pairs found.
        """
        matching = np.flatnonzero(cells >= 0)
        expected = (cells[matching, None] * self.copies + np.arange(self.copies)).ravel()
        wanted = np.repeat(matching, self.copies) * self.subscriptions + expected
        found, times = np.unique(events * self.subscriptions + subscriptions, return_counts=True)
        return int(np.setxor1d(found, wanted, assume_unique=True).size + (times - 1).sum())

    def _corner(self, cell: int) -> tuple[float, float]:
        row, column = divmod(cell, self.columns)
        width, height = self.cell_size
        return -180.0 + width * column, -80.0 + height * row


def body_format(name: str) -> BodyFormat:
    """Raises InputError for an unknown format."""
    for format in _EVENTS_PER_BODY:
        if format == name:
            return format
    raise InputError(f"unknown body {name!r}", where="--body", hint=f"use {' or '.join(_EVENTS_PER_BODY)}")


def event_batches(world: World, load: SaturationLoad) -> Sequence[EventBatch]:
    """The events of a load, which are published again and again. A batch is what one request publishes."""
    count, share = _EVENTS_PER_BODY[load.body], min(1.0, load.letters)
    return [world.random_events(count, share, np.random.default_rng(seed)) for seed in range(_BATCHES)]
