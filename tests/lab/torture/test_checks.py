"""The checks report violations, and only real ones."""

from __future__ import annotations

from collections.abc import Callable

from roamcast.deliver.messages import BundleReceipt, LetterBundle, PeerMessage, Transmit
from roamcast.deliver.port import LastKnownOffice, key_of
from roamcast.deliver.requests import Deposit
from roamcast.lab.torture.host import LIMITS, Envelope
from roamcast.lab.torture.simulation import TortureSimulation
from roamcast.lab.torture.variants import CORRECT
from roamcast.model import Letter

SOON = 10_000  # longer than a host waits to form a group, shorter than any other delay
ANN = "d1.h0.ann"
LETTERS = tuple(Letter(ANN, "pipeline", number, "") for number in range(1, LIMITS.bundle_letters + 2))


class StoppedSimulation(TortureSimulation):
    """No client acts, no timer fires and no message arrives. Transmitted messages are recorded."""

    def __init__(self) -> None:
        self.transmitted: list[tuple[str, PeerMessage, Envelope]] = []
        super().__init__(1, CORRECT)

    def later(self, delay: int, event: Callable[[], None]) -> None:
        if delay < SOON:
            event()

    def transmit(self, source: str, effect: Transmit, envelope: Envelope) -> None:
        self.transmitted.append((effect.to, effect.message, envelope))


def test_simulation_is_unsettled_until_subscriber_knows_that_its_mailbox_moved() -> None:
    """The notice may be lost. The subscriber then learns it from its next pull, which needs time."""
    simulation = TortureSimulation(1, CORRECT)
    simulation.run()
    assert list(simulation.unsettled()) == []
    name, subscriber = next(iter(simulation.subscribers.items()))
    disk = simulation.hosts[subscriber.at].disk
    with disk.transaction():
        disk.drop_mailbox(name)
    assert subscriber.idle
    assert list(simulation.unsettled()) == [f"{name} does not know yet that its mailbox is not at {subscriber.at}"]


def test_bundle_that_returns_to_an_office_that_learned_nothing_is_a_loop() -> None:
    """The route has each office with the epoch it knew."""
    simulation = StoppedSimulation()
    host = simulation.hosts["d0"]
    with host.disk.transaction():
        host.disk.put_last_known(LastKnownOffice(ANN, "d2", 3, acquaintance=True))
    bundle = LetterBundle(ANN, LETTERS[:1], origin="d1", known_epoch=1)
    host.receive(bundle, Envelope(route=(("d2", 2),)))
    (to, forwarded, envelope), *_ = simulation.transmitted
    assert (to, type(forwarded), envelope.route) == ("d2", LetterBundle, (("d2", 2), ("d0", 3)))
    assert simulation.checker.violations == []
    host.receive(bundle, envelope)
    assert simulation.checker.violations == [f"forwarding loop: a letter to {ANN} went by d2 d0"]


def test_next_bundle_starts_a_new_route() -> None:
    """It may pass the same offices without being a loop, although the receipt for the last bundle triggered it."""
    simulation = StoppedSimulation()
    host = simulation.hosts["d0"]
    host.receive(Deposit(LETTERS))
    accepted = tuple(map(key_of, LETTERS[:-1]))
    host.receive(BundleReceipt(ANN, accepted, (), "d2", 3, friend=False), Envelope(route=(("d1", 3),)))
    assert simulation.transmitted[-1] == ("d2", LetterBundle(ANN, LETTERS[-1:], "d0", 3), Envelope())
