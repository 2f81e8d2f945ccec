"""``why``: the few rows of the inputs that a row of a result follows from.

What operators have sent leads to rows that are enough, which the program shows when it runs over them alone. Then it runs on ever
fewer: each attempt is an epoch whose changes are the rows that come and go. Where nothing leads there, it begins with all rows.
"""

from __future__ import annotations

import itertools
import math
import time as clock
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from timely.differential.collections import Collection, new_collection
from timely.differential.outputs import Output
from timely.differential.updates.updates import Update
from timely.differential.why_derivations import Derivation, Derivations, Inputs, Provenance, Test, WhyNot, drops, origins, steps
from timely.errors import ConfigurationError, OperatorError, OutOfMemoryError, brief
from timely.worker import Worker

Changes: TypeAlias = Mapping[str, Sequence[Update]]
Program: TypeAlias = Callable[..., Collection[int]]
"""Makes a collection of one for each input, by name."""

Record: TypeAlias = Any
Rows: TypeAlias = Mapping[Record, int] | Iterable[Record]
"""Rows with their counts, or each as often as it is there."""
_Item: TypeAlias = tuple[str, object, int]
Numbers: TypeAlias = frozenset[int]

_TRIES: Final = 200
"""Run at once at most."""


def why(program: Program, inputs: Mapping[str, Rows], row: object, *, seconds: float = math.inf) -> Provenance:
    """Return rows of ``inputs`` over which the result of ``program`` has ``row``, and none of which can go.

    ``program`` gets a collection for each input, by name. An input is its rows, or a count for each. ``ConfigurationError`` where
    the result has no such row, or where the program or the search takes more processor time than ``seconds``. An ``Explainer``
    answers more questions.

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
    return Explainer(program, inputs, seconds=seconds).why(row, seconds=seconds)


class Explainer:
    """A program over ``inputs`` that change, which keeps what its operators send, to say why rows of its ``output`` are there.

    The inputs are at time 0 at first; each ``update`` is the next time.

    >>> explainer = Explainer(lambda words: words.filter(str.islower).map(len), {"words": ["to", "be", "Not"]})
    >>> explainer.update({"words": [("to", -1)]})
    >>> explainer.output.why(2).inputs, explainer.output.why(2, time=0).inputs
    ({'words': {'be': 1}}, {'words': {'to': 1}})
    >>> print(explainer.output.why_not(3).drops[0].reason)
    drops them
    """

    def __init__(self, program: Program, inputs: Mapping[str, Rows], *, seconds: float = math.inf) -> None:
        self._program = program
        self._rows: dict[str, dict[Record, int]] = {name: {} for name in inputs}
        self._updates: list[Changes] = []
        self._seconds = seconds
        self._run = _Run(program, list(inputs), clock.thread_time() + seconds, tapped=True)
        assert self._run.output is not None
        self.output = self._run.output
        self.output.explainer = self
        self._advance({name: list(_counted(rows)) for name, rows in inputs.items()})

    def update(self, changes: Changes) -> None:
        """Change the inputs: of each, rows with what their counts grow by."""
        if unknown := changes.keys() - self._rows.keys():
            raise ConfigurationError(f"why: there is no input {', '.join(unknown)}: there are {', '.join(self._rows)}")
        self._advance(changes)
        self._updates.append(changes)

    def _advance(self, changes: Changes) -> None:
        changed = self._run.advance([changes])
        if clock.thread_time() >= self._run.end:
            raise ConfigurationError(
                f"why: the program was not over, so that why a row is there was not found out in {self._seconds:g} s"
            )
        if changed is None:
            raise ConfigurationError(f"why: the program fails over these rows: {self._run.error}") from self._run.error
        self._run.end = math.inf
        _add(self._rows, changes, 1)

    def why(self, row: Record, time: int | None = None, *, seconds: float = math.inf) -> Provenance:
        """Return rows of the inputs, at a time or now, over which the result has ``row``, and none of which can go."""
        if time is None and not self.has(row):
            raise ConfigurationError(f"why: the result has no row {brief(row)}")
        return provenance_of(self._program, self.nears(row) if time is None else [self._at(time)], row, seconds)

    def why_not(self, row: Record | Test) -> WhyNot:
        """Return why the result has no ``row``, or none that passes a test: at which operators the last candidates drop.

        A record that was dropped is tried with the partners that others have met. ``ConfigurationError`` where there is one.
        """
        test: Test = row if callable(row) else lambda other: bool(other == row)
        search = drops(self._run.result, test, None if callable(row) else row)
        if not search:
            raise ConfigurationError("why_not: the result has such a row: ask why it is there")
        return WhyNot("that passes the test" if callable(row) else brief(row), tuple(search))

    def _at(self, time: int) -> Inputs:
        if not 0 <= time <= len(self._updates):
            raise ConfigurationError(f"why: the inputs have times from 0 to {len(self._updates)}, not {brief(time)}")
        rows = {name: dict(each) for name, each in self._rows.items()}
        for changes in self._updates[time:]:
            _add(rows, changes, -1)
        return rows

    def nears(self, row: Record) -> Iterator[Mapping[str, Rows]]:
        """Yield rows that ``row`` is likely to follow from, ever more, up to all."""
        for wide in (False, True):
            leaves = origins(self._run.result, row, wide=wide)
            each = {name: self._rows[name].keys() & leaves.get(sent, {}) for sent, name in self._run.inputs.items()}
            yield {name: {row: self._rows[name][row] for row in rows} for name, rows in each.items()}
        yield self._rows

    def follow(self, row: Record) -> Followed:
        """Return the answer for a row, kept right while the inputs change."""
        return Followed(self, row)

    def holds(self, provenance: Provenance) -> bool:
        """Return whether an answer is right now: whether all of its rows are there, and the row."""
        there = (self._rows[name].get(row) == count for name, rows in provenance.inputs.items() for row, count in rows.items())
        return self.has(provenance.row) and all(there)

    def has(self, row: Record) -> bool:
        """Return whether the result has a row."""
        return self._run.result.count(row) > 0


def _add(rows: Inputs, changes: Changes, sign: int) -> None:
    for name, news in changes.items():
        for row, diff in news:
            count = rows[name].pop(row, 0) + sign * diff
            if count:
                rows[name][row] = count


class Followed:
    """Why a row is there, as long as it is."""

    def __init__(self, explainer: Explainer, row: Record) -> None:
        self._explainer, self.row = explainer, row
        self._provenance: Provenance | None = None

    @property
    def provenance(self) -> Provenance | None:
        """The answer over the inputs as they are now: another one where its rows have gone, ``None`` where the row has."""
        explainer = self._explainer
        if self._provenance is None or not explainer.holds(self._provenance):
            self._provenance = explainer.why(self.row) if explainer.has(self.row) else None
        return self._provenance


def provenance_of(
    program: Program,
    nears: Iterable[Mapping[str, Rows]],
    row: Record,
    seconds: float = math.inf,
    steps_of: Callable[[Inputs], Derivation] | None = None,
) -> Provenance:
    """Return what ``why`` does, of the rows of the first of ``nears`` over which the result has ``row``."""
    end = clock.thread_time() + seconds
    for near in nears:
        items = [(name, each, count) for name, rows in near.items() for each, count in _counted(rows) if count]
        search, chosen = _Search(program, items, list(near), row, seconds, end), frozenset(range(len(items)))
        if search.holds(chosen, [frozenset()]) == [True]:
            break
    else:
        raise ConfigurationError(f"why: the result has no row {brief(row)}")
    result: Inputs = {}
    for name, each, count in (items[number] for number in sorted(search.shrunk(chosen))):
        result.setdefault(name, {})[each] = count
    run = _Run(program, list(near), end, tapped=steps_of is None)
    changed = run.advance([{name: list(rows.items()) for name, rows in result.items()}])
    search.check_end()
    if changed is None or sum(diff for other, diff in changed[0] if other == row) <= 0:
        raise ConfigurationError(
            f"why: the result has {brief(row)} over some rows once and once not: a program must do the same whenever it runs"
        )
    return Provenance(row, result, steps(run.result, row) if steps_of is None else steps_of(result))


def _counted(rows: Rows) -> Iterable[tuple[object, int]]:
    return (rows if isinstance(rows, Mapping) else Counter(rows)).items()


class _Run:
    """A program on a worker of its own, over inputs that have no rows at first."""

    def __init__(self, program: Program, names: Sequence[str], end: float, *, tapped: bool = False) -> None:
        self._worker, self._epoch, self.end = Worker(), 0, end
        self._arrived: defaultdict[int, list[Update]] = defaultdict(list)
        self.error: OperatorError | None = None
        with self._worker.dataflow(int) as scope:
            opened = {name: new_collection(scope, name=name) for name in names}
            result = program(**{name: collection for name, (_, collection) in opened.items()})
            self._probe = result.inspect_batch(lambda time, batch: self._arrived[time].extend(batch)).probe()
            self.output: Output[int, Record] | None = result.output(name="why") if tapped else None
        self._sessions = {name: session for name, (session, _) in opened.items()}
        if tapped:
            sent_by = Derivations(scope).sent_by
            (self.result,) = sent_by(scope.subgraph, result.stream.source)
            streams = {name: rows.stream for name, (_, rows) in opened.items()}
            self.inputs = {sent: name for name, each in streams.items() for sent in sent_by(scope.subgraph, each.source)}

    def advance(self, epochs: Sequence[Changes]) -> list[list[Update]] | None:
        """Compute epochs in one go, and return what each changes; ``None`` where one fails, and all is over."""
        first = self._epoch
        for changes in epochs:
            self._epoch += 1
            for name, session in self._sessions.items():
                session.update_batch(list(changes.get(name, ())))
                session.advance_to(self._epoch)
        try:
            self._worker.step_while(lambda: self._probe.less_than(self._epoch) and clock.thread_time() < self.end)
        except OutOfMemoryError:
            raise
        except OperatorError as error:
            self.error = error
            return None
        return [self._arrived.pop(epoch, []) for epoch in range(first, self._epoch)]


class _Search:
    """Runs a program over some of the ``items``, by their numbers."""

    def __init__(
        self, program: Program, items: Sequence[_Item], names: Sequence[str], row: Record, seconds: float, end: float
    ) -> None:
        self._program, self._items, self._names, self._row = program, items, names, row
        self._seconds, self._end = seconds, end
        self._begin()

    def _begin(self) -> None:
        self._run = _Run(self._program, self._names, self._end)
        self._count = 0
        self._there: Numbers = frozenset()

    def holds(self, chosen: Numbers, tries: Sequence[Numbers]) -> list[bool]:
        """Return whether the result has the row over the chosen items without those of each try. One that fails has not."""
        epochs, there, holding = list[Changes](), self._there, list[bool]()
        for gone in tries:
            changes: dict[str, list[Update]] = {}
            wanted = chosen - gone
            for sign, each in ((1, wanted - there), (-1, there - wanted)):
                for number in each:
                    name, row, count = self._items[number]
                    changes.setdefault(name, []).append((row, sign * count))
            epochs.append(changes)
            there = wanted
        changed = self._run.advance(epochs)
        self.check_end()
        if changed is None:
            self._begin()
            half = len(tries) // 2
            return self.holds(chosen, tries[:half]) + self.holds(chosen, tries[half:]) if half else [False]
        self._there = there
        for updates in changed:
            self._count += sum(diff for row, diff in updates if row == self._row)
            holding.append(self._count > 0)
        return holding

    def check_end(self) -> None:
        if clock.thread_time() >= self._end:
            raise ConfigurationError(f"why {brief(self._row)} is there was not found out in {self._seconds:g} s")

    def shrunk(self, chosen: Numbers) -> Numbers:
        """Return what is left of ``chosen`` when no item can go: all are tried first, then ever smaller pieces."""
        size = len(chosen)
        while size:
            items, holding = sorted(chosen), list[bool]()
            pieces = [frozenset(items[at : at + size]) for at in range(0, len(items), size)]
            for at in range(0, len(pieces), _TRIES):
                holding += self.holds(chosen, pieces[at : at + _TRIES])
            fewer = self._without(chosen, list(itertools.compress(pieces, holding)))
            if size > 1 or fewer == chosen:  # single ones are tried until none of them can go
                size = min(size // (8 if size > 64 else 2), len(fewer))
            chosen = fewer
        return chosen

    def _without(self, chosen: Numbers, pieces: list[Numbers]) -> Numbers:
        """Return what is left when each of the pieces that still can has gone: of so many at once as could the last time."""
        width = 1
        while pieces:
            tries = list(itertools.accumulate(pieces[:width], frozenset.union, initial=frozenset[int]()))
            gone = [*self.holds(chosen, tries[1:]), False].index(False)
            chosen, pieces = chosen - tries[gone], pieces[min(gone + 1, width) :]
            width = min(max(1, 2 * gone), _TRIES)
        return chosen
