"""Rules of aggregates and window functions, of the orders and frames in them, and of the sets of keys of ``GROUP BY``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Final

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.bound import Expr, Literal, SortKey
from timely.differential.tables.expressions.calls import as_kind
from timely.differential.tables.names.name_scopes import NameBinder, QueryScope
from timely.differential.tables.names.reader import identifier, listed, read
from timely.differential.tables.names.refusals import in_brackets, name_of, refusal
from timely.differential.tables.names.scalar_rules import argument, number
from timely.differential.tables.operators.aggregations import AGGREGATES, QUANTILES, AggregateCall, Written, aggregate
from timely.differential.tables.operators.window_frames import FrameEnd, WindowFrame
from timely.differential.tables.operators.window_functions import WINDOWS, Over, WrittenWindow, window
from timely.differential.tables.values.kinds import Kind

Order = tuple[SortKey, ...]

_AROUND: Final = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is an aggregate or a function that needs ``OVER``, or stands around one."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in _NAMES
    return isinstance(node, _AROUND)


_NAMES: Final = WINDOWS.union(AGGREGATES)


def sort_keys(binder: NameBinder, order: exp.Expr, scope: QueryScope) -> tuple[SortKey, ...]:
    """Return the expressions of an ``ORDER BY`` inside of a function or a window."""
    (parts,) = read(order, "expressions")
    return tuple(sort_key(part, binder.value(part.this, scope)) for part in parts)


def sort_key(node: exp.Expr, value: Expr) -> SortKey:
    """Return a part of an order, of a value that it has been read as."""
    _, descending, nulls_first = read(node, "this", "desc", "nulls_first")
    if isinstance(value, Literal):
        raise refusal(node, "ORDER BY of this value has no effect: name the column")
    return SortKey(value, bool(descending), bool(nulls_first))


# -- aggregates ----------------------------------------------------------------------------------------------------


def aggregated(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> AggregateCall:
    """Return an aggregate with what stands around it."""
    inner, condition, order = node, None, None
    while not isinstance(inner, exp.Anonymous):
        if isinstance(inner, exp.Filter):
            inner, where = read(inner, "this", "expression")
            condition = as_kind(binder.value(read(where, "this")[0], scope), Kind.BOOLEAN)
        elif isinstance(inner, exp.WithinGroup):
            inner, within = read(inner, "this", "expression")
            order = sort_keys(binder, within, scope)
        elif isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
            raise refusal(inner, "IGNORE NULLS and RESPECT NULLS belong to window functions")
        else:
            raise refusal(node, "FILTER and WITHIN GROUP belong to aggregates")
    name, parts = read(inner, "this", "expressions")
    call = _written(binder, str(name).lower(), listed(parts), scope, order)
    if call.name in WINDOWS:
        raise refusal(node, f"{call.name} is no aggregate: it stands right before OVER")
    return aggregate(attrs.evolve(call, condition=condition, at=node))


def _written(
    binder: NameBinder, name: str, parts: list[exp.Expr], scope: QueryScope, within: tuple[SortKey, ...] | None
) -> Written:
    """Return a call with its arguments: an order stands behind the last of them, and ``DISTINCT`` around them."""
    order, distinct = within, False
    if parts and isinstance(parts[-1], exp.Order):
        last, _ = read(parts[-1], "this", "expressions")
        if within is not None and name in QUANTILES:
            raise refusal(parts[-1], "it is ordered twice")
        order = tuple(sort_key(part, binder.value(part.this, scope)) for part in parts[-1].expressions)
        parts = [*parts[:-1], last]
    if parts and isinstance(parts[0], exp.Distinct):
        parts, distinct = listed(read(parts[0], "expressions")[0]), True
    star = bool(parts) and isinstance(parts[0], exp.Star)
    if star:
        read(parts[0])
        parts = parts[1:]
    arguments = tuple(binder.value(part, scope) for part in parts)
    return Written(name, arguments, star, order, within is not None, distinct)


# -- windows -------------------------------------------------------------------------------------------------------


def windowed(binder: NameBinder, node: exp.Window, scope: QueryScope) -> Expr:
    """Return a window function."""
    inner, *_ = read(node, "this", "partition_by", "order", "spec", "alias")
    behind, around, ignores_nulls = over(binder, node, scope), inner, None
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        ignores_nulls = isinstance(inner, exp.IgnoreNulls)
        (inner,) = read(inner, "this")
    if isinstance(inner, exp.Anonymous) and str(inner.this).lower() in WINDOWS:
        name, nodes = read(inner, "this", "expressions")
        parts = listed(nodes)
        if parts and isinstance(parts[-1], exp.IgnoreNulls | exp.RespectNulls):
            ignores_nulls = isinstance(parts[-1], exp.IgnoreNulls)
            parts = [*parts[:-1], *read(parts[-1], "this")]
        arguments = [argument(binder, part, scope) for part in parts]
        call = WrittenWindow(str(name).lower(), name_of(inner), tuple(arguments), behind, ignores_nulls, node)
        return window(call, None)
    if not is_aggregate(inner):
        raise refusal(node, "OVER is supported behind aggregates and window functions")
    of_rows = aggregated(binder, around, scope)
    return window(WrittenWindow(of_rows.name, name_of(inner), (), behind, None, node), of_rows)


def over(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Over:
    """Return what stands behind ``OVER``, or is named in ``WINDOW``."""
    partition, order, spec = _resolved(node, scope.windows, ())
    keys = tuple(binder.value(part, scope) for part in partition)
    return Over(
        keys,
        () if order is None else sort_keys(binder, order, scope),
        None if spec is None else _frame(binder, spec, node, scope),
    )


_Parts = tuple[list[exp.Expr], exp.Expr | None, exp.Expr | None]


def _resolved(node: exp.Expr, definitions: Mapping[str, exp.Expr], seen: tuple[str, ...]) -> _Parts:
    """Return the parts of a window with those of the window that it is based on."""
    _, partition, order, spec, base = read(node, "this", "partition_by", "order", "spec", "alias")
    own = {"PARTITION BY": listed(partition), "ORDER": order, "SPEC": spec}
    if base is None:
        return listed(partition), order, spec
    name_of_base = identifier(base)
    if name_of_base not in definitions or name_of_base in seen:
        raise refusal(node, f"there is no window {name_of_base!r} that it can be based on")
    inherited = _resolved(definitions[name_of_base], definitions, (*seen, name_of_base))
    if inherited[2] is not None and in_brackets(base):
        raise refusal(node, f"the window {name_of_base!r} has a frame: write OVER {name_of_base}")
    for (name, value), other in zip(own.items(), inherited):
        if value and other:
            raise refusal(node, f"the window {name_of_base!r} has {name} already")
    return listed(partition) or inherited[0], order or inherited[1], spec or inherited[2]


def _frame(binder: NameBinder, spec: exp.Expr, node: exp.Expr, scope: QueryScope) -> WindowFrame:
    """Return a frame."""
    kind, start, start_side, end, end_side, exclude = read(spec, "kind", "start", "start_side", "end", "end_side", "exclude")
    ends = []
    for which, bound, side in (("start", start, start_side), ("end", end, end_side)):
        side = str(side or "").upper()
        if (bound is None and which == "start") or (isinstance(bound, exp.Expr) and not side):
            raise refusal(bound or node, f"PRECEDING or FOLLOWING is missing where the frame {which}s")
        distance = _distance(binder, bound, scope) if isinstance(bound, exp.Expr) else str(bound or "CURRENT ROW").upper()
        ends.append(FrameEnd(distance, side))
    return WindowFrame(str(kind or "").upper(), ends[0], ends[1], str(getattr(exclude, "name", "") or "").upper())


def _distance(binder: NameBinder, bound: exp.Expr, scope: QueryScope) -> Literal:
    while isinstance(bound, exp.Paren):
        (bound,) = read(bound, "this")
    if isinstance(bound, exp.Literal) and not bound.is_string:
        return number(bound.name, bound)
    if isinstance(bound, exp.Interval):
        distance = argument(binder, bound, scope)
        if isinstance(distance, Literal):
            return distance
    return Literal(Kind.NULL, None, at=bound)


# -- sets of keys --------------------------------------------------------------------------------------------------


_MOST: Final = 1024
"""Sets of keys: each is a group of its own in the dataflow, and takes some 3 ms to plan."""

Keys = list[Expr]
Read = Callable[[exp.Expr], Expr]


def bare(node: exp.Expr) -> exp.Expr:
    """Return what stands in parentheses."""
    while isinstance(node, exp.Paren):
        (node,) = read(node, "this")
    return node


def column_number(node: exp.Expr) -> int | None:
    """Return the number of a column that a key or an order is, or ``None`` for others."""
    part = node.unnest()
    if not part.is_int:
        return None
    number = int(part.to_py())
    if number < 1:
        raise refusal(node, "the numbers of columns begin with 1")
    return number


def key_sets(group: exp.Expr, parts: Sequence[exp.Expr], key: Read) -> list[Keys]:
    """Return the sets of keys of ``GROUP BY``, each of which is read by ``key``."""
    if (count := math.prod(map(_count, parts))) > _MOST:
        raise refusal(group, f"these are {count:,} sets of keys, and {_MOST:,} at most are grouped by")
    chosen = [_sets(bare(part), key, numbers=True) for part in parts]
    return [list(dict.fromkeys(one for keys in sets for one in keys)) for sets in product(*chosen)]


def _parts(node: exp.Expr) -> list[exp.Expr]:
    return listed(read(node, "expressions")[0])


def _count(node: exp.Expr) -> int:
    """Return how many sets of keys a part of ``GROUP BY`` has, which are not made for that."""
    node = bare(node)
    if isinstance(node, exp.GroupingSets):
        return sum(map(_count, _parts(node)))
    keys = len(_parts(node)) if isinstance(node, exp.Rollup | exp.Cube) else 0
    return keys + 1 if isinstance(node, exp.Rollup) else 2**keys


def _sets(node: exp.Expr, key: Read, *, numbers: bool = False) -> list[Keys]:
    if isinstance(node, exp.Rollup):
        keys = [_keys(part, key) for part in _parts(node)]
        return [[one for part in keys[:count] for one in part] for count in range(len(keys), -1, -1)]
    if isinstance(node, exp.Cube):
        keys = [_keys(part, key) for part in _parts(node)]
        chosen = [subset for count in range(len(keys), -1, -1) for subset in combinations(keys, count)]
        return [[one for part in parts for one in part] for parts in chosen]
    if isinstance(node, exp.GroupingSets):
        return [subset for part in _parts(node) for subset in _sets(bare(part), key)]
    return [_keys(node, key, numbers=numbers)]


def _keys(node: exp.Expr, key: Read, *, numbers: bool = False) -> Keys:
    parts = _parts(node) if isinstance(node, exp.Tuple) else [node]
    for part in parts:
        inner = bare(part)
        if isinstance(inner, exp.Literal) and not inner.is_string and not (numbers and part is node):
            raise refusal(inner, "a number in a set of keys is not supported: name the column")
    return [key(part) for part in parts]
