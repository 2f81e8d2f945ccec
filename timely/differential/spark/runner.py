"""``maintain``: a view over feeds on Spark, as a stream whose epochs are micro-batches.

It is :func:`timely.spark.stream` with a dataflow around the view: feeds become tables, and the view rows to hand over. What
survives a failure is said there. The invariant: a view, a mode or feeds other than those of the checkpoint are refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame

from timely.dataflow import ScopeBuilder, Stream
from timely.differential.collections import Collection
from timely.differential.spark.feed_tables import TableBuilder
from timely.differential.spark.feeds import Feed, as_feed
from timely.differential.spark.view_rows import all_rows, changed_rows, changed_schema
from timely.differential.tables import Table, sql, table
from timely.differential.tables.values.kinds import lower_case, spelling
from timely.errors import ChangedDataflowError, ConfigurationError, SchemaError, brief
from timely.spark import StreamHandle, stream
from timely.spark.connect import functions_of, is_connect
from timely.spark.defaults import RunDefaults
from timely.spark.plan import check_build, check_names, session_of
from timely.spark.reporting import ReportPage, name_of
from timely.spark.sinks import (
    CHANGE_TYPE,
    COMMIT_VERSION,
    ForeachEpoch,
    ParquetSink,
    Sink,
    SinkContext,
    check_sink,
    check_without_java,
)
from timely.spark.streaming.directory import StreamDirectory
from timely.spark.streaming.epoch_log import has_epochs
from timely.spark.streaming.schemas import stored_inputs
from timely.spark.versions import spark_schema
from timely.worker import Worker

View: TypeAlias = Table[int] | Collection[int, Any]
BuildViews = Callable[..., View | Mapping[str, View]]
"""``build(scope, **tables)`` returns a table, or several by name."""

Mode = Literal["changes", "complete"]

Outputs = Callable[[int, Any], object] | Sink | str | os.PathLike[str]
"""A function of an epoch and a DataFrame, or ``{name: DataFrame}`` where there are several views; a sink; or a folder's path."""

_VIEW = "view"
"""The name of the only view."""

_SNAPSHOT = "snapshot_of_"
_DESCRIBED = "view.json"
"""The file that says what a checkpoint is of."""


