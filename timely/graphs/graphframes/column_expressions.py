"""Column expressions of Spark's, compiled to expressions over Arrow tables that workers compute.

``PlanNode`` is a resolved part of one, the same for both kinds of sessions. In classic sessions Spark resolves names and inserts
casts, and ``JvmPlan`` reads its analysed plan. Over Spark Connect there is none: the server says the type of each part, and
``ConnectPlan`` inserts the casts. It inserts one only where Spark's rule is that all arguments get one type, which the server
says. What workers would not compute as Spark does is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, MapType, StructField, StructType

from timely.errors import ConfigurationError
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
from timely.spark.versions import arrow_type, parsed_type, sum_is_checked

_WHOLE: Final = frozenset({"byte", "short", "integer", "long"})
NUMBERS: Final = _WHOLE | {"float", "double"}
_ATOMS: Final = NUMBERS | {"boolean", "string", "date", "timestamp", "timestamp_ntz"}
_WIDER: Final = ("byte", "short", "integer", "long", "float", "double")

ARGUMENTS: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("Abs", "Add", "Multiply", "Subtract", "UnaryMinus", "Divide", "IntegralDivide", "Remainder"), NUMBERS),
    **dict.fromkeys(("Ceil", "Floor"), NUMBERS),
    **dict.fromkeys(("Exp", "Log", "Pow", "Sqrt", "IsNaN"), frozenset({"float", "double"})),
    **dict.fromkeys(("EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"), _ATOMS),
    **dict.fromkeys(("Greatest", "In", "Least", "Max", "Min"), _ATOMS),
    **dict.fromkeys(("Average", "Sum"), NUMBERS),
    "Concat": frozenset({"string"}),
}
"""The types that functions take, where not any."""


@attrs.frozen
class PlanNode:
    """A part of a resolved expression: the name of Spark's class for it, its type, its arguments as its reader has them.

    ``Attribute`` and ``GetStructField`` have a name as ``value``, ``Literal`` its value.
    """

    function: str
    type: DataType
    arguments: Sequence[Any] = ()
    text: str = ""
    """The expression as errors quote it."""
    checked: bool = True
    """Whether Spark raises where the function has no result, instead of null or an overflow."""
    value: Any = None


def refused(column: Column, what: str) -> ConfigurationError:
    """Return the error for a column that has a part that workers do not compute."""
    return ConfigurationError(
        f"pregel: the expression {column} {what}, which workers cannot compute as Spark does: use simpler expressions, "
        "or timely.graphs.spark.pregel, whose functions are Python"
    )


def castable(source: str, target: str, checked: bool) -> bool:
    """Return whether workers cast one type to another as Spark does, which raises for what does not fit if it is ``checked``."""
    if source == "void" or source == target:
        return True
    if not (target in NUMBERS and (source in NUMBERS or source == "boolean")):
        return False
    return checked or source == "boolean" or _WIDER.index(source) < _WIDER.index(target)


def nullable(kind: DataType) -> DataType:
    """Return a type whose every part may be null, so that values of two expressions are of one type."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType)) for field in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    return MapType(kind.keyType, nullable(kind.valueType)) if isinstance(kind, MapType) else kind


def type_name(kind: DataType) -> str:
    """Return the name of a type: a string with a collation is ``string collate``, as its strings differ from others."""
    return kind.simpleString() if kind.typeName() == "string" else kind.typeName()


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
        children = _java_children(node)
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
            function, node, children = aggregate.getClass().getSimpleName(), aggregate, _java_children(aggregate)
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


def _java_children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def _type(node: Any) -> DataType:
    return _parsed(node.dataType().sql())


@lru_cache(1024)
def _parsed(text: str) -> DataType:
    return nullable(parsed_type(text))


_FUNCTIONS: Final = {
    **{name.lower(): name for name in ("Abs", "And", "Ceil", "Coalesce", "Concat", "Exp", "Floor", "Greatest", "In", "IsNaN")},
    **{name.lower(): name for name in ("IsNotNull", "IsNull", "Least", "Not", "Or", "Sqrt")},
    "+": "Add",
    "-": "Subtract",
    "*": "Multiply",
    "/": "Divide",
    "%": "Remainder",
    "negative": "UnaryMinus",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
    "==": "EqualTo",
    "<=>": "EqualNullSafe",
    "array": "CreateArray",
    "struct": "CreateNamedStruct",
    "when": "CaseWhen",
    "ceiling": "Ceil",
    "ifnull": "Coalesce",
    "ln": "Log",
    "nvl": "Coalesce",
    "power": "Pow",
}
"""Spark's expressions by the names of its functions."""

