"""``why``: the few rows of the inputs that a row of a result follows from, found by running the program on ever fewer of them.

The engine does what it is good at: each attempt is an epoch whose changes are the rows that come and go. It knows nothing of the
operators, so that every program can be asked, with loops and functions of one's own.
"""

from __future__ import annotations

import math
import time as clock
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from timely.differential.collections import Collection, new_collection
from timely.differential.updates.updates import Update
from timely.errors import ConfigurationError, OperatorError, OutOfMemoryError, brief
from timely.worker import Worker

Changes: TypeAlias = Mapping[str, Sequence[Update]]
Advance: TypeAlias = Callable[[Changes], Iterable[Update] | None]
"""Takes the changes of the inputs in an epoch, by name, and returns those of the result; ``None`` where it fails, and is over."""
Start: TypeAlias = Callable[[float], Advance]
"""Begins a program anew, over inputs without rows; its epochs may stop when the thread has had so much processor time."""

Record: TypeAlias = Any
Rows: TypeAlias = Mapping[Record, int] | Iterable[Record]
"""Rows with their counts, or each as often as it is there."""
_Item: TypeAlias = tuple[str, object, int]
_SHARED: Final = 8
"""Rows that may share a value for it to lead from one to the others, at first; then eight times as many, and so on."""
_MANY: Final = 500
_FEW: Final = 100
"""When so many rows are not enough, rows of inputs with so few begin to lead to others too: the two ways meet half-way."""


@attrs.frozen
class Provenance:
    """Why a row is there: over the rows of ``inputs`` alone, with their counts, the result has it; without any of them not."""

    row: Record
    inputs: dict[str, dict[Record, int]]

    def __str__(self) -> str:
        lines = [f"{brief(self.row)} follows from"]
        for name, rows in self.inputs.items():
            lines += [f"  {name}: {brief(row)}" + (f", {count} times" if count != 1 else "") for row, count in rows.items()]
        return "\n".join(lines if self.inputs else [f"{brief(self.row)} follows from no row"])


def why(
    program: Callable[..., Collection[int]],
    inputs: Mapping[str, Rows],
    row: object,
    *,
    seconds: float = math.inf,
) -> Provenance:
    """Return rows of ``inputs`` over which the result of ``program`` has ``row``, and none of which can go.

    ``program`` gets a collection for each input, by name. An input is its rows, or a count for each. It takes some hundred epochs
    of rows that share values with ``row``, or with those that do. ``ConfigurationError`` where the result has no such row, or
    where it takes more processor time than ``seconds``.

    >>> def reached(edges, roots):
    ...     def step(scope, found):
    ...         onwards = found.map(lambda node: (node, None)).join_map(edges.enter(scope), lambda node, _, to: to)
    ...         return roots.enter(scope).concat(onwards).distinct()
    ...     return roots.iterate(step)
    >>> print(why(reached, {"edges": [(1, 2), (2, 3), (3, 4), (1, 4), (5, 3)], "roots": [1, 5]}, 4))
    4 follows from
      edges: (1, 4)
      roots: 1
    """
    return provenance_of(lambda end: _advance(program, list(inputs), end), inputs, row, seconds)


def provenance_of(
    start: Start, inputs: Mapping[str, Rows], row: object, seconds: float, near: Mapping[str, Rows] | None = None
) -> Provenance:
    """Return what ``why`` does; ``near`` are the rows that are tried first."""
    items = _items(inputs if near is None else near)
    search = _Search(start, items, row, seconds)
    chosen = list(range(len(items)))
    if near is not None and not search.holds(chosen):
        return provenance_of(start, inputs, row, seconds)
    chosen = search.shrunk(search.grown() if near is None else chosen)
    search.begin()
    if not search.holds(chosen):
        raise ConfigurationError(
            f"why: the result has {brief(row)} over some rows once and once not: a program must do the same whenever it runs"
        )
    result: dict[str, dict[Record, int]] = {}
    for name, each, count in (items[number] for number in chosen):
        result.setdefault(name, {})[each] = count
    return Provenance(row, result)


def _items(inputs: Mapping[str, Rows]) -> list[_Item]:
    return [(name, each, count) for name, rows in inputs.items() for each, count in _counted(rows) if count]


def _counted(rows: Rows) -> Iterable[tuple[object, int]]:
    if isinstance(rows, Mapping):
        return rows.items()
    return Counter(rows).items()


