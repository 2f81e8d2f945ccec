"""Window functions. When rows of a partition change, the function is computed again for that partition, and for no other.

Rows that tie are ordered by all columns that the query reads, so that a result is never unspecified.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import NameScope, Row, Scalar, as_kind, compile_scalar, strict, unify
from timely.differential.tables.expressions.tree_nodes import has_node, nodes_in
from timely.differential.tables.operators.aggregations import COUNTS, WRAPPERS, Aggregation, First, Sums, aggregation
from timely.differential.tables.operators.groups import summands
from timely.differential.tables.operators.row_limits import is_row_number, limit_of
from timely.differential.tables.operators.sorting import Ordering, first_rows, ordering
from timely.differential.tables.operators.window_frames import Partition, Ranges, frames_of, values_in
from timely.differential.tables.values.kinds import Column, Kind, rounded, sortable
from timely.differential.tables.values.refusals import in_brackets, name_of, refusal

Compute = Callable[[Partition], Sequence[Any]]
"""The values of a window function for the rows of a partition."""


@attrs.frozen
class _Windowed:
    column: Column
    compute: Compute


def windows_in(nodes: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the window functions in expressions, each once; those of subqueries are not among them."""
    windows: dict[exp.Expr, None] = {}
    for node in nodes:
        for part in nodes_in(node, (exp.Query, exp.Window)):
            if isinstance(part, exp.Window):
                windows[part] = None
    return list(windows)


def with_windows(
    relation: Relation,
    outer: Sequence[exp.Expr],
    nodes: Sequence[exp.Expr],
    named: Sequence[exp.Expr],
    conditions: Sequence[exp.Expr],
) -> Relation:
    """Return the relation with a column more for each window function; ``named`` are the windows of ``WINDOW``.

    Each partition is cut further by the values of ``outer``. Rows for which ``conditions`` will not be true may be left out.
    """
    definitions = {window.this.name: window for window in named}
    together: dict[Any, list[tuple[exp.Expr, exp.Window]]] = {}
    for node in nodes:
        window = _resolved(node, definitions, ())
        if any(has_node(child, exp.Window) for child in window.iter_expressions()):
            raise refusal(node, "a window function cannot stand in another: use a subquery")
        partition, order = [*outer, *(window.args.get("partition_by") or [])], window.args.get("order")
        together.setdefault((tuple(partition), order), []).append((node, window))
    scope, width = relation.scope, len(relation.columns)
    most = _most_rows(conditions, *together.values()) if len(together) == 1 else None
    for (partition, order), members in together.items():
        relation = _over(relation, scope, width, partition, order, members, most)
    return relation


def _most_rows(conditions: Sequence[exp.Expr], members: Sequence[tuple[exp.Expr, exp.Window]]) -> int | None:
    """Return how many rows of a partition are asked for, where no function sees others; ``None`` for all."""
    if any(window.this.name not in ("row_number", "rank", "dense_rank") for _, window in members):
        return None
    numbers = [node for node, window in members if is_row_number(window.this)]
    limits = [limit for condition in conditions for node in numbers if (limit := limit_of(condition, node)) is not None]
    return max(min(limits), 1) if limits else None


def _resolved(window: exp.Expr, definitions: Mapping[str, exp.Expr], seen: tuple[str, ...]) -> exp.Window:
    """Return a window with the parts of the window that it is based on."""
    resolved = exp.Window(**{name: value for name, value in window.args.items() if name != "alias"})
    base = window.args.get("alias")
    if base is None:
        return resolved
    if base.name not in definitions or base.name in seen:
        raise refusal(window, f"there is no window {base.name!r} that it can be based on")
    other = _resolved(definitions[base.name], definitions, (*seen, base.name))
    if other.args.get("spec") and in_brackets(base):
        raise refusal(window, f"the window {base.name!r} has a frame: write OVER {base.name}")
    for name in ("partition_by", "order", "spec"):
        own, inherited = window.args.get(name), other.args.get(name)
        if own and inherited:
            raise refusal(window, f"the window {base.name!r} has {name.replace('_', ' ').upper()} already")
        resolved.set(name, own or inherited)
    return resolved


