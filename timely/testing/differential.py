"""Tests of incremental collections: runs on several workers, in any order of arrival, compared with a function of dicts.

``run`` returns the changes of a collection, ``check_operator`` compares them with an oracle at every time. Workers are stepped by
hand over a ``Network``, so a run follows from its arguments and can be repeated.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeAlias, get_args, get_origin

import attrs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from timely import Worker
from timely.dataflow import Capability
from timely.differential import Collection, InputSession, Output, Ring, from_updates, new_collection
from timely.differential.aggregates import Groups
from timely.differential.trace import Trace
from timely.errors import CollectionMismatch, StalledError, brief
from timely.order import Product, linear_extension
from timely.progress import lattice
from timely.testing.strategies import time_kit
from timely.testing.transport import Network

Change: TypeAlias = tuple[Any, Any, Any]
"""``(record, time, diff)``."""

Counts: TypeAlias = Mapping[Any, Any]
"""What a collection holds: counts by record, none of them zero."""

Build: TypeAlias = Callable[..., Collection[Any, Any]]
"""Makes a collection of the input collections."""

Oracle: TypeAlias = Callable[..., Counts]
"""Returns what the result holds, from what the inputs hold."""

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


def kept_updates() -> list[int]:
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

    def send(self, time: Any, updates: list[tuple[Any, Any]]) -> None:
        """Send updates at ``time``."""
        self._handle.session(self._held[time]).give_batch(updates)

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
) -> list[Change]:
    """Return the changes of ``build(*collections)``, added up, in order of time and record.

    ``inputs`` are the updates ``(record, time, diff)`` of each collection, dealt out among the workers. With ``one_by_one`` each
    time is complete before the next is sent, else all are sent before the first step. ``compact`` forces compaction. With a
    ``seed`` updates arrive in random order, capabilities are dropped at random, and workers take random steps.

    >>> run(lambda words: words.map(len), [("to", 0, 1), ("be", 0, 1), ("be", 1, -1)], workers=3)
    [(2, 0, 2), (2, 1, -1)]
    """
    with forced_compaction(compact or Trace.eager):
        cluster = Cluster(workers)
        if seed is None and time is int:
            return _run_in_order(cluster, build, inputs, one_by_one, diff)
        return _run_unordered(cluster, build, inputs, time, one_by_one, None if seed is None else Random(seed), diff)


def _run_in_order(
    cluster: Cluster, build: Build, inputs: Sequence[Sequence[Change]], one_by_one: bool, diff: Any
) -> list[Change]:
    sessions: list[list[InputSession[Any, Any]]] = []
    outputs: list[tuple[Output[Any, Any], Ring]] = []
    for worker in cluster.workers:
        with worker.dataflow(int) as scope:
            opened = [new_collection(scope, diff=diff) for _ in inputs]
            result = build(*(collection for _, collection in opened))
            outputs.append((result.output(), result.ring))
        sessions.append([session for session, _ in opened])
    sends: dict[int, list[tuple[InputSession[Any, Any], Any, Any]]] = {}
    for which, changes in enumerate(inputs):
        for index, (record, when, difference) in enumerate(changes):
            sends.setdefault(when, []).append((sessions[index % len(sessions)][which], record, difference))
    for time in sorted(sends):
        for feeds in sessions:
            for session in feeds:
                session.advance_to(time)
        if one_by_one:
            cluster.settle()
        for session, record, difference in sends[time]:
            session.update(record, difference)
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
    sends = [
        (when, index % len(feeds), which, (record, difference))
        for which, changes in enumerate(inputs)
        for index, (record, when, difference) in enumerate(changes)
    ]
    if random is None:
        sends.sort(key=lambda send: place[send[0]])
    else:
        random.shuffle(sends)
    left = [send[0] for send in sends]
    for when, worker_index, which, update in sends:
        feeds[worker_index][which].send(when, [update])
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


def _results(cluster: Cluster, outputs: list[tuple[Output[Any, Any], Ring]]) -> list[Change]:
    cluster.settle()
    sums: dict[Any, dict[Any, Any]] = {}
    for output, ring in outputs:
        if not output.done:
            raise StalledError(f"{output!r} has not come to its end, and nothing is left to be done")
        for record, when, difference in output.changes():
            counts = sums.setdefault(when, {})
            difference = ring.wrap(difference)
            counts[record] = counts[record] + difference if record in counts else difference
    found = []
    for when in linear_extension(sums):
        changes = [(record, when, ring.unwrap(difference)) for record, difference in sums[when].items() if difference]
        try:
            changes.sort(key=lambda change: change[0])
        except TypeError:
            changes.sort(key=repr)  # records that cannot be compared
        found += changes
    return found


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
) -> Case:
    """Draw the updates of so many inputs, and the conditions of a run."""
    changes = st.lists(st.tuples(records, times, diffs), max_size=size)
    return Case(
        [draw(changes) for _ in range(inputs)],
        draw(st.sampled_from(list(workers))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.none() | st.integers(0, 2**16)),
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
