"""Kill processes while others work, in step with their progress instead of the clock."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Container

from roamcast.deliver.outbox import Outbox
from roamcast.lab.bench.processes import Process, until

LIMIT = 300.0


class Progress:
    """Counts what has happened, by name. Every count only grows."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts: Counter[str] = Counter()

    def add(self, name: str) -> None:
        with self._changed:
            self._counts[name] += 1
            self._changed.notify_all()

    def has(self, name: str, count: float) -> bool:
        with self._changed:
            return self._counts[name] >= count

    def wait_for(self, name: str, count: float) -> None:
        """Raises TimeoutError if the count is not reached within the limit."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._counts[name] >= count, LIMIT):
                raise TimeoutError(f"waited {LIMIT:g} s for {count:g} {name}, got {self._counts[name]}")


class PipelineKills:
    """Kills a pipeline with SIGKILL at random moments, and gives publishers their turns in between.

    Events are published in stages, two for each kill: one before the batch that the kill waits for, and one just before
    the kill, so that it hits a pipeline that works. The last stage begins after the last restart.
    """

    def __init__(
        self,
        process: Process,
        outbox: Outbox,
        chance: random.Random,
        kills: int,
        while_starting: Container[int] = (),
        before_start: Callable[[], None] = lambda: None,
    ) -> None:
        """Kills numbered in `while_starting` do not wait for the pipeline to be ready after the kill before.

        `before_start` is called before each start.
        """
        self._before_start = before_start
        self._process = process
        self._outbox = outbox
        self._chance = chance
        self._while_starting = while_starting
        self.kills = kills
        self.progress = Progress()

    def wait_for_stage(self, share: float) -> None:
        """Wait until this share (0 to 1) of all events may be published."""
        self.progress.wait_for("stages", int(share * 2 * (self.kills + 1)))

    def run(self) -> list[int]:
        """Returns the last finished batch at each kill."""
        killed_after = [-1]
        for kill in range(self.kills):
            is_starting = kill in self._while_starting
            if not is_starting:
                until(lambda: self._last_batch() > killed_after[-1], LIMIT, "the next batch")
            self.progress.add("stages")
            threading.Event().wait(self._chance.uniform(0.0, 4.0 if is_starting else 0.5))  # when exactly is random
            self._process.kill()
            killed_after.append(self._last_batch())
            self.progress.add("stages")
            self.progress.add("kills")
            self._before_start()
            self._process.start(wait=kill + 1 not in self._while_starting)
        self.progress.add("stages")
        return killed_after[1:]

    def _last_batch(self) -> int:
        status = self._outbox.read_status()
        return status.batch if status else -1
