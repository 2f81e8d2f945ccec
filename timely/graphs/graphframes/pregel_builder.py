"""``Pregel``: programs of column expressions, put together call by call and run in one job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Protocol, Self, Unpack

import attrs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.column_expressions import compiled, compiled_aggregate, compiled_list
from timely.graphs.graphframes.graph_tables import GraphTables
from timely.graphs.graphframes.pregel.column_pregel import (
    ACTIVE,
    MESSAGE,
    ColumnProgram,
    MessageColumn,
    StateColumn,
    column_pregel,
    fields,
)
from timely.graphs.graphframes.unused_parameters import warn_of
from timely.graphs.spark.graph_columns import quoted
from timely.graphs.spark.result import GraphResult, RunOptions
from timely.spark.versions import arrow_type

_STABLE_AFTER: Final = 5
"""Maximum number of type-widening passes."""


class _Graph(Protocol):
    """What a program needs of a graph."""

    _tables: GraphTables


@attrs.frozen
class _VertexColumn:
    initial: Column
    update: Column


class Pregel:
    """A Pregel program over column expressions; :meth:`run` runs it.

    In each superstep, messages are made of each edge and its ends, aggregated at the vertices that they are sent to, and all
    vertices are updated. Methods return the program, so that calls are chained. Expressions are Spark's, and workers compute
    them: arithmetic, comparisons, conditions and the usual aggregates. Others are refused by name in :meth:`run`.

    >>> from timely.graphs.spark import GraphFrame
    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> v = session.createDataFrame([(1, 4), (2, 9), (3, 2)], "id long, n long")
    >>> e = session.createDataFrame([(1, 2), (2, 3)], "src long, dst long")
    >>> greatest = F.greatest("most", Pregel.msg())
    >>> program = GraphFrame(v, e).pregel.setMaxIter(2).withVertexColumn("most", F.col("n"), greatest)
    >>> found = program.sendMsgToDst(Pregel.src("most")).aggMsgs(F.max(Pregel.msg())).run()
    >>> sorted(tuple(row) for row in found.collect())
    [(1, 4, 4), (2, 9, 9), (3, 2, 9)]
    """

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self._columns: dict[str, _VertexColumn] = {}
        self._messages: list[tuple[Column, bool]] = []
        self._aggregate: Column | None = None
        self._supersteps = 10
        self._stop_without_messages = False
        self._stop_when_inactive = False
        self._skip_inactive = False
        self._active = _VertexColumn(F.lit(True), F.lit(True))
        self._level = StorageLevel.MEMORY_AND_DISK_DESER

    # -- the program -----------------------------------------------------------------------------------------------------

    def withVertexColumn(self, colName: str, initialExpr: Column, updateAfterAggMsgsExpr: Column) -> Self:
        """Add a column to the vertices: its first value, of their attributes, and its value after a superstep.

        The latter is made of attributes, columns before the superstep, and :meth:`msg`: the aggregated message, or null.
        """
        if not isinstance(colName, str) or colName in ("id", MESSAGE, ACTIVE) or colName in self._columns:
            raise ConfigurationError(f"pregel: withVertexColumn: {colName!r} cannot be the name of a new column")
        if colName.lower() in (name.lower() for name in self.graph._tables.vertices.columns):
            raise SchemaError(f"pregel: the vertices have a column {colName!r} already: rename one of the two")
        self._columns[colName] = _VertexColumn(_column("initialExpr", initialExpr), _column("update", updateAfterAggMsgsExpr))
        return self

    def sendMsgToSrc(self, msgExpr: Column) -> Self:
        """Add a message to the source of each edge, of :meth:`src`, :meth:`dst` and :meth:`edge`. A null is not sent."""
        self._messages.append((_column("sendMsgToSrc", msgExpr), True))
        return self

    def sendMsgToDst(self, msgExpr: Column) -> Self:
        """Add a message to the destination of each edge, of :meth:`src`, :meth:`dst` and :meth:`edge`. A null is not sent."""
        self._messages.append((_column("sendMsgToDst", msgExpr), False))
        return self

    def aggMsgs(self, aggExpr: Column) -> Self:
        """Set what the messages to a vertex become: aggregates of :meth:`msg`."""
        self._aggregate = _column("aggMsgs", aggExpr)
        return self

    def setMaxIter(self, value: int) -> Self:
        """Set the number of supersteps, at least 1; it is 10 otherwise."""
        if not isinstance(value, int) or value < 1:
            raise ConfigurationError(f"pregel: setMaxIter: there must be 1 superstep or more, not {value!r}")
        self._supersteps = value
        return self

    def setEarlyStopping(self, value: bool) -> Self:
        """Set whether to stop before a superstep in which there is no message."""
        self._stop_without_messages = bool(value)
        return self

    def setStopIfAllNonActiveVertices(self, value: bool) -> Self:
        """Set whether to stop after a superstep that leaves no vertex active."""
        self._stop_when_inactive = bool(value)
        return self

    def setInitialActiveVertexExpression(self, value: Column) -> Self:
        """Set which vertices are active at first: all, otherwise."""
        self._active = attrs.evolve(self._active, initial=_column("setInitialActiveVertexExpression", value))
        return self

    def setUpdateActiveVertexExpression(self, value: Column) -> Self:
        """Set which vertices are active after a superstep, by the columns before it and :meth:`msg`: all, otherwise."""
        self._active = attrs.evolve(self._active, update=_column("setUpdateActiveVertexExpression", value))
        return self

    def setSkipMessagesFromNonActiveVertices(self, value: bool) -> Self:
        """Set whether messages are sent only along edges whose source is active, or an end where messages read both."""
        self._skip_inactive = bool(value)
        return self

    # -- settings of GraphFrames that have nothing to set here -----------------------------------------------------------

    def setCheckpointInterval(self, value: int) -> Self:
        """Warn that one job has no plan that grows. ``run(checkpoint=...)`` writes checkpoints by the clock."""
        warn_of("pregel", f"setCheckpointInterval({value!r})")
        return self

    def setUseLocalCheckpoints(self, value: bool) -> Self:
        """Warn that one job has no plan that grows. ``run(checkpoint=...)`` writes checkpoints by the clock."""
        warn_of("pregel", f"setUseLocalCheckpoints({value!r})")
        return self

    def setIntermediateStorageLevel(self, storage_level: StorageLevel) -> Self:
        """Set the level at which the result is stored, once an action has made it."""
        self._level = storage_level
        return self

    def required_src_columns(self, col_name: str, *col_names: str) -> Self:
        """Return the program: workers send the columns that messages read, and no others."""
        return self

    def required_dst_columns(self, col_name: str, *col_names: str) -> Self:
        """Return the program: workers send the columns that messages read, and no others."""
        return self

    def required_edge_columns(self, col_name: str, *col_names: str) -> Self:
        """Return the program: workers read the columns that messages read, and no others."""
        return self

    # -- columns ---------------------------------------------------------------------------------------------------------

    @staticmethod
    def msg() -> Column:
        """Return the message, or what the messages to a vertex were aggregated to."""
        return F.col(MESSAGE)

    @staticmethod
    def src(colName: str) -> Column:
        """Return a column of the vertex at which an edge starts."""
        return F.col("src." + colName)

    @staticmethod
    def dst(colName: str) -> Column:
        """Return a column of the vertex at which an edge ends."""
        return F.col("dst." + colName)

    @staticmethod
    def edge(colName: str) -> Column:
        """Return a column of an edge."""
        return F.col("edge." + colName)

    # -- running it ------------------------------------------------------------------------------------------------------

    def run(self, **options: Unpack[RunOptions]) -> GraphResult:
        """Return the vertices with the columns that were added, after the last superstep.

        The program runs when an action asks for the result. ``options`` are those of graph functions: with ``checkpoint=``, a
        run that fails goes on in the middle of its supersteps. ``ConfigurationError`` for a program that lacks a part, or has an
        expression that workers cannot compute.
        """
        if not self._columns or not self._messages or self._aggregate is None:
            raise ConfigurationError("pregel: a program needs withVertexColumn, sendMsgToDst or sendMsgToSrc, and aggMsgs")
        columns = dict(self._columns)
        if self._skip_inactive or self._stop_when_inactive:
            columns[ACTIVE] = self._active
        program, states = _program(self, columns, self._messages, self._aggregate)
        read = {name for state in program.states.values() for one in (state.initial, state.update) for name in fields(one)}
        along = program.read_along_edges()
        read |= {name.partition(".")[2] for name in along if not name.startswith("edge.")}
        tables = self.graph._tables
        attributes = [F.col(quoted(name)) for name in tables.vertices.columns if name in read and name != "id"]
        edge_attributes = [F.col(quoted(name)) for name in tables.edges.columns if f"edge.{name}" in along]
        edges, vertices = tables.inner_edges(*edge_attributes), tables.node_column(*attributes)
        apply = partial(column_pregel, program=program)
        table = tables.run("pregel", apply, states, options, edges=edges, vertices=vertices)
        return tables.beside(table, self._level, table._result)


def _program(
    pregel: Pregel, columns: dict[str, _VertexColumn], messages: Sequence[tuple[Column, bool]], aggregated: Column
) -> tuple[ColumnProgram, StructType]:
    """Return a program, and the columns of its result."""
    vertices, edges = pregel.graph._tables.vertices, pregel.graph._tables.edges
    session = vertices.sparkSession
    initial = {name: compiled(_empty(session, vertices.schema), column.initial) for name, column in columns.items()}
    types = {name: kind for name, (_, kind) in initial.items()}
    for _ in range(_STABLE_AFTER):
        along = StructType([_field(name, _with(vertices.schema, types)) for name in ("src", "dst")])
        along.add(_field("edge", edges.schema))
        sent, message = compiled_list(_empty(session, along), [column for column, _ in messages])
        grouped = StructType([vertices.schema["id"], _field(MESSAGE, message)])
        aggregates, combined, result = compiled_aggregate(_empty(session, grouped), "id", aggregated)
        after = _with(vertices.schema, {**types, MESSAGE: result})
        updates = {name: compiled(_empty(session, after), column.update) for name, column in columns.items()}
        before, types = types, {name: kind for name, (_, kind) in updates.items()}
        if all(arrow_type(types[name]) == arrow_type(before[name]) for name in types):
            break
    else:
        raise SchemaError(
            f"pregel: the columns {', '.join(columns)} have another type after each superstep: cast them in the update"
        )
    for name, (_, kind) in initial.items():
        _check_widens(name, kind, types[name])
    states = {name: StateColumn(arrow_type(types[name]), initial[name][0], update) for name, (update, _) in updates.items()}
    program = ColumnProgram(
        states,
        [MessageColumn(expression, to_source) for expression, (_, to_source) in zip(sent, messages, strict=True)],
        arrow_type(message),
        aggregates,
        combined,
        pregel._supersteps,
        pregel._stop_without_messages,
        pregel._skip_inactive,
        pregel._stop_when_inactive,
    )
    return program, StructType([_field(name, kind) for name, kind in types.items() if name != ACTIVE])


def _check_widens(name: str, first: DataType, then: DataType) -> None:
    """Raise ``SchemaError`` unless the first values of a column are values of the type that it has later."""
    order = ("void", "tinyint", "smallint", "int", "bigint", "float", "double")
    one, other = first.simpleString(), then.simpleString()
    if one != other and one != "void" and not (one in order and other in order and order.index(one) < order.index(other)):
        raise SchemaError(f"pregel: the column {name!r} is {one} at first, and {other} after a superstep: cast one of them")


def _field(name: str, kind: DataType) -> StructField:
    return StructField(name, kind)


def _with(schema: StructType, more: dict[str, DataType]) -> StructType:
    return StructType([*schema.fields, *(_field(name, kind) for name, kind in more.items())])


def _empty(session: SparkSession, schema: StructType) -> DataFrame:
    return session.createDataFrame([], schema)


def _column(what: str, expression: Any) -> Column:
    if not isinstance(expression, Column):
        raise ConfigurationError(f"pregel: {what} takes a column expression, such as F.lit(1), not {expression!r}")
    return expression
