"""``PlanNode``: a part of a Spark expression, the same for both kinds of sessions; its types, and the casts that workers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from timely.errors import ConfigurationError

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
