"""``check_operator`` compares an operator with an oracle, a function of dicts, on random updates and at every time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args, get_origin

import attrs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from timely.differential.updates.containers import columns_module
from timely.errors import CollectionMismatch, brief
from timely.order import Product, linear_extension
from timely.progress import lattice
from timely.testing.differential.conditions import Containers
from timely.testing.differential.runs import Build, Change, run
from timely.testing.strategies import time_kit

Counts: TypeAlias = Mapping[Any, Any]
"""What a collection holds: counts by record, none of them zero."""

Oracle: TypeAlias = Callable[..., Counts]
"""Returns what the result holds, from what the inputs hold."""


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
    points: dict[Any, None] = {bounds.domain.minimum: None}
    for one in dict.fromkeys(times):
        points.update(dict.fromkeys([bounds.lub(one, other) for other in points]))
    return linear_extension(points)


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
        actual = accumulated(changes, at)
        if actual == expected:
            continue
        for record in [*expected, *actual]:
            count, wanted = actual.get(record, 0), expected.get(record, 0)
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
