"""Elasticsearch's percolator: each subscription is a stored query, events are percolated many at a time.

A node of Elasticsearch runs in a Java process of its own, with the percolator and HTTP as its only plugins. A query has
the box, the terms, and the grid cells that the box touches: the percolator finds candidates by terms only, and would
try all subscriptions with the same term otherwise.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import orjson

from roamcast.errors import UnavailableError
from roamcast.lab.bench.saturation.memory import MemorySampler
from roamcast.lab.bench.saturation.peers.jars import fetch_jars, spark_jar
from roamcast.lab.bench.saturation.peers.port import Matcher, Peer, PeerLoad, measure_matchers
from roamcast.lab.bench.saturation.world import EventBatch, Ints, World
from roamcast.pipeline.query.session import find_java

__all__ = ["COORDINATES", "PERCOLATOR"]

_VERSION: Final = "7.17.29"
COORDINATES: Final = (
    f"org.elasticsearch:elasticsearch:{_VERSION}",
    f"org.elasticsearch.plugin:percolator-client:{_VERSION}",
    f"org.elasticsearch.plugin:transport-netty4-client:{_VERSION}",
)
_PLUGINS: Final = ("org.elasticsearch.transport.Netty4Plugin", "org.elasticsearch.percolator.PercolatorPlugin")
_JAVA_OPTIONS: Final = ("-Xmx4g", "-XX:+UseParallelGC", "-Dlog4j2.level=OFF")
_DOCUMENTS: Final = 500  # that are percolated by one query
_QUERIES: Final = 5_000  # that are stored by one request
_CLIENTS: Final = 2
_TIMEOUT_S: Final = 600.0
_LARGEST_ANSWER: Final = 10_000_000  # matches
_INDEX: Final = {
    "settings": {
        "number_of_shards": 1,
        "number_of_replicas": 0,
        "refresh_interval": "-1",
        "max_result_window": _LARGEST_ANSWER,
    },
    "mappings": {
        "properties": {
            "query": {"type": "percolator"},
            "location": {"type": "geo_point"},
            "terms": {"type": "keyword"},
            "cell": {"type": "keyword"},
        }
    },
}


def _measure(load: PeerLoad) -> dict[str, Any]:
    jars = fetch_jars(COORDINATES, load.folder)
    begun = time.perf_counter()
    with _elasticsearch(jars, load.folder) as (url, pid), httpx.Client(base_url=url, timeout=_TIMEOUT_S) as http:
        memory = MemorySampler({"java": pid})
        with memory.running():
            _store_queries(http, load.world)
            setup_s = time.perf_counter() - begun
            figures = measure_matchers(load, [_matcher(http, load.world)] * _CLIENTS)
    return {**figures, "setup_s": round(setup_s, 1), **memory.peaks()}


PERCOLATOR: Final = Peer(
    "percolator",
    "events and matches are not stored, no order, no exactly-once, no delivery to receivers, no acknowledgement",
    _measure,
)


@contextmanager
def _elasticsearch(jars: Sequence[Path], folder: Path) -> Iterator[tuple[str, int]]:
    """Run a node until the end of the block: its URL and its process."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JError

    java = find_java() / "bin" / "java"
    with (folder / "elasticsearch.log").open("wb") as log:
        port, token, process = launch_gateway(
            jarpath=str(spark_jar("py4j-*.jar")), classpath=os.pathsep.join(map(str, jars)), java_path=str(java),
            javaopts=list(_JAVA_OPTIONS), die_on_exit=True, enable_auth=True, return_proc=True,
            redirect_stdout=log, redirect_stderr=log,
        )  # fmt: skip
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield f"http://{_start_node(gateway, folder / 'elasticsearch')}", process.pid
        except Py4JError as error:
            raise UnavailableError(f"Elasticsearch does not start: {error}") from error
        finally:
            gateway.close()
            process.stdin.close()
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start_node(gateway: Any, home: Path) -> str:
    """Start a node with plugins from the class path, which only subclasses of Node may: host and port of its HTTP."""
    jvm = gateway.jvm
    find_class = jvm.java.lang.Class.forName
    settings = jvm.org.elasticsearch.common.settings.Settings.builder()
    for key, value in {
        "path.home": str(home), "node.name": "percolator", "discovery.type": "single-node", "http.type": "netty4",
        "transport.type": "netty4", "network.host": "127.0.0.1", "http.port": "0", "transport.port": "0",
        "cluster.routing.allocation.disk.threshold_enabled": "false",
    }.items():  # fmt: skip
        settings = settings.put(key, value)
    path = jvm.java.nio.file.Path.of(str(home), gateway.new_array(jvm.java.lang.String, 0))
    environment = jvm.org.elasticsearch.env.Environment(settings.build(), path)
    plugins = jvm.java.util.ArrayList()
    for plugin in _PLUGINS:
        plugins.add(find_class(plugin))
    types, arguments = gateway.new_array(jvm.java.lang.Class, 3), gateway.new_array(jvm.java.lang.Object, 3)
    types[0], types[1] = find_class("org.elasticsearch.env.Environment"), find_class("java.util.Collection")
    types[2] = jvm.java.lang.Boolean.TYPE
    arguments[0], arguments[1], arguments[2] = environment, plugins, True
    constructor = find_class("org.elasticsearch.node.Node").getDeclaredConstructor(types)
    constructor.setAccessible(True)
    node = constructor.newInstance(arguments).start()
    transport = node.injector().getInstance(find_class("org.elasticsearch.http.HttpServerTransport"))
    return str(transport.boundAddress().publishAddress().toString())


