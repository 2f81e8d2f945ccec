"""Column expressions of Spark's, compiled to expressions over Arrow tables that workers compute.

The invariant: what workers would not compute as Spark does is refused here, by its name. Classic sessions and those of Connect
differ in the plan that is read.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from timely.graphs.graphframes.expression_plans import (
    ARGUMENTS,
    NUMBERS,
    ConnectPlan,
    JvmPlan,
    PlanNode,
    castable,
    refused,
    type_name,
)
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
from timely.spark.versions import arrow_type


def compiled(frame: DataFrame, column: Column) -> tuple[ColumnExpression, DataType]:
    """Return an expression over the columns of ``frame``, whose names it reads, and its type.

    A field of a struct ``src``, ``dst`` or ``edge`` is read as ``src.name``. ``ConfigurationError`` for a function that workers
    cannot compute.
    """
    _, expression, kind = compiled_aggregate(frame, None, column)
    return expression, kind


def compiled_list(frame: DataFrame, columns: Sequence[Column]) -> tuple[list[ColumnExpression], DataType]:
    """Return several expressions that Spark casts to one type, and this type."""
    expression, kind = compiled(frame, functions_of(frame.sparkSession).array(*columns))
    assert isinstance(expression, FunctionCall)
    return list(expression.arguments), kind.elementType  # type: ignore[attr-defined]


def compiled_aggregate(
    frame: DataFrame, key: str | None, column: Column
) -> tuple[list[ColumnAggregate], ColumnExpression, DataType]:
    """Return aggregates, an expression over ``key`` and their results ``0``, ``1``, ..., and its type."""
    plan = (ConnectPlan if is_connect(frame) else JvmPlan)(frame, column, key)
    compiler = _Compiler(column, plan, FUNCTIONS if key is None else FUNCTIONS | AGGREGATES)
    root = plan.read(plan.root)
    return compiler.aggregates, compiler.compiled(root), root.type


@attrs.frozen(eq=False)
class _Compiler:
    """Compiles one column of the user's, which errors quote."""

    _column: Column
    _plan: ConnectPlan | JvmPlan
    _known: frozenset[str]
    aggregates: list[ColumnAggregate] = attrs.field(factory=list, init=False)

    def compiled(self, node: PlanNode) -> ColumnExpression:
        """Return the expression of a node, and append the aggregates that it has."""
        function = node.function
        if function == "Attribute":
            return ColumnField(node.value)
        if function == "Literal":
            if node.value is not None and type_name(node.type) not in NUMBERS | {"boolean", "string"}:
                raise refused(self._column, f"has a constant of type {node.type.simpleString()}")
            return Constant(node.value, arrow_type(node.type))
        if function not in self._known:
            raise refused(self._column, f"has {node.text}, an expression {function}")
        children = [self._plan.read(argument) for argument in node.arguments]
        if function == "GetStructField":
            return _field(self.compiled(children[0]), node)
        if function == "Cast":
            self._check_cast(node, children[0])
        for child in children:
            if type_name(child.type) not in ARGUMENTS.get(function, {type_name(child.type)}):
                raise refused(self._column, f"has {node.text}, of {child.type.simpleString()}")
        arguments = tuple(map(self.compiled, children))
        if function not in AGGREGATES:
            return FunctionCall(function, arguments, arrow_type(node.type), node.checked or function == "Cast")
        self.aggregates.append(ColumnAggregate(function, arguments[0], arrow_type(node.type), node.checked))
        return ColumnField(str(len(self.aggregates) - 1))

    def _check_cast(self, node: PlanNode, source: PlanNode) -> None:
        same = source.type == node.type
        if not same and not castable(type_name(source.type), type_name(node.type), node.checked):
            raise refused(self._column, f"casts {type_name(source.type)} to {type_name(node.type)}")


def _field(struct: ColumnExpression, node: PlanNode) -> ColumnExpression:
    """Return a field of a struct; that of an end or an edge is a column of the workers' tables."""
    if not isinstance(struct, ColumnField) or struct.name not in ("src", "dst", "edge"):
        return FunctionCall("GetStructField", (struct,), arrow_type(node.type), detail=node.value)
    if struct.name == "edge" and node.value in ("src", "dst"):
        return ColumnField(f"{node.value}.id")
    return ColumnField(f"{struct.name}.{node.value}")
