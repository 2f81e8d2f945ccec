"""Functions of a program's own: rows of the table of functions of SQL, which ``dd.function`` makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from timely.differential.tables.names.aggregate_rules import is_aggregate
from timely.differential.tables.names.dialect import WRITTEN
from timely.differential.tables.names.refusals import parse
from timely.differential.tables.names.scalar_rules import SqlType, type_of
from timely.differential.tables.values.functions import FUNCTIONS
from timely.differential.tables.values.kinds import Column, Kind, arrow_schema, lower_case, row_check
from timely.differential.tables.values.overloads import NO_LENGTH, Arguments, Overload, SqlFunction, always
from timely.errors import ConfigurationError, GraphError, SqlError, brief, error_text


@attrs.frozen
class UserFunction:
    """A function that SQL calls by the name that it is given; from ``dd.function``."""

    rows: Callable[..., Any] | None
    columns: Callable[..., Any] | None
    returns: SqlType
    takes: tuple[SqlType, ...] | None

    def __str__(self) -> str:
        takes = "..." if self.takes is None else ", ".join(each.text for each in self.takes)
        return f"({takes}) returns {self.returns.text}"

    def named(self, name: str) -> SqlFunction:
        """Return the row of the table of functions that it is as ``name``."""
        kind, narrow = self.returns.kind, self.returns.narrow
        column, target = Column("result", kind), _arrow_type(kind)
        check = row_check((column,), arrow_schema((column,)))

        def by_columns(*arrays: Any) -> Any:
            result = _checked(self.columns, arrays, target)
            for extreme in () if narrow is None else pc.min_max(result).values():
                if extreme.is_valid and narrow is not None:
                    narrow(extreme.as_py())
            return result

        def overload(kinds: tuple[Kind, ...]) -> Overload:
            if Kind.MONTHS in kinds:
                raise SqlError(NO_LENGTH)
            types = list(map(_arrow_type, kinds))

            def by_rows(*values: Any) -> Any:
                try:
                    if self.rows is not None:
                        result = self.rows(*values)
                    else:
                        result = _checked(self.columns, [pa.array([value], own) for value, own in zip(values, types)], target)[
                            0
                        ].as_py()
                    (value,) = check((result,))
                    return value if value is None or narrow is None else narrow(value)
                except Exception as error:
                    raise SqlError(f"{name}({', '.join(map(brief, values))}): {error_text(error)}") from error

            return Overload(kinds, kind, by_rows, always, columns=None if self.columns is None else by_columns)

        def of_any(kinds: Arguments) -> Overload:
            return overload(tuple(kinds))

        return SqlFunction((of_any if self.takes is None else overload(tuple(each.kind for each in self.takes)),))


def function(
    f: Callable[..., Any] | None = None,
    *,
    returns: str,
    takes: Sequence[str] | None = None,
    columns: Callable[..., Any] | None = None,
) -> UserFunction:
    """Return a function for ``sql(..., functions={"name": function})``; its results are of the SQL type ``returns``.

    ``f`` is called with a value of each argument, and not where one is ``NULL``, as the result is ``NULL`` there. Arguments
    become the types ``takes``, or have any. ``columns`` is called with an Arrow array of each argument instead, where many rows
    come, and returns one as long; what it returns beside a null counts for nothing.

    Both must be deterministic, since they are called for rows that come and again for rows that go, or once for equal values
    (``timely.testing.check_function``). An exception is a ``SqlError`` that has the name of the function and its arguments.

    >>> import pyarrow as pa
    >>> import timely
    >>> from timely import differential as dd
    >>> with timely.Worker() as worker:
    ...     with worker.dataflow(int) as scope:
    ...         people = dd.table(scope, pa.table({"name": [" Ada", "BOB "]}))
    ...         clean = dd.function(lambda text: text.strip().title(), returns="varchar", takes=["varchar"])
    ...         names = dd.sql(scope, "select clean(name) from people", functions={"clean": clean}, people=people).output()
    ...     names.at(0)
    {('Ada',): 1, ('Bob',): 1}
    """
    for each in (f, columns):
        if each is not None and not callable(each):
            raise GraphError(f"function: {brief(each)} cannot be called")
    if f is None and columns is None:
        raise GraphError("function: give a function of values, or columns=, one of Arrow arrays")
    kinds = None if takes is None else tuple(map(_type, takes))
    return UserFunction(f, columns, _type(returns), kinds)


def _type(text: str) -> SqlType:
    try:
        target = exp.DataType.build(text, dialect=WRITTEN)
    except Exception as error:  # whatever the parser raises for what is no type
        raise SqlError(f"{brief(text)} is no type of SQL: {error_text(error)}") from None
    return type_of(target, target)


def _arrow_type(kind: Kind) -> pa.DataType:
    return arrow_schema((Column("value", kind),)).field(0).type


def _checked(columns: Any, arrays: Sequence[Any], target: pa.DataType) -> Any:
    """Return the array that a function of arrays returns; ``SqlError`` for what is none."""
    result = columns(*arrays)
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array) or (arrays and len(result) != len(arrays[0])):
        raise SqlError(f"columns= returns an Arrow array as long as its arguments, not {brief(result)}")
    return result.cast(target)


Functions = Mapping[str, UserFunction]

NO_FUNCTIONS: Final[Functions] = MappingProxyType({})


def functions_in(module: Any) -> Functions:
    """Return the functions of a module, by their names there."""
    return {name: each for name, each in vars(module).items() if isinstance(each, UserFunction)}


def named_functions(functions: Mapping[str, UserFunction]) -> dict[str, SqlFunction]:
    """Return functions by the names that SQL calls them; ``ConfigurationError`` for a name that SQL has already."""
    rows: dict[str, SqlFunction] = {}
    for name, each in functions.items():
        if not isinstance(each, UserFunction):
            raise ConfigurationError(f"functions: {name} is {brief(each)}: make it with dd.function(f, returns='varchar')")
        lower = str(lower_case(name))
        (call,) = parse(f"SELECT {name}(1)")[0].args.get("expressions") or [None] if name.isidentifier() else [None]
        if not isinstance(call, exp.Anonymous):
            raise ConfigurationError(f"functions: {brief(name)} is no name that SQL reads as a function: give another name")
        if lower in FUNCTIONS or lower in rows or is_aggregate(call):
            whose = "there is another" if lower in rows else "SQL has a"
            raise ConfigurationError(f"functions: {whose} function {lower} already: give another name")
        rows[lower] = each.named(lower)
    return rows
