"""Full names of a node's subscribers: `domain.node.id` for a registered id."""

from __future__ import annotations

from typing import Final

from roamcast.deliver.addressing import check_name, home_of
from roamcast.errors import InputError

__all__ = ["HOST", "SubscriberNames"]

HOST: Final = "node"
"""The host part of the names of all subscribers that register over a node's API."""

_DOT: Final = "_:"


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
