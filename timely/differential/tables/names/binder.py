"""The binder: it makes a plan of a query of the parser, in one pass from the outermost query to the innermost.

Each name becomes the column that it means, and each argument of the parser's tree is read once, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final

import attrs
from sqlglot import exp

from timely.differential.tables.expressions.bound import (
    Element,
    Expr,
    Literal,
    NamedExpr,
    PlacedError,
    Ref,
    SortKey,
    ids_in,
    parts_in,
    substituted,
)
from timely.differential.tables.expressions.calls import as_kind
from timely.differential.tables.names import from_items
from timely.differential.tables.names.aggregate_rules import (
    aggregated,
    bare,
    column_number,
    is_aggregate,
    key_sets,
    over,
    sort_key,
    windowed,
)
from timely.differential.tables.names.from_items import renamed
from timely.differential.tables.names.name_scopes import BoundQuery, FromItem, QueryScope, TableRows, Tables
from timely.differential.tables.names.reader import columns_of, identifier, is_now, listed, name_in, read, star_of
from timely.differential.tables.names.recursion import CommonTable, LoopBinder, loops_of
from timely.differential.tables.names.refusals import placed, refusal, text_of
from timely.differential.tables.names.scalar_rules import scalar
from timely.differential.tables.operators.aggregations import AggregateCall, Whole
from timely.differential.tables.operators.grouping_sets import Grouping, GroupingCall
from timely.differential.tables.operators.set_operations import merged
from timely.differential.tables.operators.window_functions import WindowCall
from timely.differential.tables.plan import nodes
from timely.differential.tables.plan.nodes import QueryPlan, free
from timely.differential.tables.plan.push_down import conjuncts
from timely.differential.tables.values.kinds import Column, Kind, lower_case
from timely.differential.tables.values.overloads import SqlFunction
from timely.errors import SqlError


@attrs.frozen
class Behind:
    """What stands behind a query, or behind the parentheses around it; ``shown`` is the order of rows that are shown in it."""

    orders: tuple[exp.Expr, ...] = ()
    limit: exp.Expr | None = None
    offset: exp.Expr | None = None
    shown: bool = False

    @staticmethod
    def of(order: exp.Expr | None, limit: exp.Expr | None, offset: exp.Expr | None, around: Behind) -> Behind:
        """Return the clauses of a query: its own, and those behind the parentheses ``around`` it."""
        own = Behind(() if order is None else tuple(read(order, "this", "expressions")[1]), limit, offset, around.shown)
        if around == Behind(shown=around.shown):
            return own
        if limit is not None or offset is not None:
            clause = around.limit or around.offset or around.orders[0]
            raise refusal(clause, "these parentheses have a LIMIT already: name them in FROM, and select from that")
        return Behind((*around.orders, *own.orders), around.limit, around.offset, around.shown)


@attrs.frozen
class _Selected:
    """The names and values of selected columns, and the places of those with ``AS``: of several the last."""

    names: list[str] = attrs.Factory(list)
    values: list[Expr] = attrs.Factory(list)
    places: dict[str, int] = attrs.Factory(dict)

    def add(self, name: str, value: Expr, scope: QueryScope | None = None) -> None:
        """Add a column, which has a name in ``scope`` from now on."""
        if scope is not None:
            scope.aliases[name], self.places[name] = value, len(self.values)
        self.names.append(name)
        self.values.append(value)


class Binder:
    """Binds queries over tables, with functions of the program; ``fresh`` gives numbers to columns."""

    def __init__(
        self, tables: Mapping[str, Sequence[Column]], functions: Mapping[str, SqlFunction] = MappingProxyType({})
    ) -> None:
        self._numbers = count()
        self.reads_now = False
        self.functions = functions
        self.tables: Tables = {
            name: TableRows([column.name for column in columns], [column.kind for column in columns], name)
            for name, columns in tables.items()
        }

    def fresh(self) -> int:
        """Return the number of a new column."""
        return next(self._numbers)

    # -- queries ---------------------------------------------------------------------------------------------------

    def query(
        self, node: exp.Expr, around: QueryScope | None, tables: Tables, behind: Behind = Behind(), *, joins: bool = False
    ) -> BoundQuery:
        """Return a query in ``around``, with what stands ``behind`` its parentheses; ``FROM`` reads its ``joins``."""
        try:
            if isinstance(node, exp.Select):
                return self.select(node, around, tables, behind)
            if isinstance(node, exp.Values):
                return self.select(exp.select("*").from_(node.copy()), around, tables, behind)
            if isinstance(node, exp.SetOperation):
                return self.set_operation(node, around, tables, behind)
        except SqlError as error:
            raise placed(error, node) from None
        if isinstance(node, exp.Subquery):
            names = ("this", "alias", "with_", "order", "limit", "offset")
            inner, _, clause, order, limit, offset, *_ = read(node, *names, *(["joins"] if joins else []))
            tables = self.with_tables(clause, around, tables)
            return self.query(inner, around, tables, Behind.of(order, limit, offset, behind))
        raise refusal(node, "this is not a query that a view can be")

    def subquery(self, node: exp.Expr, scope: QueryScope, *, exists: bool = False) -> QueryPlan:
        """Return the plan of a subquery; of one that ``exists`` the columns do not matter."""
        plan = self.query(node, scope, scope.tables).plan
        if exists and isinstance(plan, nodes.Project) and all(isinstance(part.value, Ref | Literal) for part in plan.outputs):
            return plan.input
        return plan

    def with_tables(self, clause: exp.Expr | None, around: QueryScope | None, tables: Tables) -> Tables:
        """Return the tables that a query may read: ``tables`` and those of its ``WITH``."""
        if clause is None:
            return tables
        parts, recursive, rounds, returns = read(clause, "expressions", "recursive", "rounds", "returns")
        known, members = dict(tables), [CommonTable.of(part) for part in parts]
        if rounds is not None:
            known.update(LoopBinder(self, members, around, tables).mutual(rounds, bool(returns)))
            loops = []
        else:
            loops = loops_of(members, tables) if recursive else [[member] for member in members]
            typed = [column for member in members for column in member.written if isinstance(column, exp.ColumnDef)]
            if typed:
                raise refusal(typed[0], "columns have types behind WITH MUTUALLY RECURSIVE alone")
        for loop in loops:
            (member, *others) = loop
            if recursive and (others or member.name in member.tables):
                known.update(LoopBinder(self, loop, around, known).plain())
            else:
                query = self.query(member.query, around, known)
                kinds = [ref.kind for ref in query.plan.columns]
                known[member.name] = TableRows(renamed(member.written, query.names), kinds, query.plan)
        for member in members:
            rows = known[member.name].rows
            if isinstance(rows, QueryPlan) and free(rows):
                raise refusal(member.node, "WITH of a correlated subquery reads no columns from outside: put the query into FROM")
        return known

    def as_kinds(self, plan: QueryPlan, kinds: Sequence[Kind]) -> QueryPlan:
        """Return the rows with values of other kinds."""
        if all(ref.kind is kind for ref, kind in zip(plan.columns, kinds)):
            return plan
        return nodes.Project(plan, tuple(NamedExpr(self.fresh(), as_kind(ref, kind)) for ref, kind in zip(plan.columns, kinds)))

    def set_operation(self, node: exp.Expr, around: QueryScope | None, tables: Tables, behind: Behind) -> BoundQuery:
        """Return a set operation, whose order is of its columns."""
        first, second, distinct, order, limit, offset, clause, by_name = read(
            node, "this", "expression", "distinct", "order", "limit", "offset", "with_", "by_name"
        )
        if by_name and not isinstance(node, exp.Union):
            raise refusal(node, "BY NAME is supported for UNION")
        tables = self.with_tables(clause, around, tables)
        left, right = (self.query(side, around, tables) for side in (first, second))
        if by_name:
            order_of_names = list(dict.fromkeys([*left.names, *right.names]))
            left, right = (self.by_name(side, order_of_names, node) for side in (left, right))
        kinds = merged([ref.kind for ref in left.plan.columns], [ref.kind for ref in right.plan.columns], left.names)
        refs = tuple(Ref(kind, self.fresh()) for kind in kinds)
        operation = "union" if isinstance(node, exp.Union) else "except" if isinstance(node, exp.Except) else "intersect"
        sides = [self.as_kinds(side.plan, kinds) for side in (left, right)]
        plan = nodes.SetOperation(sides[0], sides[1], operation, bool(distinct), refs)
        places: dict[str, int] = {}
        for names in (left.names, right.names):
            for place, name in enumerate(names):
                places.setdefault(name, place)
        scope = QueryScope(None, {}, aliases={name: refs[place] for name, place in places.items()})
        clauses = Behind.of(order, limit, offset, behind)
        keys: list[SortKey] = []
        for part, value in self.orders(clauses.orders, scope, _Selected(list(left.names), list(refs), places)):
            keys.append(sort_key(part, refs[value] if isinstance(value, int) else value))
            self.refuse_special([keys[-1].value])
        return BoundQuery(self.limited(node, plan, keys, clauses, len(refs)), left.names, keys)

    def by_name(self, query: BoundQuery, names: Sequence[str], node: exp.Expr) -> BoundQuery:
        """Return a query with columns of these names; those that it does not have are null."""
        own: dict[str, Expr] = dict(zip(query.names, query.plan.columns))
        if len(own) < len(query.names):
            raise refusal(node, "BY NAME takes columns of different names")
        outputs = (NamedExpr(self.fresh(), own.get(name, Literal(Kind.NULL, None))) for name in names)
        return BoundQuery(nodes.Project(query.plan, tuple(outputs)), names)

    def limited(self, node: exp.Expr, plan: QueryPlan, keys: Sequence[SortKey], clauses: Behind, width: int) -> QueryPlan:
        """Return the first rows in an order; an order alone changes nothing."""
        limit, offset = _whole(clauses.limit, "LIMIT"), _whole(clauses.offset, "OFFSET")
        if limit is None and offset is None:
            return plan
        if not keys and nodes.least_and_most_rows(plan)[1] > 1 and (limit is None or limit):
            clause = clauses.limit or clauses.offset or node
            raise refusal(clause, "LIMIT and OFFSET need ORDER BY before them: which rows come first is unspecified")
        return nodes.TopK(plan, (), tuple(keys), width, offset or 0, limit)

    def select(self, node: exp.Select, around: QueryScope | None, tables: Tables, behind: Behind) -> BoundQuery:
        """Return a ``SELECT``: its clauses are read in the order in which DuckDB gives names a meaning."""
        expressions, clause, joins, where, group, having, windows, qualify, distinct, order, limit, offset, with_ = read(
            node,
            *("expressions", "from_", "joins", "where", "group", "having", "windows", "qualify"),
            *("distinct", "order", "limit", "offset", "with_"),
        )
        scope = QueryScope(around, self.with_tables(with_, around, tables))
        clauses = Behind.of(order, limit, offset, behind)
        plan = from_items.source(self, clause, listed(joins), scope)
        scope.windows.update((identifier(window.args["this"]), window) for window in listed(windows))
        selected = self.outputs(node, expressions, scope)
        values = selected.values
        owners = scope.owners()
        conditions = self.conditions(where, scope, owners)
        self.refuse_special(conditions)
        if conditions:
            plan = nodes.FilterRows(plan, tuple(conditions))
        keys, sets = self.keys(group, values, scope)
        if having is not None:
            scope.alias_first.update(self.named_first(node, having, set(keys), scope))
        of_groups = self.conditions(having, scope, owners)
        for window in listed(windows):
            over(self, window, scope)
        of_windows = self.conditions(qualify, scope, owners)
        (on,) = [None] if distinct is None else read(distinct, "on")
        firsts = [self.ordered(part, scope, selected) for part in ([] if on is None else read(on, "expressions")[0])]
        orders = self.orders(clauses.orders, scope, selected)
        late = [value for _, value in orders if isinstance(value, Expr)] + [part for part in firsts if isinstance(part, Expr)]

        asked = [*values, *of_groups, *of_windows, *late]
        aggregates = _special(asked, AggregateCall, GroupingCall)
        known: dict[Expr, Expr] = {}
        if group is not None or aggregates or of_groups:
            plan, known = self.grouped(plan, keys, sets, aggregates)
            self.refuse_columns([substituted(part, known) for part in asked], set(owners) - ids_in(*known.values()))
        if of_groups:
            of_groups = [substituted(part, known) for part in of_groups]
            self.refuse_special(of_groups)
            plan = nodes.FilterRows(plan, tuple(of_groups))
        functions = _special([substituted(part, known) for part in (*values, *of_windows, *late)], WindowCall)
        computed = tuple(NamedExpr(self.fresh(), part) for part in functions)
        over_windows: dict[Expr, Expr] = {part.value: part.ref for part in computed}
        if computed:
            for part in functions:
                if _special(part.parts, WindowCall):
                    raise PlacedError("a window function cannot stand in another: use a subquery", part.at)
                self.refuse_special(part.parts)
            plan = nodes.Windows(plan, computed)

        def final(value: Expr) -> Expr:
            return substituted(substituted(value, known), over_windows)

        if of_windows:
            of_windows = [final(part) for part in of_windows]
            self.refuse_special(of_windows)
            plan = nodes.FilterRows(plan, tuple(of_windows))
        values = [final(value) for value in values]
        elements = _special(values, Element)
        if elements:
            lists = tuple(part.list for part in elements if isinstance(part, Element))
            refs = tuple(Ref(part.kind, self.fresh()) for part in elements)
            plan = nodes.Unnest(plan, lists, refs)
            values = [substituted(value, dict(zip(elements, refs))) for value in values]
        self.refuse_special(values)
        plan, sort_keys = self.projected(node, plan, values, clauses, distinct, firsts, orders, final)
        return BoundQuery(plan, selected.names, sort_keys)

    def projected(
        self,
        node: exp.Expr,
        plan: QueryPlan,
        values: Sequence[Expr],
        clauses: Behind,
        distinct: exp.Expr | None,
        firsts: Sequence[Expr | int],
        orders: Sequence[tuple[exp.Expr, Expr | int]],
        final: Callable[[Expr], Expr],
    ) -> tuple[QueryPlan, Sequence[SortKey]]:
        """Return the selected columns: distinct, ordered and limited, and their order. What else is ordered by is dropped
        afterwards, unless the order is shown.
        """
        outputs = [NamedExpr(self.fresh(), value) for value in values]
        by_value: dict[Expr, Ref] = {}
        for output in outputs:
            by_value.setdefault(output.value, output.ref)
        unselected: list[NamedExpr] = []
        limited = clauses.limit is not None or clauses.offset is not None

        def column(value: Expr | int, read_later: bool) -> Expr:
            """Return what is ordered by as a selected column, or as one more."""
            if isinstance(value, int):
                return outputs[value].ref
            bound = final(value)
            self.refuse_special([bound])
            if bound not in by_value and not isinstance(bound, Literal) and read_later:
                unselected.append(NamedExpr(self.fresh(), bound))
                by_value[bound] = unselected[-1].ref
            return by_value.get(bound, bound)

        for part in firsts:
            if isinstance(part, Literal):
                raise PlacedError("DISTINCT ON takes names, not values", part.at)
        groups = [column(part, True) for part in firsts]
        read_later = bool(firsts) or ((limited or clauses.shown) and distinct is None)
        keys = [sort_key(part, column(value, read_later)) for part, value in orders]
        unselected_ids = nodes.ids(plan)
        plan = nodes.Project(plan, (*outputs, *unselected))
        if distinct is not None and not firsts:
            plan = nodes.DistinctRows(plan)
        if firsts:
            if not keys:
                raise refusal(distinct or node, "DISTINCT ON needs ORDER BY: which row of a group it takes is unspecified")
            plan = nodes.TopK(plan, tuple(part for part in groups if isinstance(part, Ref)), tuple(keys), len(outputs), 0, 1)
        if limited and distinct is not None and not firsts:
            self.refuse_columns([key.value for key in keys], unselected_ids)
        if limited or firsts:
            plan = self.limited(node, plan, keys, clauses, len(outputs))
        if unselected and not clauses.shown:
            plan = nodes.Project(plan, tuple(NamedExpr(self.fresh(), output.ref) for output in outputs))
        return plan, keys

    def conditions(self, clause: exp.Expr | None, scope: QueryScope, owners: Mapping[int, int]) -> list[Expr]:
        """Return the conditions of a clause."""
        if clause is None:
            return []
        (inner,) = read(clause, "this")
        return list(conjuncts([as_kind(self.value(inner, scope), Kind.BOOLEAN)], owners))

    # -- groups ----------------------------------------------------------------------------------------------------

    def keys(self, group: exp.Expr | None, values: Sequence[Expr], scope: QueryScope) -> tuple[list[Expr], list[list[Expr]]]:
        """Return the keys of ``GROUP BY``, and the sets of them."""
        if group is None:
            return [], [[]]
        every = group.args.get("all")
        (parts,) = read(group, "all" if every else "expressions")
        if every:
            sets = [list(dict.fromkeys(value for value in values if not _special([value], AggregateCall, GroupingCall)))]
        else:
            sets = key_sets(group, listed(parts), lambda part: self.key(part, values, scope))
        keys = list(dict.fromkeys(key for chosen in sets for key in chosen))
        self.refuse_special(keys)
        return keys, sets

    def key(self, node: exp.Expr, values: Sequence[Expr], scope: QueryScope) -> Expr:
        """Return a key, of which numbers are selected columns."""
        number = column_number(node)
        if number is None:
            return self.value(node, scope)
        if number > len(values):
            raise _no_place(node, len(values))
        return values[number - 1]

    def grouped(
        self, plan: QueryPlan, keys: Sequence[Expr], sets: Sequence[Sequence[Expr]], aggregates: Sequence[Expr]
    ) -> tuple[QueryPlan, dict[Expr, Expr]]:
        """Return the groups, and which column each key and aggregate becomes; a key that is a column keeps its number."""
        own = {ref.id for ref in plan.columns}
        named = [NamedExpr(key.id if isinstance(key, Ref) and key.id in own else self.fresh(), key) for key in keys]
        place_of = {key: place for place, key in enumerate(keys)}
        columns: dict[Expr, Expr] = {part.value: part.ref for part in named}
        calls: list[NamedExpr] = []
        groupings: list[Grouping] = []
        for part in aggregates:
            if isinstance(part, AggregateCall):
                self.refuse_special(part.parts)
                ids = ids_in(*part.parts)
                if ids and ids.isdisjoint(own):
                    raise PlacedError("an aggregate of columns from outside belongs to the query around this one", part.at)
                calls.append(NamedExpr(self.fresh(), part))
                if isinstance(part.form, Whole) and part.form.order is None:
                    raise PlacedError(f"{part.name} needs ORDER BY inside, as in {part.name}(value ORDER BY column)", part.at)
                columns[part] = calls[-1].ref
            elif isinstance(part, GroupingCall):
                if not all(key in place_of for key in part.keys):
                    raise PlacedError("GROUPING takes keys of GROUP BY", part.at)
                groupings.append(Grouping(self.fresh(), tuple(place_of[key] for key in part.keys)))
                columns[part] = Ref(Kind.INTEGER, groupings[-1].id)
        places = tuple(tuple(place_of[key] for key in dict.fromkeys(chosen)) for chosen in sets)
        return nodes.GroupRows(plan, tuple(named), places, tuple(calls), tuple(groupings)), columns

    def refuse_columns(self, values: Sequence[Expr], hidden: set[int]) -> None:
        """Refuse columns that are not there: of ``FROM`` beside groups, or beside distinct rows."""
        for part in parts_in(values):
            if not hidden.isdisjoint({part.id} if isinstance(part, Ref) else part.outer):
                raise PlacedError("no such column here; next to aggregates it must stand in GROUP BY", part.at)

    def refuse_special(self, values: Sequence[Expr]) -> None:
        """Refuse aggregates and the like where no groups, windows or lists are."""
        for part in parts_in(values):
            why = _MISPLACED.get(type(part))
            if why is not None:
                raise PlacedError(why, part.at)

    def named_first(self, node: exp.Select, having: exp.Expr, keys: set[Expr], scope: QueryScope) -> set[int]:
        """Return the names of ``HAVING`` that mean selected columns before those of ``FROM``: outside of aggregates and keys."""
        first: set[int] = set()
        part: Any
        for column in columns_of(having) if scope.aliases else ():
            name = lower_case(column.name)
            if column.table or name not in scope.aliases or not scope.sources(name):
                continue
            part = column.parent
            while not isinstance(part, exp.Query) and not is_aggregate(part):
                part = part.parent
            if part is not node:
                continue
            part = column
            while part is not having and not isinstance(part, exp.Query) and not self._is_key(part, keys, scope):
                part = part.parent
            if part is having or isinstance(part, exp.Query):
                first.add(id(column))
        return first

    def _is_key(self, node: exp.Expr, keys: set[Expr], scope: QueryScope) -> bool:
        try:
            return self.value(node, scope) in keys
        except SqlError:
            return False

    # -- selected columns ------------------------------------------------------------------------------------------

    def outputs(self, node: exp.Select, expressions: Sequence[exp.Expr], scope: QueryScope) -> _Selected:
        """Return the selected columns."""
        if not expressions:
            raise refusal(node, "SELECT needs columns")
        selected = _Selected()
        for written in expressions:
            output = bare(written)  # in SELECT DISTINCT (a) the brackets mean nothing
            star = star_of(output)
            if star is not None:
                self.star(output, star, scope, selected)
                continue
            name = lower_case(output.output_name) or str(lower_case(text_of(output)))  # the parser spells it MAX(userId)
            inner, alias = read(output, "this", "alias") if isinstance(output, exp.Alias) else (output, None)
            value = self.value(inner, scope)
            aliased = alias is not None or (isinstance(output, exp.Subquery) and output.args.get("alias"))
            if isinstance(inner, exp.Column) and not aliased:
                name = scope.spelled(name, value)
            selected.add(name if alias is None else name_in(alias), value, scope if aliased else None)
        return selected

    def star(self, output: exp.Expr, star: exp.Star, scope: QueryScope, selected: _Selected) -> None:
        """Add the columns of ``*`` or ``t.*``, without those of ``EXCLUDE``, and with those of ``REPLACE`` and ``RENAME``."""
        table = ""
        if isinstance(output, exp.Column):
            written = read(output, "this", "table")[1]
            table = "" if written is None else name_in(written)
        items = [item for item in scope.items if item.name == table] if table else scope.items
        if not items:
            raise scope.no_table(output, table) if table else refusal(output, "* has no columns here")
        columns = [(name, items[0]) for name in items[0].columns] if table else scope.columns()
        changes: dict[str, tuple[str, Any]] = {}
        for clause, parts in zip(("except_", "replace", "rename"), read(star, "except_", "replace", "rename")):
            for part in listed(parts):
                column = part.this if clause == "rename" else part.args["alias"] if clause == "replace" else part
                name = name_in(read(column, "this", "table")[0] if isinstance(column, exp.Column) else column)
                sources = [source for other, source in columns if other == name and _is_of(source, column)]
                if not sources or name in changes:
                    why = "there is no other column of this name in *" if sources else "* has no column of this name"
                    raise refusal(column, why)
                if clause != "except_":
                    scope.only(sources, name, column)
                changes[name] = clause, part
        for name, source in columns:
            clause, part = changes.get(name, ("", None))
            if clause == "except_" and _is_of(source, part):
                continue
            column = attrs.evolve(source.value(name), at=output)
            value = self.value(read(part, "this", "alias")[0], scope) if clause == "replace" else column
            name = name_in(part.args["alias"]) if clause == "rename" else name
            selected.add(name, value, scope if clause in ("replace", "rename") else None)

    # -- orders ----------------------------------------------------------------------------------------------------

    def orders(self, parts: Sequence[exp.Expr], scope: QueryScope, selected: _Selected) -> list[tuple[exp.Expr, Expr | int]]:
        """Return what is ordered by: expressions, or places of selected columns; ``ALL`` is every column."""
        orders: list[tuple[exp.Expr, Expr | int]] = []
        for part in parts:
            if isinstance(part.this, exp.Var) and part.this.name.upper() == "ALL":
                orders += [(part, place) for place in range(len(selected.names))]
            else:
                orders.append((part, self.ordered(part.this, scope, selected)))
        return orders

    def ordered(self, node: exp.Expr, scope: QueryScope, selected: _Selected) -> Expr | int:
        """Return what is ordered by: a number or a name that stands alone is a selected column, if there is one."""
        part, place, names = node.unnest(), column_number(node), selected.names
        if place is not None:
            if place > len(names):
                raise _no_place(node, len(names))
            return place - 1
        if isinstance(part, exp.Column) and not part.table:
            name = lower_case(part.name)
            if name in selected.places:
                return selected.places[name]
            if name in names and len(scope.sources(name)) != 1:
                return names.index(name)
        return self.value(node, scope)

    # -- expressions -----------------------------------------------------------------------------------------------

    def value(self, node: Any, scope: QueryScope) -> Expr:
        """Return an expression; aggregates and window functions of it are those of the query that it stands in."""
        if node is None:
            raise SqlError("something is missing in it")
        try:
            if is_aggregate(node):
                return aggregated(self, node, scope)
            if is_now(node):
                return self.now(node)
            return windowed(self, node, scope) if isinstance(node, exp.Window) else scalar(self, node, scope)
        except SqlError as error:
            raise placed(error, node) from None

    def now(self, node: exp.Expr) -> Expr:
        """Return ``now()``, which is in the table of this name."""
        rows = self.tables.get("now")
        if read(node, "this", "expressions")[1] or rows is None or len(rows.kinds) != 1:
            why = "this is not supported here: its value changes while the data does not, so no view can keep it, unless there is"
            raise refusal(node, f"{why} a table now of one column and one row, whose moment the program advances")
        self.reads_now = True
        return nodes.Now(rows.kinds[0], at=node)

    def plain_value(self, node: exp.Expr, scope: QueryScope) -> Expr:
        """Return an expression without aggregates, window functions and ``unnest``."""
        value = self.value(node, scope)
        self.refuse_special([value])
        return value


_MISPLACED: Final[dict[type[Expr], str]] = {
    AggregateCall: "an aggregate cannot stand here: HAVING has conditions on it",
    WindowCall: "a window function cannot stand here: QUALIFY has conditions on it",
    Element: "this is not supported here: UNNEST stands in FROM, or among the selected columns",
    GroupingCall: "GROUPING stands beside GROUP BY",
}


def _special(values: Sequence[Expr], *kinds: type[Expr]) -> list[Expr]:
    """Return the parts of some kinds in expressions, each once; not those in others of these kinds."""
    special: dict[Expr, None] = {}
    left = list(values)[::-1]
    while left:
        part = left.pop()
        if isinstance(part, kinds):
            special[part] = None
        else:
            left += part.parts[::-1]
    return list(special)


def _whole(clause: exp.Expr | None, name: str) -> int | None:
    """Return the number of ``LIMIT`` or ``OFFSET``."""
    if clause is None:
        return None
    value = bare(read(clause, "expression")[0])
    if not isinstance(value, exp.Literal) or not str(value.this).isdigit():
        raise refusal(clause, f"{name} takes a literal whole number")
    return int(str(value.this))


def _is_of(source: Any, column: exp.Expr) -> bool:
    """Return whether a column of ``*`` may be that which ``EXCLUDE`` and the like name."""
    table = lower_case(column.text("table"))
    return not table or (isinstance(source, FromItem) and source.name == table)


def _no_place(node: exp.Expr, width: int) -> SqlError:
    return refusal(node, f"there are only {width} columns")
