"""Random programs of collections, and their value by recursive evaluation on dicts.

Records are pairs of small numbers, for every part of a program. Loops run a fixed number of rounds, whatever their bodies do, or
repeat a monotone body until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from timely.differential import Collection, Variable
from timely.progress import ProductSummary, Step, time_domain

Counts = Mapping[Any, int]
Grouped = list[tuple[Any, int]]

KEYS: Final = 3
VALUES: Final = 4

MAPS: Final[list[Callable[[Any], Any]]] = [
    lambda pair: (pair[1] % KEYS, pair[0]),
    lambda pair: ((pair[0] + 1) % KEYS, pair[1]),
    lambda pair: (pair[0], (pair[0] + 3 * pair[1]) % VALUES),
    lambda pair: (0, pair[1]),
]

FILTERS: Final[list[Callable[[Any], Any]]] = [
    lambda pair: pair[0] != 1,
    lambda pair: pair[1] % 2,
    lambda pair: pair[0] < pair[1],
]

JOINS: Final[list[Callable[[Any, Any, Any], Any]]] = [
    lambda key, left, right: (left % KEYS, right),
    lambda key, left, right: (key, (left + right) % VALUES),
]


def _clipped(key: Any, values: Grouped) -> Grouped:
    return [(value, max(-2, min(2, count))) for value, count in values]


def _least(key: Any, values: Grouped) -> Grouped:
    positive = [value for value, count in values if count > 0]
    return [(min(positive), 1)] if positive else []


def _most(key: Any, values: Grouped) -> Grouped:
    positive = [value for value, count in values if count > 0]
    return [(max(positive), 1)] if positive else []


def _number(key: Any, values: Grouped) -> Grouped:
    return [(sum(count for _, count in values), 1)]


def _total(key: Any, values: Grouped) -> Grouped:
    return [(sum(value * count for value, count in values), 1)]


def _mixed(key: Any, values: Grouped) -> Grouped:
    return [(values[0][0], len(values)), (sum(value * count for value, count in values) % VALUES, 1)]


def _greatest_two(key: Any, values: Grouped) -> Grouped:
    left, result = 2, []
    for value, count in reversed(values):
        if count > 0 and left > 0:
            result.append((value, min(left, count)))
            left -= count
    return result


GROUPS: Final[list[tuple[Callable[[Collection[Any, Any]], Collection[Any, Any]], Callable[[Any, Grouped], Grouped]]]] = [
    (lambda c: c.reduce(_mixed), _mixed),
    (lambda c: c.reduce(_clipped), _clipped),
    (lambda c: c.min_by_key(), _least),
    (lambda c: c.max_by_key(), _most),
    (lambda c: c.count_by_key(), _number),
    (lambda c: c.sum_by_key(), _total),
    (lambda c: c.top_k(2), _greatest_two),
]


@attrs.frozen
class CollectionProgram:
    """One operator and what it is applied to; ``which`` chooses among functions, inputs, or variables, the innermost first.

    >>> swapped = CollectionProgram("map", (CollectionProgram("input"),))
    >>> swapped.evaluate([{(0, 2): 1}])
    {(2, 0): 1}
    >>> from timely.testing.differential import run
    >>> run(swapped.build, [((0, 2), 0, 1)])
    [((2, 0), 0, 1)]
    """

    op: str
    parts: tuple[CollectionProgram, ...] = ()
    which: int = 0

    def build(self, *inputs: Collection[Any, Any]) -> Collection[Any, Any]:
        """Return the collection that the program makes of ``inputs``."""
        return self._build(_Scope(inputs[0].scope, list(inputs), []))

    def evaluate(self, inputs: Sequence[Counts], variables: tuple[Counts, ...] = ()) -> dict[Any, int]:
        """Return what the collection holds when the inputs hold ``inputs``."""
        if self.op == "input":
            return _added(inputs[self.which % len(inputs)].items())
        if self.op == "variable":
            return dict(variables[self.which % len(variables)])
        if self.op in ("rounds", "iterate"):
            return self._evaluate_loop(inputs, variables)
        parts = [part.evaluate(inputs, variables) for part in self.parts]
        one, other = parts[0], parts[-1]
        if self.op == "map":
            f = MAPS[self.which]
            return _added((f(record), count) for record, count in one.items())
        if self.op == "filter":
            return {record: count for record, count in one.items() if FILTERS[self.which](record)}
        if self.op == "negate":
            return {record: -count for record, count in one.items()}
        if self.op == "concat":
            return _added([*one.items(), *other.items()])
        if self.op == "distinct":
            return {record: 1 for record, count in one.items() if count > 0}
        if self.op == "join":
            return _joined(one, other, JOINS[self.which])
        if self.op == "antijoin":
            keys = _added((record[0], count) for record, count in other.items())
            return _added((record, count * (1 - keys.get(record[0], 0))) for record, count in one.items())
        return _grouped(one, GROUPS[self.which][1])

    def _evaluate_loop(self, inputs: Sequence[Counts], variables: tuple[Counts, ...]) -> dict[Any, int]:
        initial, body = self.parts
        x = initial.evaluate(inputs, variables)
        if self.op == "rounds":
            for _ in range(self.which + 1):
                x = _grouped(body.evaluate(inputs, (x, *variables)), _clipped)
            return x
        while True:
            further = _added([*body.evaluate(inputs, (x, *variables)).items(), *x.items()])
            again = {record: 1 for record, count in further.items() if count > 0}
            if again == x:
                return x
            x = again

    def _build(self, at: _Scope) -> Collection[Any, Any]:
        if self.op == "input":
            return at.input(self.which)
        if self.op == "variable":
            return at.variable(self.which)
        if self.op in ("rounds", "iterate"):
            return self._build_loop(at)
        parts = [part._build(at) for part in self.parts]
        one, other = parts[0], parts[-1]
        if self.op == "map":
            return one.map(MAPS[self.which])
        if self.op == "filter":
            return one.filter(FILTERS[self.which])
        if self.op == "negate":
            return one.negate()
        if self.op == "concat":
            return one.concat(other)
        if self.op == "distinct":
            return one.distinct()
        if self.op == "join":
            return one.join_map(other, JOINS[self.which])
        if self.op == "antijoin":
            return one.antijoin(other.map(lambda pair: pair[0]))
        return GROUPS[self.which][0](one).map(_within)

    def _build_loop(self, at: _Scope) -> Collection[Any, Any]:
        initial, body = self.parts
        start = initial._build(at)
        if self.op == "iterate":
            return start.iterate(lambda scope, x: body._build(_Scope(scope, [], [x], at)).concat(x).distinct())
        with start.scope.iterative("rounds") as loop:
            once = ProductSummary(time_domain(start.scope.time).identity, Step(1, limit=self.which))
            variable: Variable[Any, Any] = Variable(loop, start.enter(loop), step=once)
            result = body._build(_Scope(loop, [], [variable.collection], at)).reduce(_clipped)
            return variable.set(result).leave()


class _Scope:
    """The inputs and variables of one scope, and of those around it."""

    def __init__(
        self,
        scope: Any,
        inputs: list[Collection[Any, Any]],
        variables: list[Collection[Any, Any]],
        around: _Scope | None = None,
    ) -> None:
        self.scope = scope
        self.inputs = inputs
        self.variables = variables
        self.around = around

    def input(self, which: int) -> Collection[Any, Any]:
        if self.around is None:
            return self.inputs[which % len(self.inputs)]
        return self.around.input(which).enter(self.scope)

    def variable(self, which: int) -> Collection[Any, Any]:
        depth = self.depth()
        which %= depth
        if which == 0:
            return self.variables[0]
        assert self.around is not None
        return self.around.variable(which - 1).enter(self.scope)

    def depth(self) -> int:
        return len(self.variables) + (0 if self.around is None else self.around.depth())


def _within(pair: Any) -> Any:
    return pair[0], pair[1] % VALUES


def _added(counts: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    sums: dict[Any, int] = {}
    for record, count in counts:
        sums[record] = sums.get(record, 0) + count
    return {record: count for record, count in sums.items() if count}


def _joined(left: Counts, right: Counts, f: Callable[[Any, Any, Any], Any]) -> dict[Any, int]:
    pairs = [(one, other, n * m) for one, n in left.items() for other, m in right.items() if one[0] == other[0]]
    return _added((f(one[0], one[1], other[1]), count) for one, other, count in pairs)


def _grouped(counts: Counts, f: Callable[[Any, Grouped], Grouped]) -> dict[Any, int]:
    groups: dict[Any, Grouped] = {}
    for (key, value), count in sorted(counts.items()):
        groups.setdefault(key, []).append((value, count))
    return _added((_within((key, value)), count) for key, values in groups.items() for value, count in f(key, values))


FUNCTIONS: Final[dict[str, Sequence[Any]]] = {"group": GROUPS, "map": MAPS, "filter": FILTERS, "join": JOINS}
"""What ``which`` chooses among, by operator."""


@st.composite
def programs(draw: st.DrawFn, inputs: int = 2, depth: int = 3, size: int = 3) -> CollectionProgram:
    """Draw a program of so many inputs, with loops in at most ``depth`` levels and expressions of at most ``size``.

    >>> from timely.testing import smallest
    >>> smallest(programs(), lambda program: program.op == "distinct").parts
    (CollectionProgram(op='input', parts=(), which=0),)
    """
    return _drawn(draw, inputs, depth, size, 0)


def _drawn(draw: st.DrawFn, inputs: int, depth: int, size: int, loops: int) -> CollectionProgram:
    source = CollectionProgram("input", (), draw(st.integers(0, inputs - 1)))
    if loops:
        source = draw(st.sampled_from([CollectionProgram("variable", (), which) for which in range(loops)] + [source]))
    if size == 0:
        return source
    ops = ["group", "map", "filter", "concat", "negate", "join", "antijoin", "distinct"]
    op = draw(st.sampled_from(["leaf", *ops, *(["rounds", "iterate"] * 3 if depth else [])]))
    if op == "leaf":
        return source
    if op == "rounds":
        initial, body = _drawn(draw, inputs, 0, size - 1, loops), _drawn(draw, inputs, depth - 1, size, loops + 1)
        return CollectionProgram("rounds", (initial, body), draw(st.integers(0, 2)))
    if op == "iterate":
        initial = CollectionProgram("distinct", (_drawn(draw, inputs, 0, size - 1, loops),))
        return CollectionProgram("iterate", (initial, _monotone(draw, inputs, depth - 1, size, 1)))
    functions: Sequence[Any] = FUNCTIONS.get(op, ())
    count = 2 if op in ("concat", "join", "antijoin") else 1
    parts = tuple(_drawn(draw, inputs, depth if index == 0 else 0, size - 1, loops) for index in range(count))
    return CollectionProgram(op, parts, draw(st.integers(0, max(0, len(functions) - 1))))


def _monotone(draw: st.DrawFn, inputs: int, depth: int, size: int, loops: int) -> CollectionProgram:
    """Draw a body that grows with its variables, so that a loop settles."""
    source = draw(
        st.sampled_from(
            [CollectionProgram("variable", (), which) for which in range(loops)]
            + [CollectionProgram("distinct", (CollectionProgram("input", (), which),)) for which in range(inputs)]
        )
    )
    if size == 0:
        return source
    op = draw(st.sampled_from(["map", "filter", "concat", "join", "distinct", *(["iterate"] * 3 if depth else [])]))
    if op == "iterate":
        initial = CollectionProgram("distinct", (_monotone(draw, inputs, 0, size - 1, loops),))
        return CollectionProgram("iterate", (initial, _monotone(draw, inputs, depth - 1, size - 1, loops + 1)))
    functions: Sequence[Any] = FUNCTIONS.get(op, ())
    count = 2 if op in ("concat", "join") else 1
    parts = tuple(_monotone(draw, inputs, depth if index == 0 else 0, size - 1, loops) for index in range(count))
    return CollectionProgram(op, parts, draw(st.integers(0, max(0, len(functions) - 1))))