_AGGREGATES: Final = {
    "any": "BoolOr",
    "bool_or": "BoolOr",
    "some": "BoolOr",
    "bool_and": "BoolAnd",
    "every": "BoolAnd",
    "avg": "Average",
    "mean": "Average",
    "collect_list": "CollectList",
    "count": "Count",
    "sum": "Sum",
    "max": "Max",
    "min": "Min",
}

_CHECKED: Final = frozenset({"Abs", "Add", "Divide", "Multiply", "Remainder", "Subtract", "Sum", "UnaryMinus"})
"""Functions that raise in ANSI mode alone."""

_OF_RESULT: Final = _CHECKED - {"Divide", "Sum"} | {"And", "Coalesce", "Concat", "Greatest", "Least", "Not", "Or"}
"""Functions whose arguments have the type of the result."""

_OF_DOUBLES: Final = frozenset({"Divide", "Exp", "IsNaN", "Log", "Pow", "Sqrt"})

_COMPARING: Final = frozenset(
    {"EqualNullSafe", "EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "LessThan", "LessThanOrEqual"}
)
"""Functions whose arguments have one type, which the result does not say."""

_KINDS: Final = frozenset({"alias", "cast", "literal", "unresolved_attribute", "unresolved_extract_value", "unresolved_function"})

_PART: Final = re.compile(r"`((?:[^`]|``)*)`(?:\.|$)|([^.`]+)(?:\.|$)")


@attrs.frozen(eq=False)
class _Level:
    """What expressions are computed from: the rows of a frame, or its groups. The server has said the types of these."""

    over: Any
    types: dict[bytes, DataType]


class _Part(NamedTuple):
    """An expression at its level, and the type that it is to have if not its own."""

    node: Any
    level: _Level
    target: DataType | None = None


class ConnectPlan:
    """Reads one column over ``frame``, or of the groups of ``frame`` by ``key``."""

    def __init__(self, frame: DataFrame, column: Column, key: str | None = None) -> None:
        self._frame = frame
        self._column = column
        self._ansi = str(frame.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
        session: Any = frame.sparkSession
        expression: Any = column
        plan = expression._expr.to_plan(session.client)
        parts = list(_parts(plan))
        for part in parts:
            self._check_known(part)
        if key is None:
            self._rows = level = _Level(frame, _types(frame, parts))
        else:
            grouped = frame.groupBy(key)
            above = list(_parts(plan, into_aggregates=False))
            level = _Level(grouped, _types(grouped, above))
            within = [part for node in above if _is_aggregate(node) for part in _parts(node) if part is not node]
            self._rows = _Level(frame, _types(frame, within))
        self.root = _Part(plan, level)

    def read(self, part: _Part | PlanNode) -> PlanNode:
        """Return an expression of the protocol as a part of the plan."""
        if isinstance(part, PlanNode):
            return part
        node, level, target = part
        kind = level.types[_id(node)]
        if target is not None and target != kind:
            return self._converted(part, kind, target)
        form = node.WhichOneof("expr_type")
        if form == "alias":
            return self.read(_Part(node.alias.expr, level))
        if form == "unresolved_attribute":
            return self._attribute(_names(node.unresolved_attribute.unparsed_identifier))
        if form == "literal":
            value = node.literal.WhichOneof("literal_type")
            return PlanNode("Literal", kind, value=None if value == "null" else getattr(node.literal, value))
        if form == "unresolved_extract_value":
            return self._extracted(node.unresolved_extract_value, kind, level)
        if form == "cast":
            return self._cast(node.cast, kind, level)
        call = node.unresolved_function
        name, arguments = call.function_name.lower(), list(call.arguments)
        aggregate = name in _AGGREGATES and level is not self._rows
        function = _AGGREGATES[name] if aggregate else _FUNCTIONS.get(name, name)
        if aggregate and len(arguments) != 1:
            raise refused(self._column, f"has the aggregate {name}")
        within = self._rows if aggregate else level
        types = [within.types[_id(argument)] for argument in arguments]
        targets = types if aggregate else _targets(function, arguments, kind, types, within)
        children = [_Part(argument, within, target) for argument, target in zip(arguments, targets, strict=True)]
        return PlanNode(function, kind, children, function, self._ansi or function not in _CHECKED)

    def _check_known(self, node: Any) -> None:
        """Refuse what is never compiled, before the server is asked about it."""
        kind = node.WhichOneof("expr_type")
        if kind == "expression_string":
            raise refused(self._column, "is SQL in a string, which only the server reads")
        if kind not in _KINDS:
            raise refused(self._column, f"has an expression {kind}")
        if kind == "unresolved_function":
            call = node.unresolved_function
            name = call.function_name.lower()
            if name not in _FUNCTIONS.keys() | _AGGREGATES.keys() or call.is_distinct or call.is_user_defined_function:
                raise refused(self._column, f"has the function {call.function_name}{' distinct' if call.is_distinct else ''}")

    def _attribute(self, names: Sequence[str]) -> PlanNode:
        """Return a column, or a field of one."""
        first, *fields = names
        exact = _exact(self._frame.schema, first)
        part = PlanNode("Attribute", nullable(self._frame.schema[exact].dataType), value=exact)
        for name in fields:
            part = self._field(part, part.type, name)
        return part

    def _extracted(self, extract: Any, kind: DataType, level: _Level) -> PlanNode:
        struct = level.types[_id(extract.child)]
        name = extract.extraction.literal.string if extract.extraction.HasField("literal") else ""
        if not name:
            raise refused(self._column, f"takes a part of {struct.simpleString()}")
        return self._field(_Part(extract.child, level), struct, name)

    def _field(self, struct: _Part | PlanNode, kind: DataType, name: str) -> PlanNode:
        if not isinstance(kind, StructType):
            raise refused(self._column, f"has a field {name!r} of {kind.simpleString()}")
        exact = _exact(kind, name)
        return PlanNode("GetStructField", nullable(kind[exact].dataType), [struct], value=exact)

    def _cast(self, cast: Any, kind: DataType, level: _Level) -> PlanNode:
        mode = type(cast).EvalMode.Name(cast.eval_mode)
        if mode == "EVAL_MODE_TRY":
            raise refused(self._column, f"casts to {type_name(kind)} what may have no value of it")
        ansi = mode == "EVAL_MODE_ANSI" or (self._ansi and cast.eval_mode == 0)
        return PlanNode("Cast", kind, [_Part(cast.expr, level)], checked=ansi)

    def _converted(self, part: _Part, source: DataType, target: DataType) -> PlanNode:
        """Return an argument in the type that a function takes, as Spark casts it."""
        if not castable(type_name(source), type_name(target), False) or type_name(source) == "boolean":
            raise refused(self._column, f"needs {source.simpleString()} to be {target.simpleString()}")
        return PlanNode("Cast", target, [part._replace(target=None)], checked=False)


def _targets(
    function: str, arguments: Sequence[Any], result: DataType, types: Sequence[DataType], level: _Level
) -> Sequence[DataType]:
    """Return the type that each argument has when the function gets it."""
    if function == "CaseWhen":
        pairs = len(arguments) // 2 * 2
        return [BooleanType() if at < pairs and at % 2 == 0 else result for at in range(len(arguments))]
    if function in _OF_DOUBLES:
        return [kind if function == "IsNaN" and type_name(kind) == "float" else DoubleType() for kind in types]
    if function in ("Ceil", "Floor"):
        return [DoubleType() if type_name(kind) in ("float", "double") else result for kind in types]
    if function in _OF_RESULT:
        return [result] * len(types)
    if function == "CreateArray":
        assert isinstance(result, ArrayType)
        return [result.elementType] * len(types)
    return [_common(arguments, types, level)] * len(types) if function in _COMPARING else types


def _common(arguments: Sequence[Any], types: Sequence[DataType], level: _Level) -> DataType:
    """Return the type in which values are compared; of different numbers the server says it."""
    kinds = [kind for kind in types if type_name(kind) != "void"] or list(types)
    if all(kind == kinds[0] for kind in kinds):
        return kinds[0]
    from pyspark.sql.connect import proto

    call = proto.Expression.UnresolvedFunction(function_name="coalesce", arguments=arguments)
    both = proto.Expression(unresolved_function=call)
    return _types(level.over, [both])[_id(both)]


def _types(over: Any, nodes: Sequence[Any]) -> dict[bytes, DataType]:
    """Return the types of expressions over a frame, or over its groups; Spark's error for one that cannot be."""
    nodes = list({_id(node): node for node in nodes}.values())
    if not nodes:
        return {}
    columns = [_column(node).alias(f"timely_{at}") for at, node in enumerate(nodes)]
    chosen = over.select(*columns) if isinstance(over, DataFrame) else over.agg(*columns)
    types = [nullable(field.dataType) for field in chosen.schema][-len(nodes) :]
    return dict(zip(map(_id, nodes), types, strict=True))


def _exact(struct: StructType, name: str) -> str:
    """Return the name that a field has; the server resolved the name, with or without regard to case."""
    return name if name in struct.names else next(each for each in struct.names if each.lower() == name.lower())


def _names(identifier: str) -> list[str]:
    """Return the parts of a column's name."""
    return [quoted.replace("``", "`") if quoted else plain for quoted, plain in _PART.findall(identifier)]


def _id(node: Any) -> bytes:
    data: bytes = node.SerializeToString(deterministic=True)
    return data


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


# -- compiling ---------------------------------------------------------------------------------------------------------


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
