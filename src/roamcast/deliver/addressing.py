"""Names of subscribers, and the home that a name tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from roamcast.errors import InputError

__all__ = ["Name", "check_name", "home_of"]

_TEXT = r"[A-Za-z0-9][A-Za-z0-9_:-]{0,255}"
_PART = re.compile(_TEXT, re.ASCII)
_NAME = re.compile(rf"(?:{_TEXT}\.)?{_TEXT}\.{_TEXT}\.{_TEXT}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Name:
    """`[system.]domain.host.id`: where a subscriber was created, and which of those created there it is.

    A name never changes, wherever its subscriber goes. A part has up to 256 letters, digits, `_`, `:`
    and `-`. Raises InputError for anything else.
    """

    domain: str
    host: str
    id: str
    system: str = ""

    def __post_init__(self) -> None:
        for what, part in (("domain", self.domain), ("host", self.host), ("id", self.id), ("system", self.system)):
            if not _PART.fullmatch(part) and (part or what != "system"):
                raise InputError(
                    f"{part[:80]!r} cannot be the {what} of a name",
                    where=what,
                    hint="a part has 1 to 256 letters, digits, _ : or -, and begins with a letter or digit",
                )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads exactly what `str` writes."""
        parts = text.split(".")
        if len(parts) not in (3, 4) or not parts[0]:
            hint = "a name is [system.]domain.host.id, such as north.pier.ann"
            raise InputError(f"{text[:200]!r} is not a name", where="name", hint=hint)
        domain, host, id = parts[-3:]
        return cls(domain, host, id, parts[0] if len(parts) == 4 else "")

    @property
    def home(self) -> str:
        """The office of the domain of creation."""
        return f"{self.system}.{self.domain}" if self.system else self.domain

    def __str__(self) -> str:
        return f"{self.home}.{self.host}.{self.id}"


def check_name(text: str) -> None:
    """Raises InputError for what is not a name; for what is, quickly does nothing."""
    if not _NAME.fullmatch(text):
        Name.parse(text)


def home_of(name: str) -> str:
    """The home office of a name that has been checked."""
    return name.rsplit(".", 2)[0]
