"""Expressions of classic sessions: Spark resolves names and inserts casts, and its analysed plan is read here."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType

from timely.graphs.graphframes.expression_types import PlanNode, nullable, refused
from timely.graphs.graphframes.pregel.expression_kernels import AGGREGATES
from timely.spark.versions import parsed_type, sum_is_checked


class JvmPlan:
    """Reads one column over ``frame``, or of the groups of ``frame`` by ``key``."""

    def __init__(self, frame: DataFrame, column: Column, key: str | None = None) -> None:
        self._column = column
        named = column.alias("value")
        chosen: Any = frame.select(named) if key is None else frame.groupBy(key).agg(named)
        expressions = chosen._jdf.queryExecution().analyzed().expressions()
        self.root: Any = expressions.apply(expressions.size() - 1)

    def read(self, node: Any) -> PlanNode:
        """Return an expression of Java's as a part of the plan."""
        function = node.getClass().getSimpleName()
        children = _children(node)
        if function in ("Alias", "Nvl"):
            return self.read(children[0])
        if function == "AttributeReference":
            return PlanNode("Attribute", _type(node), value=node.name())
        if function == "Literal":
            value = node.value()
            plain = value is None or isinstance(value, bool | int | float)
            return PlanNode(function, _type(node), value=value if plain else value.toString())
        if function == "GetStructField":
            fields: Any = _type(children[0])
            return PlanNode(function, _type(node), children, value=fields.names[node.ordinal()])
        if function == "AggregateExpression":
            aggregate, distinct = children[0], node.isDistinct() or node.filter().isDefined()
            function, node, children = aggregate.getClass().getSimpleName(), aggregate, _children(aggregate)
            if distinct or len(children) != 1 or function not in AGGREGATES:
                raise refused(self._column, f"has the aggregate {node.sql()}")
        elif function == "CreateNamedStruct":
            children = children[1::2]
        return PlanNode(function, _type(node), children, str(node.sql()), self._checked(function, node))

    def _checked(self, function: str, node: Any) -> bool:
        if function in ("Abs", "UnaryMinus"):
            return bool(node.failOnError())
        if function in ("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "Cast"):
            mode = str(node.evalMode())
            if mode == "TRY" and function != "Cast":
                raise refused(self._column, f"has {node.sql()}, which has no result where others raise")
            return mode == "ANSI"
        return function != "Sum" or sum_is_checked(node)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def _type(node: Any) -> DataType:
    return _parsed(node.dataType().sql())


@lru_cache(1024)
def _parsed(text: str) -> DataType:
    return nullable(parsed_type(text))
