"""Which office may speak for a subscriber of this domain: the one that its mailbox is at. Sans-IO."""

from __future__ import annotations

from roamcast.deliver.addressing import elsewhere_error
from roamcast.deliver.port import OfficeStore
from roamcast.errors import UnavailableError

__all__ = ["check_visit", "office_of"]


def office_of(store: OfficeStore, domain: str, name: str) -> tuple[str | None, int]:
    """The office that has the mailbox of a subscriber of this domain, and the epoch, as far as known.

    While this office claims the mailbox back, that is this one: a recall must not depend on the office that has it.
    """
    tenure, known, claim = store.tenures((name,)).get(name), store.last_known(name), store.pending_claim(name)
    if claim is not None and (known is None or not 0 < claim.epoch <= known.epoch):
        return domain, max(claim.epoch, 0 if known is None else known.epoch)
    if tenure is not None and tenure.leaving is not None:
        return tenure.leaving.office, tenure.leaving.epoch
    if tenure is not None and tenure.active:
        return domain, tenure.epoch
    return (None, 0) if known is None else (known.office, known.epoch)


def check_visit(name: str, peer: str, epoch: int, office: str | None, known: int) -> None:
    """Check a request that a peer passes on for a subscriber, as its mailbox is there in this epoch.

    `office` has the mailbox in the epoch `known`. Raises ElsewhereError if that is not the peer, and UnavailableError
    if this office has not heard of the arrival yet.
    """
    if known < epoch:
        raise UnavailableError("its home has not heard of its arrival yet", where=name, hint="repeat the request")
    if office != peer or known != epoch:
        raise elsewhere_error(name, office, known)
