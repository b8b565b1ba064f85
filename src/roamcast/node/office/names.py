"""SubscriberNames of subscribers at a node: `domain.node.id` for the id that a subscriber has registered."""

from __future__ import annotations

from typing import Final

from roamcast.deliver.addressing import check_name, home_of
from roamcast.errors import InputError

__all__ = ["HOST", "SubscriberNames"]

HOST: Final = "node"
"""The workplace of all who register over a node's API."""


_DOT: Final = "_:"


class SubscriberNames:
    """An id may have dots, which a part of a name may not: `_:` stands for one, and so no subscriber's id has that."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self._prefix = f"{domain}.{HOST}."

    def of(self, id: str) -> str:
        return self._prefix + id.replace(".", _DOT)

    def check(self, id: str) -> None:
        """Raises InputError for an id that no subscriber can have."""
        if _DOT in id:
            raise InputError(f"a subscriber's id has no {_DOT}", where="id", hint="it stands for a dot in names")

    def id_of(self, name: str) -> str | None:
        """The id of a subscriber of this domain; None if the name is not of here."""
        return name.removeprefix(self._prefix).replace(_DOT, ".") if name.startswith(self._prefix) else None

    def read(self, text: str) -> str:
        """A name as somebody gives it: in full, or only the id of one who was created here. Raises InputError."""
        name = text if text.count(".") in (2, 3) else self.of(text)
        try:
            check_name(name)
        except InputError as error:
            raise InputError(
                error.message, where="name", hint="give an id, or a name in full: [system.]domain.host.id"
            ) from None
        return name

    def is_home_of(self, name: str) -> bool:
        return home_of(name) == self.domain
