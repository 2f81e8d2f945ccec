"""Tests of incremental collections: runs on several workers, in any order of arrival, compared with a function of dicts.

``run`` returns the changes of a collection, ``check_operator`` compares them with an oracle at every time. Workers are stepped by
hand over a ``Network``, so a run follows from its arguments and can be repeated. ``run_resumed`` has a checkpoint in the middle.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

import attrs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from timely import Worker, execute
from timely.dataflow import Capability
from timely.differential import (
    Collection,
    InputSession,
    Output,
    Ring,
    aggregates,
    blocks,
    containers,
    disk_rows,
    from_updates,
    handles,
    imports,
    joins,
    new_collection,
    reductions,
    state_memory,
    trace,
    trace_state,
)
from timely.differential.aggregates import Groups
from timely.differential.containers import columns_module
from timely.differential.trace import Trace
from timely.differential.updates import Update
from timely.errors import CollectionMismatch, StalledError, brief
from timely.memory import MemoryBudget
from timely.order import Product, linear_extension
from timely.progress import lattice, time_domain
from timely.recovery import Recovery
from timely.testing.strategies import time_kit
from timely.testing.transport import Network

__all__ = [
    "Build",
    "Case",
    "Change",
    "Cluster",
    "Containers",
    "Counts",
    "Oracle",
    "accumulated",
    "cases",
    "check_changes",
    "check_operator",
    "columns_of",
    "few_times",
    "forced_compaction",
    "grid",
    "run",
    "run_resumed",
    "small_columns",
    "tiny_memory",
    "updates_in_traces",
]

Change: TypeAlias = tuple[Any, Any, Any]
"""``(record, time, diff)``."""

Counts: TypeAlias = Mapping[Any, Any]
"""What a collection holds: counts by record, none of them zero."""

Build: TypeAlias = Callable[..., Collection[Any, Any]]
"""Makes a collection of the input collections."""

Oracle: TypeAlias = Callable[..., Counts]
"""Returns what the result holds, from what the inputs hold."""

Containers: TypeAlias = Literal["rows", "columns", "mixed"]
"""How updates are sent and kept: as rows unless there are many, as columns where they are whole numbers, or as both in turn."""

SEVERAL = 1_000_000
"""Messages that arrive at once when all do."""


@contextmanager
def forced_compaction(force: bool = True) -> Iterator[None]:
    """Have every trace compact all of its keys at each step, so that what still needs its history is seen to fail.

    >>> from timely import differential as dd
    >>> with forced_compaction():
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)])
    [(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)]
    """
    before = Trace.eager
    Trace.eager = force
    try:
        yield
    finally:
        Trace.eager = before


@contextmanager
def small_columns(many: int = 3) -> Iterator[None]:
    """Have updates become columns from ``many`` on, and other limits be small as well: small runs then do what large ones do.

    >>> from timely.differential import containers
    >>> with small_columns():
    ...     containers.MANY
    3
    """
    limits: list[tuple[Any, str, int]] = [
        *((module, "MANY", many) for module in (containers, handles, imports, reductions, trace)),
        (joins, "LIMIT", 20),
        (aggregates, "SMALL", 4),
        (trace, "_LEAST_FOLD", 4),
        (trace, "_EVERY", 3),
        (trace_state, "LEAST", 4),
    ]
    if columns_module() is not None:
        from timely.differential import column_store

        limits += [(column_store, "PORTION", 5), (column_store, "SAVED", 3)]
    with _limits(limits):
        yield


@contextmanager
def tiny_memory() -> Iterator[MemoryBudget]:
    """Have traces move all that they can to disk after every update, in blocks of a few entries: what large state does.

    >>> from timely import differential as dd
    >>> with tiny_memory() as budget:
    ...     run(lambda c: c.count_by_key(), [(("a", 1), 0, 1), (("a", 2), 1, 1)], one_by_one=True), budget.written > 0
    ([(('a', 1), 0, 1), (('a', 1), 1, -1), (('a', 2), 1, 1)], True)
    """
    limits: list[tuple[Any, str, int]] = [
        *((state_memory, "EVERY", 1), (blocks, "BLOCK", 3), (blocks, "ROWS", 2), (disk_rows, "PORTION", 3)),
        *((reductions, "EARLY", 2), (reductions, "PORTION", 2), (trace, "_LARGEST", 3)),
    ]
    if columns_module() is not None:
        from timely.differential import column_store

        limits.append((column_store, "PORTION", 7))  # more than a block
    with _limits(limits), MemoryBudget(1) as budget:
        yield budget


@contextmanager
def _limits(limits: Sequence[tuple[Any, str, int]]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, limit in limits:
        setattr(module, name, limit)
    try:
        yield
    finally:
        for module, name, limit in before:
            setattr(module, name, limit)


_MANY: Final[dict[str, int]] = {"columns": 1, "mixed": 3}


@contextmanager
def _conditions(compact: bool, containers: Containers) -> Iterator[None]:
    with forced_compaction(compact or Trace.eager):
        if containers == "rows":
            yield
        else:
            with small_columns(_MANY[containers]):
                yield


def columns_of(rows: Sequence[Update]) -> Any:
    """Return updates as columns, or as they are where they are not all whole numbers, or pairs of them.

    >>> columns_of([((1, 2), 1), ((3, 4), -1)])
    Updates(array([1, 3]), array([2, 4]), array([ 1, -1]))
    >>> columns_of([("a", 1)])
    [('a', 1)]
    """
    columns = columns_module()
    found = columns.from_rows(rows, type(rows[0][0]) is tuple) if columns is not None and rows else None
    return rows if found is None else found


def _send(session: InputSession[Any, Any], rows: Sequence[Update], containers: Containers) -> None:
    """Send updates at the session's time: as rows, as columns, or one half as each."""
    plain = {"rows": len(rows), "columns": 0, "mixed": len(rows) // 2}[containers]
    found = columns_of(rows[plain:])
    for record, diff in rows[:plain]:
        session.update(record, diff)
    if isinstance(found, list):
        for record, diff in found:
            session.update(record, diff)
    else:
        arrays = [found.keys] if found.values is None else [found.keys, found.values]
        session.insert_columns(*arrays, diff=found.counts())


def updates_in_traces() -> list[int]:
    """Return how many updates each trace that is alive keeps, groups of aggregates included."""
    gc.collect()
    found = []
    for each in gc.get_objects():
        if isinstance(each, Trace):
            found.append(each.entries())
        elif isinstance(each, Groups):
            found.append(sum(len(bag.counts) for bags in each.bags() for bag in bags))
    return found


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
        return all(worker.idle for worker in self.workers) and not self.network.waiting() and not any(self.network.inboxes)

    def step(self) -> None:
        """Step every worker once, and let everything arrive."""
        for worker in self.workers:
            worker.step()
        for source, target in self.network.waiting():
            self.network.deliver(source, target, SEVERAL)

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
    with _conditions(compact, containers):
        cluster = Cluster(workers)
        if seed is None and time is int:
            return _run_in_order(cluster, build, inputs, one_by_one, diff, containers)
        random = None if seed is None else Random(seed)
        return _run_unordered(cluster, build, inputs, time, one_by_one, random, diff, containers)


def _run_in_order(
    cluster: Cluster,
    build: Build,
    inputs: Sequence[Sequence[Change]],
    one_by_one: bool,
    diff: Any,
    containers: Containers,
) -> list[Change]:
    sessions: list[list[InputSession[Any, Any]]] = []
    outputs: list[tuple[Output[Any, Any], Ring]] = []
    for worker in cluster.workers:
        with worker.dataflow(int) as scope:
            opened = [new_collection(scope, diff=diff) for _ in inputs]
            result = build(*(collection for _, collection in opened))
            outputs.append((result.output(), result.ring))
        sessions.append([session for session, _ in opened])
    sends: dict[int, dict[InputSession[Any, Any], list[Update]]] = {}
    for which, changes in enumerate(inputs):
        for index, (record, when, difference) in enumerate(changes):
            session = sessions[index % len(sessions)][which]
            sends.setdefault(when, {}).setdefault(session, []).append((record, difference))
    for time in sorted(sends):
        for feeds in sessions:
            for session in feeds:
                session.advance_to(time)
        if one_by_one:
            cluster.settle()
        for session, rows in sends[time].items():
            _send(session, rows, containers)
    for feeds in sessions:
        for session in feeds:
            session.close()
    return _results(cluster, outputs)


def _run_unordered(
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
    left = [send[0] for send in sends]
    for when, worker_index, which, batch in sends:
        feeds[worker_index][which].send(when, batch)
        left.remove(when)
        if random is not None:
            cluster.step_some(random)
        if when not in left and (random is None or random.random() < 0.7):
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
    """Return ``(time, worker, input, container)``: one update in each, or several of a time where they are to be columns."""
    updates = [
        (when, index % workers, which, (record, difference))
        for which, changes in enumerate(inputs)
        for index, (record, when, difference) in enumerate(changes)
    ]
    if containers == "rows":
        return [(*place, [update]) for *place, update in updates]
    together: dict[tuple[Any, int, int], list[list[Update]]] = {}
    for when, worker, which, update in updates:
        batches = together.setdefault((when, worker, which), [[]])
        if random is not None and random.random() < 0.3:
            batches.append([])
        batches[-1].append(update)
    found = [(*place, batch) for place, batches in together.items() for batch in batches if batch]
    return [
        (when, worker, which, batch if containers == "mixed" and number % 2 else columns_of(batch))
        for number, (when, worker, which, batch) in enumerate(found)
    ]


def _results(cluster: Cluster, outputs: list[tuple[Output[Any, Any], Ring]]) -> list[Change]:
    cluster.settle()
    found: list[Change] = []
    for output, _ in outputs:
        if not output.done:
            raise StalledError(f"{output!r} has not come to its end, and nothing is left to be done")
        found += output.changes()
    return _added_up(found, outputs[0][1])


def _added_up(changes: Iterable[Change], ring: Ring) -> list[Change]:
    """Return changes of several workers or runs as one list, in order of time and record."""
    sums: dict[Any, dict[Any, Any]] = {}
    for record, when, difference in changes:
        counts = sums.setdefault(when, {})
        difference = ring.wrap(difference)
        counts[record] = counts[record] + difference if record in counts else difference
    found = []
    for when in linear_extension(sums):
        left = [(record, when, ring.unwrap(difference)) for record, difference in sums[when].items() if difference]
        try:
            left.sort(key=lambda change: change[0])
        except TypeError:
            left.sort(key=repr)  # records that cannot be compared
        found += left
    return found


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
            found = output.changes()
        for session in sessions:
            session.close()
        return found, result.ring

    with _conditions(compact, containers):
        found = []
        for resumed, (sends, peers) in enumerate(zip((early, late), workers, strict=True)):
            found += execute(lambda worker: part(worker, sends, bool(resumed)), workers=peers)  # noqa: B023
    return _added_up((change for changes, _ in found for change in changes), found[0][1])


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


def accumulated(changes: Iterable[Change], time: Any) -> dict[Any, Any]:
    """Return what a collection of these changes holds at ``time``.

    >>> accumulated([("a", 0, 2), ("b", 1, 1), ("a", 1, -2), ("c", 2, 1)], 1)
    {'b': 1}
    """
    sums: dict[Any, Any] = {}
    for record, when, diff in changes:
        if when <= time:
            sums[record] = sums[record] + diff if record in sums else diff
    return {record: count for record, count in sums.items() if count}


def grid(times: Iterable[Any], time: Any = int) -> list[Any]:
    """Return the times at which collections with changes at ``times`` may differ: all least upper bounds.

    >>> grid([Product(0, 1), Product(1, 0)], Product[int, int])
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    bounds = lattice(time)
    found: dict[Any, None] = {bounds.domain.minimum: None}
    for one in dict.fromkeys(times):
        found.update(dict.fromkeys([bounds.lub(one, other) for other in found]))
    return linear_extension(found)


def check_changes(changes: Sequence[Change], inputs: Sequence[Sequence[Change]], oracle: Oracle, time: Any = int) -> None:
    """Raise ``CollectionMismatch`` unless ``changes`` accumulate to ``oracle`` of the accumulated ``inputs`` at every time.

    >>> check_changes([(3, 0, 1)], [[(1, 0, 1)]], lambda counts: {3 * record: n for record, n in counts.items()})
    >>> check_changes([], [[(1, 0, 1)]], lambda counts: counts)
    Traceback (most recent call last):
    timely.errors.CollectionMismatch: at 0 the result holds 1 0 times, and the oracle says 1; inputs {1: 1}
    """
    for at in grid((change[1] for each in (changes, *inputs) for change in each), time):
        held = [accumulated(each, at) for each in inputs]
        expected = {record: count for record, count in oracle(*held).items() if count}
        found = accumulated(changes, at)
        if found == expected:
            continue
        for record in [*expected, *found]:
            count, wanted = found.get(record, 0), expected.get(record, 0)
            if count != wanted:
                raise CollectionMismatch(
                    f"at {at!r} the result holds {brief(record)} {count} times, and the oracle says {wanted};"
                    f" inputs {', '.join(map(repr, held))}",
                    at,
                    record,
                    count - wanted,
                )


@attrs.frozen
class Case:
    """One random run of ``check_operator``: ``run(build, *inputs, ...)`` repeats it."""

    inputs: list[list[Change]]
    workers: int
    one_by_one: bool
    compact: bool
    seed: int | None
    containers: Containers = "rows"

    def run(self, build: Build, time: Any) -> list[Change]:
        """Return the changes of ``build`` of the inputs."""
        return run(
            build,
            *self.inputs,
            time=time,
            workers=self.workers,
            one_by_one=self.one_by_one,
            compact=self.compact,
            seed=self.seed,
            containers=self.containers,
        )


PAIRS = st.tuples(st.integers(0, 2), st.integers(0, 3))
"""Records that often meet."""

DIFFS = st.sampled_from([1, 1, 1, -1, 2, -2])


def few_times(time: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for few times of a type, so that updates meet.

    >>> from timely.testing import smallest
    >>> smallest(few_times(Product[int, int]), lambda time: time.inner > 1)
    (0, 2)
    """
    if time is int:
        return st.integers(0, 3)
    if get_origin(time) is Product:
        return st.builds(Product, *map(few_times, get_args(time)))
    return time_kit(time).times


@st.composite
def cases(
    draw: st.DrawFn,
    inputs: int,
    times: st.SearchStrategy[Any],
    records: st.SearchStrategy[Any] = PAIRS,
    diffs: st.SearchStrategy[Any] = DIFFS,
    workers: Sequence[int] = (1, 3),
    size: int = 8,
    containers: Sequence[Containers] = ("rows", "columns", "mixed"),
) -> Case:
    """Draw the updates of so many inputs, and the conditions of a run: on rows alone where NumPy is not installed."""
    changes = st.lists(st.tuples(records, times, diffs), max_size=size)
    return Case(
        [draw(changes) for _ in range(inputs)],
        draw(st.sampled_from(list(workers))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | st.integers(0, 2**16)),
        draw(st.sampled_from(list(containers) if columns_module() is not None else ["rows"])),
    )


def check_operator(
    build: Build,
    oracle: Oracle,
    *,
    inputs: int = 1,
    time: Any = Product[int, int],
    times: st.SearchStrategy[Any] | None = None,
    records: st.SearchStrategy[Any] = PAIRS,
    diffs: st.SearchStrategy[Any] = DIFFS,
    workers: Sequence[int] = (1, 3),
    size: int = 8,
    examples: int | None = None,
) -> None:
    """Raise ``CollectionMismatch`` unless ``build`` keeps ``oracle`` of its inputs, at every time and however they arrive.

    ``build(*collections)`` returns a collection, ``oracle(*counts)`` what it should hold when the inputs hold ``counts``. Updates
    are random, at partially ordered times by default. They arrive in any order, while frontiers move and workers step at random.
    All least upper bounds of the times are compared. A note on the error shows the smallest case found.

    >>> def count(pairs):
    ...     found = {}
    ...     for (key, value), n in pairs.items():
    ...         found[key] = found.get(key, 0) + n
    ...     return {(key, n): 1 for key, n in found.items()}
    >>> check_operator(lambda pairs: pairs.count_by_key(), count, examples=5)
    >>> check_operator(lambda pairs: pairs.map(lambda pair: pair[::-1]).count_by_key(), count)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.CollectionMismatch: at ... the result holds ... times, and the oracle says ...; inputs ...
    """
    drawn = cases(inputs, few_times(time) if times is None else times, records, diffs, workers, size)
    profile = settings(database=None, deadline=None, phases=[Phase.explicit, Phase.generate, Phase.shrink])
    if examples is not None:
        profile = settings(profile, max_examples=examples)

    @profile
    @given(drawn)
    def check(case: Case) -> None:
        check_changes(case.run(build, time), case.inputs, oracle, time)

    check()
