"""Whom the rows of a request may be of: events of sources, positions of entities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from roamcast.errors import AuthenticationError, InputError, PermissionDeniedError, RoamcastError
from roamcast.node.callers import Caller, check_caller
from roamcast.node.columns.arrays import Integers
from roamcast.store.registry.values import Entity

__all__ = ["Owners", "PublishRights", "check_owners", "owners_of"]

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
        """A source of another node publishes its own events only."""

        def check(entity: str) -> None:
            if entity != id:
                raise _not_own(id)

        return cls(id, check)

    @classmethod
    def of_caller(cls, caller: Caller, find: Callable[[str], Entity | None]) -> PublishRights:
        """An entity acts for itself, a gateway for its sources. `find` knows who they are at the time of the check."""

        def check_own(entity: str) -> None:
            if entity != caller.id:
                raise _not_own(caller.id)
            check_caller(caller, find)

        def check_source(entity: str) -> None:
            source = find(entity)
            if source is None or source.gateway != caller.id:
                message = f"{entity[:_SHOWN]} is not a source of gateway {caller.id}"
                raise PermissionDeniedError(message, hint="register it with the token of the gateway, or omit its rows")
            check_caller(caller, find)

        return cls(None, check_source) if caller.kind == "gateway" else cls(caller.id, check_own)


def _not_own(id: str) -> PermissionDeniedError:
    return PermissionDeniedError(f"the token belongs to {id}", hint="use the token of the entity itself")


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
        raise InputError(
            f"{field} is required, because the token is of a gateway",
            where=where(row, field),
            hint="name one of its sources in each row",
        )
    encoded = names.dictionary_encode()
    owners = Owners(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64))
    check_owners(owners, rights, field, where)
    return owners


def check_owners(owners: Owners, rights: PublishRights, field: str, where: Callable[[int, str], str]) -> None:
    """Check the rights for each entity. Raises and locates errors as `owners_of`."""
    for entity, row in zip(owners.ids, owners.first_rows(), strict=True):
        try:
            rights.check(entity)
        except AuthenticationError:  # it is about no row
            raise
        except RoamcastError as error:
            raise type(error)(error.message, where=where(int(row), field), hint=error.hint) from None
