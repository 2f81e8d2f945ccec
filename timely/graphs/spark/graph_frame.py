"""``GraphFrame``: a graph of two DataFrames, with the methods, columns and conventions of GraphFrames 0.12.

What needs a loop is one dataflow in one barrier job. What needs none is DataFrame code. Results keep the attributes of vertices.
See ``docs/graphframes.md`` for each method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType
from pyspark.storagelevel import StorageLevel

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.spark import algorithms
from timely.graphs.spark.columns import column_type, node_type

DEFAULT_LEVEL: Final = StorageLevel.MEMORY_AND_DISK_DESER

_NULL_ID = "the column {0!r} of the {1} is null in a row, and an id must have a value: filter such rows out"


class GraphFrame:
    """A graph: ``v`` has a row for each vertex, with its ``id``; ``e`` a row for each edge, with the ids ``src`` and ``dst``.

    Further columns are attributes. Ids are of one type, any that is not nested. ``workers`` says how many workers the loops of
    this graph, and of graphs made of it, run on; without it, as many as there are slots. ``SchemaError`` for a missing column.

    Edges with an end that is no vertex are left out of what an algorithm computes; :meth:`validate` refuses them. Workers raise
    ``SchemaError`` for an id that is null.

    >>> from timely.spark import local_session
    >>> session = local_session(2)
    >>> v = session.createDataFrame([("a", 34), ("b", 36), ("c", 30)], "id string, age int")
    >>> e = session.createDataFrame([("a", "b"), ("c", "b")], "src string, dst string")
    >>> g = GraphFrame(v, e)
    >>> sorted(tuple(row) for row in g.inDegrees.collect())
    [('b', 2)]
    >>> sorted(tuple(row) for row in g.connectedComponents().collect())
    [('a', 34, 'a'), ('b', 36, 'a'), ('c', 30, 'a')]
    """

    ID: ClassVar[str] = "id"
    SRC: ClassVar[str] = "src"
    DST: ClassVar[str] = "dst"
    EDGE: ClassVar[str] = "edge"
    WEIGHT: ClassVar[str] = "weight"

    def __init__(self, v: DataFrame, e: DataFrame, *, workers: int | None = None) -> None:
        column_type(v, self.ID, "vertices")
        for name in (self.SRC, self.DST):
            column_type(e, name, "edges")
        self._vertices = v
        self._edges = e
        self._workers = workers
        self._whole = False

    def _derived(self, vertices: DataFrame, edges: DataFrame, *, whole: bool = False) -> GraphFrame:
        """Return a graph with the same settings; ``whole`` if it has no edge to what is no vertex, provided this one has none."""
        graph = GraphFrame(vertices, edges, workers=self._workers)
        graph._whole = self._whole and whole
        return graph

    def __repr__(self) -> str:
        return f"GraphFrame(v:{self._vertices!r}, e:{self._edges!r})"

    # -- the tables ------------------------------------------------------------------------------------------------------

    @property
    def vertices(self) -> DataFrame:
        """The vertices: ``id`` and attributes."""
        return self._vertices

    @property
    def nodes(self) -> DataFrame:
        """Another name of :attr:`vertices`."""
        return self._vertices

    @property
    def edges(self) -> DataFrame:
        """The edges: ``src``, ``dst`` and attributes."""
        return self._edges

    @property
    def triplets(self) -> DataFrame:
        """A row ``(src, edge, dst)`` of three structs for each edge between vertices."""
        src, dst = (self._vertices.select(_nested(self._vertices, name)) for name in (self.SRC, self.DST))
        edges = self._edges.select(_nested(self._edges, self.EDGE))
        joined = edges.join(src, F.col("edge.src") == F.col("src.id")).join(dst, F.col("edge.dst") == F.col("dst.id"))
        return joined.select(self.SRC, self.EDGE, self.DST)

    def cache(self) -> GraphFrame:
        """Return the graph with both tables in Spark's cache, once an action has read them."""
        return self._derived(self._vertices.cache(), self._edges.cache(), whole=True)

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> GraphFrame:
        """Return the graph with both tables stored at a level, once an action has read them."""
        return self._derived(self._vertices.persist(storageLevel), self._edges.persist(storageLevel), whole=True)

    def unpersist(self, blocking: bool = False) -> GraphFrame:
        """Return the graph with neither table in Spark's cache."""
        return self._derived(self._vertices.unpersist(blocking), self._edges.unpersist(blocking), whole=True)

    def validate(self, check_vertices: bool = True, intermediate_storage_level: StorageLevel = DEFAULT_LEVEL) -> None:
        """Raise ``SchemaError`` for null or duplicate ids of vertices, and for edges whose ends are no vertices.

        Without ``check_vertices`` edges are not read. Algorithms run on a graph that passed need no joins to leave edges out.
        """
        self._check_types()
        rows, there, distinct = _first(
            self._vertices.select(F.count(F.lit(1)), F.count(F.col(self.ID)), F.count_distinct(F.col(self.ID)))
        )
        if rows != there:
            raise SchemaError(f"the vertices have {rows - there} rows without an id: filter them out")
        if there != distinct:
            raise SchemaError(
                f"the vertices have {there} rows and {distinct} ids, and a vertex must have one row:"
                " vertices.dropDuplicates(['id']) keeps one of each"
            )
        if not check_vertices:
            return
        ends = self._edges.select(F.explode(F.array(self.SRC, self.DST)).alias(self.ID))
        unknown = ends.join(self._vertices.select(self.ID), self.ID, "left_anti").persist(intermediate_storage_level)
        try:
            (missing,) = _first(unknown.select(F.count(F.lit(1))))
            if missing:
                (example,) = _first(unknown)
                raise SchemaError(
                    f"the edges have {missing} ends that are no vertices, as {example!r}: add these vertices, or filter the edges out"
                )
        finally:
            unknown.unpersist()
        self._whole = True

    # -- degrees ---------------------------------------------------------------------------------------------------------

    @property
    def outDegrees(self) -> DataFrame:
        """``(id, outDegree)`` for each id at which an edge starts."""
        return self._edges.groupBy(F.col(self.SRC).alias(self.ID)).agg(F.count(F.lit(1)).alias("outDegree"))

    @property
    def inDegrees(self) -> DataFrame:
        """``(id, inDegree)`` for each id at which an edge ends."""
        return self._edges.groupBy(F.col(self.DST).alias(self.ID)).agg(F.count(F.lit(1)).alias("inDegree"))

    @property
    def degrees(self) -> DataFrame:
        """``(id, degree)`` for each id that is an end of an edge; a loop counts twice."""
        return self._ends().groupBy(self.ID).agg(F.count(F.lit(1)).alias("degree"))

    def type_out_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, outDegrees)``: a struct of the number of edges that start at ``id``, for each value of a column of the edges."""
        return _by_type(self._edges.withColumn(self.ID, F.col(self.SRC)), edge_type_col, edge_types, "outDegrees")

    def type_in_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, inDegrees)``, as :meth:`type_out_degree`, of the edges that end at ``id``."""
        return _by_type(self._edges.withColumn(self.ID, F.col(self.DST)), edge_type_col, edge_types, "inDegrees")

    def type_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, degrees)``, as :meth:`type_out_degree`, of the edges at ``id`` in either direction."""
        return _by_type(self._ends(edge_type_col), edge_type_col, edge_types, "degrees")

    def _ends(self, *columns: str) -> DataFrame:
        return self._edges.select(F.explode(F.array(self.SRC, self.DST)).alias(self.ID), *columns)

    # -- graphs made of this one -----------------------------------------------------------------------------------------

    def filterVertices(self, condition: str | Column) -> GraphFrame:
        """Return the graph of the vertices for which ``condition`` holds, and of the edges between them.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1, 34), (2, 36), (3, 30)], "id long, age int")
        >>> e = session.createDataFrame([(1, 2), (3, 2)], "src long, dst long")
        >>> [tuple(row) for row in GraphFrame(v, e).filterVertices("age > 30").edges.collect()]
        [(1, 2)]
        """
        vertices = self._vertices.filter(condition)
        edges = self._edges
        for end in (self.SRC, self.DST):
            ids = vertices.select(F.col(self.ID).alias("_timely_id"))
            edges = edges.join(ids, F.col(end) == F.col("_timely_id"), "left_semi")
        graph = self._derived(vertices, edges)
        graph._whole = self._whole
        return graph

    def filterEdges(self, condition: str | Column) -> GraphFrame:
        """Return the graph of all vertices, and of the edges for which ``condition`` holds."""
        return self._derived(self._vertices, self._edges.filter(condition), whole=True)

    def dropIsolatedVertices(self) -> GraphFrame:
        """Return the graph without the vertices at which no edge starts or ends."""
        return self._derived(self._vertices.join(self._ends(), self.ID, "left_semi"), self._edges, whole=True)

    def as_undirected(self) -> GraphFrame:
        """Return the graph with each edge in both directions, with its attributes."""
        return self._derived(self._vertices, self._edges.union(self._reversed()), whole=True)

    def as_reversed(self) -> GraphFrame:
        """Return the graph with each edge in the other direction, with its attributes."""
        return self._derived(self._vertices, self._reversed(), whole=True)

    def _reversed(self) -> DataFrame:
        swapped = {self.SRC: self.DST, self.DST: self.SRC}
        return self._edges.select(*(F.col(_quoted(swapped.get(name, name))).alias(name) for name in self._edges.columns))

    # -- algorithms ------------------------------------------------------------------------------------------------------

    def connectedComponents(
        self,
        algorithm: Literal["graphframes", "graphx", "two_phase", "randomized_contraction"] = "graphframes",
        checkpointInterval: int = 2,
        broadcastThreshold: int = 1_000_000,
        useLabelsAsComponents: bool = False,
        use_local_checkpoints: bool = False,
        max_iter: int = 2**31 - 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
    ) -> DataFrame:
        """Return the vertices with a column ``component``: the smallest id among those that paths join, in either direction.

        ``component`` is of type long for whole numbers, unless ``useLabelsAsComponents``, and of the ids' type otherwise. All
        algorithms run the same dataflow, to the end, and need no checkpoints.
        """
        _check_name("connectedComponents", algorithm, ("graphframes", "graphx", "two_phase", "randomized_contraction"))
        found = algorithms.connected_components(**self._input())
        return self._with_column(found, "component", storage_level, as_long=not useLabelsAsComponents)

    def stronglyConnectedComponents(self, maxIter: int) -> DataFrame:
        """Return the vertices with a column ``component``: the smallest id among those that reach each other.

        The result is that of any ``maxIter`` that is large enough: the dataflow runs to its end.
        """
        _check_positive("stronglyConnectedComponents", "maxIter", maxIter)
        found = algorithms.strongly_connected_components(**self._input())
        return self._with_column(found, "component", DEFAULT_LEVEL, as_long=True)

    def labelPropagation(
        self,
        maxIter: int,
        algorithm: Literal["graphx", "graphframes"] = "graphx",
        use_local_checkpoints: bool = False,
        checkpoint_interval: int = 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
    ) -> DataFrame:
        """Return the vertices with a column ``label``: an id, the one that most neighbours have after ``maxIter`` rounds.

        Of several the smallest, so that results are the same in each run.
        """
        _check_name("labelPropagation", algorithm, ("graphx", "graphframes"))
        found = algorithms.label_propagation(**self._input(), rounds=maxIter)
        return self._with_column(found, "label", storage_level)

    def triangleCount(
        self,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        algorithm: Literal["exact", "approx"] = "exact",
        lg_nom_entries: int = 12,
    ) -> DataFrame:
        """Return the vertices with a column ``count``: in how many triangles each is a corner, in any direction.

        The count is exact, also for ``algorithm="approx"``, for which ``lg_nom_entries`` would be the size of sketches.
        """
        _check_name("triangleCount", algorithm, ("exact", "approx"))
        return self._with_column(algorithms.triangle_count(**self._input()), "count", storage_level)

    # -- what algorithms read and return ---------------------------------------------------------------------------------

    def _check_types(self) -> None:
        """Raise ``SchemaError`` unless all ids are of one type, which a dataflow takes."""
        node = node_type(self._edges, self.SRC, self.DST)
        kind = column_type(self._vertices, self.ID, "vertices")
        if kind != node:
            raise SchemaError(
                f"the vertices' column 'id' is {kind.simpleString()}, and the edges' columns 'src' and 'dst' are"
                f" {node.simpleString()}: cast one of them"
            )

    def _input(self) -> dict[str, Any]:
        """Return the arguments that the algorithms on edges have in common."""
        return {"edges": self._inner_edges(), "vertices": self._node_column(), "workers": self._workers}

    def _node_column(self, *columns: Column) -> DataFrame:
        return self._vertices.select(F.col(self.ID).alias("node"), *columns)

    def _inner_edges(self, *columns: Column) -> DataFrame:
        """Return ``src``, ``dst`` and ``columns`` of the edges between vertices."""
        self._check_types()
        ends = (F.col(end) if self._whole else _without_null(end, "edges") for end in (self.SRC, self.DST))
        edges = self._edges.select(*(end.alias(name) for end, name in zip(ends, (self.SRC, self.DST), strict=True)), *columns)
        if self._whole:
            return edges
        for end in (self.SRC, self.DST):
            ids = self._vertices.select(F.col(self.ID).alias("_timely_id"))
            edges = edges.join(ids, F.col(end) == F.col("_timely_id"), "left_semi")
        return edges

    def _with_column(self, found: DataFrame, name: str, level: StorageLevel, *, as_long: bool = False) -> DataFrame:
        """Return the vertices with what was ``found`` of each, ``(node, value)``, in a column of that name."""
        if name.lower() in (column.lower() for column in self._vertices.columns):
            raise SchemaError(f"the vertices have a column {name!r} already, and the result is to have one: rename or drop it")
        node, value = found.columns
        result = F.col(value)
        if as_long and isinstance(found.schema[value].dataType, IntegralType):
            result = result.cast("long")
        found = found.select(F.col(node).alias(self.ID), result.alias(name))
        columns = [*map(_quoted, self._vertices.columns), name]
        return self._vertices.join(found, self.ID, "left").select(*columns).persist(level)


def _by_type(ends: DataFrame, column: str, values: Sequence[Any] | None, name: str) -> DataFrame:
    """Return ``(id, name)``, where ``name`` is a struct of counts of rows by the value of a column."""
    grouped = ends.groupBy(GraphFrame.ID).pivot(column, None if values is None else list(values))
    counted = grouped.agg(F.count(F.lit(1))).na.fill(0)
    fields = [F.col(_quoted(field)).cast("int").alias(field) for field in counted.columns if field != GraphFrame.ID]
    return counted.select(GraphFrame.ID, F.struct(*fields).alias(name))


def _nested(frame: DataFrame, name: str) -> Column:
    """Return all columns of a frame as one struct."""
    return F.struct(*map(_quoted, frame.columns)).alias(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _without_null(name: str, what: str) -> Column:
    return F.coalesce(F.col(name), F.raise_error(F.lit(_NULL_ID.format(name, what))))


def _first(frame: DataFrame) -> tuple[Any, ...]:
    row = frame.first()
    assert row is not None
    return tuple(row)


def _check_name(method: str, algorithm: str, known: Sequence[str]) -> None:
    if algorithm not in known:
        raise ConfigurationError(f"{method}: algorithm must be one of {', '.join(map(repr, known))}, not {algorithm!r}")


def _check_positive(method: str, name: str, value: object) -> None:
    if not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{method}: {name} must be a whole number above 0, not {value!r}")
