"""What an office says when it cannot do what a subscriber asks."""

from __future__ import annotations

from roamcast.errors import CapacityError, ConflictError, ElsewhereError, InputError, NotFoundError

__all__ = [
    "bad_epoch",
    "bad_limit",
    "elsewhere",
    "mailbox_full",
    "name_used_up",
    "no_such_place",
    "not_created_here",
    "out_of_turn",
    "queue_full",
    "stale_arrival",
    "too_many_unposted",
    "unknown_receiver",
    "unknown_subscriber",
]


def elsewhere(name: str, office: str | None, epoch: int) -> ElsewhereError:
    where = "another office" if office is None else f"office {office!r}"
    error = ElsewhereError(f"its mailbox is with {where}", where=name, hint="arrive here first, or ask there")
    error.office, error.epoch = office, epoch
    return error


def stale_arrival(name: str, office: str, epoch: int) -> ElsewhereError:
    error = ElsewhereError(
        f"it has arrived at office {office!r} since, in epoch {epoch}",
        where=name,
        hint="arrive with a higher epoch if it is here now",
    )
    error.office, error.epoch = office, epoch
    return error


def not_created_here(name: str, domain: str) -> InputError:
    return InputError(
        f"the name is not of domain {domain!r}", where=name, hint="register at the home, then arrive elsewhere"
    )


def unknown_subscriber(name: str) -> NotFoundError:
    return NotFoundError("no subscriber of this name was created here", where=name, hint="register it first")


def name_used_up(name: str) -> ConflictError:
    return ConflictError("a subscriber of this name has left for good", where=name, hint="choose another name")


def unknown_receiver(name: str) -> NotFoundError:
    return NotFoundError("no subscriber of this name was created here", where=name, hint="check the receiver's name")


def bad_epoch(epoch: int) -> InputError:
    return InputError(f"there is no epoch {epoch}", where="epoch", hint="give one more than that of the last arrival")


def bad_limit(limit: int) -> InputError:
    return InputError(f"a limit of {limit} letters", where="limit", hint="ask for at least one")


def no_such_place(through: int, next_place: int) -> InputError:
    held = f"places 1 to {next_place - 1}" if next_place > 1 else "no letter yet"
    return InputError(f"no letter has had place {through}", where="through", hint=f"this mailbox has had {held}")


def out_of_turn(number: int, last: int) -> ConflictError:
    return ConflictError(
        f"letter {number} comes too early", where="number", hint=f"the next letter to this receiver is {last + 1}"
    )


def mailbox_full(receiver: str) -> CapacityError:
    return CapacityError("the mailbox is full", where=receiver, hint="keep the letter and send it again later")


def too_many_unposted(sender: str) -> CapacityError:
    return CapacityError(
        "too many of its letters wait to be posted", where=sender, hint="keep the letter and send it again later"
    )


def queue_full(receiver: str) -> CapacityError:
    return CapacityError(
        "too many letters wait to be posted there", where=receiver, hint="keep the letter and send it again later"
    )
