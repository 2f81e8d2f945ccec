"""Bound expressions, compiled to Python functions of a row.

Conditions have three values: true, false, and ``None`` for unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from timely.differential.tables.expressions.bound import Call, Expr, Literal, Ref
from timely.differential.tables.values.kinds import Column, Kind
from timely.errors import SqlError

Row = tuple[Any, ...]
Function = Callable[[Row], Any]


@attrs.frozen
class Scalar:
    """A compiled expression: its kind, whether it may be ``None``, and the function of a row; a constant reads no row."""

    kind: Kind
    nullable: bool
    function: Function
    constant: bool = False


@attrs.frozen
class RowScope:
    """What expressions are compiled against: the columns of a row, and at which place each number of a column stands."""

    columns: tuple[Column, ...]
    places: Mapping[int, int]


def compile_scalar(expression: Expr, scope: RowScope) -> Scalar:
    """Return an expression as a function of rows."""
    if isinstance(expression, Ref):
        place = scope.places[expression.id]
        return Scalar(expression.kind, scope.columns[place].nullable, lambda row: row[place])
    if isinstance(expression, Literal):
        return _constant(expression.kind, expression.value)
    if isinstance(expression, Call):
        return _called(expression, scope)
    raise AssertionError(f"no function of a row: {expression}")


def _constant(kind: Kind, value: Any) -> Scalar:
    return Scalar(kind, value is None, lambda row: value, True)


def _called(call: Call, scope: RowScope) -> Scalar:
    overload = call.overload
    arguments: list[Scalar] = []
    for place, (argument, kind) in enumerate(zip(call.arguments, overload.kinds)):
        if kind is not None:
            compiled = compile_scalar(argument, scope)
            prepare = call.prepared.get(place)
            arguments.append(compiled if prepare is None else _made(strict(prepare, compiled.function), compiled, [compiled]))
    functions = [argument.function for argument in arguments]
    if overload.sees == "functions":
        function: Function = overload.f(*functions)
    elif overload.sees == "nulls" or not functions:
        f = overload.f
        function = lambda row: f(*[part(row) for part in functions])  # noqa: E731
    else:
        function = strict(overload.f, *functions)
    nullable = overload.nullable([argument.nullable for argument in arguments])
    return _made(function, Scalar(overload.result, nullable, function), arguments)


def _made(function: Function, scalar: Scalar, arguments: list[Scalar]) -> Scalar:
    """Return a compiled function, whose value is computed at once where all arguments are constants, unless it has none."""
    if all(argument.constant for argument in arguments):
        try:
            value = function(())
            return Scalar(scalar.kind, scalar.nullable, lambda row: value, True)
        except SqlError:
            pass  # a row may never ask for it
    return attrs.evolve(scalar, function=function, constant=False)


def strict(f: Callable[..., Any], *arguments: Function) -> Function:
    """Return the function of a row that applies ``f``, and is ``None`` where an argument is."""
    if len(arguments) == 1:
        (one,) = arguments

        def unary(row: Row) -> Any:
            value = one(row)
            return None if value is None else f(value)

        return unary
    if len(arguments) == 2:
        left, right = arguments

        def binary(row: Row) -> Any:
            value = left(row)
            if value is None:
                return None
            other = right(row)
            return None if other is None else f(value, other)

        return binary

    def several(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        return None if None in values else f(*values)

    return several