def _advance(program: Callable[..., Collection[int]], names: Iterable[str], end: float) -> Advance:
    worker, arrived = Worker(), list[Update]()
    with worker.dataflow(int) as scope:
        opened = {name: new_collection(scope, name=name) for name in names}
        result = program(**{name: collection for name, (_, collection) in opened.items()})
        probe = result.inspect_batch(lambda time, batch: arrived.extend(batch)).probe()
    sessions = {name: session for name, (session, _) in opened.items()}
    epoch = 0

    def advance(changes: Changes) -> list[Update] | None:
        nonlocal epoch
        epoch += 1
        for name, session in sessions.items():
            session.update_batch(list(changes.get(name, ())))
            session.advance_to(epoch)
        try:
            worker.step_while(lambda: probe.less_than(epoch) and clock.thread_time() < end)
        except OutOfMemoryError:
            raise
        except OperatorError:
            return None
        changed, arrived[:] = arrived[:], []
        return changed

    return advance


def _values(row: object) -> Iterator[object]:
    """Yield what a row is made of, by which it may meet others."""
    if isinstance(row, Mapping):
        row = tuple(row.values())
    if isinstance(row, tuple | list):
        for each in row:
            yield from _values(each)
    elif row is not None and not isinstance(row, bool):
        yield row


class _Search:
    """Runs a program over some of the ``items``, by their numbers."""

    def __init__(self, start: Start, items: Sequence[_Item], row: object, seconds: float) -> None:
        self._start, self._items, self._row = start, items, row
        self._seconds, self._end = seconds, clock.thread_time() + seconds
        self.begin()

    def begin(self) -> None:
        """Begin the program anew."""
        self._run: Advance = self._start(self._end)
        self._count = 0
        self._there: set[int] = set()

    def holds(self, numbers: Iterable[int]) -> bool:
        """Return whether the result over these items has the row. One that fails has none."""
        wanted = set(numbers)
        changes: dict[str, list[Update]] = {}
        for sign, each in ((1, wanted - self._there), (-1, self._there - wanted)):
            for number in each:
                name, row, count = self._items[number]
                changes.setdefault(name, []).append((row, sign * count))
        changed = self._run(changes)
        if clock.thread_time() >= self._end:
            raise ConfigurationError(f"why {brief(self._row)} is there was not found out in {self._seconds:g} s")
        if changed is None:
            self.begin()
            return False
        self._count += sum(diff for row, diff in changed if row == self._row)
        self._there = wanted
        return self._count > 0

    def grown(self) -> list[int]:
        """Return items over which the result has the row: those that share values with it, then with these, and so on."""
        with_value: dict[object, list[int]] = {}
        for number, (_, row, _) in enumerate(self._items):
            for value in set(_values(row)):
                with_value.setdefault(value, []).append(number)
        sizes = Counter(name for name, _, _ in self._items)
        small = [number for number, (name, _, _) in enumerate(self._items) if sizes[name] <= _FEW]
        chosen: dict[int, None] = {}
        values, done, shared = set(_values(self._row)), set[object](), _SHARED
        while len(chosen) < len(self._items):
            near = {value for value in values - done if len(with_value.get(value, ())) <= shared}
            new = [number for value in near for number in with_value.get(value, ()) if number not in chosen]
            done |= near
            if len(chosen) > _MANY:
                new += small
                small = []
            if not new and values == done:
                break
            if not new:
                shared *= _SHARED
                continue
            chosen |= dict.fromkeys(new)
            values.update(value for number in new for value in _values(self._items[number][1]))
            if self.holds(chosen):
                return list(chosen)
        everything = [*chosen, *(number for number in range(len(self._items)) if number not in chosen)]
        if not self.holds(everything):
            raise ConfigurationError(f"why: the result has no row {brief(self._row)}")
        return everything

    def shrunk(self, chosen: list[int]) -> list[int]:
        """Return what is left of ``chosen`` when no item can go: halves are tried first, then ever smaller pieces."""
        size = len(chosen)
        while size:
            before, at = len(chosen), 0
            while at < len(chosen):
                fewer = chosen[:at] + chosen[at + size :]
                if self.holds(fewer):
                    chosen = fewer
                else:
                    at += size
            if size > 1 or len(chosen) == before:  # single ones are tried until none of them can go
                size = min(size // 2, len(chosen))
        return chosen
