"""``run`` returns the changes of a collection on several workers, in any order of arrival.

Workers are stepped by hand, so a run follows from its arguments. ``run_resumed`` has a checkpoint in the middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from timely import Worker, execute
from timely.dataflow import Capability
from timely.differential import Collection, InputSession, Output, Ring, from_updates, new_collection
from timely.differential.updates.containers import columns_module
from timely.differential.updates.updates import Update
from timely.errors import RoutingError, StalledError, brief
from timely.order import linear_extension
from timely.progress import time_domain
from timely.recovery import Recovery
from timely.testing.differential.conditions import Containers, conditions
from timely.testing.simulated_network import Network

Change: TypeAlias = tuple[Any, Any, Any]
"""``(record, time, diff)``."""

Build: TypeAlias = Callable[..., Collection[Any, Any]]
"""Makes a collection of the input collections."""


class Cluster:
    """Workers of one process over a ``Network``, stepped by hand.

    >>> cluster = Cluster(3)
    >>> probes = []
    >>> for worker in cluster.workers:
    ...     with worker.dataflow() as scope:
    ...         probes.append(scope.to_stream([worker.index]).exchange(lambda x: 0).probe())
    >>> cluster.settle()
    >>> [probe.done() for probe in probes]
    [True, True, True]
    """

    def __init__(self, workers: int = 1) -> None:
        self.network = Network(workers)
        self.workers = [Worker(self.network.transport(index)) for index in range(workers)]

    @property
    def idle(self) -> bool:
        """Whether no worker has anything to do, and no message is on its way."""
        return all(worker.idle for worker in self.workers) and self.network.quiet

    def step(self) -> None:
        """Step every worker once, and let everything arrive."""
        for worker in self.workers:
            worker.step()
        self.network.deliver_all()

    def settle(self) -> None:
        """Step until nothing is left to be done."""
        while not self.idle:
            self.step()

    def step_some(self, random: Random) -> None:
        """Step some workers, and let some messages arrive."""
        for _ in range(random.randrange(4)):
            waiting = self.network.waiting()
            if waiting and random.random() < 0.5:
                self.network.deliver(*random.choice(waiting), random.randint(1, 3))
            else:
                random.choice(self.workers).step()


def columns_of(rows: Sequence[Update]) -> Any:
    """Return updates as columns, or as they are where they are not all whole numbers, or pairs of them.

    >>> columns_of([((1, 2), 1), ((3, 4), -1)])
    Updates(array([1, 3]), array([2, 4]), array([ 1, -1]))
    >>> columns_of([("a", 1)])
    [('a', 1)]
    """
    columns = columns_module()
    as_columns = columns.from_rows(rows, type(rows[0][0]) is tuple) if columns is not None and rows else None
    return rows if as_columns is None else as_columns


def arrow_of(rows: Sequence[Update]) -> list[Any]:
    """Return updates as Arrow rows, a container for each difference; as they are unless all are pairs of a number and a tuple."""
    if any(type(record) is not tuple or tuple(map(type, record)) != (int, tuple) for record, _ in rows):
        return [rows]
    import numpy as np
    import pyarrow as pa

    from timely.differential.updates.row_columns import KeyedRows, LazyColumn, RowColumns

    by_diff: dict[int, list[Any]] = {}
    for record, diff in rows:
        by_diff.setdefault(diff, []).append(record)
    containers = []
    for diff, records in by_diff.items():
        fields = zip(*(row for _, row in records), strict=True)
        columns = tuple([LazyColumn(pa.array(field)) for field in fields])
        containers.append(KeyedRows(np.array([key for key, _ in records]), RowColumns(columns, len(records), diff)))
    return containers


def _send(session: InputSession[Any, Any], rows: Sequence[Update], containers: Containers) -> None:
    """Send updates at the session's time: as rows, as columns, one half as each, or as Arrow rows."""
    if containers == "arrow":
        for batch in arrow_of(rows):
            session._input.send_batch(batch)
        return
    plain = {"rows": len(rows), "columns": 0, "mixed": len(rows) // 2}[containers]
    updates = columns_of(rows[plain:])
    for record, diff in rows[:plain]:
        session.update(record, diff)
    if isinstance(updates, list):
        for record, diff in updates:
            session.update(record, diff)
    else:
        arrays = [updates.keys] if updates.values is None else [updates.keys, updates.values]
        session.insert_columns(*arrays, diff=updates.counts())


class _Feed:
    """One input on one worker, for updates in any order: it holds a capability for each time."""

    def __init__(self, handle: Any, capability: Capability[Any], times: Iterable[Any]) -> None:
        self._handle = handle
        self._held = {time: capability.delayed(time) for time in times}
        capability.drop()

    def send(self, time: Any, batch: Any) -> None:
        """Send a container of updates at ``time``."""
        self._handle.session(self._held[time]).give_batch(batch)

    def done(self, time: Any) -> None:
        """Send nothing more at ``time``."""
        if time in self._held:
            self._held.pop(time).drop()


def run(
    build: Build,
    *inputs: Sequence[Change],
    time: Any = int,
    workers: int = 1,
    one_by_one: bool = False,
    compact: bool = False,
    seed: int | None = None,
    diff: Any = int,
    containers: Containers = "rows",
) -> list[Change]:
    """Return the changes of ``build(*collections)``, added up, in order of time and record.

    ``inputs`` are the updates ``(record, time, diff)`` of each collection, dealt out among the workers. With ``one_by_one`` each
    time is complete before the next is sent, else all are sent before the first step. ``compact`` forces compaction. With a
    ``seed`` updates arrive in random order, capabilities are dropped at random, and workers take random steps. ``containers``
    other than rows are within ``small_columns``; records that are not whole numbers are rows in any case.

    >>> run(lambda words: words.map(len), [("to", 0, 1), ("be", 0, 1), ("be", 1, -1)], workers=3)
    [(2, 0, 2), (2, 1, -1)]
    """
    with conditions(compact, containers):
        return _run(Cluster(workers), build, inputs, time, one_by_one, None if seed is None else Random(seed), diff, containers)


def _run(
    cluster: Cluster,
    build: Build,
    inputs: Sequence[Sequence[Change]],
    time: Any,
    one_by_one: bool,
    random: Random | None,
    diff: Any,
    containers: Containers,
) -> list[Change]:
    feeds: list[list[_Feed]] = []
    outputs: list[tuple[Output[Any, Any], Ring]] = []
    times = [linear_extension(dict.fromkeys(change[1] for change in changes)) for changes in inputs]
    for worker in cluster.workers:
        opened, collections = [], []
        with worker.dataflow(time) as scope:
            for when in times:
                (handle, capability), stream = scope.new_unordered_input()
                opened.append(_Feed(handle, capability, when))
                collections.append(from_updates(stream, diff=diff))
            result = build(*collections)
            outputs.append((result.output(), result.ring))
        feeds.append(opened)
    order = linear_extension(dict.fromkeys(when for each in times for when in each))
    place = {when: index for index, when in enumerate(order)}
    sends = _messages(inputs, len(feeds), random, containers)
    if random is None:
        sends.sort(key=lambda send: place[send[0]])
    else:
        random.shuffle(sends)
    left = Counter(send[0] for send in sends)
    for when, worker_index, which, batch in sends:
        feeds[worker_index][which].send(when, batch)
        left[when] -= 1
        if random is not None:
            cluster.step_some(random)
        if not left[when] and (random is None or random.random() < 0.7):
            for every in feeds:
                for feed in every:
                    feed.done(when)
            if one_by_one:
                cluster.settle()
    for when in order if random is None else random.sample(order, len(order)):
        for every in feeds:
            for feed in every:
                feed.done(when)
        if random is not None:
            cluster.step_some(random)
    return _results(cluster, outputs)


def _messages(
    inputs: Sequence[Sequence[Change]], workers: int, random: Random | None, containers: Containers
) -> list[tuple[Any, int, int, Any]]:
    """Return ``(time, worker, input, container)``: rows that come at random one by one, others several of a time."""
    updates = [
        (when, index % workers, which, (record, difference))
        for which, changes in enumerate(inputs)
        for index, (record, when, difference) in enumerate(changes)
    ]
    if containers == "rows" and random is not None:
        return [(*place, [update]) for *place, update in updates]
    together: dict[tuple[Any, int, int], list[list[Update]]] = {}
    for when, worker, which, update in updates:
        batches = together.setdefault((when, worker, which), [[]])
        if random is not None and random.random() < 0.3:
            batches.append([])
        batches[-1].append(update)
    messages = [(*place, batch) for place, batches in together.items() for batch in batches if batch]
    if containers == "rows":
        return messages
    if containers == "arrow":
        return [(*place, part) for *place, batch in messages for part in arrow_of(batch)]
    return [
        (when, worker, which, batch if containers == "mixed" and number % 2 else columns_of(batch))
        for number, (when, worker, which, batch) in enumerate(messages)
    ]


def _results(cluster: Cluster, outputs: list[tuple[Output[Any, Any], Ring]]) -> list[Change]:
    cluster.settle()
    for output, _ in outputs:
        if not output.done:
            raise StalledError(f"{output!r} has not come to its end, and nothing is left to be done")
    return _added_up(_shares([output.changes() for output, _ in outputs]), outputs[0][1])


def _shares(changes: Sequence[list[Change]]) -> list[Change]:
    """Return the changes of all workers; ``RoutingError`` for a record that several have."""
    owners: dict[Any, int] = {}
    for worker, share in enumerate(changes):
        for record, _, _ in share:
            if owners.setdefault(record, worker) != worker:
                raise RoutingError(f"worker {owners[record]} and worker {worker} both have changes of {brief(record)}")
    return [change for share in changes for change in share]


def _added_up(changes: Iterable[Change], ring: Ring) -> list[Change]:
    """Return changes of several workers or runs as one list, in order of time and record."""
    sums: dict[Any, dict[Any, Any]] = {}
    for record, when, difference in changes:
        counts = sums.setdefault(when, {})
        difference = ring.wrap(difference)
        counts[record] = counts[record] + difference if record in counts else difference
    summed = []
    for when in linear_extension(sums):
        left = [(record, when, ring.unwrap(difference)) for record, difference in sums[when].items() if difference]
        try:
            left.sort(key=lambda change: change[0])
        except (TypeError, ArithmeticError):
            left.sort(key=repr)  # records that cannot be compared
        summed += left
    return summed


def run_resumed(
    build: Build,
    *inputs: Sequence[Change],
    directory: Path,
    at: Any = None,
    time: Any = int,
    workers: Sequence[int] = (1, 1),
    compact: bool = False,
    diff: Any = int,
    containers: Containers = "rows",
) -> list[Change]:
    """Return what ``run`` does, from a run that ends with a checkpoint at ``at``, and one that goes on from it.

    ``at`` is the middle one of the times by default. Every second update at or after it is sent before the checkpoint all the
    same, and waits in it. ``workers`` are those of both runs, ``directory`` is for the checkpoint.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     changes = [(("a", 1), 0, 1), (("a", 2), 1, 1)]
    ...     run_resumed(lambda c: c.count_by_key(), changes, directory=Path(directory), workers=(1, 3))
    [(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)]
    """
    times = linear_extension(dict.fromkeys(change[1] for changes in inputs for change in changes))
    begun = times[len(times) // 2] if at is None else at
    early: list[list[Change]] = []
    late: list[list[Change]] = []
    for changes in inputs:
        chosen = [not begun <= change[1] or not number % 2 for number, change in enumerate(changes)]
        early.append([change for change, first in zip(changes, chosen, strict=True) if first])
        late.append([change for change, first in zip(changes, chosen, strict=True) if not first])

    def part(worker: Worker, sends: list[list[Change]], resumed: bool) -> tuple[list[Change], Ring]:
        with Recovery(worker, directory) as recovery:
            with worker.dataflow(time) as scope:
                opened = [new_collection(scope, diff=diff) for _ in sends]
                result = build(*(collection for _, collection in opened))
                output = result.output()
            sessions = [session for session, _ in opened]
            if resumed:
                for session in sessions:
                    session.advance_to(begun)
            mine = [changes[worker.index :: worker.peers] for changes in sends]
            _send_until(worker, sessions, mine, None if resumed else begun, time_domain(time).total, containers)
            if resumed:
                for session in sessions:
                    session.close()
                worker.run()
            else:
                recovery.checkpoint(begun)
            changes_of_all = output.changes()
        for session in sessions:
            session.close()
        return changes_of_all, result.ring

    with conditions(compact, containers):
        changes_of_all: list[Change] = []
        for resumed, (sends, peers) in enumerate(zip((early, late), workers, strict=True)):
            results = execute(lambda worker: part(worker, sends, bool(resumed)), workers=peers)  # noqa: B023
            changes_of_all += _shares([changes for changes, _ in results])
    return _added_up(changes_of_all, results[0][1])


def _send_until(
    worker: Worker,
    sessions: Sequence[InputSession[Any, Any]],
    sends: Sequence[Sequence[Change]],
    end: Any,
    total: bool,
    containers: Containers,
) -> None:
    """Send all of it, and advance to ``end``, if any; times are taken one by one where they are totally ordered."""
    by_time: dict[Any, list[list[Update]]] = {}
    for which, changes in enumerate(sends):
        for record, when, difference in changes:
            by_time.setdefault(when, [[] for _ in sends])[which].append((record, difference))
    for when in linear_extension(by_time):
        ahead = not total or (end is not None and end <= when)
        for session, rows in zip(sessions, by_time[when], strict=True):
            if ahead:
                for record, difference in rows:
                    session.update_at(record, when, difference)
            else:
                session.advance_to(when)
                _send(session, rows, containers)
        worker.step()
    if end is not None:
        for session in sessions:
            session.advance_to(end)
