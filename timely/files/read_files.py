"""Tables from files: streams of Arrow record batches, of which each row is read by one worker.

Worker 0 lists the files when the dataflow is built, and sends each worker its share: files, or row groups of Parquet where there
are few files. Each worker reads a batch in each activation.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

import attrs

from timely.dataflow import (
    Activator,
    Capability,
    Exchange,
    InputPort,
    OperatorInfo,
    OutputPort,
    ScopeBuilder,
    Stream,
    check_scope,
)
from timely.errors import ConfigurationError, GraphError, SchemaError, brief
from timely.files.places import Paths, places_of, read_places
from timely.operators.flow_gates import InFlight, check_bound
from timely.operators.generic import source, unary_frontier
from timely.operators.probes import ProbeHandle
from timely.operators.state_registration import register_list_state, register_union_state
from timely.operators.type_variables import T

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.files.formats import Format
    from timely.files.row_times import Time
    from timely.files.scanning import ColumnTypes, Fragment, Options, Scan

Share: TypeAlias = "tuple[Scan, Fragment, int]"
"""A fragment, how it is read, and how many of its rows have been sent."""


def read_parquet(
    scope: ScopeBuilder[T],
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: ColumnTypes | None = None,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    name: str = "read_parquet",
) -> Stream[T, Any]:
    """Return the rows of Parquet files as Arrow batches; each row is read by one worker.

    ``path`` is a file, a folder, a glob, or a list of these. Names of folders such as ``year=2024`` become columns. ``columns``
    names the columns to read; ``schema`` also declares their types, as ``"node long"`` or a ``pyarrow.Schema``. A dictionary,
    as ``{"zip": "string"}``, declares the types of these columns alone. Rows come at the minimum time, or at ``time``: the name
    of a column, or a function from a batch to one time for each row. A time is complete when all is read; with ``in_order``, for
    rows in order of time, when a later one was read. Then the source may wait for a ``probe`` downstream: before it reads on, no
    more than ``times`` times are sent that the probe has not passed.

    ``ConfigurationError`` for a missing file or another extension, ``SchemaError`` for columns and values that are not as
    declared or as in the first file, ``TimestampError`` for a time that is not the scope's or not in order.

    >>> import pathlib, tempfile, timely
    >>> import pyarrow as pa, pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp(), "edges.parquet")
    >>> pa.parquet.write_table(pa.table({"src": [1, 2], "day": [0, 3]}), path)
    >>> timely.example(lambda scope: scope.read_parquet(path, time="day"))
    [(0, [(1, 0)]), (3, [(2, 3)])]
    """
    return _read(scope, path, "parquet", name, RowOrder(time, in_order, probe, times), columns=columns, schema=schema)


def read_csv(
    scope: ScopeBuilder[T],
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: ColumnTypes | None = None,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    delimiter: str | None = None,
    quote: str | None = '"',
    encoding: str | None = None,
    null_values: Sequence[str] = ("",),
    decimal: str = ".",
    name: str = "read_csv",
) -> Stream[T, Any]:
    """Return the rows of CSV files with a header, also compressed ones (``.gz``), as ``read_parquet`` does.

    Types are those of the first megabyte of the first file, unless ``schema`` declares them. A column with a code such as ``007``
    is text, and so is one without a value; ``SchemaError`` for a code after the first megabyte. ``null_values`` are the unquoted
    texts that mean a missing value, in all columns. The delimiter is a comma, and a tab in ``.tsv``. ``quote=None`` has quotes be
    characters as others are. Files are UTF-8, or of another ``encoding`` such as ``"latin-1"``. ``decimal=","`` reads ``1,5``.

    >>> import pathlib, tempfile, timely
    >>> path = pathlib.Path(tempfile.mkdtemp(), "codes.csv")
    >>> _ = path.write_text("code,n\\n007,1\\n,2\\n")
    >>> timely.example(lambda scope: scope.read_csv(path, schema="code string, n long"))
    [(0, [('007', 1), (None, 2)])]
    """
    options = {"columns": columns, "schema": schema, "delimiter": delimiter, "quote": quote, "encoding": encoding}
    options |= {"null_values": null_values, "decimal": decimal}
    return _read(scope, path, "csv", name, RowOrder(time, in_order, probe, times), **options)


def read_json(
    scope: ScopeBuilder[T],
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: ColumnTypes | None = None,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    encoding: str | None = None,
    name: str = "read_json",
) -> Stream[T, Any]:
    """Return the rows of files with one JSON object a line, also compressed ones (``.gz``), as ``read_parquet`` does.

    A field that an object has not is null. Types are those of the first megabyte of the first file, unless ``schema`` declares
    them; ``SchemaError`` for a field that is not known by then. ``encoding`` is as in ``read_csv``.

    >>> import pathlib, tempfile, timely
    >>> path = pathlib.Path(tempfile.mkdtemp(), "words.jsonl")
    >>> _ = path.write_text('{"word": "to", "n": 2}\\n{"word": "be"}\\n')
    >>> timely.example(lambda scope: scope.read_json(path))
    [(0, [('be', None), ('to', 2)])]
    """
    order = RowOrder(time, in_order, probe, times)
    return _read(scope, path, "json", name, order, columns=columns, schema=schema, encoding=encoding)


def read_ipc(
    scope: ScopeBuilder[T],
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    schema: ColumnTypes | None = None,
    time: Time | None = None,
    in_order: bool = False,
    probe: ProbeHandle[T] | None = None,
    times: int = 1,
    name: str = "read_ipc",
) -> Stream[T, Any]:
    """Return the rows of Arrow IPC files (``.arrow``, ``.feather``), as ``read_parquet`` does.

    >>> import pathlib, tempfile, timely
    >>> import pyarrow as pa, pyarrow.feather
    >>> path = pathlib.Path(tempfile.mkdtemp(), "words.arrow")
    >>> pa.feather.write_feather(pa.table({"word": ["to", "be"]}), path)
    >>> timely.example(lambda scope: scope.read_ipc(path))
    [(0, [('be',), ('to',)])]
    """
    return _read(scope, path, "ipc", name, RowOrder(time, in_order, probe, times), columns=columns, schema=schema)


@attrs.frozen
class RowOrder(Generic[T]):
    """When the rows of a source come, and how many times it may be ahead of a probe."""

    time: Time | None = None
    in_order: bool = False
    probe: ProbeHandle[T] | None = None
    times: int = 1

    def check(self, place: str, scope: ScopeBuilder[T]) -> None:
        """Raise ``ConfigurationError`` for what says no times, and when the dataflow is built for a probe of nothing."""
        if self.time is not None and not isinstance(self.time, str) and not callable(self.time):
            raise ConfigurationError(f"{place}: time= is the name of a column, or a function of a batch, not {brief(self.time)}")
        if self.in_order and self.time is None:
            raise ConfigurationError(f"{place}: in_order=True needs time=, which says what the order is of")
        probe = self.probe
        if probe is None:
            return
        if not self.in_order:
            raise ConfigurationError(f"{place}: probe= needs in_order=True, since else no time is complete before all is read")
        if not isinstance(probe, ProbeHandle):
            raise GraphError(f"{place}: probe is to be a timely.ProbeHandle, and is {brief(probe)}")
        check_bound(place, "times", self.times)

        def check_attached() -> None:
            if not probe.attached:
                raise GraphError(f"{place}: its probe is attached to nothing; call stream.probe(handle) where rows are done with")

        scope.checks.append(check_attached)

    def in_flight(self, activator: Activator) -> InFlight[T] | None:
        """Return what counts the times that the probe has not passed, and has it activate the source."""
        if self.probe is None:
            return None
        self.probe.wake(activator)
        return InFlight(self.probe)

    def full(self, in_flight: InFlight[T] | None) -> bool:
        """Return whether the source has to wait for the probe."""
        if in_flight is None:
            return False
        in_flight.settle()
        return len(in_flight.counts) > self.times


def _read(scope: ScopeBuilder[T], path: Paths, kind: str, name: str, order: RowOrder[T], **options: Any) -> Stream[T, Any]:
    check_scope(scope, name)
    from timely.files.formats import FORMATS
    from timely.files.scanning import Options

    return read_files(scope, path, FORMATS[kind], Options(**options), order, name=name)


def read_files(
    scope: ScopeBuilder[T],
    path: Paths,
    kind: Format,
    options: Options,
    order: RowOrder[T],
    *,
    name: str,
    place: str = "",
) -> Stream[T, Any]:
    """Return the stream of files of one format: what the functions for each format do. ``place`` names it in errors."""
    from timely.files.scanning import plan

    place = place or f"{name}({brief(os.fspath(path) if isinstance(path, os.PathLike) else path)})"
    order.check(place, scope)
    read_places(scope).extend(places_of(path))
    time = order.time
    shares: list[tuple[int, Share]] = []
    if scope.allocator.index == 0:
        scan, fragments = plan(path, kind, options, scope.allocator.peers, place)
        if isinstance(time, str) and time not in scan.schema.names:
            raise SchemaError(f"{place}: time= names no column that is read: {brief(time)} is not in {brief(scan.schema.names)}")
        shares = [(fragment.number % scope.allocator.peers, (scan, fragment, 0)) for fragment in fragments]

    def list_files(capability: Capability[T], info: OperatorInfo) -> Callable[[OutputPort[T]], object]:
        sent = False

        def load(items: Iterable[bool]) -> None:
            nonlocal sent
            sent = any(list(items))

        register_union_state(info, lambda: [sent] if info.worker == 0 else [], load)

        def logic(output: OutputPort[T]) -> None:
            nonlocal sent
            if capability.held:
                if shares and not sent:
                    output.session(capability).give_batch(shares)
                sent = True
                capability.drop()

        return logic

    def read(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        reader = _Reader()
        register_list_state(info, reader.save, reader.load)
        from timely.files.row_times import RowSender

        in_flight = order.in_flight(info.activator)
        sender = RowSender(capability, scope.subgraph.domain, time, order.in_order, place, in_flight)
        info.describe(reader.described)

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> None:
            for _, batch in input:
                reader.load(share for _, share in batch)
            if input.frontier or not capability.held:
                return  # more may be to be read, and before what is known
            if order.full(in_flight):
                return
            part = reader.next()
            if part is None:
                capability.drop()
            else:
                sender.send(output, *part)
                info.activator.activate()

        return logic

    listed = source(scope, f"{name} (files)", list_files)
    return unary_frontier(listed, Exchange(lambda pair: pair[0]), name, read)


class _Reader:
    """What one worker has to read: the fragments in order, the first of which is being read."""

    def __init__(self) -> None:
        self._waiting: deque[Share] = deque()
        self._batches: Iterator[pa.RecordBatch] | None = None

    def save(self) -> Iterable[Share]:
        return self._waiting

    def load(self, shares: Iterable[Share]) -> None:
        self._waiting.extend(shares)
        self._waiting = deque(sorted(self._waiting, key=lambda share: share[1].number))  # those of several workers on a rescale

    def described(self) -> str:
        return f"{len(self._waiting)} files to read" if self._waiting else ""

    def next(self) -> tuple[pa.RecordBatch, str, int] | None:
        """Return the next batch, its file, and the number of its first row there; ``None`` at the end."""
        while self._waiting:
            scan, fragment, rows = self._waiting[0]
            if self._batches is None:
                self._batches = rows_after(scan.batches(fragment), rows)
            batch = next(self._batches, None)
            if batch is not None:
                self._waiting[0] = (scan, fragment, rows + batch.num_rows)
                return batch, fragment.path, fragment.rows_before + rows
            self._waiting.popleft()
            self._batches = None
        return None


def rows_after(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the first ``rows`` rows, which were sent before a checkpoint."""
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows = max(rows - batch.num_rows, 0)
