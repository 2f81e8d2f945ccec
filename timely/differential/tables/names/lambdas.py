"""Functions of a list and a lambda, ``list_transform(xs, lambda x: x + y)``, and comprehensions, which are made of them.

The parameters of a lambda are names of a scope of its own. The columns that it reads beside them are arguments of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlglot import exp

from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref, has_query, parts_in
from timely.differential.tables.expressions.calls import as_kind
from timely.differential.tables.expressions.scalar_compiler import RowScope, compile_scalar
from timely.differential.tables.names.name_scopes import FromItem, NameBinder, QueryScope
from timely.differential.tables.names.reader import listed, name_in, read
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.values.kinds import Column, Kind, common, list_of
from timely.differential.tables.values.overloads import Overload
from timely.errors import SqlError

LAMBDAS: Final = {
    **dict.fromkeys(("list_transform", "array_transform", "list_apply", "array_apply", "apply"), "transform"),
    **dict.fromkeys(("list_filter", "array_filter", "filter"), "filter"),
    **dict.fromkeys(("list_reduce", "array_reduce", "reduce"), "reduce"),
}
"""What functions do with a list, by their names."""

_Body = Callable[..., Any]


def with_lambda(binder: NameBinder, what: str, parts: Sequence[exp.Expr], node: exp.Expr, scope: QueryScope) -> Expr:
    """Return a call of a function of a list and a lambda; a third argument of ``reduce`` is what it begins with."""
    if not 2 <= len(parts) <= (3 if what == "reduce" else 2) or not isinstance(parts[1], exp.Lambda):
        raise refusal(node, "it takes a list and a lambda, such as lambda x: x + 1")
    values, initial = binder.value(parts[0], scope), binder.value(parts[2], scope) if len(parts) > 2 else None
    inner, names, _ = read(parts[1], "this", "expressions", "colon")
    return _over(binder, what, (values, initial), inner, listed(names), node, scope)


def comprehension(binder: NameBinder, node: exp.Comprehension, scope: QueryScope) -> Expr:
    """Return ``[f(x) for x in xs if p(x)]``; ``x, i`` has the numbers of elements too."""
    inner, name, values, condition, number = read(node, "this", "expression", "iterator", "condition", "position")
    made, names = binder.value(values, scope), [name, *listed(number)]
    if condition is not None:
        if len(names) > 1:
            raise refusal(node, "a condition comes without numbers of elements: write list_filter(xs, lambda x, i: i > 1)")
        made = _over(binder, "filter", (made, None), condition, names, node, scope)
    return _over(binder, "transform", (made, None), inner, names, node, scope)


def _over(
    binder: NameBinder,
    what: str,
    lists: tuple[Expr, Expr | None],
    inner: exp.Expr,
    names: Sequence[exp.Expr],
    node: exp.Expr,
    scope: QueryScope,
) -> Expr:
    values, initial = lists
    element = values.kind.element
    if element is None:
        raise refusal(node, f"it takes a list, and here is {values.kind.value}")
    fewest, own = 2 if what == "reduce" else 1, [name_in(name) for name in names]
    if not fewest <= len(own) <= fewest + 1 or len(set(own)) < len(own):
        raise refusal(node, f"its lambda has {fewest} different parameters, or one more, for the number of the element")
    grown = element if initial is None else common(initial.kind, element)
    if initial is not None and grown is None:
        raise refusal(node, f"it begins with {initial.kind.value}, and the elements are {element.value}: cast one")
    kinds: list[Kind | None] = [element, Kind.INTEGER] if what != "reduce" else [grown, element, Kind.INTEGER]

    def bound() -> tuple[list[Ref], Expr]:
        refs = [Ref(kind or element, binder.fresh()) for kind in kinds[: len(own)]]
        around = QueryScope(scope, scope.tables, items=[FromItem("lambda", dict(zip(own, refs)))])
        return refs, binder.plain_value(inner, around)

    refs, body = bound()
    if what == "reduce" and body.kind is not grown:
        kinds[0] = grown = common(body.kind, grown or element)
        refs, body = bound()
    if what == "filter":
        body = as_kind(body, Kind.BOOLEAN)
    elif what == "reduce":
        if grown is None:
            raise refusal(node, f"what it makes, {body.kind.value}, is no element of the list: cast it")
        body = as_kind(body, grown)
    if has_query(body) or not all(isinstance(part, Ref | Literal | Call) for part in parts_in([body])):
        raise refusal(node, "a lambda has no subqueries, and no now()")
    read_beside = [part for part in dict.fromkeys(parts_in([body])) if isinstance(part, Ref) and part not in refs]
    columns = [*read_beside, *refs]
    row = RowScope(tuple(Column("", ref.kind) for ref in columns), {ref.id: place for place, ref in enumerate(columns)})
    function = compile_scalar(body, row).function
    first = [] if initial is None else [as_kind(initial, grown or element)]
    arguments = (values, *first, *read_beside)
    result = {"transform": list_of(body.kind), "filter": values.kind}.get(what) or grown or element
    places = len(own) > fewest

    def of_values(elements: Any, *others: Any) -> Any:
        if elements is None:
            return None
        beside, begin = others[len(first) :], others[: len(first)]
        return _MADE[what](elements, begin, lambda number, *parts: function((*beside, *parts, *([number] if places else []))))

    made = Overload(tuple(part.kind for part in arguments), result, of_values, lambda nullables: True, "nulls")
    text = f"{what}({', '.join(own)}: {inner.sql(dialect='duckdb', comments=False)})"  # which is another call for another lambda
    return Call(result, text, arguments, made, at=node)


def _transformed(elements: Sequence[Any], begin: Sequence[Any], body: _Body) -> Any:
    return tuple(body(number, value) for number, value in enumerate(elements, 1))


def _filtered(elements: Sequence[Any], begin: Sequence[Any], body: _Body) -> Any:
    return tuple(value for number, value in enumerate(elements, 1) if body(number, value))


def _reduced(elements: Sequence[Any], begin: Sequence[Any], body: _Body) -> Any:
    if not elements and not begin:
        raise SqlError("list_reduce of an empty list needs what it begins with, as a third argument")
    made, *left = (*begin, *elements)
    for number, value in enumerate(left, 1 if begin else 2):
        made = body(number, made, value)
    return made


_MADE: Final = {"transform": _transformed, "filter": _filtered, "reduce": _reduced}