def maintain(
    view: str | BuildViews,
    inputs: Mapping[str, DataFrame | Feed],
    outputs: Outputs,
    *,
    checkpoint: str | os.PathLike[str],
    mode: Mode = "changes",
    workers: int | None = None,
    checkpoint_every: int = 10,
    trigger: Mapping[str, Any] | None = None,
    version: str = "",
    patience: float | None = None,
    live: ReportPage | None = None,
) -> StreamHandle:
    """Start a view that Spark's workers keep up to date while its inputs change, and hand it over after each micro-batch.

    ``view`` is a query in SQL over the inputs, in the dialect of ``timely.differential.sql``; or a function ``build(scope,
    **tables)`` of ``timely.differential.Table``, which returns a table, or a dictionary of several. An input is a streaming
    DataFrame whose rows are only added; a feed from :func:`changes` or :func:`upserts`; or, beside one of these, a DataFrame that
    is no stream, which enters as a whole at epoch 0.

    ``outputs(epoch, frame)`` is called after each micro-batch, as ``foreach_epoch`` of :func:`timely.spark.stream`, in order and
    at least once; of several views with a dictionary. In ``mode="changes"`` the rows are those by which the view has changed, all
    deletes before all inserts, with ``_change_type`` (``delete``, ``insert``) and the epoch as ``_commit_version``: a feed that
    :func:`changes` reads. In ``mode="complete"`` they are all rows of the view. ``outputs`` may be a sink, such as
    :class:`timely.spark.JdbcSink`, which has each epoch once. A path stands for a :class:`timely.spark.ParquetSink`, of whose
    epochs the last two stay in complete mode.

    A row that cannot be applied ends the stream with a :class:`~timely.errors.FeedError`, before anything of its epoch is handed
    over. Repair the source, or filter the row out of the DataFrame, and start again with the same ``checkpoint``: the epoch is
    read anew. The other arguments and errors are those of :func:`timely.spark.stream`; what is checked before anything starts is
    a :class:`~timely.errors.SqlError`, :class:`~timely.errors.SchemaError` or :class:`~timely.errors.ConfigurationError`.

    >>> import tempfile
    >>> from timely.differential.spark import maintain
    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> numbers = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().select("value")
    >>> def take(epoch, frame):
    ...     found.append(sorted((row.odd, row.n, row["_change_type"]) for row in frame.collect()))
    ...     if epoch == 1:
    ...         handle.stop()
    >>> found, folder = [], tempfile.TemporaryDirectory()
    >>> query = "select value % 2 = 1 as odd, count(*) as n from numbers group by value % 2 = 1"
    >>> handle = maintain(query, {"numbers": numbers}, take, checkpoint=folder.name, workers=1)
    >>> handle.await_termination()
    True
    >>> found[0]
    [(False, 2, 'insert'), (True, 1, 'insert')]
    >>> found[1]
    [(False, 2, 'delete'), (False, 3, 'insert'), (True, 1, 'delete'), (True, 3, 'insert')]
    >>> folder.cleanup()
    """
    if mode not in ("changes", "complete"):
        raise ConfigurationError(f"mode is 'changes' or 'complete', not {mode!r}")
    if isinstance(outputs, str | os.PathLike):
        outputs = ParquetSink(outputs, keep=2 if mode == "complete" else None)
    check_sink("outputs", outputs)
    check_names("inputs", inputs)
    feeds = {name: as_feed(name, source) for name, source in inputs.items()}
    if isinstance(view, str):
        _check_cases(feeds)
    else:
        check_build(view, inputs)
    session = session_of({name: feed.frame for name, feed in feeds.items()})
    checkpoint = RunDefaults.of(session).place(checkpoint, "maintain", view)
    directory = StreamDirectory.at(checkpoint)
    described = {
        "view": view if isinstance(view, str) else "",
        "mode": mode,
        "inputs": {name: repr(feed.decoder) for name, feed in feeds.items()},
    }
    if not is_connect(session):
        _is_of(directory, described)
    stored = stored_inputs(session, directory)
    feeds = {name: feed.going_on(name, stored.get(name), stored.get(_SNAPSHOT + name)) for name, feed in feeds.items()}
    frames = {name: feed.frame for name, feed in feeds.items()}
    for name, feed in feeds.items():
        if feed.snapshot is not None:
            if _SNAPSHOT + name in feeds:
                raise ConfigurationError(f"inputs: {_SNAPSHOT + name} is the name of the snapshot of {name!r}: rename the input")
            frames[_SNAPSHOT + name] = feed.snapshot
    builders = tuple(TableBuilder(feed.table(name), feed.decoder) for name, feed in feeds.items())
    schemas, several = _schemas(view, builders)
    if is_connect(session):  # where the program may not reach the checkpoint, and the process that opens the sink does
        check_without_java("outputs", outputs)
    else:
        _settle(directory, described)
    return stream(
        _Build(view, builders, schemas, mode),
        frames,
        {name: spark_schema(changed_schema(schema) if mode == "changes" else schema) for name, schema in schemas.items()},
        workers=workers,
        foreach_epoch=_ViewSink(outputs, mode, several, checkpoint if is_connect(session) else None, described),
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        trigger=trigger,
        version=version,
        patience=patience,
        live=live,
    )


