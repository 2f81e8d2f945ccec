"""Which columns can be carried between Spark and the workers.

Spark hands rows to Python as Arrow batches, and some of its types have no form there. The invariant: a column that cannot come
through as it is gets refused on the driver, before any job starts, by an error that names it and says what to do. A caller may
assume that columns which passed :func:`check_types` arrive with every value they had.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructType,
    UserDefinedType,
    VarcharType,
    YearMonthIntervalType,
)

from timely.errors import SchemaError

_HASHLESS = frozenset({"map", "variant", "geometry", "geography"})


def check_types(table: str, schema: StructType) -> None:
    """Raise :class:`~timely.errors.SchemaError` for the first column whose type cannot be carried.

    ``table`` says whose columns these are, for the error.

    >>> check_types("input 'sales'", StructType().add("lasted", YearMonthIntervalType()))
    Traceback (most recent call last):
    timely.errors.SchemaError: input 'sales': column 'lasted' is of type interval year to month, which Spark cannot hand ...
    """
    for field in schema:
        _check_type(f"{table}: column {field.name!r}", field.dataType)


def _check_type(where: str, kind: DataType) -> None:
    if isinstance(kind, UserDefinedType):
        _check_type(where, kind.sqlType())
    elif isinstance(kind, StructType):
        names = kind.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"{where} has two fields {name!r} in one struct, which Arrow cannot tell apart: rename one")
        for field in kind:
            _check_type(f"{where}, field {field.name!r}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_type(_element(where, kind.elementType, kind.containsNull, "elements"), kind.elementType)
    elif isinstance(kind, MapType):
        _check_type(_element(where, kind.keyType, False, "keys"), kind.keyType)
        _check_type(_element(where, kind.valueType, kind.valueContainsNull, "values"), kind.valueType)
    else:
        _check_plain(where, kind)


def _element(where: str, kind: DataType, nullable: bool, what: str) -> str:
    """Return where the elements of an array or a map are; SchemaError for an array or a map that has none and no type."""
    if isinstance(kind, NullType) and not nullable:
        raise SchemaError(f"{where} has {what} of no type, as array() and map() have: cast it to the type that is meant")
    return f"{where}, {what}"


def _check_plain(where: str, kind: DataType) -> None:
    if isinstance(kind, CharType | VarcharType):
        raise SchemaError(f"{where} is of type {kind.simpleString()}, which is for tables on disk: say string")
    try:
        to_arrow_type(kind, timezone="UTC")
    except PySparkException as error:
        remedy = "cast it to string, or leave the column out"
        if isinstance(kind, YearMonthIntervalType):
            remedy = "cast it to its number of months: CAST(CAST(... AS INTERVAL MONTH) AS INT)"
        raise SchemaError(f"{where} is of type {kind.simpleString()}, which Spark cannot hand to Python: {remedy}") from error


def check_cases(table: str, kind: DataType) -> None:
    """Raise :class:`~timely.errors.SchemaError` where two columns, or two fields of one struct, have names that differ in case
    alone: Spark reads no such files, unless it is set to tell the two apart.

    >>> check_cases("outputs['sums']", StructType().add("a", NullType()).add("A", NullType()))
    Traceback (most recent call last):
    timely.errors.SchemaError: outputs['sums']: 'a' and 'A' differ in case alone, and Spark reads no files with both of them: ...
    """
    if isinstance(kind, ArrayType):
        check_cases(table, kind.elementType)
    elif isinstance(kind, MapType):
        check_cases(table, kind.keyType)
        check_cases(table, kind.valueType)
    elif isinstance(kind, StructType):
        seen: dict[str, str] = {}
        for field in kind:
            if (other := seen.setdefault(field.name.lower(), field.name)) != field.name:
                raise SchemaError(
                    f"{table}: {other!r} and {field.name!r} differ in case alone, and Spark reads no files with both of them: "
                    "rename one, or set spark.sql.caseSensitive"
                )
            check_cases(table, field.dataType)


def can_hash(kind: DataType) -> bool:
    """Return whether Spark can hash values of a type, so that rows can be dealt by it.

    >>> can_hash(MapType(NullType(), NullType()))
    False
    """
    if isinstance(kind, UserDefinedType):
        return can_hash(kind.sqlType())
    if isinstance(kind, ArrayType):
        return can_hash(kind.elementType)
    if isinstance(kind, StructType):
        return all(can_hash(field.dataType) for field in kind)
    return kind.typeName() not in _HASHLESS


def has_collation(kind: DataType) -> bool:
    """Return whether a type has strings in it of which different ones may be equal, or so it may be.

    >>> has_collation(ArrayType(StringType("UNICODE_CI"))), has_collation(StringType())
    (True, False)
    """
    if isinstance(kind, ArrayType):
        return has_collation(kind.elementType)
    if isinstance(kind, StructType):
        return any(has_collation(field.dataType) for field in kind)
    return isinstance(kind, StringType) and kind != StringType()