def _over(
    relation: Relation,
    scope: NameScope,
    width: int,
    partition: Sequence[exp.Expr],
    order: exp.Expr | None,
    members: Sequence[tuple[exp.Expr, exp.Window]],
    most: int | None,
) -> Relation:
    """Return the relation with the columns of functions over one partition and order, for the first ``most`` rows of each."""
    keys = [compile_scalar(key, scope).function for key in partition]
    orders = ordering([] if order is None else order.expressions, scope)
    functions = [_function(window, node, scope, orders) for node, window in members]

    def group_of(row: Row) -> Row:
        return tuple(key(row) for key in keys)

    def place(row: Row) -> Any:
        return orders.of(row), sortable(row[:width])

    def computed(group: Any, counted: list[tuple[Row, int]]) -> Iterable[tuple[Row, int]]:
        rows = [row for row, count in counted for _ in range(count)]
        rows.sort(key=place)
        made = Partition.of(rows, orders)
        return Counter(row + more for row, more in zip(rows, zip(*(one.compute(made) for one in functions)))).items()

    collection = relation.collection if most is None else first_rows(relation.collection, group_of, place, most)
    pairs = collection.map(lambda row: (group_of(row), row), name="partition")
    rows = pairs.reduce(computed, name="window").map(lambda pair: pair[1])
    return relation.extended(rows, [one.column for one in functions], [node for node, _ in members])


def _function(window: exp.Window, node: exp.Expr, scope: NameScope, order: Ordering) -> _Windowed:
    inner: Any = window.this
    nulls = True
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        nulls = isinstance(inner, exp.RespectNulls)
        inner = inner.this
    call = _Call(node, inner, scope, order, frames_of(window.args.get("spec"), order, node), nulls)
    name = inner.name if isinstance(inner, exp.AggFunc) else ""
    if name in _RANKS:
        if inner is not window.this:
            raise refusal(node, f"{name} takes no IGNORE NULLS")
        call.check((0,))
        if is_row_number(inner):
            call.need_order()
        kind, compute = _RANKS[name]
        return _Windowed(Column(name, kind, False), compute)
    if name in _MAKERS:
        takes, make = _MAKERS[name]
        call.check(takes)
        call.need_order()
        return make(call)
    unwrapped = inner
    while isinstance(unwrapped, WRAPPERS):
        unwrapped = unwrapped.this
    if not isinstance(unwrapped, exp.AggFunc):
        raise refusal(node, "OVER is supported behind aggregates and window functions")
    aggregate = aggregation(window.this, scope)
    return _Windowed(aggregate.column, _aggregate(aggregate, call))


@attrs.frozen
class _Call:
    """A window function as it is written."""

    node: exp.Expr
    inner: Any
    scope: NameScope
    order: Ordering
    frames: Callable[[Partition], list[Ranges]]
    nulls: bool

    def need_order(self) -> None:
        if not self.order.functions:
            raise refusal(self.node, f"{name_of(self.inner)} needs ORDER BY: the order of the rows is unspecified")

    @property
    def name(self) -> str:
        return str(self.inner.name)

    def check(self, takes: tuple[int, ...]) -> None:
        """Refuse another number of arguments."""
        if len(self.inner.expressions) not in takes:
            raise refusal(self.node, f"{self.name} takes {COUNTS[takes]}")

    def argument(self, place: int) -> Any:
        """Return an argument, or ``None`` where it is left out."""
        return self.inner.expressions[place] if place < len(self.inner.expressions) else None

    def number(self, node: Any, least: int) -> int:
        """Return a literal whole number."""
        sign = 1
        while isinstance(node, exp.Paren | exp.Neg):
            sign = -sign if isinstance(node, exp.Neg) else sign
            node = node.this
        if not isinstance(node, exp.Literal) or not str(node.this).isdigit() or sign * int(str(node.this)) < least:
            raise refusal(self.node, "it takes a literal whole number here" + (f", at least {least}" if least == 1 else ""))
        return sign * int(str(node.this))

    def eligible(self, values: Sequence[Any]) -> Sequence[int]:
        """Return the rows that count: all, or those whose value is not null."""
        return range(len(values)) if self.nulls else [row for row, value in enumerate(values) if value is not None]


