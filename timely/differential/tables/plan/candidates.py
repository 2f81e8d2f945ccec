"""Candidates: the rows of a plan that fulfil conditions, computed of the rows of its tables that can lead to them alone.

Conditions are asked as far down as they can be, and of the side of a join that is computed last only the partners of the other
side are. So each node is computed over few rows, by the operators that it is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from timely.differential.collections import new_collection
from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, ids_in, substituted
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope, compile_scalar
from timely.differential.tables.operators.table_joins import EQUALITIES, sides_of
from timely.differential.tables.operators.window_functions import WindowCall
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.build import build
from timely.differential.tables.plan.nodes import QueryPlan, TableScan, plans_in, with_inputs
from timely.differential.tables.values.kinds import Column, Kind
from timely.differential.tables.values.overloads import Overload
from timely.differential.updates.updates import Update, consolidate
from timely.worker import Worker

Rows = Mapping[Row, int]
_TRIPS = 20
_SIDES = nodes.JoinRows | nodes.AsOf | nodes.Mark
_KEEPS = nodes.FilterRows | nodes.DistinctRows | nodes.TopK | nodes.Single | nodes.Unnest | nodes.Mark | nodes.ByHorizon


@attrs.frozen
class Candidates:
    """The ``rows`` of a plan that fulfil ``conditions``, of those that are ``made`` of the candidates of its ``inputs``.

    Where the side of a join that is computed first has none, the other is not among the inputs.
    """

    plan: QueryPlan
    conditions: tuple[Expr, ...]
    inputs: tuple[Candidates, ...]
    made: Rows = attrs.field(repr=False)
    rows: Rows

    def scans(self) -> Iterator[tuple[str, Rows]]:
        """Yield the rows of tables that rows are made of."""
        left, seen = [(self, self.rows)], set[tuple[int, frozenset[Row]]]()
        for node, rows in left:
            if (each := (id(node), frozenset(rows))) not in seen:
                seen.add(each)
                if isinstance(node.plan, TableScan):
                    yield node.plan.table, rows
                left += [(inner, node._used(place, rows)) for place, inner in enumerate(node.inputs)]

    def _used(self, place: int, rows: Rows) -> Rows:
        """Return the rows of an input that are in ``rows``, where they are parts of these; else all."""
        plan, inner = self.plan, self.inputs[place]
        begin, width = sum(len(each.plan.columns) for each in self.inputs[:place]), len(inner.plan.columns)
        if not isinstance(plan, nodes.JoinRows | nodes.AsOf) and (place or not isinstance(plan, _KEEPS)):
            return inner.rows
        parts = {row[begin : begin + width] for row in rows}
        return {row: count for row, count in inner.rows.items() if row in parts}


class _Settled(dict[Row, int]):
    """The rows of a loop's table when it rests, the body that makes them, and how many trips back through it may be looked at."""

    def __init__(self, rows: Rows, body: QueryPlan, trips: int) -> None:
        super().__init__(rows)
        self.body, self.trips = body, trips


def candidates(plan: QueryPlan, conditions: Iterable[Expr], tables: Mapping[str, Rows], *, alone: bool = False) -> Candidates:
    """Return the rows of a plan over tables that fulfil conditions.

    With ``alone`` the rows before and after them in an order are left out: over few rows they may be first where they are not.
    """
    return _Reading(tables, alone).candidates(plan, conditions)


