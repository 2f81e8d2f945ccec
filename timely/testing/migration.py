"""``check_migration``: a rehearsal of a changed program, at every epoch at which it could take over.

``check_function``: a function of a program's own returns one value for equal arguments, however it is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from timely import Recovery, ScopeBuilder, Worker, execute
from timely import differential as dd
from timely.dataflow import declared_schema
from timely.errors import ChangedDataflowError, CollectionMismatch, ConfigurationError
from timely.recovery import MemoryStore

if TYPE_CHECKING:
    from timely.differential import Output, Table

Build: TypeAlias = "Callable[[ScopeBuilder[int]], tuple[Mapping[str, Table[int]], Mapping[str, Output[int, Any]]]]"
"""Builds a program; returns the tables that are changed from outside, and its outputs, by name."""

Epoch: TypeAlias = Mapping[str, Sequence[tuple[Mapping[str, Any], int]]]
"""The changes of one epoch: for each table rows by column, and how often each is added. A table takes the columns that it has."""

_Contents: TypeAlias = "dict[str, Counter[Any]]"


@attrs.frozen
class _Run:
    """What a run of one program has of each output: its rows and changes in each epoch, and its columns.

    Also which relations had changed.
    """

    at: list[_Contents]
    changes: list[_Contents]
    columns: dict[str, list[str]]
    changed: set[str]


def check_migration(
    old: Build,
    new: Build,
    stream: Sequence[Epoch],
    *,
    at: Iterable[int] | None = None,
    workers: Sequence[int] = (1, 2, 1),
    renamed: Mapping[str, str] | None = None,
    dropped: Sequence[str] = (),
) -> str | None:
    """Check that ``new`` goes on from a checkpoint of ``old`` as if it had run from the beginning, on other numbers of workers.

    The old program runs up to each epoch of ``at``, by default all. The new one goes on from its checkpoint, and once more from
    one of its own. Of the rows until then it has the tables and the columns that the old one had, without those that have changed
    and are ``dropped``. ``AssertionError`` where an output is not what it is without a checkpoint, or where what it had and its
    changes do not add up to that. The text of the refusal, if all of ``at`` are refused; ``AssertionError`` if some are.

    >>> import timely
    >>> from timely import differential as dd
    >>> def program(query):
    ...     def build(scope):
    ...         orders = dd.table(scope, "item string, n long", name="orders")
    ...         totals = dd.sql(scope, query, name="totals", orders=orders)
    ...         return {"orders": orders}, {"totals": totals.output()}
    ...     return build
    >>> stream = [{"orders": [({"item": "pen", "n": n}, 1)]} for n in range(4)]
    >>> old = program("select item, sum(n) as total from orders group by item")
    >>> new = program("select item, max(n) as total from orders group by item")
    >>> check_migration(old, new, stream) is None
    True
    """
    refusals: dict[int, str] = {}
    begins = list(range(1, len(stream)) if at is None else at)
    if not begins or not all(0 < begin < len(stream) for begin in begins):
        raise ConfigurationError(f"at={begins}: the new program begins at one of the epochs 1 to {len(stream) - 1} of the stream")
    for begin in begins:
        store = MemoryStore()
        before = _run(old, store, stream, 0, begin, workers[0])
        middle = (begin + len(stream) + 1) // 2
        later = _called(stream, renamed or {})
        try:
            runs = [
                _run(new, store, later, begin, middle, workers[1], renamed=renamed, dropped=dropped),
                _run(new, store, later, middle, len(stream), workers[2], renamed=renamed),
            ]
        except ChangedDataflowError as error:
            refusals[begin] = str(error)
            continue
        had = _called([_known(epoch, before.columns) for epoch in stream[:begin]], renamed or {})
        lost = runs[0].changed & {*dropped}
        had = [{name: rows for name, rows in epoch.items() if name not in lost} for epoch in had]
        beginning = _run(new, MemoryStore(), [*had, *later[begin:]], 0, len(stream), workers[0])
        _compare(before, runs, beginning, begin, renamed or {})
    if refusals and len(refusals) < len(set(begins)):
        raise AssertionError(f"some epochs are refused, and others are not: {refusals}")
    return next(iter(refusals.values()), None)


def _called(epochs: Sequence[Epoch], names: Mapping[str, str]) -> list[Epoch]:
    """Return epochs with the names that tables have now."""
    return [{names.get(name, name): changes for name, changes in epoch.items()} for epoch in epochs]


def _known(epoch: Epoch, columns: Mapping[str, Sequence[str]]) -> Epoch:
    """Return what a program with these columns of tables has of an epoch."""
    return {
        name: [({column: row.get(column) for column in columns[name]}, diff) for row, diff in changes]
        for name, changes in epoch.items()
        if name in columns
    }


def _compare(before: _Run, runs: Sequence[_Run], beginning: _Run, begin: int, renamed: Mapping[str, str]) -> None:
    had = {renamed.get(name, name): contents for name, contents in before.at[-1].items()}
    sums = {name: Counter(had.get(name, ())) for name in beginning.at[-1]}
    contents = [each for run in runs for each in run.at]
    changes = [each for run in runs for each in run.changes]
    for number, expected in enumerate(beginning.at[begin:]):
        for name, rows in expected.items():
            epoch = f"output {name!r} at epoch {begin + number}, after a change at {begin}"
            for row, diff in changes[number][name].items():
                sums[name][row] += diff
            _check(f"{epoch}, has", contents[number][name], rows)
            _check(f"{epoch}, had and was sent", sums[name], rows)


def _check(what: str, rows: Counter[Any], expected: Counter[Any]) -> None:
    assert (left := {row: count for row, count in rows.items() if count}) == expected, f"{what} {left}, and not {dict(expected)}"


def _run(build: Build, store: MemoryStore, stream: Sequence[Epoch], begin: int, end: int, workers: int, **change: Any) -> _Run:
    program = partial(_program, build=build, store=store, epochs=stream[begin:end], begin=begin, change=change)
    runs: list[_Run] = execute(program, workers=workers)
    at, changes = zip(*(run.at for run in runs)), zip(*(run.changes for run in runs))
    return _Run([_added(parts) for parts in at], [_added(parts) for parts in changes], runs[0].columns, runs[0].changed)


def _added(parts: Iterable[_Contents]) -> _Contents:
    total: _Contents = {}
    for contents in parts:
        for name, rows in contents.items():
            total.setdefault(name, Counter()).update(rows)
    return total


def _program(
    worker: Worker, build: Build, store: MemoryStore, epochs: Sequence[Epoch], begin: int, change: Mapping[str, Any]
) -> _Run:
    with Recovery(worker, store, changed="migrate", **change) as recovery:
        with worker.dataflow(int, name="program") as scope:
            tables, outputs = build(scope)
        assert (recovery.time or 0) == begin
        for table in tables.values():
            table.session.advance_to(begin)
        columns = {name: [column.name for column in table.columns] for name, table in tables.items()}
        for time, epoch in enumerate(epochs, begin):
            for name, table in tables.items():
                for row, diff in list(epoch.get(name, ()))[worker.index :: worker.peers]:
                    table.session.update(tuple(row.get(column) for column in columns[name]), diff)
                table.session.advance_to(time + 1)
        end = begin + len(epochs)
        recovery.checkpoint(end)
        contents = [{name: Counter(output.at(time)) for name, output in outputs.items()} for time in range(begin, end)]
        changes: list[_Contents] = [{name: Counter() for name in outputs} for _ in epochs]
        for name, output in outputs.items():
            for row, time, diff in output.changes(since=begin):
                changes[time - begin][name][row] += diff
        for table in tables.values():
            table.session.close()
        worker.run()
    return _Run(contents, changes, columns, {name for each in recovery.comparisons for name in each.changed})


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
