"""Column expressions of Spark Connect, compiled as :mod:`timely.graphs.graphframes.jvm_compiler` does it for classic ones.

There is no analysed plan to look at. So the server is asked for the type of each part, and casts are inserted by these. The
invariant: a cast is inserted only where Spark's rule is that all arguments get one type, which the server says. Another argument
of another type is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, StringType, StructType

from timely.errors import ConfigurationError
from timely.graphs.graphframes.expression_types import ARGUMENTS, arrow_type, castable, nullable, type_name
from timely.graphs.graphframes.pregel.expression_kernels import (
    ColumnAggregate,
    ColumnExpression,
    ColumnField,
    Constant,
    FunctionCall,
)

_FUNCTIONS: Final = {
    "%": "Remainder",
    "*": "Multiply",
    "+": "Add",
    "-": "Subtract",
    "/": "Divide",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    "<=>": "EqualNullSafe",
    "==": "EqualTo",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "abs": "Abs",
    "and": "And",
    "array": "CreateArray",
    "ceil": "Ceil",
    "ceiling": "Ceil",
    "coalesce": "Coalesce",
    "concat": "Concat",
    "exp": "Exp",
    "floor": "Floor",
    "greatest": "Greatest",
    "ifnull": "Coalesce",
    "in": "In",
    "isnan": "IsNaN",
    "isnotnull": "IsNotNull",
    "isnull": "IsNull",
    "least": "Least",
    "ln": "Log",
    "negative": "UnaryMinus",
    "not": "Not",
    "nvl": "Coalesce",
    "or": "Or",
    "power": "Pow",
    "sqrt": "Sqrt",
    "struct": "CreateNamedStruct",
    "when": "CaseWhen",
}
"""Spark's expressions by the names of its functions."""

_AGGREGATES: Final = {
    "any": "BoolOr",
    "avg": "Average",
    "bool_and": "BoolAnd",
    "bool_or": "BoolOr",
    "collect_list": "CollectList",
    "count": "Count",
    "every": "BoolAnd",
    "max": "Max",
    "mean": "Average",
    "min": "Min",
    "some": "BoolOr",
    "sum": "Sum",
}

_OF_RESULT: Final = frozenset(
    {"Abs", "Add", "CaseWhen", "Coalesce", "Greatest", "Least", "Multiply", "Remainder", "Subtract", "UnaryMinus"}
)
"""Functions whose arguments have the type of the result."""

_OF_DOUBLES: Final = frozenset({"Divide", "Exp", "IsNaN", "Log", "Pow", "Sqrt"})

_COMPARING: Final = frozenset(
    {"EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "LessThan", "LessThanOrEqual"}
)
"""Functions whose arguments have one type, which the result does not say."""

_CHECKED: Final = frozenset({"Abs", "Add", "Divide", "Multiply", "Remainder", "Subtract", "Sum", "UnaryMinus"})
"""Functions that raise in ANSI mode alone."""

_LITERALS: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}

_KINDS: Final = frozenset({"alias", "cast", "literal", "unresolved_attribute", "unresolved_extract_value", "unresolved_function"})

_PART: Final = re.compile(r"`((?:[^`]|``)*)`(?:\.|$)|([^.`]+)(?:\.|$)")


