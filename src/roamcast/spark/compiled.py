"""Compiled subscriptions: an index for many calls of `match`, on whichever hosts tasks run."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import storage_errors
from roamcast.errors import ConflictError, InputError
from roamcast.places import Places
from roamcast.space import SPACES
from roamcast.spark.rows.arguments import check_column_list, check_column_names, check_frame
from roamcast.spark.rows.conditions import NO_NEEDS, Needs
from roamcast.spark.rows.conditions import needs_of as table_needs
from roamcast.spark.rows.place_rows import PlacesFrom, read_places
from roamcast.spark.rows.problems import check_choice, describe_row
from roamcast.spark.rows.subscriptions import BOX, BoxNames, CircleNames, SubscriptionColumnNames, plan_subscriptions
from roamcast.spark.tasks.index_files import IndexFiles, write_index

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = [
    "CompiledSubscriptions", "SpaceName", "choose_names", "compile", "compile_frame", "fields_of", "files_of",
    "first_problem", "needs_of",
]  # fmt: skip

SpaceName: TypeAlias = Literal["geographic", "planar"]

_FOLDERS: Final[set[str]] = set()
"""Those that are removed when the process ends."""


class CompiledSubscriptions:
    """Subscriptions as an index that all tasks of a Spark application can use. Made by `compile`.

    `count` is how many there are, `bad_rows` the rows that were left out: the columns that matches can have, and the
    `problem` of each row. Frames of matches are lazy: `close` after they have been written or collected. What is not
    closed is removed when the process ends.
    """

    space: SpaceName
    count: int
    bad_rows: pa.Table

    def __init__(
        self,
        files: IndexFiles,
        fields: tuple[StructField, ...],
        space: SpaceName,
        bad_rows: pa.Table,
        needs: Needs = NO_NEEDS,
    ) -> None:
        self._files, self._fields, self._needs, self._closed = files, fields, needs, False
        self.space, self.count, self.bad_rows = space, files.size, bad_rows

    @property
    def columns(self) -> list[str]:
        """The columns that matches can have."""
        return [field.name for field in self._fields]

    def close(self) -> None:
        """Remove the files of the index. On a cluster, Spark keeps those that it distributes until the process ends."""
        self._closed = True
        self._files.remove()
        if not self._files.distributed:
            _FOLDERS.discard(self._files.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def fields_of(compiled: CompiledSubscriptions) -> tuple[StructField, ...]:
    """The columns that matches can have, with their types."""
    return compiled._fields


def needs_of(compiled: CompiledSubscriptions) -> Needs:
    """What conditions need of events."""
    return compiled._needs


def files_of(compiled: CompiledSubscriptions) -> IndexFiles:
    """Raises ConflictError if it is closed."""
    if compiled._closed:
        raise ConflictError("the compiled subscriptions are closed", hint="compile them again")
    return compiled._files


def compile(
    subscriptions: DataFrame,
    *,
    box: BoxNames | None = BOX,
    geometry: str | None = None,
    circle: CircleNames | None = None,
    terms: str | None = "terms",
    lacl: str | None = None,
    places: PlacesFrom = None,
    id: str | None = None,
    columns: Sequence[str] | None = None,
    space: SpaceName = "geographic",
    on_bad_rows: Literal["fail", "skip"] = "fail",
    folder: str | Path | None = None,
) -> CompiledSubscriptions:
    """Read subscriptions and build an index of them, for many calls of `match`.

    A subscription matches an event if the point is in its region, borders included, and the event has all its terms.
    `box` names the columns of west, south, east and north; a geographic box with west > east crosses the antimeridian.
    `geometry` is a column of Polygons or MultiPolygons instead: WKB, WKT or GeoJSON; `circle` names the columns of x, y
    and the radius in metres. `terms` is an array of texts, or a text with `;` between terms. None: subscriptions have
    no region, or no terms. Fields of nested columns are written `place.west`.

    `lacl` is a column of queries instead of these (docs/lacl.md): `Select all()`, with conditions on readings and on
    attributes of sources. `places` are those that `within` names: a GeoJSON file, or a frame with columns `name` and
    `geometry`. Queries that need positions of subscribers or the order of events are bad rows.

    An `id` is unique. `columns` are those that matches can have; without, the id, or if there is none all columns but
    those of region and terms. A cluster gets the index from this process, or from a `folder` that all its hosts have.
    Raises InputError for columns that are missing or have a wrong type, and for bad rows unless `on_bad_rows` is
    "skip".
    """
    check_frame(subscriptions, "subscriptions")
    if subscriptions.isStreaming:
        hint = "compile a batch; to follow a changing table, compile it again in foreachBatch"
        raise InputError("subscriptions are a stream", where="subscriptions", hint=hint)
    check_column_names(geometry=geometry, terms=terms, lacl=lacl, id=id)
    check_column_list(box, "box", count=4)
    check_column_list(circle, "circle", count=3)
    check_column_list(columns, "columns")
    check_choice("space", space, tuple(SPACES))
    check_choice("on_bad_rows", on_bad_rows, ("fail", "skip"))
    names = choose_names(box, geometry, circle, terms, lacl, id)
    if places is not None and lacl is None:
        raise InputError("only queries name places", where="places", hint="pass lacl=, or omit places")
    plan_subscriptions(subscriptions, names, columns, space)  # raises its errors before places are read
    compiled = compile_frame(subscriptions, names, columns, space, folder, read_places(places, space))
    bad = compiled.bad_rows
    if bad.num_rows and on_bad_rows == "fail":
        compiled.close()
        raise first_problem(bad, compiled.count + bad.num_rows)
    return compiled


def compile_frame(
    frame: DataFrame,
    names: SubscriptionColumnNames,
    columns: Sequence[str] | None,
    space: SpaceName,
    folder: str | Path | None = None,
    places: Places | None = None,
) -> CompiledSubscriptions:
    """Like `compile`, without bad rows."""
    selected, reader = plan_subscriptions(frame, names, columns, space)
    checked = reader.read(selected.toArrow(), places)
    context = frame.sparkSession.sparkContext
    files = write_index(_new_folder(folder), checked)
    if folder is None and not str(context.master).startswith("local"):
        files = files.distribute(context)
    needs = NO_NEEDS if checked.conditions is None else table_needs(checked.conditions)
    if names.lacl is not None and pc.any(pc.greater(pc.list_value_length(checked.subscriptions.terms), 0)).as_py():
        needs = needs._replace(terms=True)
    return CompiledSubscriptions(files, reader.fields, space, checked.bad_rows, needs)


def choose_names(
    box: BoxNames | None,
    geometry: str | None,
    circle: CircleNames | None,
    terms: str | None,
    lacl: str | None,
    id: str | None,
) -> SubscriptionColumnNames:
    """Leave out the default columns of what is given otherwise. Raises InputError if regions are given twice."""
    regions = {"box": box if box != BOX else None, "geometry": geometry, "circle": circle}
    given = [name for name, columns in regions.items() if columns]
    if lacl is not None:
        given += ["terms"] if terms not in (None, "terms") else []
        if given:
            raise InputError(
                f"lacl and {given[0]}", where="subscriptions", hint="queries have regions and terms; pass one of them"
            )
        return SubscriptionColumnNames(None, None, id, lacl=lacl)
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]}", where="subscriptions", hint="pass one of them")
    return SubscriptionColumnNames(None if given and given != ["box"] else box, terms, id, geometry, circle=circle)


def first_problem(bad_rows: pa.Table, total: int) -> InputError:
    *columns, problems = bad_rows.columns
    content = describe_row(bad_rows.column_names[:-1], columns, 0)
    count = f"{bad_rows.num_rows:,} of {total:,} rows are bad"
    hint = "fix them, or pass on_bad_rows='skip'"
    return InputError(f"{problems[0]}: {content}; {count}", where="subscriptions", hint=hint)


def _new_folder(parent: str | Path | None) -> Path:
    """A folder that is removed when the process ends."""
    if parent is None:
        folder = Path(tempfile.mkdtemp(prefix="roamcast-"))
    else:
        folder = Path(parent).absolute() / f"roamcast-{uuid.uuid4().hex}"
        with storage_errors(folder):
            folder.mkdir(parents=True)
    _FOLDERS.add(str(folder))
    return folder


@atexit.register
def _remove_folders() -> None:
    for folder in _FOLDERS:
        shutil.rmtree(folder, ignore_errors=True)
