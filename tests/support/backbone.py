"""Several nodes that know each other, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nodes import RunningNode, ServedNode, letter_body, running_node, until

from roamcast.client import Client
from roamcast.lab.bench.processes import Process, free_port
from roamcast.lab.bench.processes import node as node_process


def invitation(node: RunningNode, domain: str) -> str:
    """An invitation code for the node of `domain`."""
    token = (node.data / "operator.token").read_text().strip()
    answer = node.http.post(
        "/v1/office/invitations", json={"domain": domain}, headers={"authorization": f"Bearer {token}"}
    )
    code: str = answer.json()["invitation"]
    return code


def knows(node: RunningNode, *domains: str) -> bool:
    """Whether the node can reach all of these peers."""
    offices = node.http.get("/v1/offices").json()["offices"]
    return {office["domain"] for office in offices if office["reachable"]} >= set(domains)


@contextmanager
def backbone(folder: Path, *domains: str, shared: bool = False, **settings: Any) -> Iterator[dict[str, ServedNode]]:
    """Nodes of these domains, each with its own data folder, or all with one; all have joined the first."""
    with ExitStack() as opened:
        nodes: dict[str, ServedNode] = {}
        for domain in domains:
            more = dict(settings)
            if nodes:
                first = nodes[domains[0]]
                more |= {"join": first.url, "invitation": invitation(first, domain)}
            data = folder if shared else folder / domain
            nodes[domain] = opened.enter_context(running_node(data, domain=domain, **more))
        for domain, node in nodes.items():
            others = [other for other in domains if other != domain]
            until(lambda node=node, others=others: knows(node, *others), f"{domain} to know the others")
        try:
            yield nodes
        finally:
            for node in nodes.values():
                node.server.stop()  # all at once: each takes a moment


@contextmanager
def node_processes(data: Path, *domains: str) -> Iterator[dict[str, tuple[str, Process]]]:
    """Nodes of these domains as processes with one data folder, by URL; all join the first."""
    nodes: dict[str, tuple[str, Process]] = {}
    with ExitStack() as opened:
        for domain in domains:
            more = ["--domain", domain]
            if nodes:
                first, _ = nodes[domains[0]]
                with Client(first, (data / "operator.token").read_text().strip()) as operator:
                    more += ["--join", first, "--invitation", operator.invite(domain)]
            port = free_port()
            nodes[domain] = f"http://127.0.0.1:{port}", opened.enter_context(node_process(data, port, *more))
        yield nodes


def leave_event(node: RunningNode, domain: str, batch: int, receiver: str, *numbers: int) -> None:
    """Letters of the pipeline, in the outbox of an office; the event of each has its number as id."""
    import pyarrow as pa

    from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox

    rows = [{"receiver": receiver, "number": n, "body": json.dumps(letter_body(str(n)))} for n in numbers]
    Outbox(node.data / "outbox").put(domain, "the-pipeline", batch, pa.Table.from_pylist(rows, schema=LETTERS_SCHEMA))


def visitor(node: RunningNode, name: str, token: str | None, **more: Any) -> Client:
    """A client that has only the name and the token of a subscriber, at a node that may be any."""
    return Client(node.url, token, name=name, http=node.http, delays=(0.1, 0.2, 0.4, 0.8), **more)