@attrs.frozen
class _Reading:
    """What has been read of ``tables``: once for each part of a plan and conditions on its rows."""

    tables: Mapping[str, Rows]
    alone: bool
    _made: dict[tuple[int, tuple[Expr, ...]], Candidates] = attrs.field(factory=dict, init=False)

    def candidates(self, plan: QueryPlan, conditions: Iterable[Expr]) -> Candidates:
        key = id(plan), tuple(conditions)
        if key not in self._made:
            self._made[key] = self._candidates(plan, key[1])
        return self._made[key]

    def _candidates(self, plan: QueryPlan, conditions: tuple[Expr, ...]) -> Candidates:
        inputs, tables = tuple[Candidates, ...](), self.tables
        if isinstance(plan, TableScan):
            made = tables[plan.table]
            if isinstance(made, _Settled) and made.trips and not _fulfilling(made, plan.columns, conditions):
                own = dict[Expr, Expr](zip(plan.columns, made.body.columns))
                further = {**tables, plan.table: _Settled(made, made.body, made.trips - 1)}
                inputs = (candidates(made.body, [substituted(part, own) for part in conditions], further),)
        elif isinstance(plan, nodes.LoopRows):
            made, loop = computed(plan, tables), plan.input
            if not _fulfilling(made, plan.columns, conditions):  # the last round says why, and those before
                bodies = enumerate(zip(loop.names, loop.bodies))
                loops = {name: (computed(nodes.LoopRows(loop, at, each.columns), tables), each) for at, (name, each) in bodies}
                settled = {name: _Settled(rows, body, _TRIPS) for name, (rows, body) in loops.items()}
                scan = TableScan(loop.names[plan.place], plan.columns)
                inputs = (candidates(scan, conditions, {**tables, **settled}),)
        else:
            inputs = tuple(self._inputs(plan, conditions))
            scans = {f"input {place}": each for place, each in enumerate(inputs)}
            names = iter(scans)
            empty = len(inputs) < len(plan.inputs)
            node = plan if empty else with_inputs(plan, lambda inner: TableScan(next(names), inner.columns))
            made = {} if empty else computed(node, {name: each.rows for name, each in scans.items()})
        return Candidates(plan, conditions, inputs, made, _fulfilling(made, plan.columns, conditions))

    def _inputs(self, plan: QueryPlan, conditions: Sequence[Expr]) -> list[Candidates]:
        """Return the candidates of the inputs, or where the side that is computed first has none, that alone."""
        if isinstance(plan, nodes.TopK | nodes.Windows) and not self.alone:  # among others there is none either
            chosen = self.candidates(plan.input, _pushed(plan, 0, conditions, True))
            if not chosen.rows:
                return [chosen]
        asked = [list(_pushed(plan, place, conditions, self.alone)) for place in range(len(plan.inputs))]
        if not isinstance(plan, _SIDES) or (isinstance(plan, nodes.JoinRows) and plan.how not in ("inner", "left")):
            return [self.candidates(inner, own) for inner, own in zip(plan.inputs, asked)]
        inner = isinstance(plan, nodes.JoinRows) and plan.how == "inner"
        order = (1, 0) if inner and asked[1] and not asked[0] else (0, 1)
        first, last = (plan.inputs[place] for place in order)
        chosen = self.candidates(first, asked[order[0]])
        if not chosen.rows:
            return [chosen]
        partners, matching = list(asked[order[1]]), plan.conditions
        if isinstance(plan, nodes.Mark) and plan.mark is None and not plan.negated:  # else NULL may decide
            matching += plan.equal
        for condition in matching:
            if sides := sides_of(condition, nodes.ids(first), nodes.ids(last), EQUALITIES):
                own, partner, name = sides
                values = set(map(compile_scalar(own, _scope(first.columns)).function, chosen.rows))
                if name == "=":
                    values.discard(None)
                if all(value == value for value in values):
                    partners.append(among(partner, values))
        both = {order[0]: chosen, order[1]: self.candidates(last, partners)}
        return [both[0], both[1]]


def among(expression: Expr, values: Iterable[Any]) -> Expr:
    """Return the condition that an expression has one of some values, of which ``None`` may be one."""
    of_kind = Overload((expression.kind, None), Kind.BOOLEAN, (chosen := frozenset(values)).__contains__, sees="nulls")
    return Call(Kind.BOOLEAN, "in", (expression, Literal(expression.kind, chosen)), of_kind)


def unfulfilled(conditions: Iterable[Expr], columns: Sequence[Ref], row: Row) -> list[Expr]:
    """Return the conditions that are not true for a row."""
    return [condition for condition in conditions if not _test(condition, columns)(row)]


