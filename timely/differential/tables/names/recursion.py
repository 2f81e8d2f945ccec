"""Recursive queries: queries of a ``WITH`` that read themselves or each other, and what those of ``WITH RECURSIVE`` may be.

Rounds that read what the last one added, and the limit of ``x = f(x)``, agree where ``f`` is linear and monotone: that is what
``WITH RECURSIVE`` takes. ``WITH MUTUALLY RECURSIVE`` is the limit, of any ``f``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.bound import Call, Membership, NamedExpr, Ref, Subquery, parts_in
from timely.differential.tables.expressions.calls import as_kind
from timely.differential.tables.names.dialect import nodes_in
from timely.differential.tables.names.from_items import renamed
from timely.differential.tables.names.name_scopes import BoundQuery, NameBinder, QueryScope, TableRows, Tables
from timely.differential.tables.names.reader import listed, name_in, read
from timely.differential.tables.names.refusals import placed, position_of, refusal
from timely.differential.tables.names.scalar_rules import SqlType, type_of
from timely.differential.tables.operators.set_operations import check_kinds
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import QueryPlan, TableScan, plans_in
from timely.differential.tables.values.functions import cast_of
from timely.differential.tables.values.kinds import Kind, lower_case
from timely.errors import SqlError


@attrs.frozen(eq=False)
class CommonTable:
    """A query of ``WITH``: its name, its columns as written, and what may be tables in it."""

    node: exp.Expr
    query: exp.Expr
    name: str
    written: Sequence[exp.Expr]
    tables: frozenset[str]

    @staticmethod
    def of(node: exp.Expr) -> CommonTable:
        """Return what a part of a ``WITH`` is."""
        query, alias = read(node, "this", "alias")
        name, columns = read(alias, "this", "columns")
        return CommonTable(node, query, name_in(name), listed(columns), _tables(query))


def _tables(query: exp.Expr) -> frozenset[str]:
    return frozenset(lower_case(node.name) for node in nodes_in(query) if isinstance(node, exp.Table))


def loops_of(members: Sequence[CommonTable], tables: Tables) -> list[list[CommonTable]]:
    """Return the queries of ``WITH RECURSIVE`` behind those that they read; those that read each other are together.

    A name that ``tables`` have is not that of a query further on.
    """
    reached: list[set[int]] = []
    for place, member in enumerate(members):
        places = {other.name: number for number, other in enumerate(members) if number <= place or other.name not in tables}
        reached.append({number for name, number in places.items() if name in member.tables})
    for number in range(len(members)):
        reached = [reach | reached[number] if number in reach else reach for reach in reached]
    loops: dict[int, list[CommonTable]] = {}
    for place in sorted(range(len(members)), key=lambda place: len({place, *reached[place]})):
        first = next((other for other in loops if other in reached[place] and place in reached[other]), place)
        loops.setdefault(first, []).append(members[place])
    return list(loops.values())


class LoopBinder:
    """Binds the queries of a loop, which read themselves or each other."""

    def __init__(self, binder: NameBinder, members: Sequence[CommonTable], around: QueryScope | None, tables: Tables) -> None:
        self._binder = binder
        self._members = members
        self._around = around
        self._known = dict(tables)
        self._names = [f"{member.name}\0{binder.fresh()}" for member in members]

    def mutual(self, rounds: int, returns: bool) -> dict[str, TableRows]:
        """Return the queries of ``WITH MUTUALLY RECURSIVE``, whose columns are declared."""
        types = []
        for member in self._members:
            columns = [read(column, "this", "kind") for column in member.written if isinstance(column, exp.ColumnDef)]
            if not columns or len(columns) < len(member.written) or not all(kind for _, kind in columns):
                why = f"WITH MUTUALLY RECURSIVE declares columns: {member.name} (column type, ...) AS (query)"
                raise refusal(member.node, why)
            types.append([type_of(kind, kind) for _, kind in columns])
            names = renamed([name for name, _ in columns], [""] * len(columns))
            self._declare(member, names, [each.kind for each in types[-1]])
        bodies = [
            self._of_types(self._binder.query(member.query, self._around, self._known), each, member.query)
            for member, each in zip(self._members, types)
        ]
        return self._loop(bodies, rounds or _MUTUAL_ROUNDS, returns)

    def plain(self) -> dict[str, TableRows]:
        """Return the queries of ``WITH RECURSIVE``: each has the columns of its base, or is a step alone."""
        waiting = list(self._members)
        firsts: dict[CommonTable, tuple[BoundQuery, Tables]] = {}
        while waiting:
            unknown = {member.name for member in waiting}
            member = next((member for member in waiting if unknown.isdisjoint(_tables(_first(member.query)))), None)
            if member is None:
                raise refusal(waiting[0].node, "a recursive query is base UNION [ALL] step, and only the step reads it")
            waiting.remove(member)
            clause = read(member.query, *_UNION)[3] if type(member.query) is exp.Union else None
            tables = self._binder.with_tables(clause, self._around, self._known)
            base = self._binder.query(_first(member.query), self._around, tables)
            firsts[member] = base, tables
            self._declare(member, renamed(member.written, base.names), [ref.kind for ref in base.plan.columns])
        bodies = []
        for member in self._members:
            base, tables = firsts[member]
            body, distinct = base.plan, False
            if type(member.query) is exp.Union:
                step, distinct = member.query.expression, bool(member.query.args.get("distinct"))
                types = [SqlType(ref.kind, None, "") for ref in body.columns]
                members = {each.name: self._known[each.name] for each in self._members}
                query = self._binder.query(step, self._around, {**tables, **members})
                plan = self._of_types(query, types, step)
                check_step(plan, self._names, distinct)
                refs = tuple(Ref(ref.kind, self._binder.fresh()) for ref in body.columns)
                body = nodes.SetOperation(body, plan, "union", distinct, refs)
            check_step(base.plan, self._names, distinct)
            bodies.append(body)
        return self._loop(bodies, _PLAIN_ROUNDS, False)

    def _declare(self, member: CommonTable, columns: Sequence[str], kinds: Sequence[Kind]) -> None:
        """Say what the columns of a query are, so that others of the loop may read it."""
        self._known[member.name] = TableRows(columns, kinds, self._names[self._members.index(member)])

    def _of_types(self, query: BoundQuery, types: Sequence[SqlType], node: exp.Expr) -> QueryPlan:
        """Return a query with columns of these types."""
        kinds = [each.kind for each in types]
        try:
            check_kinds([ref.kind for ref in query.plan.columns], kinds, query.names)
        except SqlError as error:
            raise placed(error, node) from None
        outputs = []
        for ref, each in zip(query.plan.columns, types):
            value = as_kind(ref, each.kind)
            if each.narrow is not None:
                value = Call(each.kind, f"cast to {each.text}", (value,), cast_of(each.kind, each.kind, each.narrow), at=node)
            outputs.append(NamedExpr(self._binder.fresh(), value))
        return nodes.Project(query.plan, tuple(outputs))

    def _loop(self, bodies: Sequence[QueryPlan], rounds: int, returns: bool) -> dict[str, TableRows]:
        labels = tuple(f"{member.name}{position_of(member.node)}" for member in self._members)
        loop = nodes.Fixpoint(tuple(self._names), tuple(bodies), labels, rounds, returns)
        made = {}
        for place, member in enumerate(self._members):
            refs = tuple(Ref(kind, self._binder.fresh()) for kind in self._known[member.name].kinds)
            made[member.name] = attrs.evolve(self._known[member.name], rows=nodes.LoopRows(loop, place, refs))
        return made


_PLAIN_ROUNDS: Final = 100_000
_MUTUAL_ROUNDS: Final = 10_000
"""After which a loop that still changes is an error: within 10 s, where one row changes in each round."""

_UNION: Final = ("this", "expression", "distinct", "with_")


def _first(query: exp.Expr) -> exp.Expr:
    """Return the base of a recursive query, or all of one that has none."""
    first: exp.Expr = query.this if type(query) is exp.Union else query
    return first


# -- what is linear and monotone ---------------------------------------------------------------------------------------


def _scan_in(plan: QueryPlan, loops: Collection[str]) -> TableScan | None:
    """Return where a plan reads one of some loops."""
    return next((node for node in plans_in(plan) if isinstance(node, TableScan) and node.table in loops), None)


def check_step(plan: Any, loops: Collection[str], distinct: bool, seen: set[int] | None = None) -> None:
    """Refuse what is not linear and monotone in the rows of some loops; in rows as a bag, unless they are ``distinct``."""
    seen = set() if seen is None else seen  # plans that are read twice
    if id(plan) in seen or _scan_in(plan, loops) in (None, plan):
        return
    seen.add(id(plan))
    for part in parts_in(plan.expressions):
        if isinstance(part, Subquery) and (scan := _scan_in(part.plan, loops)) is not None:
            raise _refused(scan, f"recursion through {_what(part)}")
    if isinstance(plan, nodes.Fixpoint):
        loops = {*loops, *plan.names}
    sides = [(inner, scan) for inner in plan.inputs if (scan := _scan_in(inner, loops)) is not None]
    if len(sides) > 1 and not isinstance(plan, nodes.SetOperation | nodes.Fixpoint):
        raise _refused(sides[1][1], "recursion through a join of recursive rows with each other")
    for inner, scan in sides:
        if why := _fault(plan, inner, distinct):
            raise _refused(scan, why)
        check_step(inner, loops, distinct, seen)


def _refused(scan: TableScan, why: str) -> SqlError:
    return refusal(scan.at, f"{why} is no plain recursion: WITH MUTUALLY RECURSIVE takes it, with declared columns")


def _what(query: Subquery) -> str:
    if not isinstance(query, Membership):
        return "a scalar subquery"
    return "ALL" if query.negated else "EXISTS" if not query.asked else "IN" if isinstance(query.at, exp.In) else "ANY"


def _fault(plan: Any, inner: QueryPlan, distinct: bool) -> str:
    """Return why a node is not linear and monotone in one of its inputs, or nothing."""
    if isinstance(plan, nodes.GroupRows):
        return "recursion through aggregates"
    if isinstance(plan, nodes.Windows):
        return "recursion through window functions"
    if isinstance(plan, nodes.TopK):
        return f"recursion through {'DISTINCT ON' if plan.by else 'LIMIT'}"
    if isinstance(plan, nodes.DistinctRows) and not distinct:
        return "recursion by UNION ALL through DISTINCT"
    if isinstance(plan, nodes.SetOperation) and plan.operation != "union":
        return f"recursion through {plan.operation.upper()}"
    if isinstance(plan, nodes.SetOperation) and plan.distinct and not distinct:
        return "recursion by UNION ALL through UNION"
    if isinstance(plan, nodes.AsOf | nodes.Mark) and inner is plan.right:
        how = "ASOF" if isinstance(plan, nodes.AsOf) else "ANTI" if plan.negated else "SEMI"
        return f"recursion through the optional side of a {how} JOIN"
    if isinstance(plan, nodes.JoinRows):
        optional = {"left": plan.right, "full": inner, "right": plan.left}
        if optional.get(plan.how) is inner:
            return f"recursion through the optional side of a {plan.how.upper()} JOIN"
    return ""
