"""Names of subscribers, the home a name implies, and errors that say where a subscriber is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from roamcast.errors import ElsewhereError, InputError

__all__ = [
    "HOST", "Name", "SubscriberNames", "check_name", "elsewhere_error", "home_of", "is_name", "stale_arrival_error",
]  # fmt: skip

HOST: Final = "node"
"""The host part of the names of all subscribers that register over a node's API."""

_DOT: Final = "_:"

_TEXT = r"[A-Za-z0-9][A-Za-z0-9_:-]{0,255}"
_PART = re.compile(_TEXT, re.ASCII)
_NAME = re.compile(rf"(?:{_TEXT}\.)?{_TEXT}\.{_TEXT}\.{_TEXT}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Name:
    """`[system.]domain.host.id`: where a subscriber was created, and its id there.

    A name never changes, wherever its subscriber goes. Each part has 1 to 256 letters, digits, `_`, `:` or `-`.
    Raises InputError for anything else.
    """

    domain: str
    host: str
    id: str
    system: str = ""

    def __post_init__(self) -> None:
        for field, part in (("domain", self.domain), ("host", self.host), ("id", self.id), ("system", self.system)):
            if not _PART.fullmatch(part) and (part or field != "system"):
                raise InputError(
                    f"{part[:80]!r} is not a valid {field} of a name",
                    where=field,
                    hint="use 1 to 256 letters, digits, _ : or -, starting with a letter or digit",
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse exactly what `str` returns."""
        parts = text.split(".")
        if len(parts) not in (3, 4) or not parts[0]:
            hint = "a name has the form [system.]domain.host.id, such as north.pier.ann"
            raise InputError(f"{text[:200]!r} is not a name", where="name", hint=hint)
        domain, host, id = parts[-3:]
        return cls(domain, host, id, parts[0] if len(parts) == 4 else "")

    @property
    def home(self) -> str:
        """The office of the domain in which the subscriber was created."""
        return f"{self.system}.{self.domain}" if self.system else self.domain

    def __str__(self) -> str:
        return f"{self.home}.{self.host}.{self.id}"


def is_name(text: str) -> bool:
    """Whether it is the name of a subscriber. The id of a pipeline is not."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str) -> None:
    """Raise InputError if `text` is not a name. Fast for valid names."""
    if not is_name(text):
        Name.parse(text)


def home_of(name: str) -> str:
    """The home office of a valid name."""
    return name.rsplit(".", 2)[0]


class SubscriberNames:
    """Converts ids to names and back. Parts of a name have no dots: `_:` replaces the dots of an id."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self._prefix = f"{domain}.{HOST}."

    def of(self, id: str) -> str:
        return self._prefix + id.replace(".", _DOT)

    def check(self, id: str) -> None:
        """Raises InputError for an id that a subscriber cannot have."""
        if _DOT in id:
            raise InputError(
                f"the id of a subscriber must not contain {_DOT}", where="id", hint="it stands for a dot in names"
            )

    def id_of(self, name: str) -> str | None:
        """The id of a subscriber of this domain; None for other names."""
        return name.removeprefix(self._prefix).replace(_DOT, ".") if name.startswith(self._prefix) else None

    def parse(self, text: str) -> str:
        """A full name, from a full name or from an id of this domain. Raises InputError."""
        name = text if text.count(".") in (2, 3) else self.of(text)
        try:
            check_name(name)
        except InputError as error:
            raise InputError(
                error.message, where="name", hint="use an id, or a full name: [system.]domain.host.id"
            ) from None
        return name

    def is_home_of(self, name: str) -> bool:
        return home_of(name) == self.domain


def elsewhere_error(name: str, office: str | None, epoch: int) -> ElsewhereError:
    """The mailbox is at another office; None if it is not known which."""
    where = "another office" if office is None else f"office {office!r}"
    hint = "arrive here first, or send the request to that office"
    error = ElsewhereError(f"the mailbox is at {where}", where=name, hint=hint)
    error.office, error.epoch = office, epoch
    return error


def stale_arrival_error(name: str, office: str, epoch: int) -> ElsewhereError:
    """The subscriber has arrived at `office` in this or a later epoch."""
    error = ElsewhereError(
        f"the subscriber has arrived at office {office!r} since, in epoch {epoch}",
        where=name,
        hint="to move the mailbox here, arrive with a higher epoch",
    )
    error.office, error.epoch = office, epoch
    return error
