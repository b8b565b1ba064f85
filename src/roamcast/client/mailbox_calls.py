"""Mailboxes and letters. Generated from async_mailbox_calls.py by scripts/generate-client; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

from roamcast.client.calls import ApiCalls
from roamcast.client.streams import LetterStream
from roamcast.client.transport import Transport, check_url
from roamcast.client.values import Letter, LetterTrace, MailboxLetters, SendReceipt
from roamcast.errors import ElsewhereError, RoamcastError

__all__ = ["MailboxCalls"]


class MailboxCalls:
    """The part of `Client` about mailboxes and letters."""

    _calls: ApiCalls
    _transport: Transport

    def pull(self, *, limit: int = 100, after: int = 0, wait: float = 0.0) -> list[Letter]:
        """The next letters after offset `after`, without acknowledging them. Waits up to `wait` seconds for the first.

        May return fewer than `limit` although more are waiting, but returns none only if there is none.
        """
        return self._transport.run(self._calls.pull(limit, after, wait))

    def pull_many(self, acks: Mapping[str, int], *, limit: int = 100, wait: float = 0.0) -> dict[str, MailboxLetters]:
        """Acknowledge and pull many mailboxes of this node in one request, for a host of many subscribers.

        `acks` has the token of each mailbox, and the offset to acknowledge through before; 0 acknowledges nothing.
        Returns, by token, the mailboxes that have letters or cannot be pulled. If there is none, waits up to `wait`
        seconds for the first letter. Thousands of mailboxes need a client with a token: that of any entity of the node.
        """
        return self._transport.run(self._calls.pull_many(acks, limit, wait))

    def acknowledge(self, through: int | Letter) -> int:
        """Delete the letters up to and including this one. Returns how many were deleted."""
        return self._transport.run(self._calls.acknowledge(through))

    def letters(self, *, after: int = 0, ack: bool = True) -> Iterator[Letter]:
        """All letters after offset `after`, each once, as they arrive, until the client is closed.

        Reconnects where necessary. With `ack`, a letter counts as processed when the next is requested. Processed
        letters are acknowledged together: before waiting for more, after 500 letters or a second, and at the end of the
        loop or of the client. A crash loses nothing: what was not acknowledged comes again.
        """
        mailbox, processed = self._calls.mailbox, self._calls.processed
        stream = LetterStream(after, self._calls.delays, mailbox)
        self._transport.run(mailbox.ensure_arrived())
        while True:
            try:
                with closing(self._transport.listen_in_batches(stream)) as batches:
                    for letters in batches:
                        for letter in letters:
                            if self._transport.is_closed:
                                return
                            yield letter
                            if ack and processed.add(letter.offset):
                                self._acknowledge_processed()
                        self._acknowledge_processed()
                return
            except ElsewhereError:
                if mailbox.has_answered:
                    raise
                self._transport.run(mailbox.arrive(None))
            finally:
                self._acknowledge_processed(once=True)

    def send(
        self, to: str, message: Any, *, title: str = "", ttl: float | None = None, number: int | None = None
    ) -> SendReceipt:
        """Send a letter to a subscriber, by its full name or by its id in the same domain. It is durable on return.

        `message` is any JSON value. Letters arrive in the order they were sent. After `ttl` seconds an unread letter
        expires. Only one program at a time can send as a subscriber, because it numbers the letters.

        Raises UncertainError if it is unknown whether the letter was accepted: send it again with the same `number`,
        and it arrives once.
        """
        return self._transport.run(self._calls.mailbox.send(to, message, title, ttl, number))

    def trace(self, to: str, number: int) -> LetterTrace:
        """What became of the letter with this number to `to`. Raises UnavailableError if unknown now; try again."""
        return self._transport.run(self._calls.mailbox.trace(to, number))

    def migrate(self, url: str) -> None:
        """Migrate the mailbox to the node at `url`, and read, acknowledge and send there from now on.

        Subscriptions and position stay at the home node.
        """
        self._transport.run(self._calls.mailbox.arrive(check_url(url)))

    def _acknowledge_processed(self, *, once: bool = False) -> None:
        """Acknowledge the letters that `letters` returned and that were processed.

        With `once` there is one attempt, which may fail: the letters come again.
        """
        through = self._calls.processed.take()
        if not through or self._transport.is_closed:
            return
        if not once:
            self.acknowledge(through)
            return
        with suppress(RoamcastError, RuntimeError):  # RuntimeError: the `http` of this client was closed
            self._transport.run(self._calls.acknowledge_once(through))
