"""Building: a plan without subqueries becomes operators on collections, each plan that is read twice once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs

from timely.dataflow import InputPort, OutputPort, Pipeline, ScopeBuilder
from timely.differential.collections import Collection
from timely.differential.iteration import Variable
from timely.differential.operators.loop_state import in_words
from timely.differential.tables.expressions.bound import Call, Expr, Ref, ids_in
from timely.differential.tables.expressions.column_stages import condition_of, filtered, projected, pruned
from timely.differential.tables.expressions.relation import Relation, constant, entered
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope, compile_scalar
from timely.differential.tables.operators.asof_joins import asof_join
from timely.differential.tables.operators.grouping_sets import grouped_by_sets
from timely.differential.tables.operators.membership import marked
from timely.differential.tables.operators.recent_rows import IN_TIME, rows_by_now, rows_by_watermarks
from timely.differential.tables.operators.set_operations import combined
from timely.differential.tables.operators.sorting import first_rows, sort_key
from timely.differential.tables.operators.table_joins import by_half_joins, join
from timely.differential.tables.operators.unnesting import unnested
from timely.differential.tables.operators.window_partitions import with_windows
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import QueryPlan, plans_in
from timely.differential.tables.values.kinds import Column
from timely.errors import SqlError
from timely.operators.generic import stateless_outputs
from timely.progress import ProductSummary, Step, time_domain


def build(plan: QueryPlan, scope: ScopeBuilder[Any], tables: Mapping[str, Relation]) -> Relation:
    """Return the rows of a plan over tables, of which it reads the columns that an expression has."""
    plans, read = plans_in(plan), _columns_read(plan)
    places: dict[str, set[int]] = {}
    for node in plans:
        if isinstance(node, nodes.TableScan) and node.table in tables:
            own = places.setdefault(node.table, set())
            own.update(place for place, ref in enumerate(node.columns) if ref.id in read)
    sources = {name: _read_columns(tables[name], sorted(own)) for name, own in places.items()}
    readers = Counter(id(inner) for node in plans for inner in node.inputs)
    relation = _Builder(scope, sources, read, readers, None, {}).build(plan)
    order = [relation.ids.index(ref.id) for ref in plan.columns]
    if order == list(range(len(relation.ids))):
        return relation
    return Relation(
        pruned(relation.collection, order),
        tuple(relation.columns[place] for place in order),
        tuple(ref.id for ref in plan.columns),
        grows=relation.grows,
    )


_WHOLE: Final = (nodes.DistinctRows, nodes.SetOperation, nodes.Fixpoint, nodes.TopK, nodes.Single)
"""What reads whole rows, by the places of their columns."""


def _columns_read(plan: QueryPlan) -> set[int]:
    """Return the columns that a plan reads, and those of its rows; others are left out where columns are selected."""
    plans, read = plans_in(plan), nodes.ids(plan)
    for node in plans:
        if isinstance(node, _WHOLE):
            read.update(*map(nodes.ids, node.inputs))
        if not isinstance(node, nodes.Project):
            read |= ids_in(*node.expressions)
    left = [part for node in plans if isinstance(node, nodes.Project) for part in node.outputs]
    while chosen := [part for part in left if part.id in read]:
        left = [part for part in left if part.id not in read]
        read |= ids_in(*(part.value for part in chosen))
    return read


def _read_columns(table: Relation, places: Sequence[int]) -> Relation:
    """Return the columns of a table that are read, whose numbers are their places in it."""
    everything = len(places) == len(table.columns)
    rows = table.collection if everything else pruned(table.collection, places)
    return Relation(rows, tuple(table.columns[place] for place in places), tuple(places), grows=table.grows)


@attrs.frozen
class _Builder:
    """What builds plans in ``scope``, or in that of ``around`` if they do not read its loops."""

    scope: ScopeBuilder[Any]
    sources: Mapping[str, Relation]
    read: set[int]
    readers: Mapping[int, int]
    """By the identity of the plan."""
    around: _Builder | None
    loops: Mapping[str, Relation]
    made: dict[int, Relation] = attrs.Factory(dict)
    """By the identity of the plan."""
    loops_made: dict[int, list[Relation]] = attrs.Factory(dict)

    def build(self, plan: QueryPlan) -> Relation:
        relation = self.made.get(id(plan))
        if relation is None:
            if self.around is not None and not self.reads_loop(plan):
                relation = self.around.build(plan)
                relation = relation.with_collection(entered(relation.collection, self.scope))
            else:
                relation = _BUILDERS[type(plan)](self, plan)
            relation = self.made[id(plan)] = attrs.evolve(relation, grows=self.grows(plan))
        return relation

    def grows(self, plan: QueryPlan) -> bool:
        """Return whether rows of a plan are only added: they depend on rows that are, and each of them on few of these."""
        if id(plan) in self.made:
            return self.made[id(plan)].grows
        match plan:
            case nodes.TableScan():
                return plan.table in self.sources and self.sources[plan.table].grows
            case nodes.FilterRows() | nodes.Project() | nodes.Unnest() | nodes.DistinctRows() | nodes.ConstantRows():
                return all(map(self.grows, plan.inputs))
            case nodes.JoinRows(how="inner") | nodes.SetOperation(operation="union"):
                return all(map(self.grows, plan.inputs))
            case nodes.ByHorizon() if plan.use == IN_TIME:
                return self.grows(plan.left)
        return False

    def reads_loop(self, plan: QueryPlan) -> bool:
        """Return whether a plan reads the loop of this scope."""
        return any(isinstance(node, nodes.TableScan) and node.table in self.loops for node in plans_in(plan))


def _scan(builder: _Builder, plan: nodes.TableScan) -> Relation:
    loop = builder.loops.get(plan.table)
    if loop is not None:
        return attrs.evolve(loop, ids=tuple(ref.id for ref in plan.columns))
    source = builder.sources[plan.table]
    ids = tuple(plan.columns[place].id for place in source.ids)
    return Relation(entered(source.collection, builder.scope), source.columns, ids)


def _values(builder: _Builder, plan: nodes.ConstantRows) -> Relation:
    nothing = RowScope((), {})
    scalars = [[compile_scalar(value, nothing) for value in row] for row in plan.rows]
    nullable = [any(row[place].nullable for row in scalars) for place in range(len(plan.columns))]
    columns = tuple(Column(f"col{place}", ref.kind, nullable[place]) for place, ref in enumerate(plan.columns))
    rows = [tuple(scalar.function(()) for scalar in row) for row in scalars]
    return Relation(constant(builder.scope, rows), columns, tuple(ref.id for ref in plan.columns))


def _filter(builder: _Builder, plan: nodes.FilterRows) -> Relation:
    relation = builder.build(plan.input)
    scope = relation.scope
    rows = filtered(relation.collection, [condition_of(condition, scope) for condition in plan.conditions])
    columns = list(relation.columns)
    for condition in plan.conditions:
        place = scope.places.get(_not_null(condition))
        if place is not None:
            columns[place] = attrs.evolve(columns[place], nullable=False)
    return Relation(rows, tuple(columns), relation.ids)


def _not_null(condition: Expr) -> int:
    """Return the number of the column that a condition says is not ``NULL``, or -1."""
    if isinstance(condition, Call) and condition.name == "not":
        (inner,) = condition.arguments
        if isinstance(inner, Call) and inner.name == "is null" and isinstance(inner.arguments[0], Ref):
            return inner.arguments[0].id
    return -1


def _project(builder: _Builder, plan: nodes.Project) -> Relation:
    relation = builder.build(plan.input)
    outputs = [part for part in plan.outputs if part.id in builder.read]
    scope, values, ids = relation.scope, [part.value for part in outputs], tuple(part.id for part in outputs)
    scalars = [compile_scalar(value, scope) for value in values]
    places = [scope.places[value.id] for value in values if isinstance(value, Ref)]
    if len(places) < len(values):
        columns = tuple(Column("", scalar.kind, scalar.nullable) for scalar in scalars)
        rows = projected(relation.collection, [scalar.function for scalar in scalars], values, scope)
        return Relation(rows, columns, ids)
    columns = tuple(relation.columns[place] for place in places)
    if places == list(range(len(relation.columns))):
        return Relation(relation.collection, columns, ids)
    return Relation(pruned(relation.collection, places), columns, ids)


def _distinct(builder: _Builder, plan: nodes.DistinctRows) -> Relation:
    relation = builder.build(plan.input)
    return relation.with_collection(relation.collection.distinct())


def _topk(builder: _Builder, plan: nodes.TopK) -> Relation:
    relation = builder.build(plan.input)
    key = sort_key(plan.order, relation.scope, plan.width)
    places, rows = [relation.scope.places[ref.id] for ref in plan.by], relation.collection

    def group(row: Row) -> Row:
        return tuple([row[place] for place in places])

    chosen = rows
    if plan.take is not None:
        count = plan.skip + plan.take
        chosen = first_rows(rows, group, key, count, grows=relation.grows) if count else rows.filter(lambda row: False)
    if plan.skip:
        chosen = chosen.minus(first_rows(rows, group, key, plan.skip, grows=relation.grows))
    return relation.with_collection(chosen)


def _aggregate(builder: _Builder, plan: nodes.GroupRows) -> Relation:
    domain = None if plan.domain is None else builder.build(plan.domain)
    relation = builder.build(plan.input)
    return grouped_by_sets(relation, plan.outer, domain, plan.keys, plan.sets, plan.aggregates, plan.groupings)


def _single(builder: _Builder, plan: nodes.Single) -> Relation:
    relation, width, error = builder.build(plan.input), plan.width, plan.error

    def check(key: Any, counted: list[tuple[Row, int]]) -> list[tuple[Row, int]]:
        if sum(count for _, count in counted) > 1:
            raise SqlError(error)
        return counted

    pairs = relation.collection.map(lambda row: (row[:width], row))
    return relation.with_collection(pairs.reduce(check, name="one row").map(lambda pair: pair[1]))


def _join(builder: _Builder, plan: nodes.JoinRows) -> Relation:
    items, conditions = list[QueryPlan](), list[Expr]()
    node: QueryPlan = plan
    while isinstance(node, nodes.JoinRows) and node.how == "inner" and (node is plan or builder.readers[id(node)] == 1):
        items.insert(0, node.right)
        conditions += node.conditions
        node = node.left
    if len(items) > 1 and builder.scope.subgraph.domain.total:
        joined = by_half_joins([builder.build(item) for item in (node, *items)], conditions)
        if joined is not None:
            return joined
    return join(builder.build(plan.left), builder.build(plan.right), plan.conditions, plan.how)


def _asof(builder: _Builder, plan: nodes.AsOf) -> Relation:
    left, right = builder.build(plan.left), builder.build(plan.right)
    return asof_join(left, right, plan.conditions, plan.nearest, plan.comparison, optional=plan.optional)


def _mark(builder: _Builder, plan: nodes.Mark) -> Relation:
    left, right = builder.build(plan.left), builder.build(plan.right)
    return marked(left, right, plan.conditions, plan.equal, negated=plan.negated, mark=plan.mark)


def _by_horizon(builder: _Builder, plan: nodes.ByHorizon) -> Relation:
    left, sources = builder.build(plan.left), [builder.build(source) for source in plan.sources]
    moment, rows = compile_scalar(plan.moment, left.scope).function, left.collection
    scalars = [compile_scalar(bound, source.scope) for bound, source in zip(plan.bounds, sources)]
    if plan.clock:
        timed, (now,), (bound,) = rows.filter(lambda row: moment(row) is not None), sources, scalars
        rows = rows_by_now(timed, moment, now.collection, bound.function, plan.use, inclusive=plan.inclusive)
    else:
        watermarks = [
            projected(source.collection, [scalar.function], [bound], source.scope)
            for source, scalar, bound in zip(sources, scalars, plan.bounds)
        ]
        rows = rows_by_watermarks(rows, moment, watermarks, plan.use)
    return left.with_collection(rows)


def _set_operation(builder: _Builder, plan: nodes.SetOperation) -> Relation:
    left, right = builder.build(plan.left), builder.build(plan.right)
    kinds = [ref.kind for ref in plan.columns]
    rows = combined(plan.operation, plan.distinct, left.collection, right.collection)
    columns = [
        Column(one.name, kind, one.nullable or other.nullable) for kind, one, other in zip(kinds, left.columns, right.columns)
    ]
    return Relation(rows, tuple(columns), tuple(ref.id for ref in plan.columns))


def _loop_rows(builder: _Builder, plan: nodes.LoopRows) -> Relation:
    loop = plan.input
    relations = builder.loops_made.get(id(loop))
    if relations is None:
        relations = builder.loops_made[id(loop)] = _loop(builder, loop)
    return attrs.evolve(relations[plan.place], ids=tuple(ref.id for ref in plan.columns))


def _loop(builder: _Builder, plan: nodes.Fixpoint) -> list[Relation]:
    """Return what the bodies of a loop settle at."""
    with builder.scope.iterative("recursive") as loop:
        step = ProductSummary(time_domain(builder.scope.time).identity, Step(1, limit=plan.rounds - 1)) if plan.returns else None
        variables: list[Variable[Any, Any]] = [Variable(loop, step=step) for _ in plan.bodies]
        columns = [tuple(Column("", ref.kind) for ref in body.columns) for body in plan.bodies]
        rows = {name: Relation(each.collection, own) for name, each, own in zip(plan.names, variables, columns)}
        inner = _Builder(loop, builder.sources, builder.read, builder.readers, builder, rows)
        for name, body, variable, label in zip(plan.names, plan.bodies, variables, plan.labels):
            collection = inner.build(body).collection
            collection = collection if collection.consolidated else collection.consolidate()
            rows[name] = rows[name].with_collection(collection)
            variable.set(collection if plan.returns else _settling(collection, plan.rounds, label))
        return [each.with_collection(each.collection.leave()) for each in rows.values()]


def _settling(rows: Collection[Any, Row], most: int, label: str) -> Collection[Any, Row]:
    """Return what goes round a loop; ``SqlError`` where it changes after ``most`` rounds."""

    def logic(input: InputPort[Any, Any], output: OutputPort[Any]) -> None:
        for capability, batch in input:
            if capability.time.inner >= most:
                shown = ", ".join(f"{row!r} {diff:+}" for row, diff in islice(batch, 5))
                raise SqlError(
                    f"the recursive query {label} does not settle: {shown} change in {in_words(capability.time)}; give its rows"
                    " an end, or it another limit: WITH MUTUALLY RECURSIVE (ERROR AT RECURSION LIMIT n), or RETURN AT"
                )
            output.session(capability).give_batch(batch)

    name, scope = "rounds", rows.scope
    (stream,) = stateless_outputs(scope, [rows.stream], Pipeline, name, logic, 1, collection=True)
    return Collection(stream)


_BUILDERS: Final[dict[type[QueryPlan], Callable[[_Builder, Any], Relation]]] = {
    nodes.TableScan: _scan,
    nodes.ConstantRows: _values,
    nodes.FilterRows: _filter,
    nodes.Project: _project,
    nodes.TopK: _topk,
    nodes.GroupRows: _aggregate,
    nodes.Single: _single,
    nodes.AsOf: _asof,
    nodes.Mark: _mark,
    nodes.ByHorizon: _by_horizon,
    nodes.SetOperation: _set_operation,
    nodes.LoopRows: _loop_rows,
    nodes.DistinctRows: _distinct,
    nodes.Windows: lambda builder, plan: with_windows(builder.build(plan.input), plan.calls, plan.most),
    nodes.Unnest: lambda builder, plan: unnested(builder.build(plan.input), plan.lists, plan.elements, optional=plan.optional),
    nodes.JoinRows: _join,
}
