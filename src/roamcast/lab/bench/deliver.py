"""`roamcast bench deliver`: letters into mailboxes and out of them, beside NATS JetStream; one letter's way; how long a
mailbox is out of reach while it moves; how long after a crash; and whether a letter costs more after very many.

Real nodes with their default settings, each a process of its own, over HTTP. Nothing is left out: group commit, fsync,
exactly once and in order.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roamcast.client import Client
from roamcast.errors import UnavailableError
from roamcast.lab.bench.deliver_ever import bench_ever
from roamcast.lab.bench.deliver_load import Timed, in_processes, read_out, register, send_in
from roamcast.lab.bench.deliver_moves import bench_letter, bench_moves, percentile, two_nodes
from roamcast.lab.bench.deliver_nats import bench_nats, missing
from roamcast.lab.bench.processes import Process, free_port, node, until

__all__ = ["bench_deliver"]

_RECEIVERS = 10_000
_QUEUED = 10_000  # letters in the mailbox that moves

Say = Callable[[str], None]


def bench_deliver(letters: int, clients: int, moves: int, ever: int, say: Say) -> dict[str, Any]:
    """`letters` are stored at once; `ever` are sent in all where that is what matters."""
    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as folder:
        data = Path(folder)
        for part in ("one", "north", "south", "ever"):
            (data / part).mkdir()
        figures = _in_and_out(data / "one", letters, clients, say)
        say(f"a mailbox with {_QUEUED} letters moves {moves} times between two nodes")
        with two_nodes(data) as (first, second):
            dark = bench_moves(first, second, _QUEUED, moves)
        figures |= {"blackout_p50_ms": percentile(dark, 50), "blackout_p99_ms": percentile(dark, 99), "moves": moves}
        counts = [*(count for count in (100_000, 1_000_000) if count < ever), ever]
        say(f"what a letter costs after {' and '.join(map(str, counts))}")
        costs = bench_ever(data / "ever", _RECEIVERS, counts, say)
        figures["cost_us"] = {str(count): cost for count, cost in costs.items()}
    reason = missing()
    if reason is None:
        say("the same with NATS JetStream")
        figures["in"]["nats"], figures["out"]["nats"] = map(round, bench_nats(letters, _RECEIVERS, clients))
        for way in ("in", "out"):
            figures[way]["ratio"] = round(figures[way]["roamcast"] / figures[way]["nats"], 2)
    else:
        say(f"no peer: {reason}")
    return figures


def _in_and_out(data: Path, letters: int, clients: int, say: Say) -> dict[str, Any]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with node(data, port) as process:
        say(f"registering {_RECEIVERS} receivers")
        receivers = [f"r{number}" for number in range(_RECEIVERS)]
        tokens = register(url, receivers)
        senders = register(url, [f"sender{number}" for number in range(clients)])
        say("one letter's way")
        ways = bench_letter(url, 1_000)
        say(f"{letters} letters in; processes that send: {clients}")
        sending = [(url, token, receivers, letters // clients) for token in senders]
        went_in = Timed.rate(in_processes(send_in, sending))
        say("killing the node")
        restart = _restart(process, url, tokens[0])
        say(f"up after {restart:.1f} s; reading all letters")
        shares = [(url, tokens[client::clients]) for client in range(clients)]
        parts = in_processes(read_out, shares)
        if sum(part.letters for part in parts) != letters // clients * clients:
            raise UnavailableError(f"{sum(part.letters for part in parts)} letters came of {letters}")
    return {
        "in": {"roamcast": round(went_in), "nats": None},
        "out": {"roamcast": round(Timed.rate(parts)), "nats": None},
        "letters": letters,
        "clients": clients,
        "letter_p50_ms": percentile(ways, 50),
        "letter_p99_ms": percentile(ways, 99),
        "restart_s": round(restart, 2),
    }


def _restart(process: Process, url: str, token: str) -> float:
    """Seconds from the start after a SIGKILL until the first letter was pulled."""
    process.kill()
    began = time.monotonic()
    process.start(wait=False)
    reader = Client(url, token, delays=())

    def has_letter() -> bool:
        try:
            return bool(reader.pull(limit=1))
        except UnavailableError:
            return False

    until(has_letter, 120.0, "the first letter")
    took = time.monotonic() - began
    reader.close()
    return took
