"""The client that blocks."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from roamcast.client.calls import DELAYS, Attributes, Calls, Events, LetterStream
from roamcast.client.demand import DemandStream
from roamcast.client.flow import Answer, Failure, Flow, Pause, Request, Stream
from roamcast.client.transport import (
    DEFAULT_URL,
    STREAM_TIMEOUT,
    answer_of,
    built,
    checked_url,
    failure_of,
    interrupt,
    is_stream,
    time_for,
    trust,
)
from roamcast.client.values import Accepted, Binding, Letter, Sent, Subscription, Trace
from roamcast.errors import ElsewhereError

__all__ = ["Client"]

T = TypeVar("T")


class Client:
    """Talks to one node as one entity, the one whose token it has.

    Calls that fail because the node does not answer or is in trouble are tried again after each of `delays`
    seconds; that does no harm, and registration, where it would, is not tried again. What the node refuses is
    raised as the node's own error. Several clients may share one `http`, which then stays open.

    With a `name`, that of a subscriber of any domain, it reads and writes letters at whatever node it is given: its
    first call brings the mailbox there. The token itself is not sent then, only what is made from it. `ca` is a file
    with the certificates to trust.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        name: str | None = None,
        ca: Path | str | None = None,
        timeout: float = 10.0,
        delays: Sequence[float] = DELAYS,
        http: httpx.Client | None = None,
    ) -> None:
        self.url = checked_url(url)
        self._calls = Calls(token, delays, name)
        self._timeout = timeout
        self._http = http or httpx.Client(verify=trust(ca))
        self._owned = http is None
        self._closed = threading.Event()
        self._streams: set[httpx.Response] = set()

    @property
    def token(self) -> str | None:
        """The token of the entity this client speaks for. Registering sets it."""
        return self._calls.token

    @property
    def visit(self) -> str | None:
        """The token for the mailbox where it is, once one has arrived there."""
        return self._calls.post.visiting

    def register_source(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        """Register, speak for this source from now on, and return its token: the node tells it only once."""
        return self._run(self._calls.register("source", id, attributes, x, y))

    def register_subscriber(
        self, id: str, *, attributes: Attributes | None = None, x: float | None = None, y: float | None = None
    ) -> str:
        """Register, speak for this subscriber from now on, return its token: the node tells it only once."""
        return self._run(self._calls.register("subscriber", id, attributes, x, y))

    def me(self) -> dict[str, Any]:
        """The entity this client speaks for, as the node knows it."""
        return self._run(self._calls.me())

    def change(self, attributes: Attributes) -> dict[str, Any]:
        """Replace all attributes of the entity; what the node knows of it then."""
        return self._run(self._calls.change(attributes))

    def new_token(self, id: str | None = None) -> str:
        """Get another token for oneself, or, with the operator's token, for the entity `id`; the one before is worth
        nothing from now on.
        """
        return self._run(self._calls.new_token(id))

    def forget_position(self) -> None:
        """Have the node forget where one is, and what one was bound to in the past."""
        self._run(self._calls.forget_position())

    def leave(self) -> None:
        """Leave the node for good. With a subscriber go its subscriptions and its mailbox."""
        self._run(self._calls.leave())

    def where(self, id: str) -> dict[str, Any]:
        """An entity: where it is, and its subscriptions or those bound to it. The operator's token shows everybody."""
        return self._run(self._calls.where(id))

    def publish(self, events: Events, *, at: str | None = None) -> Accepted:
        """Publish one event or several, all or none; they are on the node's disk when this returns.

        An event is a mapping with any of `time`, `x`, `y`, `terms`, `readings`, `id`, `seq`. Events without
        `seq` get numbers that the node has set aside for this client, so that a repeated try cannot double
        them. Do not mix numbers of your own with these for one source.

        `at` is the domain of another node that has joined: events are taken in there, with `x` and `y` given. The
        same event, by its number, at several nodes is one. The token is not sent there, only what is made from it.
        """
        return self._run(self._calls.publish(events, at))

    def take_numbers(self, count: int) -> list[int]:
        """Numbers, rising, that nothing else of the source gets: for events that may be published more than once, from
        several places.
        """
        return self._run(self._calls.take_numbers(count))

    def move(self, x: float, y: float, *, time: float | str | None = None) -> bool:
        """Tell where the entity is, now or at `time` (ISO 8601 with offset, or seconds since 1970).

        Whether it counted: it does not where a later position is known.
        """
        return self._run(self._calls.move(x, y, time))

    def subscribe(
        self,
        lacl: str | None = None,
        *,
        box: Sequence[float] | None = None,
        terms: Iterable[str] = (),
        id: str | None = None,
    ) -> str:
        """Ask for what `lacl` says, or for the events in `box` that carry all `terms`; returns the id.

        A box is min_x, min_y, max_x, max_y. It applies to every event published after this returns.
        """
        return self._run(self._calls.subscribe(lacl, box, terms, id))

    def unsubscribe(self, id: str) -> None:
        """Remove a subscription. Letters already in the mailbox stay there."""
        self._run(self._calls.unsubscribe(id))

    def subscription(self, id: str) -> Subscription:
        """One of one's own, as it is now; with the operator's token anybody's."""
        return self._run(self._calls.subscription(id))

    def subscriptions(self) -> list[Subscription]:
        """All of one's own, ordered by id; with the operator's token everybody's.

        `why` is in brief, as it was when the state began; `subscription` tells how it is now.
        """
        return self._run(self._calls.subscriptions())

    def explain(self, id: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Why an event does or would match a subscription: `matches`, and the `checks` with `holds` and `why`."""
        return self._run(self._calls.explain(id, event))

    def bindings(self, id: str, *, limit: int = 100, skip: int = 0) -> list[Binding]:
        """The sources that a subscription has had, newest first, without the first `skip` of them."""
        return self._run(self._calls.bindings(id, limit, skip))

    def pull(self, *, limit: int = 100, after: int = 0, wait: float = 0.0) -> list[Letter]:
        """The next letters, without acknowledging them; waits up to `wait` seconds for the first.

        There may be fewer than `limit` though more are waiting, but none only if none is behind place `after`.
        """
        return self._run(self._calls.pull(limit, after, wait))

    def acknowledge(self, through: int | Letter) -> int:
        """Delete the letters up to and with this one; how many there were."""
        return self._run(self._calls.acknowledge(through))

    def send(
        self, to: str, message: Any, *, title: str = "", ttl: float | None = None, number: int | None = None
    ) -> Sent:
        """Write to another subscriber, by its name or, in one's own domain, by its id; it is safe when this returns.

        A message is any JSON value. Letters come in the order in which they were sent. With `ttl` the letter may wait
        so many seconds to be read. One program at a time writes for a subscriber: it counts its letters.

        Raises UncertainError if nobody says whether it was taken: with the `number` that it has the same letter may be
        sent again, and comes once.
        """
        return self._run(self._calls.post.send(to, message, title, ttl, number))

    def trace(self, to: str, number: int) -> Trace:
        """What became of the letter with this number to a receiver. Raises UnavailableError: ask again."""
        return self._run(self._calls.post.trace(to, number))

    def migrate(self, url: str) -> None:
        """Have one's mailbox at the node at `url` from now on: read, acknowledge and write there.

        What one is registered for, subscriptions and position, stays with the node of the home.
        """
        self._run(self._calls.post.arrive(checked_url(url)))

    def letters(self, *, after: int = 0, ack: bool = True) -> Iterator[Letter]:
        """All letters behind place `after`, each once, as they come, until this is closed; connects again when it must.

        With `ack` each is acknowledged when the next is asked for, so that a crash while one is handled loses
        nothing.
        """
        stream = LetterStream(after, self._calls.delays, self._calls.post)
        self._run(self._calls.post.settle())
        while True:
            try:
                with closing(self._listen(stream)) as letters:
                    for letter in letters:
                        yield letter
                        if ack and not self._closed.is_set():
                            self.acknowledge(letter)
                return
            except ElsewhereError:
                if not self._calls.post.is_new:
                    raise
                self._run(self._calls.post.arrive(None))

    def demand(self) -> Iterator[bool]:
        """Whether anybody wants this source to send: at once, and each time that it changes; ends when this is closed.

        While the node is not heard it is True, for nobody can say that the source is not wanted.
        """
        return self._listen(DemandStream(self._calls.delays))

    def on_demand(self, call: Callable[[bool], None]) -> threading.Thread:
        """Have `call` called with what `demand` says, in a thread of its own that ends when this is closed."""

        def listen() -> None:
            for wanted in self.demand():
                call(wanted)

        thread = threading.Thread(target=listen, name="roamcast-demand", daemon=True)
        thread.start()
        return thread

    def nearest(self, x: float, y: float) -> str:
        """The address of the node that is nearest to a point, of all that this one knows; its own if none says."""
        return self._run(self._calls.nearest(x, y))

    def scene(self) -> dict[str, Any]:
        """What the page draws, as it is now."""
        return self._run(self._calls.scene())

    def update_scene(
        self,
        layer: str,
        *,
        set: Mapping[str, Any] | None = None,
        remove: Iterable[str] = (),
        clear: bool = False,
        ttl: float | None = None,
    ) -> None:
        """Change a layer of the scene; the token must be the operator's.

        A feature is {"geometry": GeoJSON geometry, "label": text, "kind": text}. Those set with `ttl` vanish
        by themselves after so many seconds.
        """
        self._run(self._calls.update_scene(layer, set, remove, clear, ttl))

    def expel(self, domain: str) -> None:
        """Have the node hear another one no more. Needs the operator's token."""
        return self._run(self._calls.expel(domain))

    def invite(self, domain: str) -> str:
        """Leave for the node of a domain to join this one; the token must be the operator's."""
        return self._run(self._calls.invite(domain))

    def offices(self) -> list[dict[str, Any]]:
        """The offices that the node knows: `domain`, `url`, whether each `answers`, and when it was `heard_at` last."""
        return self._run(self._calls.offices())

    def health(self) -> dict[str, Any]:
        return self._run(self._calls.health())

    def close(self) -> None:
        """End all streams of this client, in whatever thread they are listened to."""
        self._closed.set()
        for response in list(self._streams):
            interrupt(response)
        if self._owned:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _listen(self, stream: Stream[T]) -> Generator[T, None, None]:
        """What a stream says, until this is closed."""
        while not self._closed.is_set() and not self._http.is_closed:
            outcome: Answer | Failure = Failure("the stream ended", sent=True)
            try:
                with self._opened(stream.request()) as response:
                    if is_stream(response):
                        for piece in response.iter_bytes():
                            yield from self._while_open(stream.feed(piece))
                    else:
                        response.read()
                        outcome = answer_of(response)
            except httpx.TransportError as error:
                outcome = failure_of(error)
            except RuntimeError as error:  # what httpx says when it has been closed meanwhile
                if not self._http.is_closed:
                    raise
                outcome = Failure(str(error), sent=False)
            if self._closed.is_set():
                return
            told, pause = stream.broken(outcome)
            yield from self._while_open(told)
            self._closed.wait(pause)

    def _while_open(self, told: Iterable[T]) -> Iterator[T]:
        return itertools.takewhile(lambda _: not self._closed.is_set(), told)

    @contextmanager
    def _opened(self, request: Request) -> Iterator[httpx.Response]:
        response = self._http.send(self._built(request, STREAM_TIMEOUT), stream=True)
        self._streams.add(response)
        try:
            if self._closed.is_set():
                interrupt(response)
            yield response
        finally:
            self._streams.discard(response)
            response.close()

    def _run(self, flow: Flow[T]) -> T:
        outcome: Answer | Failure | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            outcome = self._do(step)

    def _do(self, step: Request | Pause) -> Answer | Failure | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return answer_of(self._http.send(self._built(step, time_for(step, self._timeout))))
        except httpx.TransportError as error:
            return failure_of(error)

    def _built(self, request: Request, timeout: httpx.Timeout) -> httpx.Request:
        return built(self._http, self.url, self._calls.token, request, timeout)
