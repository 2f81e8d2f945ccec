"""``check_function``: a function of a program's own returns one value for equal arguments, however it is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from timely import Worker
from timely import differential as dd
from timely.dataflow import declared_schema
from timely.errors import CollectionMismatch

if TYPE_CHECKING:
    import pyarrow as pa

Row = tuple[Any, ...]


def check_function(function: dd.UserFunction, schema: pa.Schema | str, rows: Sequence[Row]) -> None:
    """Check that ``function`` returns the same for equal arguments: in any order, for single rows, and for columns.

    ``rows`` are its arguments, as rows of ``schema``. ``CollectionMismatch`` for a result that differs.

    >>> from timely import differential as dd
    >>> check_function(dd.function(len, returns="bigint"), "text string", [("a",), (None,), ("ab",)])
    >>> calls = []
    >>> counting = dd.function(lambda text: calls.append(text) or len(calls), returns="bigint")
    >>> check_function(counting, "text string", [("a",), ("b",)])
    Traceback (most recent call last):
        ...
    timely.errors.CollectionMismatch: the function returned 2 for ('b',), and then 3: it is not deterministic
    """
    import pyarrow as pa  # which other tests do not need

    schema = declared_schema(schema, "check_function")
    forward, backward = list(dict.fromkeys(rows)), list(dict.fromkeys(rows))[::-1]
    first = _results(function, schema, lambda session: session.insert_batch(forward))
    columns = pa.Table.from_pylist([dict(zip(schema.names, row)) for row in backward * 4], schema=schema)
    for send in (lambda session: session.insert_batch(backward), lambda session: session.insert_columns(columns)):
        for row, result in _results(function, schema, send).items():
            if result != first[row]:
                raise CollectionMismatch(
                    f"the function returned {first[row]!r} for {row!r}, and then {result!r}: it is not deterministic"
                )


def _results(function: dd.UserFunction, schema: pa.Schema, send: Callable[[Any], object]) -> dict[Row, Any]:
    with Worker() as worker:
        with worker.dataflow(int) as scope:
            arguments = dd.table(scope, schema)
            names = ", ".join(f'"{name}"' for name in schema.names)
            query = f"select {names}, function_to_check({names}) from arguments"
            output = dd.sql(scope, query, functions={"function_to_check": function}, arguments=arguments).output()
        send(arguments.session)
        arguments.session.close()
        worker.run()
        return {row[:-1]: row[-1] for row in output.at(0)}
