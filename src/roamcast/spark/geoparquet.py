"""GeoParquet 1.1 by Spark's Parquet reader and writer: any storage that Spark has.

Spark reads and writes geometries as binary columns, and ignores what files say of them in their key `geo`. Reading
looks into the footers of all files. Writing copies Spark's files once, with a footer that has the key.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, GeographyType, GeometryType, StructField, StructType

from roamcast.errors import ConflictError, InputError
from roamcast.spark.rows.geometry_types import LONGITUDE_LATITUDE, METADATA, UNKNOWN
from roamcast.spark.rows.problems import check_choice
from roamcast.spark.tasks.local import LocalFrame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["GEOPARQUET", "read_geoparquet", "with_file_metadata", "write_geoparquet"]

GEOPARQUET: Final = "geoparquet"

Crs: TypeAlias = Literal["OGC:CRS84"] | None

_KEY: Final = "geo"
_VERSION: Final = "1.1.0"
_COPIES_AT_ONCE: Final = 8
_ROW_GROUP: Final = 128 << 20
_PADDING: Final = 8 << 20


def read_geoparquet(spark: SparkSession, *paths: str) -> DataFrame:
    """Read Parquet files with Spark, and what they say of their geometry columns.

    `match` and `compile` then check the encoding, the reference system and the edges of a geometry column that they
    read. Raises InputError if files differ in what they say, or say it wrongly.
    """
    return with_file_metadata(spark.read.parquet(*paths))


def with_file_metadata(frame: DataFrame) -> DataFrame:
    """A frame that `spark.read.parquet` returned, with what its files say of geometry columns as their metadata."""
    described = _described_columns(_footers(frame))
    if not described:
        return frame
    metadata = {field.name: {**(field.metadata or {})} for field in frame.schema.fields}
    for name in metadata.keys() & described.keys():
        metadata[name][METADATA] = described[name]
    if isinstance(frame, LocalFrame):
        fields = [StructField(each.name, each.dataType, each.nullable, metadata[each.name]) for each in frame.schema]
        return frame.with_metadata(StructType(fields))
    return frame.select(*(_column(name).alias(name, metadata=each) for name, each in metadata.items()))


def write_geoparquet(
    frame: DataFrame,
    path: str,
    *,
    geometry: str | Sequence[str] | None = None,
    crs: Crs = "OGC:CRS84",
    mode: Literal["error", "overwrite"] = "error",
) -> None:
    """Write a frame as GeoParquet files. The first of the `geometry` columns is the primary one.

    Without `geometry`, these are all columns that are GEOMETRY or GEOGRAPHY, or were read from GeoParquet. Binary
    columns must be plain WKB, without SRID. `crs` is the reference system of columns that do not have one; None:
    unknown. Raises InputError for columns that cannot be written, and ConflictError if there is something at `path`.
    """
    if crs not in (LONGITUDE_LATITUDE[0], None):
        raise InputError(f"crs must be 'OGC:CRS84' or None, not {crs!r}", hint="convert to longitude and latitude")
    check_choice("mode", mode, ("error", "overwrite"))
    fields = _geometry_fields(frame, geometry)
    columns = {field.name: _describe(field, crs) for field in fields}
    key = json.dumps({"version": _VERSION, "primary_column": fields[0].name, "columns": columns})
    _Files(frame.sparkSession).write(frame.select(*_as_wkb(frame, columns)), path, key, mode == "overwrite")


def _footers(frame: DataFrame) -> Iterable[tuple[str, str | None]]:
    """The path of each file, and its key `geo`."""
    if isinstance(frame, LocalFrame):
        yield from frame.footers
        return
    jvm, configuration = _java(frame.sparkSession)
    leaf = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head()
    statuses = jvm.scala.jdk.javaapi.CollectionConverters.asJava(leaf.relation().location().allFiles())
    reader = jvm.org.apache.parquet.hadoop.ParquetFileReader
    for footer in reader.readAllFootersInParallel(configuration, statuses, True):
        values = footer.getParquetMetadata().getFileMetaData().getKeyValueMetaData()
        yield footer.getFile().toString(), values.get(_KEY)


def _described_columns(footers: Iterable[tuple[str, str | None]]) -> dict[str, dict[str, str]]:
    """What all files say of their geometry columns."""
    described: dict[str | None, tuple[str, dict[str, dict[str, str]]]] = {}
    for path, text in footers:
        if text not in described:
            described[text] = path, {} if text is None else _parse(text, path)
    contents = [*described.values()]
    for path, columns in contents[1:]:
        if columns != contents[0][1]:
            hint = "read them one by one, or write them again in the same way"
            raise InputError(f"has other geometry columns than {contents[0][0]}", where=path, hint=hint)
    return contents[0][1] if contents else {}


def _parse(text: str, path: str) -> dict[str, dict[str, str]]:
    try:
        columns = json.loads(text)["columns"]
        return {
            name: {
                "encoding": str(about["encoding"]),
                "crs": _name_of(about["crs"]) if "crs" in about else LONGITUDE_LATITUDE[0],
                "edges": str(about.get("edges", "planar")),
            }
            for name, about in columns.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "write the file again, or read it with spark.read.parquet, which ignores the key"
        raise InputError("the key 'geo' is not GeoParquet's", where=path, hint=hint) from error


def _name_of(crs: Any) -> str:
    """The name of a reference system in PROJJSON, such as EPSG:4326."""
    if crs is None:
        return UNKNOWN
    id = crs.get("id")
    return f"{id['authority']}:{id['code']}" if id else str(crs.get("name", UNKNOWN))


def _geometry_fields(frame: DataFrame, geometry: str | Sequence[str] | None) -> list[StructField]:
    fields = {field.name: field for field in frame.schema.fields}
    if geometry is None:
        found = [field for field in frame.schema.fields if _is_geometry(field)]
        if not found:
            raise InputError("no geometry column", where=GEOPARQUET, hint="name those with WKB: geometry=")
        return found
    names = [geometry] if isinstance(geometry, str) else [*geometry]
    for name in names:
        if name not in fields:
            raise InputError(f"no column {name!r}", where=GEOPARQUET, hint=f"columns: {', '.join(fields)}")
        if not isinstance(fields[name].dataType, BinaryType | GeometryType | GeographyType):
            kind = fields[name].dataType.simpleString()
            raise InputError(f"column {name!r} is {kind}", where=GEOPARQUET, hint="convert it to WKB")
    if not names:
        raise InputError("no geometry column", where=GEOPARQUET, hint="name at least one")
    return [fields[name] for name in names]


def _is_geometry(field: StructField) -> bool:
    is_described = METADATA in (field.metadata or {}) and isinstance(field.dataType, BinaryType)
    return is_described or isinstance(field.dataType, GeometryType | GeographyType)


def _describe(field: StructField, crs: Crs) -> Mapping[str, Any]:
    """What the key `geo` says of a column. CRS84, which is meant if there is no CRS, is the only one that we write."""
    about, kind = (field.metadata or {}).get(METADATA, {}), field.dataType
    own = about.get("crs")
    if isinstance(kind, GeometryType | GeographyType) and kind.srid:
        own = f"SRID {kind.srid}" if kind.srid != GeometryType.DEFAULT_SRID else LONGITUDE_LATITUDE[0]
    own = own or crs or UNKNOWN
    if own not in (*LONGITUDE_LATITUDE, UNKNOWN):
        hint = "convert it to longitude and latitude"
        raise InputError(f"column {field.name!r} has the reference system {own}", where=GEOPARQUET, hint=hint)
    is_spherical = isinstance(kind, GeographyType) or about.get("edges", "planar") != "planar"
    return {
        "encoding": "WKB",
        "geometry_types": [],  # not known
        **({"crs": None} if own == UNKNOWN else {}),
        **({"edges": "spherical"} if is_spherical else {}),
    }


def _column(name: str) -> Column:
    return f.col(f"`{name.replace('`', '``')}`")


def _as_wkb(frame: DataFrame, geometries: Iterable[str]) -> list[Column]:
    """All columns, geometries as WKB. The job fails if one is EWKB."""
    columns = []
    for field in frame.schema.fields:
        column = _column(field.name)
        if field.name in geometries and isinstance(field.dataType, BinaryType):
            # The byte of the kind that has the flags of EWKB; it is the last one if the first byte says little-endian.
            flags = f.substring(column, f.when(f.substring(column, 1, 1) == f.lit(b"\1"), 5).otherwise(2), f.lit(1))
            problem = f.raise_error(f.lit(f"column {field.name!r} has EWKB: GeoParquet needs WKB without SRID"))
            column = f.when(column.isNotNull() & (flags != f.lit(b"\0")), problem.cast("binary")).otherwise(column)
        elif field.name in geometries:
            column = f.st_asbinary(column)
        columns.append(column.alias(field.name, metadata={}))
    return columns


def _java(spark: SparkSession) -> tuple[Any, Any]:
    """Java's classes, and the configuration of file systems."""
    session: Any = spark
    return session._jvm, session._jsparkSession.sessionState().newHadoopConf()


