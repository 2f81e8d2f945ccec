"""Rules of types and expressions: what each node of the parser is as a bound expression. What has no rule is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple

from sqlglot import exp, maybe_parse

from timely.differential.tables.expressions.bound import (
    Call,
    Element,
    Expr,
    Literal,
    Membership,
    NamedExpr,
    ScalarQuery,
    has_query,
)
from timely.differential.tables.expressions.calls import as_kind, call, checked
from timely.differential.tables.names.dialect import WRITTEN
from timely.differential.tables.names.hints import CLOCKS, TYPE_HINTS, of_function
from timely.differential.tables.names.lambdas import LAMBDAS, comprehension, with_lambda
from timely.differential.tables.names.name_scopes import NameBinder, QueryScope, TableRows
from timely.differential.tables.names.reader import identifier, listed, name_in, read
from timely.differential.tables.names.refusals import refusal
from timely.differential.tables.operators.aggregations import AGGREGATES
from timely.differential.tables.operators.grouping_sets import GroupingCall
from timely.differential.tables.plan.nodes import Project, free
from timely.differential.tables.values import moment_functions as moments
from timely.differential.tables.values import parsing
from timely.differential.tables.values.functions import FUNCTIONS, cast_of, tried
from timely.differential.tables.values.kinds import (
    Conversion,
    Kind,
    by_field,
    decimal,
    each,
    list_of,
    map_of,
    rounded,
    struct_of,
    within,
)
from timely.differential.tables.values.overloads import NO_LENGTH, Overload
from timely.errors import SqlError, did_you_mean

# -- types ---------------------------------------------------------------------------------------------------------


class SqlType(NamedTuple):
    """A type: its kind, what checks that a value fits it, and how it is written."""

    kind: Kind
    narrow: Conversion | None
    text: str
    digits: int | None = None
    """Of a decimal."""


def type_of(target: exp.Expr, node: exp.Expr) -> SqlType:
    """Return what a type is."""
    if target.this == _TYPE.USERDEFINED:
        raise _no_type(target, node)
    name, arguments = read(target, "this", "expressions")
    parts = listed(arguments)
    if name == _TYPE.DECIMAL:
        digits, scale = _decimal_sizes(parts, node)
        return SqlType(decimal(scale), rounded(digits, scale), f"DECIMAL({digits}, {scale})", digits)
    if name in (_TYPE.ARRAY, _TYPE.LIST) and len(parts) == 1:
        element = type_of(parts[0], node)
        narrow = None if element.narrow is None else each(element.narrow)
        return SqlType(list_of(element.kind), narrow, f"{element.text}[]")
    if name == _TYPE.MAP and len(parts) == 2:
        key, value = (type_of(part, node) for part in parts)
        entries = each(by_field([key.narrow, value.narrow]))
        return SqlType(map_of(key.kind, value.kind), entries, f"MAP({key.text}, {value.text})")
    if name == _TYPE.STRUCT and parts and all(isinstance(part, exp.ColumnDef) for part in parts):
        named = [read(part, "this", "kind") for part in parts]
        fields = [(name_in(name), type_of(kind, node)) for name, kind in named]
        struct = struct_of(tuple((field, of_field.kind) for field, of_field in fields))
        text = ", ".join(f"{field} {of_field.text}" for field, of_field in fields)
        return SqlType(struct, by_field([of_field.narrow for _, of_field in fields]), f"STRUCT({text})")
    if parts and not (name in (_TYPE.VARCHAR, _TYPE.TEXT) and len(parts) == 1 and identifier(parts[0]).isdecimal()):
        raise refusal(node, "this type has no parameters here")
    if name in exp.DataType.INTEGER_TYPES and name in _BITS:
        return SqlType(Kind.INTEGER, within(*_BITS[name]), name.value)
    if name in _KINDS:
        return SqlType(_KINDS[name], None, name.value)
    raise _no_type(target, node)


def _no_type(target: exp.Expr, node: exp.Expr) -> SqlError:
    name = target.sql(dialect="duckdb")
    instead = TYPE_HINTS.get(name.lower().partition("(")[0])
    near = did_you_mean(name.lower(), (known.value.lower() for known in (*_BITS, *_KINDS)))
    return refusal(node, f"there is no type {name} here{f'; write {instead}' if instead else near}")


def _decimal_sizes(parts: list[exp.Expr], node: exp.Expr) -> tuple[int, int]:
    """Return the digits of a type ``DECIMAL``, and how many of them are behind the point."""
    written = [identifier(part) for part in parts]
    if len(written) > 2 or not all(part.isdecimal() and len(part) < 3 for part in written):
        raise refusal(node, "DECIMAL takes two whole numbers: how many digits it has, and how many of them behind the point")
    digits, scale = [int(part) for part in (*written, "0")][:2] if written else (18, 3)
    if not 1 <= digits <= 38 or scale >= digits:  # the text of one that is all behind the point has no zero before it
        raise refusal(node, "DECIMAL has 1 to 38 digits, of which one at least is before the point: DECIMAL(4, 3)")
    return digits, scale


_TYPE = exp.DataType.Type
_BITS: Final = dict(
    [
        *((_TYPE.TINYINT, (8, True)), (_TYPE.SMALLINT, (16, True)), (_TYPE.INT, (32, True)), (_TYPE.BIGINT, (64, True))),
        *((_TYPE.UTINYINT, (8, False)), (_TYPE.USMALLINT, (16, False)), (_TYPE.UINT, (32, False)), (_TYPE.UBIGINT, (64, False))),
        (_TYPE.INT128, (128, True)),
    ]
)
_KINDS: Final = {
    **dict.fromkeys((_TYPE.TEXT, _TYPE.VARCHAR), Kind.TEXT),
    **dict.fromkeys((_TYPE.TIMESTAMP, _TYPE.TIMESTAMPNTZ), Kind.TIMESTAMP),
    **dict.fromkeys((_TYPE.VARBINARY, _TYPE.BINARY), Kind.BLOB),
    _TYPE.BOOLEAN: Kind.BOOLEAN,
    _TYPE.JSON: Kind.JSON,
    _TYPE.UUID: Kind.UUID,
    _TYPE.FLOAT: Kind.REAL,
    _TYPE.DOUBLE: Kind.DOUBLE,
    _TYPE.DATE: Kind.DATE,
    _TYPE.TIME: Kind.TIME,
    _TYPE.TIMESTAMPTZ: Kind.INSTANT,
}


Rule = Callable[[NameBinder, Any, QueryScope], Expr]


def argument(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Expr:
    """Return an argument of a call, which may be an interval of months: functions of moments take it."""
    inner = node
    while isinstance(inner, exp.Paren):
        (inner,) = read(inner, "this")
    return _any_interval(binder, inner, scope) if isinstance(inner, exp.Interval) else binder.value(node, scope)


def arguments(binder: NameBinder, nodes: Sequence[exp.Expr], scope: QueryScope) -> list[Expr]:
    """Return the arguments of a call."""
    return [argument(binder, node, scope) for node in nodes]


# -- literals ------------------------------------------------------------------------------------------------------


def _literal(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Expr:
    text, is_string = read(node, "this", "is_string")
    if is_string or not isinstance(node, exp.Literal):
        return Literal(Kind.TEXT, text, text, at=node)
    return number(text, node)


def number(text: str, node: exp.Expr) -> Literal:
    """Return the number that a literal is."""
    value: Any
    whole, _, fraction = text.partition(".")
    if text.isdecimal():
        kind, value = Kind.INTEGER, parsing.integer_of(text)
        if value >= 1 << 127:
            raise refusal(node, "whole numbers have up to 128 bits: write it with a point or an exponent")
    elif "e" in text.lower() or len(whole) + len(fraction) > 38:
        kind, value = Kind.DOUBLE, parsing.float_of(text)
    else:
        kind, value = decimal(len(fraction)), parsing.decimal_of(text)
    return Literal(kind, value, at=node)


def _interval(binder: NameBinder, node: exp.Interval, scope: QueryScope) -> Expr:
    interval = _any_interval(binder, node, scope)
    if interval.kind is Kind.MONTHS:
        raise refusal(node, NO_LENGTH)
    return interval


def _any_interval(binder: NameBinder, node: exp.Interval, scope: QueryScope) -> Expr:
    length, unit = read(node, "this", "unit")
    unit = str(unit or "")
    if isinstance(length, exp.Literal):
        text, _ = read(length, "this", "is_string")
        months, delta = checked(lambda text: moments.interval_of(text, unit), text, node)
        return Literal(Kind.MONTHS, (months, delta), at=node) if months else Literal(Kind.INTERVAL, delta, at=node)
    name = moments.unit_of(unit)
    if name is None:
        raise refusal(node, "an interval has a unit: years to microseconds")
    factor, step = moments.UNITS[name]
    count = as_kind(binder.value(length, scope), Kind.INTEGER)
    if factor:
        made = Overload((Kind.INTEGER,), Kind.MONTHS, lambda number: (number * factor, timedelta()))
    else:
        made = Overload((Kind.INTEGER,), Kind.INTERVAL, lambda number: moments.duration(number * step))
    return Call(made.result, f"interval of {name}", (count,), made, at=node)


# -- casts ---------------------------------------------------------------------------------------------------------


def _cast(binder: NameBinder, node: exp.Cast, scope: QueryScope) -> Expr:
    inner, target = read(node, "this", "to")
    value, of_type = binder.value(inner, scope), type_of(target, node)
    cast = cast_of(value.kind, of_type.kind, of_type.narrow)
    if isinstance(node, exp.TryCast):
        return Call(cast.result, f"try_cast to {of_type.text}", (value,), tried(cast), at=node)
    if isinstance(value, Literal) and value.text is not None:
        checked(cast.f, value.text, value.at)
    return Call(cast.result, f"cast to {of_type.text}", (value,), cast, at=node)


# -- names ---------------------------------------------------------------------------------------------------------


def _column(binder: NameBinder, node: exp.Column, scope: QueryScope) -> Expr:
    parts = [part for part in read(node, "catalog", "db", "table", "this") if part is not None]
    if isinstance(parts[-1], exp.Star):
        raise refusal(node, "this is not supported here")
    return scope.column(node, [identifier(part) for part in parts])


def _dot(binder: NameBinder, node: exp.Dot, scope: QueryScope) -> Expr:
    value, field = read(node, "this", "expression")
    name, struct = identifier(field), binder.value(value, scope)
    if struct.kind is Kind.JSON:
        return _member(struct, name, field, node)
    return call("struct_extract", [struct, Literal(Kind.TEXT, name, name, at=field)], node)


def _member(value: Expr, name: str, at: exp.Expr, node: exp.Expr) -> Expr:
    """Return what JSON has under a name, which is no path."""
    path = f'$."{name}"'
    return call("->", [value, Literal(Kind.TEXT, path, path, at=at)], node)


# -- what the parser has syntax for --------------------------------------------------------------------------------


def _is(binder: NameBinder, node: exp.Is, scope: QueryScope) -> Expr:
    value, what = read(node, "this", "expression")
    if isinstance(what, exp.Null):
        return call("is null", [binder.value(value, scope)], node)
    if isinstance(what, exp.Boolean):
        (truth,) = read(what, "this")
        return call("is true" if truth else "is false", [binder.value(value, scope)], node)
    raise refusal(node, "IS is supported with NULL, TRUE and FALSE")


def _between(binder: NameBinder, node: exp.Between, scope: QueryScope) -> Expr:
    value, low, high = arguments(binder, read(node, "this", "low", "high"), scope)
    return call("and", [call(">=", [value, low], node), call("<=", [value, high], node)], node)


def _like(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Expr:
    inner, escapes = node, list[exp.Expr]()
    if isinstance(node, exp.Escape):
        inner, escape = read(node, "this", "expression")
        if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(escape, exp.Literal):
            raise refusal(node, "ESCAPE takes one character, after LIKE")
        escapes = [escape]
    value, pattern, negated = read(inner, "this", "expression", "negate")
    name = "ilike" if isinstance(inner, exp.ILike) else "like"
    name = f"{'not ' if negated else ''}{name}{' escape' if escapes else ''}"
    return call(name, arguments(binder, [value, pattern, *escapes], scope), node)


def _arrow(binder: NameBinder, node: exp.JSONExtract, scope: QueryScope) -> Expr:
    """Return ``j -> path``, which DuckDB reads after all other operators, and the parser before most."""
    around = node.parent
    if isinstance(around, exp.Binary | exp.Predicate | exp.Not) and not isinstance(
        around, exp.JSONExtract | exp.JSONExtractScalar
    ):
        raise refusal(around, "-> beside another operator stands in parentheses: (j -> 'a') = '1'")
    return _operator("->", "this", "expression")(binder, node, scope)


def _case(binder: NameBinder, node: exp.Case, scope: QueryScope) -> Expr:
    operand, branches, default = read(node, "this", "ifs", "default")
    subject = None if operand is None else binder.value(operand, scope)
    parts: list[Expr] = []
    for branch in branches:
        test, result = (binder.value(part, scope) for part in read(branch, "this", "true"))
        parts += [test if subject is None else call("=", [subject, test], branch), result]
    parts.append(Literal(Kind.NULL, None) if default is None else binder.value(default, scope))
    return call("case", parts, node)


def _if(binder: NameBinder, node: exp.If, scope: QueryScope) -> Expr:
    parts = read(node, "this", "true", "false")
    if parts[2] is None:
        raise refusal(node, "if takes a condition and two values")
    return call("case", [binder.value(part, scope) for part in parts], node)


def _extract(binder: NameBinder, node: exp.Extract, scope: QueryScope) -> Expr:
    unit, value = read(node, "this", "expression")
    if not isinstance(unit, exp.Var | exp.Literal):
        raise refusal(unit, "extract takes a unit FROM a value")
    name = str(unit.name or unit)
    return call("date_part", [Literal(Kind.TEXT, name, name, at=unit), argument(binder, value, scope)], node)


def _trim(binder: NameBinder, node: exp.Trim, scope: QueryScope) -> Expr:
    value, position, letters = read(node, "this", "position", "expression")
    position = str(position or "both").upper()
    if position not in _TRIMS:
        raise refusal(node, "trim takes away LEADING, TRAILING or BOTH")
    return call(_TRIMS[position], [binder.value(part, scope) for part in (value, letters) if part is not None], node)


_TRIMS: Final = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}


def _struct(binder: NameBinder, node: exp.Struct, scope: QueryScope) -> Expr:
    (fields,) = read(node, "expressions")
    parts: list[Expr] = []
    for field in listed(fields):
        if not isinstance(field, exp.PropertyEQ):
            raise refusal(node, "the fields of a struct have names")
        name, value = read(field, "this", "expression")
        text = identifier(name)
        parts += [Literal(Kind.TEXT, text, text, at=name), binder.value(value, scope)]
    return call("struct_pack", parts, node)


def _list(binder: NameBinder, node: exp.Array, scope: QueryScope) -> Expr:
    (parts,) = read(node, "expressions")
    if any(isinstance(part, exp.Comprehension) for part in listed(parts)):
        (part,) = parts
        return comprehension(binder, part, scope)
    return call("list_value", arguments(binder, listed(parts), scope), node)


def _map(binder: NameBinder, node: exp.ToMap, scope: QueryScope) -> Expr:
    """Return ``map {key: value}``; the parser puts an index behind it into it."""

    def value_of(inner: exp.Expr) -> Expr:
        if isinstance(inner, exp.Bracket):
            return _indexed(binder, inner, value_of, scope)
        entries = [read(entry, "this", "expression") for entry in listed(read(inner, "expressions")[0])]
        return call("map", [call("list_value", arguments(binder, side, scope), node) for side in zip(*entries)], node)

    return value_of(read(node, "this")[0])


def _bracket(binder: NameBinder, node: exp.Bracket, scope: QueryScope) -> Expr:
    return _indexed(binder, node, lambda value: binder.value(value, scope), scope)


def _indexed(binder: NameBinder, node: exp.Bracket, read_value: Callable[[exp.Expr], Expr], scope: QueryScope) -> Expr:
    value, indices = read(node, "this", "expressions")
    if len(indices) != 1:
        raise refusal(node, "[] takes one number, name, or range")
    (index,), inner = indices, read_value(value)
    if isinstance(index, exp.Slice):
        ends = [
            default if end is None else binder.value(end, scope) for end, default in zip(read(index, "this", "expression"), _ENDS)
        ]
        return call("list_slice", [inner, *ends], node)
    at = binder.value(index, scope)
    if inner.kind is Kind.JSON and isinstance(at, Literal) and at.text is not None:
        number = -1
        with suppress(SqlError):
            number = parsing.integer_of(at.text)
        if number < 0:
            return _member(inner, at.text, index, node)
        at = Literal(Kind.INTEGER, number, at=index)
    if inner.kind is Kind.JSON or inner.kind.entry is not None:
        return call("->" if inner.kind is Kind.JSON else "map_extract_value", [inner, at], node)
    return call("struct_extract" if isinstance(at, Literal) and at.text is not None else "list_extract", [inner, at], node)


_ENDS: Final = (Literal(Kind.INTEGER, 1), Literal(Kind.INTEGER, -1))


def _element(binder: NameBinder, node: exp.Explode, scope: QueryScope) -> Expr:
    (inner,) = read(node, "this")
    values = binder.value(inner, scope)
    return Element(element_of(values, inner), values, at=node)


def element_of(values: Expr, node: exp.Expr) -> Kind:
    """Return the kind of the elements of a list."""
    if values.kind.element is None:
        raise refusal(node, f"UNNEST takes a list, not {values.kind.value}")
    return values.kind.element


def _grouping(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Expr:
    (keys,) = read(node, "expressions")
    return GroupingCall(Kind.INTEGER, tuple(binder.value(key, scope) for key in listed(keys)), at=node)


# -- subqueries ----------------------------------------------------------------------------------------------------


def _scalar_query(binder: NameBinder, node: exp.Subquery, scope: QueryScope) -> Expr:
    plan = binder.subquery(node, scope)
    if len(plan.columns) != 1:
        raise refusal(node, "a scalar subquery has one column")
    error = str(refusal(node, "this subquery has more than one row where it stands for a value"))
    return ScalarQuery(plan.columns[0].kind, plan, frozenset(free(plan)), error=error, at=node)


def _exists(binder: NameBinder, node: exp.Exists, scope: QueryScope) -> Expr:
    (query,) = read(node, "this")
    if not isinstance(query, exp.Query):
        raise refusal(query, "this is not a query")
    return _there_is(binder, query, node, scope)


def _there_is(binder: NameBinder, query: exp.Expr, node: exp.Expr, scope: QueryScope) -> Expr:
    plan = binder.subquery(query, scope, exists=True)
    return Membership(Kind.BOOLEAN, plan, frozenset(free(plan)), (), (), at=node)


def _in(binder: NameBinder, node: exp.In, scope: QueryScope) -> Expr:
    value, options, query = read(node, "this", "expressions", "query")
    if query is not None:
        return _membership(binder, node, value, query, scope)
    return call("in", arguments(binder, [value, *listed(options)], scope), node)


def _compared(name: str) -> Rule:
    """Return the rule of a comparison, also with ``ANY`` or ``ALL`` of the rows of a query, or of the elements of a list."""

    def rule(binder: NameBinder, node: Any, scope: QueryScope) -> Expr:
        one, other = read(node, "this", "expression")
        word = next((word for kind, word in ((exp.Any, "any"), (exp.All, "all")) if isinstance(other, kind)), "")
        inner = _argument_of(other, "ALL") if not word else read(other, "this")[0]
        if inner is None:
            return call(name, arguments(binder, [one, other], scope), node)
        while isinstance(inner, exp.Paren):
            (inner,) = read(inner, "this")
        word = word or "all"
        if not isinstance(inner, exp.Query):
            return call(f"{name} {word}", arguments(binder, [one, inner], scope), node)
        if (name, word) in (("=", "any"), ("<>", "all")):
            return _membership(binder, node, one, inner, scope, negated=word == "all")
        return _quantified(binder, node, name, word, one, inner, scope)

    return rule


def _argument_of(node: exp.Expr, name: str) -> exp.Expr | None:
    """Return what is in ``ALL ((...) UNION (...))`` or the same of ``EXISTS``, which the parser takes for functions."""
    if not isinstance(node, exp.Anonymous) or node.name.upper() != name:
        return None
    parts = read(node, "this", "expressions")[1]
    return parts[0] if len(parts) == 1 else None


def _quantified(
    binder: NameBinder, node: exp.Expr, name: str, word: str, value: exp.Expr, query: exp.Expr, scope: QueryScope
) -> Expr:
    """Return a comparison with all rows of a query, or any, as one with the least and the greatest of them."""
    asked, rows = binder.value(value, scope), binder.subquery(query, scope)
    if len(rows.columns) > 1:
        if len(asked.kind.fields or ()) != len(rows.columns) or name in ("=", "<>"):
            why = "takes a subquery of one column; by <, <=, > and >= also one of as many columns as the row before it"
            raise refusal(query, f"{word.upper()} {why}")
        rows = Project(rows, (NamedExpr(binder.fresh(), call("row", rows.columns, node)),))
    tables = {**scope.tables, "rows": TableRows(("value",), (rows.columns[0].kind,), rows)}
    made: Any = maybe_parse(_SUMMARY, dialect=WRITTEN)
    made.parent = node
    plan = binder.query(made, scope, tables).plan
    summary = ScalarQuery(plan.columns[0].kind, plan, frozenset(free(plan)), at=node)
    part = {field: call("struct_extract", [summary, Literal(Kind.TEXT, field, field)], node) for field, _ in summary.kind.fields}
    of_none = Literal(Kind.BOOLEAN, word == "all")
    extremes = _EXTREMES.get(f"{name.rstrip('=')} {word}", ["least", "greatest"])
    unknown = call("case", [call("<", [part["known"], part["number"]]), Literal(Kind.NULL, None), of_none])
    compared = call("list_value", [part[extreme] for extreme in extremes], node)
    truth = call("and" if word == "all" else "or", [call(f"{name} {word}", [asked, compared], node), unknown])
    return call("case", [call("=", [part["number"], Literal(Kind.INTEGER, 0)]), of_none, truth], node)


_SUMMARY: Final = """select {'least': min(value), 'greatest': max(value), 'known': count(value), 'number': count(*)} from rows"""
_EXTREMES: Final = {"> all": ["greatest"], "< any": ["greatest"], "< all": ["least"], "> any": ["least"]}
"""Of which rows a comparison decides; with equality, of both."""


def _membership(
    binder: NameBinder, node: exp.Expr, value: exp.Expr, query: exp.Expr, scope: QueryScope, *, negated: bool = False
) -> Expr:
    """Return whether values are in the rows of a query, or not."""
    parts = read(value, "expressions")[0] if isinstance(value, exp.Tuple) else [value]
    asked = tuple(binder.value(part, scope) for part in parts)
    if any(map(has_query, asked)):
        raise refusal(node, "a subquery on the left of IN is not supported")
    plan = binder.subquery(query, scope)
    if len(plan.columns) != len(asked):
        raise refusal(node, f"it compares {len(asked)} expressions with a query of {len(plan.columns)} columns")
    equal = tuple(call("=", pair, node) for pair in zip(asked, plan.columns))
    return Membership(Kind.BOOLEAN, plan, frozenset(free(plan)), asked, equal, negated, at=node)


# -- calls ---------------------------------------------------------------------------------------------------------


def _function(binder: NameBinder, node: exp.Anonymous, scope: QueryScope) -> Expr:
    name, parts = read(node, "this", "expressions")
    query, name = _argument_of(node, "EXISTS"), str(name).lower()
    if isinstance(query, exp.Query):
        return _there_is(binder, query, node, scope)
    if name in LAMBDAS and name not in binder.functions:
        return with_lambda(binder, LAMBDAS[name], listed(parts), node, scope)
    if name not in FUNCTIONS and name not in binder.functions:
        if CLOCKS.fullmatch(name):
            raise refusal(node, f"this is not supported here{_CHANGES}")
        known = (*FUNCTIONS, *AGGREGATES, *LAMBDAS, *binder.functions)
        raise refusal(node, f"there is no function {name} here{of_function(name, known)}")
    return call(name, arguments(binder, listed(parts), scope), node, binder.functions)


def _operator(name: str, *names: str) -> Rule:
    def rule(binder: NameBinder, node: Any, scope: QueryScope) -> Expr:
        parts = [part for value in read(node, *names) for part in listed(value)]
        return call(name, arguments(binder, parts, scope), node)

    return rule


_CHANGES: Final = ": its value changes while the data does not, so no view can keep it"


def _advice(node: exp.Expr) -> str:
    if node.key.startswith("current") or isinstance(node, exp.Rand | exp.Uuid):
        return _CHANGES
    if isinstance(node, exp.Unnest):
        return ": UNNEST stands in FROM, or among the selected columns"
    if isinstance(node, exp.Parameter | exp.Placeholder):
        return ": parameters have no values here"
    return ""


def scalar(binder: NameBinder, node: exp.Expr, scope: QueryScope) -> Expr:
    """Return an expression that is no aggregate and no window function; ``SqlError`` for what has no rule."""
    rule = _RULES.get(type(node))
    if rule is None:
        raise refusal(node, f"this is not supported here{_advice(node)}")
    return rule(binder, node, scope)


_BINARY: Final[tuple[tuple[Any, str], ...]] = (
    *((exp.Add, "+"), (exp.Sub, "-"), (exp.Mul, "*"), (exp.Div, "/"), (exp.IntDiv, "//"), (exp.Mod, "%")),
    (exp.Pow, "pow"),
    *((exp.NullSafeEQ, "is not distinct from"), (exp.NullSafeNEQ, "is distinct from"), (exp.And, "and")),
    *((exp.Or, "or"), (exp.DPipe, "||"), (exp.BitwiseAnd, "&"), (exp.BitwiseOr, "|"), (exp.BitwiseXor, "xor")),
    *((exp.BitwiseLeftShift, "<<"), (exp.BitwiseRightShift, ">>")),
    *((exp.ArrayOverlaps, "list_has_any"), (exp.StartsWith, "starts_with"), (exp.SimilarTo, "regexp_full_match")),
    *((exp.RegexpFullMatch, "regexp_full_match"), (exp.RegexpLike, "regexp_matches")),
)

_RULES: Final[dict[Any, Rule]] = {
    **{kind: _operator(name, "this", "expression") for kind, name in _BINARY},
    **dict.fromkeys((exp.Literal, exp.ByteString, exp.RawString), _literal),
    exp.Null: lambda binder, node, scope: Literal(Kind.NULL, None, at=node),
    exp.Boolean: lambda binder, node, scope: Literal(Kind.BOOLEAN, bool(read(node, "this")[0]), at=node),
    exp.Interval: _interval,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Column: _column,
    exp.Identifier: lambda binder, node, scope: scope.column(node, [identifier(node)]),
    exp.Dot: _dot,
    exp.Paren: lambda binder, node, scope: binder.value(read(node, "this")[0], scope),
    exp.Is: _is,
    exp.Between: _between,
    exp.JSONExtract: _arrow,
    exp.JSONExtractScalar: _operator("->>", "this", "expression"),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Case: _case,
    exp.If: _if,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Struct: _struct,
    exp.ToMap: _map,
    exp.Map: _operator("map", "keys", "values"),
    exp.Bracket: _bracket,
    exp.Explode: _element,
    exp.Grouping: _grouping,
    exp.GroupingId: _grouping,
    exp.Subquery: _scalar_query,
    exp.Exists: _exists,
    exp.In: _in,
    **{kind: _compared(name) for kind, name in ((exp.EQ, "="), (exp.NEQ, "<>"), (exp.LT, "<"), (exp.LTE, "<="))},
    **{kind: _compared(name) for kind, name in ((exp.GT, ">"), (exp.GTE, ">="))},
    exp.Anonymous: _function,
    exp.Neg: _operator("-", "this"),
    exp.Abs: _operator("abs", "this"),
    exp.Not: _operator("not", "this"),
    exp.BitwiseNot: _operator("~", "this"),
    exp.Coalesce: _operator("coalesce", "this", "expressions"),
    exp.Array: _list,
    exp.Tuple: _operator("row", "expressions"),
    exp.Substring: _operator("substring", "this", "start", "length"),
    exp.StrPosition: _operator("strpos", "this", "substr"),
    exp.AtTimeZone: _operator("at time zone", "this", "zone"),
}