class ConnectCompiler:
    """Compiles one column of the user's over the columns of ``frame``; with ``key`` one of aggregates of groups."""

    def __init__(self, frame: DataFrame, column: Column, key: str | None = None) -> None:
        self._frame = frame
        self._column = column
        self._key = key
        self._ansi = str(frame.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
        self.aggregates: list[ColumnAggregate] = []
        inner: Any = frame
        self._client = inner.sparkSession.client
        node: Any = column
        self._plan = node._expr.to_plan(self._client)
        self._outer: dict[bytes, DataType] = {}
        self._inner: dict[bytes, DataType] = {}

    def compiled(self) -> tuple[ColumnExpression, DataType]:
        """Return the expression, and its type."""
        parts = list(_parts(self._plan))
        for part in parts:
            self._check_known(part)
        if self._key is None:
            self._inner = self._types(self._frame, parts)
            return self._compiled(self._plan, self._inner), self._inner[_id(self._plan)]
        grouped = self._frame.groupBy(self._key)
        above = list(_parts(self._plan, into_aggregates=False))
        within = [part for node in above if _is_aggregate(node) for part in _parts(node) if part is not node]
        self._outer = self._types(grouped, above)
        self._inner = self._types(self._frame, within)
        return self._compiled(self._plan, self._outer), self._outer[_id(self._plan)]

    def _types(self, over: Any, nodes: Sequence[Any]) -> dict[bytes, DataType]:
        """Return the types of expressions over a frame, or over its groups; Spark's error for one that cannot be."""
        nodes = list({_id(node): node for node in nodes}.values())
        if not nodes:
            return {}
        columns = [_column(node).alias(f"timely_{at}") for at, node in enumerate(nodes)]
        chosen = over.select(*columns) if isinstance(over, DataFrame) else over.agg(*columns)
        types = [nullable(field.dataType) for field in chosen.schema][-len(nodes) :]
        return dict(zip(map(_id, nodes), types, strict=True))

    def _compiled(self, node: Any, types: dict[bytes, DataType]) -> ColumnExpression:
        kind = node.WhichOneof("expr_type")
        if kind == "alias":
            return self._compiled(node.alias.expr, types)
        if kind == "unresolved_attribute":
            return self._attribute(_names(node.unresolved_attribute.unparsed_identifier))
        if kind == "literal":
            return self._literal(node.literal)
        if kind == "unresolved_extract_value":
            return self._extracted(node, types)
        if kind == "cast":
            return self._cast(node, types)
        name = node.unresolved_function.function_name.lower()
        if name in _AGGREGATES and types is not self._inner:
            return self._aggregate(node, _AGGREGATES[name])
        if name not in _FUNCTIONS:
            raise self._refused(f"has the aggregate {name} where there are no groups")
        return self._call(_FUNCTIONS[name], node, types)

    def _check_known(self, node: Any) -> None:
        """Refuse what is never compiled, before the server is asked about it."""
        kind = node.WhichOneof("expr_type")
        if kind == "expression_string":
            raise self._refused("is SQL in a string, which only the server reads")
        if kind not in _KINDS:
            raise self._refused(f"has an expression {kind}")
        if kind == "unresolved_function":
            call = node.unresolved_function
            name = call.function_name.lower()
            if name not in _FUNCTIONS.keys() | _AGGREGATES.keys() or call.is_distinct or call.is_user_defined_function:
                raise self._refused(f"has the function {call.function_name}{' distinct' if call.is_distinct else ''}")

    def _call(self, function: str, node: Any, types: dict[bytes, DataType]) -> ColumnExpression:
        arguments, result = list(node.unresolved_function.arguments), types[_id(node)]
        targets = self._targets(function, arguments, result, types)
        for target in targets:
            self._check_type(function, target)
        compiled = tuple(
            self._converted(self._compiled(argument, types), _type_of(argument, types), target)
            for argument, target in zip(arguments, targets, strict=True)
        )
        return FunctionCall(function, compiled, arrow_type(result), self._ansi or function not in _CHECKED)

    def _targets(self, function: str, arguments: Sequence[Any], result: DataType, types: dict[bytes, DataType]) -> list[DataType]:
        """Return the type that each argument has when the function gets it."""
        given = [_type_of(argument, types) for argument in arguments]
        if function == "CaseWhen":
            pairs = len(arguments) // 2 * 2
            return [BooleanType() if at < pairs and at % 2 == 0 else result for at in range(len(arguments))]
        if function in _OF_RESULT:
            return [result] * len(given)
        if function in _OF_DOUBLES:
            return [kind if function == "IsNaN" and type_name(kind) == "float" else DoubleType() for kind in given]
        if function in ("Ceil", "Floor"):
            return [DoubleType() if type_name(kind) in ("float", "double") else result for kind in given]
        if function in ("And", "Or", "Not"):
            return [BooleanType()] * len(given)
        if function == "Concat":
            return [StringType()] * len(given)
        if function == "CreateArray":
            assert isinstance(result, ArrayType)
            return [result.elementType] * len(given)
        if function in _COMPARING:
            return [self._common(arguments, given, types)] * len(given)
        return given

    def _common(self, arguments: Sequence[Any], given: Sequence[DataType], types: dict[bytes, DataType]) -> DataType:
        """Return the type in which values are compared; of different numbers the server says it."""
        kinds = [kind for kind in given if type_name(kind) != "void"] or list(given)
        if all(kind == kinds[0] for kind in kinds):
            return kinds[0]
        from pyspark.sql.connect import proto

        call = proto.Expression.UnresolvedFunction(function_name="coalesce", arguments=arguments)
        both = proto.Expression(unresolved_function=call)
        over = self._frame if types is self._inner else self._frame.groupBy(str(self._key))
        return self._types(over, [both])[_id(both)]

    def _attribute(self, names: Sequence[str]) -> ColumnExpression:
        """Return a column, or a field of one, by its exact name; the server has found it, with or without regard to case."""
        kind: DataType = self._frame.schema
        found: ColumnExpression | None = None
        for at, name in enumerate(names):
            if not isinstance(kind, StructType):
                raise self._refused(f"has a field {name!r} of {kind.simpleString()}")
            exact = name if name in kind.names else next(each for each in kind.names if each.lower() == name.lower())
            kind = nullable(kind[exact].dataType)
            if at == 0:
                found = ColumnField(exact)
            else:
                found = _field(found, exact, kind)
        assert found is not None
        return found

    def _extracted(self, node: Any, types: dict[bytes, DataType]) -> ColumnExpression:
        extract = node.unresolved_extract_value
        outer = _type_of(extract.child, types)
        name = extract.extraction.literal.string if extract.extraction.HasField("literal") else ""
        if not isinstance(outer, StructType) or not name:
            raise self._refused(f"takes a part of {outer.simpleString()}")
        exact = name if name in outer.names else next(each for each in outer.names if each.lower() == name.lower())
        return _field(self._compiled(extract.child, types), exact, types[_id(node)])

    def _literal(self, literal: Any) -> Constant:
        kind = literal.WhichOneof("literal_type")
        if kind == "null":
            return Constant(None, pa.null())
        if kind not in _LITERALS:
            raise self._refused(f"has a constant of type {kind}")
        value = getattr(literal, kind)
        return Constant(value, _LITERALS[kind])

    def _cast(self, node: Any, types: dict[bytes, DataType]) -> ColumnExpression:
        cast, source, target = node.cast, _type_of(node.cast.expr, types), types[_id(node)]
        modes = type(cast).EvalMode
        ansi = cast.eval_mode == modes.Value("EVAL_MODE_ANSI") or (self._ansi and cast.eval_mode == 0)
        known = cast.eval_mode != modes.Value("EVAL_MODE_TRY")
        same = source == target
        if not known or not (same or castable(type_name(source), type_name(target), ansi)):
            raise self._refused(f"casts {source.simpleString()} to {target.simpleString()}")
        return FunctionCall("Cast", (self._compiled(cast.expr, types),), arrow_type(target), True)

    def _converted(self, expression: ColumnExpression, source: DataType, target: DataType) -> ColumnExpression:
        """Return an argument in the type that a function takes, as Spark casts it."""
        if source == target:
            return expression
        if not castable(type_name(source), type_name(target), False) or type_name(source) == "boolean":
            raise self._refused(f"needs {source.simpleString()} to be {target.simpleString()}")
        return FunctionCall("Cast", (expression,), arrow_type(target), True)

    def _aggregate(self, node: Any, function: str) -> ColumnField:
        call = node.unresolved_function
        if self._key is None or len(call.arguments) != 1:
            raise self._refused(f"has the aggregate {call.function_name}")
        (argument,) = call.arguments
        self._check_type(function, _type_of(argument, self._inner))
        compiled = self._compiled(argument, self._inner)
        checked = self._ansi or function not in _CHECKED
        self.aggregates.append(ColumnAggregate(function, compiled, arrow_type(self._outer[_id(node)]), checked))
        return ColumnField(str(len(self.aggregates) - 1))

    def _check_type(self, function: str, kind: DataType) -> None:
        if type_name(kind) not in ARGUMENTS.get(function, {type_name(kind)}):
            raise self._refused(f"has {function} of {kind.simpleString()}")

    def _refused(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"pregel: the expression {self._column} {what}, which workers cannot compute as Spark does: use simpler expressions, "
            "or timely.graphs.spark.pregel, whose functions are Python"
        )


def _field(outer: ColumnExpression | None, name: str, kind: DataType) -> ColumnExpression:
    """Return a field of a struct; that of an end or an edge is a column of the workers' tables."""
    assert outer is not None
    if isinstance(outer, ColumnField) and outer.name in ("src", "dst", "edge"):
        if outer.name == "edge" and name in ("src", "dst"):
            return ColumnField(f"{name}.id")
        return ColumnField(f"{outer.name}.{name}")
    return FunctionCall("GetStructField", (outer,), arrow_type(kind), detail=name)


def _names(identifier: str) -> list[str]:
    """Return the parts of a column's name.

    >>> _names("src.`a.b`")
    ['src', 'a.b']
    """
    return [quoted.replace("``", "`") if quoted else plain for quoted, plain in _PART.findall(identifier)]


def _id(node: Any) -> bytes:
    data: bytes = node.SerializeToString(deterministic=True)
    return data


def _type_of(node: Any, types: dict[bytes, DataType]) -> DataType:
    return types[_id(node)]


def _is_aggregate(node: Any) -> bool:
    return node.HasField("unresolved_function") and node.unresolved_function.function_name.lower() in _AGGREGATES


def _children(node: Any) -> Sequence[Any]:
    kind = node.WhichOneof("expr_type")
    if kind == "alias":
        return [node.alias.expr]
    if kind == "cast":
        return [node.cast.expr]
    if kind == "unresolved_extract_value":
        return [node.unresolved_extract_value.child]
    return list(node.unresolved_function.arguments) if kind == "unresolved_function" else []


def _parts(node: Any, *, into_aggregates: bool = True) -> Iterator[Any]:
    """Yield a node and all below it; below aggregates if asked to."""
    yield node
    if into_aggregates or not _is_aggregate(node):
        for child in _children(node):
            yield from _parts(child, into_aggregates=into_aggregates)


def _column(node: Any) -> Column:
    """Return a column of a node's expression."""
    from pyspark.sql.connect.column import Column as ConnectColumn
    from pyspark.sql.connect.expressions import Expression

    while node.WhichOneof("expr_type") == "alias":
        node = node.alias.expr

    class Sent(Expression):
        def to_plan(self, session: Any) -> Any:
            return node

        def __repr__(self) -> str:
            return "part"

        def name(self) -> str:
            return "part"

    return ConnectColumn(Sent())
