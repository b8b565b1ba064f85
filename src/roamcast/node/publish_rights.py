"""Whom the rows of a request may be of: events of sources, positions of entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from roamcast.errors import InputError, PermissionDeniedError, RoamcastError
from roamcast.node.columns.arrays import Integers

__all__ = ["Owners", "PublishRights", "owners_of"]

_SHOWN: Final = 128  # characters of an id


class PublishRights(NamedTuple):
    """What the caller may publish for.

    `default` is the entity of rows that name none; if it is None, every row must name one. `check` is called once for
    each entity that is named. It raises an error, without a `where`, if the caller may not publish for it.
    """

    default: str | None
    check: Callable[[str], None]

    @classmethod
    def of_source(cls, id: str) -> PublishRights:
        """A source publishes its own events only."""
        return cls._own(id, f"the token belongs to source {id}", "use the token of that source, or omit `source`")

    @classmethod
    def of_entity(cls, id: str) -> PublishRights:
        """An entity reports its own positions only."""
        return cls._own(id, f"the token belongs to {id}", "use the token of that entity")

    @classmethod
    def of_gateway(cls, id: str, is_own: Callable[[str], bool]) -> PublishRights:
        """A gateway publishes events and reports positions of its sources; `is_own` knows them."""

        def check(entity: str) -> None:
            if not is_own(entity):
                message = f"{entity[:_SHOWN]} is not a source of gateway {id}"
                raise PermissionDeniedError(message, hint="register it with the token of the gateway, or omit its rows")

        return cls(None, check)

    @classmethod
    def _own(cls, id: str, message: str, hint: str) -> PublishRights:
        def check(entity: str) -> None:
            if entity != id:
                raise PermissionDeniedError(message, hint=hint)

        return cls(id, check)


class Owners(NamedTuple):
    """The distinct entities that rows are of, in the order of their first rows, and the index of each row's entity."""

    ids: list[str]
    of_row: Integers

    def first_rows(self) -> Integers:
        rows: Integers = np.unique(self.of_row, return_index=True)[1]
        return rows

    def last_rows(self) -> Integers:
        rows: Integers = len(self.of_row) - 1 - np.unique(self.of_row[::-1], return_index=True)[1]
        return rows


def owners_of(names: pa.StringArray, rights: PublishRights, field: str, where: Callable[[int, str], str]) -> Owners:
    """The entities that rows are of. Null: the default.

    Raises for a row without an entity, then what `rights` do for the first row of each. Errors are about `field` of a
    row; `where` makes their location.
    """
    if rights.default is not None:
        if names.null_count == len(names):
            return Owners([rights.default], np.zeros(len(names), np.int64))
        names = names.fill_null(rights.default)
    elif names.null_count:
        row = int(names.is_null().to_numpy(zero_copy_only=False).argmax())
        raise InputError(f"{field} is required", where=where(row, field), hint=f"send the {field} of each row")
    encoded = names.dictionary_encode()
    owners = Owners(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64))
    for entity, row in zip(owners.ids, owners.first_rows(), strict=True):
        try:
            rights.check(entity)
        except RoamcastError as error:
            raise type(error)(error.message, where=where(int(row), field), hint=error.hint) from None
    return owners