# -- ranks ---------------------------------------------------------------------------------------------------------


def _row_number(partition: Partition) -> Sequence[Any]:
    return range(1, len(partition.rows) + 1)


def _rank(partition: Partition) -> Sequence[Any]:
    return [start + 1 for start in partition.starts]


def _dense_rank(partition: Partition) -> Sequence[Any]:
    number = {start: index for index, start in enumerate(dict.fromkeys(partition.starts), 1)}
    return [number[start] for start in partition.starts]


def _percent_rank(partition: Partition) -> Sequence[Any]:
    return [start / max(len(partition.rows) - 1, 1) for start in partition.starts]


def _cume_dist(partition: Partition) -> Sequence[Any]:
    return [end / len(partition.rows) for end in partition.ends]


_RANKS: Final[dict[str, tuple[Kind, Compute]]] = {
    "row_number": (Kind.INTEGER, _row_number),
    "rank": (Kind.INTEGER, _rank),
    "dense_rank": (Kind.INTEGER, _dense_rank),
    "percent_rank": (Kind.DOUBLE, _percent_rank),
    "cume_dist": (Kind.DOUBLE, _cume_dist),
}


def _ntile(call: _Call) -> _Windowed:
    tiles = call.number(call.argument(0), 1)

    def compute(partition: Partition) -> Sequence[Any]:
        size, more = divmod(len(partition.rows), tiles)
        return [tile + 1 for tile in range(tiles) for _ in range(size + (tile < more))]

    return _Windowed(Column("ntile", Kind.INTEGER, False), compute)


# -- values of other rows ------------------------------------------------------------------------------------------


def _shifted(call: _Call) -> _Windowed:
    offset, default = call.argument(1), call.argument(2) or exp.Null()
    away = 1 if offset is None else call.number(offset, -(1 << 62))
    away = -away if call.name == "lag" else away
    value, other = _with_default(call.argument(0), default, call)

    def compute(partition: Partition) -> Sequence[Any]:
        values = [value.function(row) for row in partition.rows]
        rows = call.eligible(values)
        shifted = []
        for index, row in enumerate(partition.rows):
            if away == 0:
                shifted.append(values[index])
                continue
            place = bisect_left(rows, index) + away if away < 0 else bisect_right(rows, index) + away - 1
            shifted.append(values[rows[place]] if 0 <= place < len(rows) else other.function(row))
        return shifted

    return _Windowed(Column(call.name, value.kind), compute)


def _with_default(node: exp.Expr, default: exp.Expr, call: _Call) -> list[Scalar]:
    """Return a value and what stands for one that is missing, which has the type of the value, and its digits."""
    value, other = compile_scalar(node, call.scope), compile_scalar(default, call.scope)
    if value.kind is Kind.NULL or value.literal is not None:
        return unify([node, default], [value, other], call.node)
    if value.kind.scale is None or other.kind.scale is None:
        return [value, as_kind(other, value.kind, default)]
    return [value, attrs.evolve(other, kind=value.kind, function=strict(rounded(38, value.kind.scale), other.function))]