@attrs.frozen
class _ViewSink:
    """Hands views to a function or sink: changes with all deletes first, and the only view without a name."""

    outputs: Callable[[int, Any], object] | Sink
    mode: Mode
    several: bool
    checkpoint: str | os.PathLike[str] | None
    """Where what the stream is of is still to be noted, or compared."""
    described: Mapping[str, object]

    def open(self, context: SinkContext) -> ForeachEpoch:
        """Open the sink, if it is one."""
        if self.checkpoint is not None:
            _settle(StreamDirectory.at(self.checkpoint), self.described)
        names = {name: name if self.several else "" for name in context.outputs}

        def views(tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
            ordered = _deletes_first if self.mode == "changes" else lambda frame: frame
            return {names[name]: ordered(frame) for name, frame in tables.items()}

        outputs = self.outputs
        if isinstance(outputs, Sink):
            take = outputs.open(attrs.evolve(context, outputs={names[name]: each for name, each in context.outputs.items()}))
            return lambda epoch, tables: take(epoch, views(tables))
        if self.several:
            return lambda epoch, tables: outputs(epoch, views(tables))
        return lambda epoch, tables: outputs(epoch, views(tables)[""])


def _deletes_first(frame: DataFrame) -> DataFrame:
    """Return changes with all deletes before all inserts."""
    kind = functions_of(frame.sparkSession).col(CHANGE_TYPE)
    return frame.where(kind == "delete").unionAll(frame.where(kind == "insert"))


@attrs.frozen
class _Build:
    """The dataflow around a view, built in every worker."""

    view: str | BuildViews
    builders: tuple[TableBuilder, ...]
    schemas: Mapping[str, pa.Schema]
    mode: Mode

    @property
    def __name__(self) -> str:
        """What Spark's plans and descriptions of jobs say."""
        return _VIEW if isinstance(self.view, str) else name_of(self.view)

    def __call__(self, scope: ScopeBuilder[int], /, **streams: Stream[int, Any]) -> dict[str, Stream[int, Any]]:
        tables = {}
        for builder in self.builders:
            name = builder.table.name
            tables[name] = builder.build(streams[name], streams.get(_SNAPSHOT + name))
        render = changed_rows if self.mode == "changes" else all_rows
        views = _views(_found(self.view, scope, tables))
        return {name: render(_collection(view), self.schemas[name], name) for name, view in views.items()}


def _found(view: str | BuildViews, scope: ScopeBuilder[int], tables: Mapping[str, Table[int]]) -> View | Mapping[str, View]:
    return sql(scope, view, **tables) if isinstance(view, str) else view(scope, **tables)


def _views(built: View | Mapping[str, View]) -> Mapping[str, View]:
    """Return the views by name, checked."""
    views = built if isinstance(built, Mapping) else {_VIEW: built}
    check_names("what build returns", views)
    for name, each in views.items():
        if not isinstance(each, Table) and (not isinstance(each, Collection) or each.schema is None):
            raise ConfigurationError(
                f"view {name!r}: build must return a table, or a collection with a schema, not {brief(each)}:"
                " dd.table(collection, schema) makes one"
            )
    return views


def _collection(view: View) -> Collection[int, Any]:
    return view.collection if isinstance(view, Table) else view


def _schemas(view: str | BuildViews, builders: tuple[TableBuilder, ...]) -> tuple[dict[str, pa.Schema], bool]:
    """Return the columns of each view, and whether there may be several: it is built once here, and never run."""
    worker = Worker()
    schemas = {}
    spellings = {lower_case(name): name for builder in builders for name in _struct_fields(builder.table.schema)}
    with worker.dataflow(int) as scope:
        tables = {builder.table.name: table(scope, builder.table.schema) for builder in builders}
        built = _found(view, scope, tables)
        for name, each in _views(built).items():
            schema = _spelled(each, spellings)
            for field in schema:
                if pa.types.is_null(field.type):
                    raise SchemaError(f"view {name!r}: column {field.name!r} has no type: CAST it in the view")
                if lower_case(field.name) in (CHANGE_TYPE, COMMIT_VERSION):
                    raise SchemaError(f"view {name!r}: column {field.name!r} has the name of one that is added: rename it")
            schemas[name] = schema
    worker.drop_dataflow(scope)
    return schemas, isinstance(built, Mapping)


def _spelled(view: View, spellings: Mapping[str, str]) -> pa.Schema:
    """Return the columns of a view, with the names as the user has them; ``spellings`` are those of fields of structs."""
    schema = view.schema
    assert schema is not None
    if isinstance(view, Collection):
        return schema
    kinds = [_with_spellings(field.type, spellings) for field in schema]
    return pa.schema(
        [field.with_name(spelling(column.name)).with_type(kind) for field, column, kind in zip(schema, view.columns, kinds)]
    )


def _struct_fields(parts: Iterable[pa.Field]) -> Iterator[str]:
    """Yield the names of the fields of all structs in some columns, or fields of such a struct."""
    for part in parts:
        kind = part.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            yield from (field.name for field in kind)
            yield from _struct_fields(kind)


def _with_spellings(kind: pa.DataType, spellings: Mapping[str, str]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_spellings(kind.value_type, spellings)))
    if not pa.types.is_struct(kind):
        return kind
    parts = [field.with_type(_with_spellings(field.type, spellings)) for field in kind]
    return pa.struct([part.with_name(spellings.get(part.name, part.name)) for part in parts])


def _check_cases(feeds: Mapping[str, Feed]) -> None:
    seen: dict[str, str] = {}
    for name in feeds:
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise ConfigurationError(
                f"inputs: {other!r} and {name!r} differ in case alone, which SQL does not tell apart: rename one"
            )


def _settle(directory: StreamDirectory, described: Mapping[str, object]) -> None:
    """Note what a checkpoint without any epoch is of, or compare."""
    if not _is_of(directory, described):
        text = json.dumps(described, indent=1)
        directory.write(_DESCRIBED, lambda file: file.write(text.encode()))


def _is_of(directory: StreamDirectory, described: Mapping[str, object]) -> bool:
    """Return whether a checkpoint has epochs. ``ChangedDataflowError`` where these are of something else."""
    if not has_epochs(directory.ledger()):
        return False
    stored = json.loads(directory.read(_DESCRIBED))
    for what, now in described.items():
        if stored[what] != now:
            raise ChangedDataflowError(
                f"the checkpoint {directory.uri} has another {what}: {brief(stored[what])}, and not {brief(now)}. Use a new"
                " directory as checkpoint"
            )
    return True