def rejects_nulls(condition: Expr, columns: Sequence[Ref]) -> bool:
    """Return whether a condition reads some of these columns alone, and is not true where all are ``NULL``."""
    ids = ids_in(condition)
    return bool(ids) and ids <= {ref.id for ref in columns} and not _test(condition, columns)((None,) * len(columns))


def _fulfilling(rows: Rows, columns: Sequence[Ref], conditions: Iterable[Expr]) -> Rows:
    places = {ref: place for place, ref in enumerate(columns)}
    for condition in conditions:
        match condition:
            case Call(name="in", arguments=(Ref() as ref, Literal(value=values))) if ref in places:  # 10 times as fast
                place = places[ref]
                rows = {row: count for row, count in rows.items() if row[place] in values}
            case _:
                test = _test(condition, columns)
                rows = {row: count for row, count in rows.items() if test(row)}
    return rows


def _test(condition: Expr, columns: Sequence[Ref]) -> Callable[[Row], bool]:
    function = compile_scalar(condition, _scope(columns)).function

    def fulfils(row: Row) -> bool:
        try:
            return function(row) is True
        except Exception:  # such as a cast, of a row that a filter behind this one drops
            return True

    return fulfils


def _scope(columns: Sequence[Ref]) -> RowScope:
    return RowScope(_columns(columns), {ref.id: place for place, ref in enumerate(columns)})


def _columns(refs: Sequence[Ref]) -> tuple[Column, ...]:
    return tuple(Column(f"column {place}", ref.kind) for place, ref in enumerate(refs))


def computed(plan: QueryPlan, tables: Mapping[str, Rows]) -> Rows:
    scans = {each.table: each.columns for each in plans_in(plan) if isinstance(each, TableScan) and each.table in tables}
    worker, arrived = Worker(), list[Update]()
    with worker.dataflow(int) as scope:
        opened = {name: new_collection(scope, name=name) for name in scans}
        relations = {name: Relation(rows, _columns(scans[name])) for name, (_, rows) in opened.items()}
        build(plan, scope, relations).collection.inspect_batch(lambda time, batch: arrived.extend(batch))
    for name, (session, _) in opened.items():
        session.update_batch(tables[name].items())
        session.close()
    worker.run()
    return dict(consolidate(arrived))


def _pushed(plan: QueryPlan, place: int, conditions: Sequence[Expr], alone: bool) -> Iterator[Expr]:
    """Yield conditions on rows of an input: those of others make no row that fulfils all."""
    inner = plan.inputs[place]
    values: dict[Expr, Expr] = {ref: ref for ref in inner.columns}
    if isinstance(plan, nodes.Project):
        values = {part.ref: part.value for part in plan.outputs}
    elif isinstance(plan, nodes.SetOperation):
        values = dict(zip(plan.columns, inner.columns))
    elif isinstance(plan, nodes.GroupRows):
        values = {ref: ref for ref in plan.outer}
        if place == 0:
            common = set(range(len(plan.keys))).intersection(*plan.sets)
            values |= {plan.keys[key].ref: plan.keys[key].value for key in common}
    elif isinstance(plan, nodes.TopK) and not alone:
        values = {ref: ref for ref in plan.by}
    elif isinstance(plan, nodes.Windows) and not alone:
        parts = [set(part.value.partition) for part in plan.calls if isinstance(part.value, WindowCall)]
        values = {ref: ref for ref in inner.columns if all(ref in partition for partition in parts)}
    elif isinstance(plan, nodes.Single):
        values = {ref: ref for ref in inner.columns[: plan.width]}
    elif isinstance(plan, nodes.JoinRows):
        if plan.how not in ("inner", ("left", "right")[place]):
            conditions = [part for part in conditions if rejects_nulls(part, inner.columns)]
    elif place:
        values = {}
    ids = {ref.id for ref in values if isinstance(ref, Ref)}
    for condition in conditions:
        if ids_in(condition) <= ids:
            yield substituted(condition, values)
