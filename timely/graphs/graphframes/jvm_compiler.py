"""Column expressions of Spark's, compiled to expressions over Arrow tables that workers compute.

Spark resolves names and inserts casts; what is compiled is its analysed plan. The invariant: what workers would not compute as
Spark does is refused here, by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from timely.errors import ConfigurationError
from timely.graphs.graphframes.connect_compiler import ConnectCompiler
from timely.graphs.graphframes.expression_types import ARGUMENTS, NUMBERS, arrow_type, castable, nullable, type_name
from timely.graphs.graphframes.pregel.expression_kernels import (
    AGGREGATES,
    FUNCTIONS,
    ColumnAggregate,
    ColumnExpression,
    ColumnField,
    Constant,
    FunctionCall,
)
from timely.spark.connect import functions_of, is_connect

_TRANSPARENT: Final = frozenset({"Alias", "Nvl"})
"""Expressions that are what their only child is."""


def compiled(frame: DataFrame, column: Column) -> tuple[ColumnExpression, DataType]:
    """Return an expression over the columns of ``frame``, whose names it reads, and its type.

    A field of a struct ``src``, ``dst`` or ``edge`` is read as ``src.name``. ``ConfigurationError`` for a function that workers
    cannot compute.
    """
    if is_connect(frame):
        return ConnectCompiler(frame, column).compiled()
    chosen = frame.select(column.alias("value"))
    expression = _Compiler(column).compiled(_last_expression(chosen))
    return expression, nullable(chosen.schema["value"].dataType)


def compiled_list(frame: DataFrame, columns: Sequence[Column]) -> tuple[list[ColumnExpression], DataType]:
    """Return several expressions that Spark casts to one type, and this type."""
    expression, kind = compiled(frame, functions_of(frame.sparkSession).array(*columns))
    assert isinstance(expression, FunctionCall)
    return list(expression.arguments), kind.elementType  # type: ignore[attr-defined]


def compiled_aggregate(frame: DataFrame, key: str, column: Column) -> tuple[list[ColumnAggregate], ColumnExpression, DataType]:
    """Return aggregates, an expression over ``key`` and their results ``0``, ``1``, ..., and its type."""
    if is_connect(frame):
        of_groups = ConnectCompiler(frame, column, key)
        expression, kind = of_groups.compiled()
        return of_groups.aggregates, expression, kind
    chosen = frame.groupBy(key).agg(column.alias("value"))
    compiler = _Compiler(column)
    expression = compiler.compiled(_last_expression(chosen))
    return compiler.aggregates, expression, nullable(chosen.schema["value"].dataType)


def _last_expression(frame: DataFrame) -> Any:
    expressions = frame._jdf.queryExecution().analyzed().expressions()
    return expressions.apply(expressions.size() - 1)


class _Compiler:
    """Compiles one column of the user's, which errors quote."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.aggregates: list[ColumnAggregate] = []

    def compiled(self, node: Any) -> ColumnExpression:
        """Return the expression of a node of Spark's plan."""
        kind = node.getClass().getSimpleName()
        children = _children(node)
        if kind in _TRANSPARENT:
            return self.compiled(children[0])
        if kind == "AttributeReference":
            return ColumnField(node.name())
        if kind == "Literal":
            return self._literal(node)
        if kind == "GetStructField":
            return self._field(node, children[0])
        if kind == "AggregateExpression":
            return self._aggregate(node, children)
        if kind not in FUNCTIONS:
            raise self._refused(f"has {_pretty(node)}, an expression {kind}")
        if kind == "Cast" and not self._castable(node, children[0]):
            raise self._refused(f"casts {_type(children[0])} to {_type(node)}")
        self._check_types(kind, node, children)
        if kind == "CreateNamedStruct":
            children = children[1::2]
        arguments = tuple(map(self.compiled, children))
        return FunctionCall(kind, arguments, arrow_type(_spark_type(node)), self._checked(kind, node))

    def _field(self, node: Any, child: Any) -> ColumnExpression:
        name = _spark_type(child).fields[node.ordinal()].name  # type: ignore[attr-defined]
        if child.getClass().getSimpleName() == "AttributeReference" and child.name() in ("src", "dst", "edge"):
            if child.name() == "edge" and name in ("src", "dst"):
                return ColumnField(f"{name}.id")
            return ColumnField(f"{child.name()}.{name}")
        return FunctionCall("GetStructField", (self.compiled(child),), arrow_type(_spark_type(node)), detail=name)

    def _literal(self, node: Any) -> Constant:
        kind = _spark_type(node)
        value = node.value()
        if value is None:
            return Constant(None, arrow_type(kind))
        if _type(node) not in NUMBERS | {"boolean", "string"}:
            raise self._refused(f"has a constant of type {kind.simpleString()}")
        return Constant(value if isinstance(value, bool | int | float) else value.toString(), arrow_type(kind))

    def _aggregate(self, node: Any, children: Sequence[Any]) -> ColumnField:
        function = children[0]
        kind = function.getClass().getSimpleName()
        arguments = _children(function)
        if kind not in AGGREGATES or len(arguments) != 1 or node.isDistinct() or node.filter().isDefined():
            raise self._refused(f"has the aggregate {_pretty(function)}")
        self._check_types(kind, function, arguments)
        checked = self._checked(kind, function)
        self.aggregates.append(ColumnAggregate(kind, self.compiled(arguments[0]), arrow_type(_spark_type(node)), checked))
        return ColumnField(str(len(self.aggregates) - 1))

    def _check_types(self, kind: str, node: Any, children: Sequence[Any]) -> None:
        allowed = ARGUMENTS.get(kind)
        for child in children:
            if allowed is not None and _type(child) not in allowed:
                raise self._refused(f"has {_pretty(node)}, of {_spark_type(child).simpleString()}")

    def _castable(self, node: Any, child: Any) -> bool:
        same = _spark_type(child) == _spark_type(node)
        return same or castable(_type(child), _type(node), str(node.evalMode()) == "ANSI")

    def _checked(self, kind: str, node: Any) -> bool:
        """Return whether Spark raises where a function has no result, instead of null or an overflow."""
        if kind in ("Abs", "UnaryMinus"):
            return bool(node.failOnError())
        if kind in ("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"):
            mode = str(node.evalMode())
            if mode == "TRY":
                raise self._refused(f"has {_pretty(node)}, which has no result where others raise")
            return mode == "ANSI"
        if kind == "Sum":
            return str(node.evalContext().evalMode()) == "ANSI"
        return True

    def _refused(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"pregel: the expression {self._column} {what}, which workers cannot compute as Spark does: use simpler expressions, "
            "or timely.graphs.spark.pregel, whose functions are Python"
        )


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def _pretty(node: Any) -> str:
    return str(node.sql())


def _spark_type(node: Any) -> DataType:
    return _parsed(node.dataType().sql())


@lru_cache(1024)
def _parsed(text: str) -> DataType:
    return nullable(DataType.fromDDL(text))


def _type(node: Any) -> str:
    return type_name(_spark_type(node))
