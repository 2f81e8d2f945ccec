"""Texts of SQL: an expression as a tree, and a query as a relation over other relations. The dialect is DuckDB's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import attrs
from sqlglot import exp

from timely.dataflow import ScopeBuilder
from timely.differential.tables.expressions.bound import PlacedError, Ref, SortKey
from timely.differential.tables.expressions.column_stages import projected
from timely.differential.tables.expressions.relation import Relation
from timely.differential.tables.expressions.scalar_compiler import Row, RowScope, compile_scalar
from timely.differential.tables.names.binder import Behind, Binder
from timely.differential.tables.names.hints import STATEMENTS
from timely.differential.tables.names.reader import check_clauses
from timely.differential.tables.names.refusals import naming_the_line, parse, placed, position_of, refusal, tokens_in
from timely.differential.tables.names.user_functions import NO_FUNCTIONS, Functions, named_functions
from timely.differential.tables.operators.sorting import sort_key as row_key
from timely.differential.tables.plan.build import build
from timely.differential.tables.plan.decorrelate import decorrelated
from timely.differential.tables.plan.lateness import LatenessRewriter
from timely.differential.tables.plan.nodes import QueryPlan, TableScan
from timely.differential.tables.plan.push_down import pushed_down
from timely.differential.tables.plan.temporal import with_temporal_filters
from timely.differential.tables.values.kinds import Column
from timely.errors import SqlError


def query_of(text: str) -> exp.Query:
    """Return the text of one query as a tree; ``SqlError`` for what is none, with its position.

    >>> query_of("select n fro m x")
    Traceback (most recent call last):
    timely.errors.SqlError: 'm' at line 1, column 14: the query cannot be parsed: this does not fit here; did you mean FROM?
    """
    tree = statement_of(text)
    if isinstance(tree, exp.Values):
        return exp.select("*").from_(tree)
    if not isinstance(tree, exp.Query):
        statement = tokens_in(text)[0].text.upper()
        raise refusal(tree, f"a view is a query, not {statement}{STATEMENTS.get(statement, '')}")
    return tree


def text_of(tree: exp.Query) -> str:
    """Return a query as a text that another query has only where it means the same."""
    text = tree.sql(dialect="duckdb", comments=False)
    try:
        if query_of(text) == tree:
            return text
    except SqlError:
        pass
    bare = tree.copy()  # SQLGlot leaves out parts of some texts, such as IGNORE NULLS
    for node in bare.walk():
        node.comments = None
    return f"{text} [{blake2b(repr(bare).encode(), digest_size=8).hexdigest()}]"


def statement_of(text: str) -> exp.Expr:
    """Return the text of one statement of any kind as a tree."""
    trees = parse(text)
    if not trees:
        raise SqlError("the text at line 1, column 1: it has no query")
    if len(trees) > 1:
        raise refusal(trees[1], f"a view is one query, and here are {len(trees)}")
    return trees[0]


def useless_order(tree: exp.Query) -> str | None:
    """Return where an ``ORDER BY`` stands that decides nothing: neither which rows there are, nor how they are read."""
    order, distinct = tree.args.get("order"), tree.args.get("distinct")
    on = isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None  # of a set operation it is a bool
    return None if order is None or tree.args.get("limit") or tree.args.get("offset") or on else position_of(order)


class OrderedRows(NamedTuple):
    """The rows of a query, with columns of its order alone behind its ``width`` own ones; ``order`` is by places of columns."""

    rows: Relation
    width: int
    order: dict[int, SortKey]

    def key(self) -> Callable[[Row], Any]:
        """Return what the rows are sorted by."""
        columns = self.rows.columns
        scope = RowScope(columns, {place: place for place in range(len(columns))})
        return row_key(list(self.order.values()), scope, len(columns))


def relation_of(
    scope: ScopeBuilder[Any],
    tree: exp.Query,
    tables: Mapping[str, Relation],
    functions: Functions = NO_FUNCTIONS,
) -> Relation:
    """Return the rows of a query over ``tables``."""
    if scope.allocator.registry is not None:  # a checkpoint would not tell it from another with the same operators
        columns = [f"{name}({', '.join(map(str, relation.columns))})" for name, relation in tables.items()]
        with_functions = "".join(f", with {name}{each}" for name, each in sorted(functions.items()))
        scope.identities.note(f"query {text_of(tree)} over {', '.join(columns)}{with_functions}")
    return answer_of(scope, tree, tables, functions, ordered=False).rows


class PlannedQuery(NamedTuple):
    """The plan of a query, without subqueries, the names of its own columns, and its order by places of columns."""

    plan: QueryPlan
    names: Sequence[str]
    order: dict[int, SortKey]


def planned(
    tree: exp.Query, tables: Mapping[str, Sequence[Column]], functions: Functions = NO_FUNCTIONS, *, ordered: bool = False
) -> PlannedQuery:
    """Return the plan of a query over tables with these columns."""
    check_clauses(tree)
    binder = Binder(tables, named_functions(functions))
    try:
        query = binder.query(tree, None, binder.tables, Behind(shown=ordered))
        plan = pushed_down(decorrelated(query.plan, binder.fresh))
        plan = with_temporal_filters(plan, binder.tables, binder.fresh) if binder.reads_now else plan
        places = {ref: place for place, ref in enumerate(query.plan.columns)}
        order: dict[int, SortKey] = {}
        for key in query.order if ordered else ():
            if not isinstance(key.value, Ref) or key.value not in places:
                raise PlacedError("an answer is put in the order of columns that it has: select this too", key.value.at)
            place = places[key.value]
            order.setdefault(place, attrs.evolve(key, value=Ref(key.value.kind, place)))
    except SqlError as error:
        raise placed(error, tree) from None
    return PlannedQuery(plan, query.names, order)


@naming_the_line
def answer_of(
    scope: ScopeBuilder[Any],
    tree: exp.Query,
    tables: Mapping[str, Relation],
    functions: Functions,
    *,
    ordered: bool,
) -> OrderedRows:
    """Return the rows of a query over ``tables``, and if it is ``ordered``, its order."""
    columns_of = {name: relation.columns for name, relation in tables.items()}
    whole, own, order = planned(tree, columns_of, functions, ordered=ordered)
    sources, scans = _watermarks(scope, tables)
    rewriter = LatenessRewriter(scans)
    try:
        plan = rewriter.closed(whole) if tree.args.get("emits") else rewriter.forgetting(whole) if sources else whole
    except SqlError as error:
        raise placed(error, tree) from None
    relation, width = build(plan, scope, {**tables, **sources}), len(own)
    names = (*own, *(f"order {number}" for number in range(len(plan.columns) - width)))
    columns = tuple(attrs.evolve(column, name=name) for column, name in zip(relation.columns, names, strict=True))
    watermarks = []
    for ref, bound in rewriter.bounds(whole).items() if sources else ():
        if len(bound) == 1:  # the least of several is not the greatest of all rows
            ((scan, value),) = bound
            source = attrs.evolve(sources[scan.table], ids=(scan.columns[0].id,))
            function = compile_scalar(value, source.scope).function
            place = next(place for place, column in enumerate(whole.columns) if column == ref)
            watermarks.append((place, projected(source.collection, [function], [value], source.scope)))
    return OrderedRows(attrs.evolve(relation, columns=columns, watermarks=tuple(watermarks)), width, order)


def _watermarks(
    scope: ScopeBuilder[Any], tables: Mapping[str, Relation]
) -> tuple[dict[str, Relation], dict[str, dict[int, TableScan]]]:
    """Return the watermarks of tables as tables of their own, and by table and place of the column, how they are read."""
    sources: dict[str, Relation] = {}
    scans: dict[str, dict[int, TableScan]] = {}
    for name, relation in tables.items() if scope.subgraph.domain.total else ():
        for place, rows in relation.watermarks:
            kind, source = relation.columns[place].kind, f"\0{name}\0{place}"  # no name of a loop
            sources[source] = Relation(rows, (Column("watermark", kind, False),))
            scans.setdefault(name, {})[place] = TableScan(source, (Ref(kind, -len(sources)),))  # plans count up from 0
    return sources, scans