class _Files:
    """Writes Parquet files with a key in their footers, by Spark's file systems."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm, self._configuration = _java(spark)

    def write(self, frame: DataFrame, location: str, key: str, overwrite: bool) -> None:
        """Write with Spark to a folder beside, and copy its files with the new footers."""
        path = self._path(location)
        files = path.getFileSystem(self._configuration)
        if not overwrite and files.exists(path):
            raise ConflictError("already exists", where=location, hint="pass another path, or overwrite it")
        new = self._path(f"{location.rstrip('/')}.{uuid.uuid4().hex[:12]}.new")
        try:
            frame.write.parquet(new.toString())
            written = [status for status in files.listStatus(new) if status.getPath().getName().endswith(".parquet")]
            files.delete(path, True)
            try:
                files.mkdirs(path)
                with ThreadPoolExecutor(_COPIES_AT_ONCE) as threads:
                    for _ in threads.map(lambda status: self._copy(status, path, key), written):
                        pass
                files.create(self._path(f"{path.toString()}/_SUCCESS")).close()
            except BaseException:
                files.delete(path, True)
                raise
        finally:
            files.delete(new, True)

    def _path(self, location: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(location)

    def _copy(self, status: Any, folder: Any, key: str) -> None:
        """Copy row groups as they are."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromStatus(status, self._configuration))
        try:
            meta = reader.getFileMetaData()
            path = self._jvm.org.apache.hadoop.fs.Path(folder, status.getPath().getName())
            out = hadoop.util.HadoopOutputFile.fromPath(path, self._configuration)
            create = getattr(hadoop, "ParquetFileWriter$Mode").CREATE
            writer = hadoop.ParquetFileWriter(out, meta.getSchema(), create, _ROW_GROUP, _PADDING)
            try:
                writer.start()
                reader.appendTo(writer)
                values = self._jvm.java.util.HashMap(meta.getKeyValueMetaData())
                values.put(_KEY, key)
                writer.end(values)
            except BaseException:
                with suppress(Py4JJavaError):
                    writer.close()
                raise
        finally:
            reader.close()
