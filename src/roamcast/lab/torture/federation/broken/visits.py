"""Broken visits: the home of a subscriber believes the wrong office."""

from __future__ import annotations

from roamcast.errors import UnavailableError
from roamcast.node.office.visits import check_visit

__all__ = ["believes_any_epoch", "believes_any_office", "believes_unheard_arrivals"]


def believes_any_office(name: str, peer: str, epoch: int, office: str | None, known: int) -> None:
    """Any office may speak for a subscriber that is away"""
    check_visit(name, office or "", epoch, office, known)


def believes_any_epoch(name: str, peer: str, epoch: int, office: str | None, known: int) -> None:
    """The office of a subscriber may speak for it with a request of an earlier visit"""
    check_visit(name, peer, min(epoch, known), office, min(epoch, known))


def believes_unheard_arrivals(name: str, peer: str, epoch: int, office: str | None, known: int) -> None:
    """An office may speak for a subscriber of whose arrival the home has not heard"""
    try:
        check_visit(name, peer, epoch, office, known)
    except UnavailableError:
        return
