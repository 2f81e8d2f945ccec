"""The types that expressions of columns take, and what one may be cast to: the same in either kind of session."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

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


def castable(source: str, target: str, checked: bool) -> bool:
    """Return whether workers cast one type to another as Spark does, which raises for what does not fit if it is ``checked``."""
    if source == "void" or source == target:
        return True
    if not (target in NUMBERS and (source in NUMBERS or source == "boolean")):
        return False
    return checked or source == "boolean" or _WIDER.index(source) < _WIDER.index(target)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type in which workers have a Spark type."""
    return to_arrow_type(kind, timezone="UTC")


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