def _nth(call: _Call) -> _Windowed:
    """Return ``first_value``, ``last_value`` or ``nth_value``."""
    value = compile_scalar(call.argument(0), call.scope)
    nth = call.number(call.argument(1), 1) if call.name == "nth_value" else 1
    last = call.name == "last_value"

    def compute(partition: Partition) -> Sequence[Any]:
        values = [value.function(row) for row in partition.rows]
        rows = call.eligible(values)
        results = []
        for frame in call.frames(partition):
            left, place = nth, None
            for start, end in reversed(frame) if last else frame:
                first, size = bisect_left(rows, start), bisect_left(rows, end) - bisect_left(rows, start)
                if left <= size:
                    place = rows[first + (size - left if last else left - 1)]
                    break
                left -= size
            results.append(None if place is None else values[place])
        return results

    return _Windowed(Column(call.name, value.kind), compute)


_MAKERS: Final[dict[str, tuple[tuple[int, ...], Callable[[_Call], _Windowed]]]] = {
    "ntile": ((1,), _ntile),
    **dict.fromkeys(("lag", "lead"), ((1, 2, 3), _shifted)),
    **dict.fromkeys(("first_value", "last_value"), ((1,), _nth)),
    "nth_value": ((2,), _nth),
}
"""How many arguments each takes, and what makes it."""


# -- aggregates of frames ------------------------------------------------------------------------------------------


def _aggregate(aggregate: Aggregation, call: _Call) -> Compute:
    form = aggregate.form
    if isinstance(form, Sums):
        return _sums_of_slices(aggregate, form, call) if aggregate.distinct else _running_sums(aggregate, form, call)
    if isinstance(form, First):
        return _firsts(aggregate, form, call)
    if form.order is None:
        call.need_order()

    def compute(partition: Partition) -> Sequence[Any]:
        entries = [aggregate.entry(row) for row in partition.rows]
        results = []
        for frame in call.frames(partition):
            values = [entry for entry in values_in(frame, entries) if entry is not None]
            if aggregate.distinct:
                values = list(dict.fromkeys(values))
            if form.order is not None:
                values.sort(key=form.order)
            results.append(form.result(values) if values else aggregate.empty)
        return results

    return compute


def _running_sums(aggregate: Aggregation, form: Sums, call: _Call) -> Compute:
    added = summands(aggregate, aggregate.entry)

    def compute(partition: Partition) -> Sequence[Any]:
        totals = [list(accumulate(parts, initial=0)) for parts in zip(*(added(row) for row in partition.rows))]
        return [
            form.result([sum(total[end] - total[start] for start, end in frame) for total in totals])
            for frame in call.frames(partition)
        ]

    return compute


def _sums_of_slices(aggregate: Aggregation, form: Sums, call: _Call) -> Compute:
    def compute(partition: Partition) -> Sequence[Any]:
        entries = [aggregate.entry(row) for row in partition.rows]
        results = []
        for frame in call.frames(partition):
            parts = [form.summands(entry) for entry in set(values_in(frame, entries)) if entry is not None]
            results.append(form.result([sum(part) for part in zip(*parts)] if parts else [0] * form.size))
        return results

    return compute


def _firsts(aggregate: Aggregation, form: First, call: _Call) -> Compute:
    """Return the first entry of each frame, by a table of the firsts of 1, 2, 4, ... rows."""

    def key(place: tuple[Any, Any]) -> Any:
        return place[0]

    def compute(partition: Partition) -> Sequence[Any]:
        entries = [aggregate.entry(row) for row in partition.rows]
        absent: Any = ((True,), None)
        level = [absent if entry is None else ((False, form.order(entry)), entry) for entry in entries]
        levels = [level]
        width = 1
        while 2 * width <= len(level):
            below = levels[-1]
            levels.append([min(one, other, key=key) for one, other in zip(below, below[width:])])
            width *= 2
        results = []
        for frame in call.frames(partition):
            best = absent
            for start, end in frame:
                size = (end - start).bit_length() - 1
                best = min(best, levels[size][start], levels[size][end - (1 << size)], key=key)
            results.append(None if best[1] is None else form.result(best[1]))
        return results

    return compute