def _store_queries(http: httpx.Client, world: World) -> None:
    _post(http.put, "/subscriptions", _INDEX)
    cells_of = _cells(world)
    for first in range(0, world.subscriptions, _QUERIES):
        lines = []
        for number in range(first, min(first + _QUERIES, world.subscriptions)):
            left, bottom, right, top = world.box(number)
            box = {"left": left, "bottom": bottom, "right": right, "top": top}
            cells = cells_of([left, right], [bottom, top])
            conditions = [
                *({"term": {"terms": term}} for term in world.terms(number)),
                {"terms": {"cell": cells}},
                {"geo_bounding_box": {"location": box}},
            ]
            lines += [{"index": {"_id": str(number)}}, {"query": {"bool": {"filter": conditions}}}]
        answer = _post(http.post, "/subscriptions/_bulk", lines)
        if answer["errors"]:
            raise UnavailableError(f"Elasticsearch refused subscriptions: {answer['items'][0]}")
    _post(http.post, "/subscriptions/_refresh", [])


def _matcher(http: httpx.Client, world: World) -> Matcher:
    cells_of = _cells(world)

    def match(batch: EventBatch) -> tuple[Ints, Ints]:
        documents = [
            {"location": [row["x"], row["y"]], "terms": row["terms"], "cell": cells_of([row["x"]], [row["y"]])}
            for row in batch.table.select(["x", "y", "terms"]).to_pylist()
        ]
        rows: list[int] = []
        subscriptions: list[int] = []
        for first in range(0, len(documents), _DOCUMENTS):
            percolate = {"field": "query", "documents": documents[first : first + _DOCUMENTS]}
            search = {
                "size": _LARGEST_ANSWER, "_source": False, "track_total_hits": False,
                "query": {"constant_score": {"filter": {"percolate": percolate}}},
            }  # fmt: skip
            for hit in _post(http.post, "/subscriptions/_search", search)["hits"]["hits"]:
                slots = hit["fields"]["_percolator_document_slot"]
                rows += [first + slot for slot in slots]
                subscriptions += [int(hit["_id"])] * len(slots)
        return np.array(rows, np.int64), np.array(subscriptions, np.int64)

    return match


def _post(send: Callable[..., httpx.Response], path: str, body: Any) -> Any:
    """Send one JSON value, or many lines; the answer."""
    lines = body if isinstance(body, list) else [body]
    kind = "application/x-ndjson" if isinstance(body, list) else "application/json"
    content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    response = send(path, content=content, headers={"content-type": kind})
    if response.is_error:
        raise UnavailableError(f"Elasticsearch answers {response.status_code}: {response.text[:300]}")
    return orjson.loads(response.content)


def _cells(world: World) -> Callable[[Sequence[float], Sequence[float]], list[str]]:
    """The names of the grid cells that these points, or a box with these corners, touch."""
    width, height = world.cell_size

    def cells_of(xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        columns = [int((x + 180.0) // width) for x in xs]
        rows = [int((y + 80.0) // height) for y in ys]
        touched = product(range(columns[0], columns[-1] + 1), range(rows[0], rows[-1] + 1))
        return [f"{column}/{row}" for column, row in touched]

    return cells_of
