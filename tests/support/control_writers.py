"""Control writers for tests, over a registry in memory and a real journal that fail on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from roamcast.deliver.office import Office
from roamcast.deliver.requests import Deposit, Register, Remove
from roamcast.errors import StorageError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.reader import JournalFolder
from roamcast.journal.records import Records, read
from roamcast.journal.writer import FileJournal
from roamcast.lab.models.office_store import MemoryOfficeStore
from roamcast.lab.models.registry import MemoryRegistry
from roamcast.model import Letter, Position
from roamcast.node.clock import Clock
from roamcast.node.control.gateway_requests import GatewayRequests
from roamcast.node.control.queries import Queries
from roamcast.node.control.tracking import Tracker
from roamcast.node.control.writer import ControlWriter
from roamcast.node.metrics import Metrics
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import PLANAR
from roamcast.store.registry.values import Change, Entity, EntityKind

SECONDS = 120.0  # the first use of a kernel may compile it

NEAREST = "Select Where &location in nearest"
NOISE = "Select anyof() Where &context = noise and &location in rang:loc(10)"
FIRE = 'Select all() Where &terms has ("fire")'
ON_STAGE = f"{FIRE} Life-control #location in stage"

WALK_RECORDS = [("initial", "a", "q"), ("unbinding", "a", "q"), ("binding", "b", "q")]


def full() -> StorageError:
    return StorageError("the disk is full", hint="free some space")


class Registry(MemoryRegistry):
    """Records its transactions; fails the next `refusals` of them; calls `before` ahead of each."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions: list[Sequence[Change]] = []
        self.refusals = 0
        self.before: Callable[[], object] = lambda: None

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        self.before()
        if self.refusals:
            self.refusals -= 1
            raise full()
        self.transactions.append(changes)
        return super().apply(changes, at=at, journalled=journalled)


class Journal(FileJournal):
    """Counts its appends; fails the next `refusals` of them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "local", linger=0.0)
        self.appends = 0
        self.refusals = 0

    def append(self, records: Records, *, urgent: bool = False) -> Future[int]:
        if self.refusals:
            self.refusals -= 1
            failed: Future[int] = Future()
            failed.set_exception(full())
            return failed
        self.appends += 1
        return super().append(records)


class Mailboxes:
    """An office with mailboxes of the registered subscribers."""

    def __init__(self) -> None:
        self._store = MemoryOfficeStore()
        self._office = Office("local", self._store)

    def deliver(self, letters: Sequence[Letter]) -> None:
        self._office.handle(Deposit(tuple(letters)), 0)

    def register(self, id: str) -> None:
        self._office.handle(Register(f"local.node.{id}"), 0)

    def waiting(self, id: str) -> int:
        with self._store.transaction():
            return self._store.loads([f"local.node.{id}"])[f"local.node.{id}"].readable

    def erase(self, receivers: Iterable[str]) -> None:
        self._office.handle_all([Remove(f"local.node.{id}") for id in receivers], 0)


class World:
    """A control writer that can be restarted on the same registry and journal."""

    def __init__(self, folder: Path, places: Places | None = None, tracked: Path | None = None) -> None:
        """It tracks its entities if it has a path for the marker."""
        self.folder = folder
        self.tracked = tracked
        self.tracks = tracked is not None
        self.places = places or Places({}, PLANAR)
        self.registry = Registry()
        self.mailboxes = Mailboxes()
        self.wall = count(1_000_000)
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.folder)
        self.queries = Queries(self.places, PLANAR, NodeLimits(), places_from="rooms.geojson")
        self.metrics = Metrics(lambda: {})
        self.clock = Clock(after=self.registry.latest(), wall=lambda: next(self.wall))
        try:
            self.control = ControlWriter(
                self.registry,
                self.mailboxes,
                self.journal,
                self.queries,
                self.clock,
                self.metrics,
                history=3600.0,
                max_peer_sources=1_000,
                tracker=Tracker(self.journal, self.tracked, is_on=self.tracks),
            )
        except BaseException:
            self.journal.close()
            raise
        self.gateways = GatewayRequests(self.control)

    def stop(self) -> None:
        self.control.close()
        self.journal.close()

    def advance(self, time: int) -> None:
        """Set the system clock forward by so many microseconds."""
        self.wall = count(next(self.wall) + time)

    def restart(self) -> None:
        self.stop()
        self.start()

    def register(self, id: str, kind: EntityKind, at: tuple[float, float] | None = None, **attributes: Any) -> None:
        position = None if at is None else Position(id, *at, self.clock.now())
        self.control.register(Entity(id, kind, f"hash of {id}", attributes, position)).result(SECONDS)

    def source(self, id: str, at: tuple[float, float] | None = None, **attributes: Any) -> None:
        self.register(id, "source", at, **attributes)

    def subscriber(self, id: str, at: tuple[float, float] | None = None, **attributes: Any) -> None:
        self.register(id, "subscriber", at, **attributes)

    def move(self, id: str, x: float, y: float = 0.0) -> int:
        return self.control.move([Position(id, x, y, self.clock.now())]).result(SECONDS)

    def submit_subscription(self, id: str, subscriber: str, text: str) -> Future[bool]:
        return self.control.subscribe(id, subscriber, self.queries.accept(text))

    def subscribe(self, id: str, subscriber: str, text: str) -> bool:
        return self.submit_subscription(id, subscriber, text).result(SECONDS)

    def state(self, id: str) -> str:
        return self.control.query(lambda adapter: adapter.status(id).state.value).result(SECONDS)

    def sources(self, id: str) -> tuple[str, ...]:
        return self.control.query(lambda adapter: adapter.status(id).sources).result(SECONDS)

    def journalled(self) -> list[dict[str, Any]]:
        """Every record, in order."""
        folder = JournalFolder(self.folder, "local")
        return [row for batch in read(folder.segments(), 0, folder.last_offset()) for row in batch.to_pylist()]

    def control_records(self) -> list[tuple[str, str, str]]:
        """(kind, entity, id) of every record; the kind of a first binding is `initial`."""
        return [(_kind(row), row["entity"], row["id"]) for row in self.journalled()]


def _kind(row: dict[str, Any]) -> str:
    first = row["kind"] == "binding" and BindingBody.from_json(row["body"]).initial
    return "initial" if first else str(row["kind"])


@contextmanager
def world(folder: Path, places: Places | None = None, tracked: Path | None = None) -> Iterator[World]:
    made = World(folder, places, tracked)
    try:
        yield made
    finally:
        made.stop()


def walk(node: World) -> None:
    """Ann subscribes to the nearest of two sources, and walks from one to the other."""
    node.source("a", (0, 0))
    node.source("b", (100, 0))
    node.subscriber("ann", (1, 0))
    node.subscribe("q", "ann", f"{NEAREST} On @ > 5 Every 2 s")
    node.move("ann", 99)
