"""``GraphFrame``: a graph of two DataFrames, with the methods, columns and conventions of GraphFrames 0.12.

What needs a loop is one dataflow in one barrier job. What needs none is DataFrame code. Results keep the attributes of vertices.
See ``docs/graphs_on_spark.md`` for each method.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal, Unpack

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType
from pyspark.storagelevel import StorageLevel

from timely.errors import ConfigurationError, SchemaError
from timely.graphs.graphframes.edge_aggregates import (
    Expressions,
    aggregated_messages,
    aggregated_neighbors,
    neighborhood_sketches,
)
from timely.graphs.graphframes.graph_tables import DEFAULT_LEVEL, DISTANCES, DST, ID, SRC, WEIGHT, GraphTables, condition, nested
from timely.graphs.graphframes.motifs import find_motif
from timely.graphs.graphframes.pregel.neighborhood_labels import neighborhood_labels
from timely.graphs.graphframes.pregel.paths import landmark_distances, simple_cycles, simple_paths
from timely.graphs.graphframes.pregel.peeling import k_core, maximal_independent_set
from timely.graphs.graphframes.pregel.personalized_rank import Dangling
from timely.graphs.graphframes.pregel.svd_plus_plus import Factorization
from timely.graphs.graphframes.pregel_builder import Pregel
from timely.graphs.graphframes.unused_parameters import without_effect
from timely.graphs.graphframes.vertex_tables import clusters, factorized, ranked, ranks, shortest_paths_between
from timely.graphs.spark import algorithms
from timely.graphs.spark.graph_columns import column_type, quoted, widened
from timely.graphs.spark.result import GraphResult, RunOptions, check_algorithm, check_positive, derived_result
from timely.spark.connect import check_functions


class GraphFrame:
    """A graph: ``v`` has a row for each vertex, with its ``id``; ``e`` a row for each edge, with the ids ``src`` and ``dst``.

    Further columns are attributes. Ids are of one type, any that is not nested; of whole numbers it is the widest. ``workers``
    says how many workers the loops of this graph, and of graphs made of it, run on; without it, as many as there are slots.
    ``SchemaError`` for a missing column.

    Methods with a loop take the ``options`` of graph functions, as ``checkpoint=``, ``checkpoint_every=`` and ``memory=``, and
    return a :class:`~timely.graphs.spark.GraphResult`.

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

    ID: ClassVar[str] = ID
    SRC: ClassVar[str] = SRC
    DST: ClassVar[str] = DST
    EDGE: ClassVar[str] = "edge"
    WEIGHT: ClassVar[str] = WEIGHT

    def __init__(self, v: DataFrame, e: DataFrame, *, workers: int | None = None) -> None:
        for what, frame in (("vertices", v), ("edges", e)):
            check_functions(f"the DataFrame of {what}", frame)
        v, e = widened((v, "vertices", (self.ID,)), (e, "edges", (self.SRC, self.DST)))
        self._tables = GraphTables(v, e, workers)

    def _derived(self, vertices: DataFrame, edges: DataFrame, *, whole: bool = False) -> GraphFrame:
        """Return a graph with the same settings; ``whole`` if it has no edge to what is no vertex, provided this one has none."""
        graph = GraphFrame(vertices, edges, workers=self._tables.workers)
        graph._tables.whole = self._tables.whole and whole
        return graph

    def __repr__(self) -> str:
        return f"GraphFrame(v:{self.vertices!r}, e:{self.edges!r})"

    # -- the tables ------------------------------------------------------------------------------------------------------

    @property
    def vertices(self) -> DataFrame:
        """The vertices: ``id`` and attributes."""
        return self._tables.vertices

    @property
    def nodes(self) -> DataFrame:
        """Another name of :attr:`vertices`."""
        return self.vertices

    @property
    def edges(self) -> DataFrame:
        """The edges: ``src``, ``dst`` and attributes."""
        return self._tables.edges

    @property
    def triplets(self) -> DataFrame:
        """A row ``(src, edge, dst)`` of three structs for each edge between vertices."""
        src, dst = (nested(self.vertices, name) for name in (self.SRC, self.DST))
        edges = nested(self.edges, self.EDGE)
        joined = edges.join(src, F.col("edge.src") == F.col("src.id")).join(dst, F.col("edge.dst") == F.col("dst.id"))
        return joined.select(self.SRC, self.EDGE, self.DST)

    def cache(self) -> GraphFrame:
        """Return the graph with both tables in Spark's cache, once an action has read them."""
        return self._derived(self.vertices.cache(), self.edges.cache(), whole=True)

    def persist(self, storageLevel: StorageLevel = StorageLevel.MEMORY_ONLY) -> GraphFrame:
        """Return the graph with both tables stored at a level, once an action has read them."""
        return self._derived(self.vertices.persist(storageLevel), self.edges.persist(storageLevel), whole=True)

    def unpersist(self, blocking: bool = False) -> GraphFrame:
        """Return the graph with neither table in Spark's cache."""
        return self._derived(self.vertices.unpersist(blocking), self.edges.unpersist(blocking), whole=True)

    def validate(self, check_vertices: bool = True, intermediate_storage_level: StorageLevel = DEFAULT_LEVEL) -> None:
        """Raise ``SchemaError`` for null or duplicate ids of vertices, and for edges whose ends are no vertices.

        Without ``check_vertices`` edges are not read. Algorithms run on a graph that passed need no joins to leave edges out.
        """
        self._tables.validate(check_vertices, intermediate_storage_level)

    # -- degrees ---------------------------------------------------------------------------------------------------------

    @property
    def outDegrees(self) -> DataFrame:
        """``(id, outDegree)`` for each id at which an edge starts."""
        return self.edges.groupBy(F.col(self.SRC).alias(self.ID)).agg(F.count(F.lit(1)).alias("outDegree"))

    @property
    def inDegrees(self) -> DataFrame:
        """``(id, inDegree)`` for each id at which an edge ends."""
        return self.edges.groupBy(F.col(self.DST).alias(self.ID)).agg(F.count(F.lit(1)).alias("inDegree"))

    @property
    def degrees(self) -> DataFrame:
        """``(id, degree)`` for each id that is an end of an edge; a loop counts twice."""
        return self._ends().groupBy(self.ID).agg(F.count(F.lit(1)).alias("degree"))

    def type_out_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, outDegrees)``: a struct of the number of edges that start at ``id``, for each value of a column of the edges."""
        return _by_type(self.edges.withColumn(self.ID, F.col(self.SRC)), edge_type_col, edge_types, "outDegrees")

    def type_in_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, inDegrees)``, as :meth:`type_out_degree`, of the edges that end at ``id``."""
        return _by_type(self.edges.withColumn(self.ID, F.col(self.DST)), edge_type_col, edge_types, "inDegrees")

    def type_degree(self, edge_type_col: str, edge_types: list[Any] | None = None) -> DataFrame:
        """``(id, degrees)``, as :meth:`type_out_degree`, of the edges at ``id`` in either direction."""
        return _by_type(self._ends(edge_type_col), edge_type_col, edge_types, "degrees")

    def _ends(self, *columns: str) -> DataFrame:
        return self.edges.select(F.explode(F.array(self.SRC, self.DST)).alias(self.ID), *map(quoted, columns))

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
        vertices = self.vertices.filter(condition)
        edges = self.edges
        for end in (self.SRC, self.DST):
            ids = vertices.select(F.col(self.ID).alias("_timely_id"))
            edges = edges.join(ids, F.col(end) == F.col("_timely_id"), "left_semi")
        return self._derived(vertices, edges, whole=True)

    def filterEdges(self, condition: str | Column) -> GraphFrame:
        """Return the graph of all vertices, and of the edges for which ``condition`` holds."""
        return self._derived(self.vertices, self.edges.filter(condition), whole=True)

    def dropIsolatedVertices(self) -> GraphFrame:
        """Return the graph without the vertices at which no edge starts or ends."""
        return self._derived(self.vertices.join(self._ends(), self.ID, "left_semi"), self.edges, whole=True)

    def as_undirected(self) -> GraphFrame:
        """Return the graph with each edge in both directions, with its attributes."""
        return self._derived(self.vertices, self.edges.union(self._reversed()), whole=True)

    def as_reversed(self) -> GraphFrame:
        """Return the graph with each edge in the other direction, with its attributes."""
        return self._derived(self.vertices, self._reversed(), whole=True)

    def _reversed(self) -> DataFrame:
        swapped = {self.SRC: self.DST, self.DST: self.SRC}
        return self.edges.select(*(F.col(quoted(swapped.get(name, name))).alias(name) for name in self.edges.columns))

    # -- patterns and messages -------------------------------------------------------------------------------------------

    def find(self, pattern: str) -> DataFrame:
        """Return a row for each instance of a motif, with a struct for each name in it (``docs/graphs_on_spark.md``).

        ``ConfigurationError`` for a pattern that cannot be read.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1,), (2,), (3,)], "id long")
        >>> e = session.createDataFrame([(1, 2), (2, 1), (2, 3)], "src long, dst long")
        >>> [(row.a.id, row.b.id) for row in GraphFrame(v, e).find("(a)-[]->(b); !(b)-[]->(a)").collect()]
        [(2, 3)]
        """
        return find_motif(self.vertices, self.edges, pattern)

    def aggregateMessages(
        self,
        aggCol: Expressions,
        sendToSrc: Expressions | None = None,
        sendToDst: Expressions | None = None,
        intermediate_storage_level: StorageLevel = DEFAULT_LEVEL,
    ) -> DataFrame:
        """Return ``(id, ...)`` with a column for each aggregate, for the vertices that receive a message.

        ``sendToSrc`` and ``sendToDst`` are messages along each edge, to its source or destination. Several are one message, a
        struct. All are columns made of those of :class:`~timely.graphs.spark.AggregateMessages`, or SQL expressions.

        >>> from timely.graphs.spark import AggregateMessages as AM
        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1, 30), (2, 40)], "id long, age int")
        >>> e = session.createDataFrame([(1, 2)], "src long, dst long")
        >>> found = GraphFrame(v, e).aggregateMessages([F.sum(AM.msg).alias("ages")], sendToDst=[AM.src["age"]])
        >>> [tuple(row) for row in found.collect()]
        [(2, 30)]
        """
        return aggregated_messages(self.triplets, aggCol, sendToSrc, sendToDst).persist(intermediate_storage_level)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def aggregate_neighbors(
        self,
        starting_vertices: str | Column,
        accumulator_names: list[str],
        accumulator_inits: list[str | Column],
        accumulator_updates: list[str | Column],
        max_hops: int = 3,
        stopping_condition: str | Column | None = None,
        target_condition: str | Column | None = None,
        required_vertex_attributes: list[str] | None = None,
        required_edge_attributes: list[str] | None = None,
        edge_filter: str | Column | None = None,
        remove_loops: bool = False,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
    ) -> DataFrame:
        """Return the accumulators of each walk that ended, with the ``id`` at which it ended, and its number of edges, ``hop``.

        Walks begin at ``starting_vertices``, and take up to ``max_hops`` edges. An edge updates the accumulators, whose
        expressions are made of them and of :class:`~timely.graphs.spark.AggregateNeighbors`. A walk ends where
        ``target_condition`` holds, or else ``stopping_condition``; with both, one for which only the latter holds is dropped.
        Each hop is two joins of the plan: this is for few hops.
        """
        check_positive("aggregate_neighbors", "max_hops", max_hops)
        vertices, edges = self.vertices, self.edges
        if required_vertex_attributes is not None:
            vertices = vertices.select(*map(quoted, dict.fromkeys([self.ID, *required_vertex_attributes])))
        if remove_loops:
            edges = edges.filter(F.col(self.SRC) != F.col(self.DST))
        if required_edge_attributes is not None:
            edges = edges.select(*map(quoted, dict.fromkeys([self.SRC, self.DST, *required_edge_attributes])))
        return aggregated_neighbors(
            vertices,
            edges,
            starting_vertices,
            accumulator_names,
            accumulator_inits,
            accumulator_updates,
            max_hops,
            stopping_condition,
            target_condition,
            edge_filter,
        ).persist(storage_level)

    @property
    def pregel(self) -> Pregel:
        """A new :class:`~timely.graphs.spark.Pregel` program on this graph."""
        return Pregel(self)

    # -- algorithms ------------------------------------------------------------------------------------------------------

    @without_effect("checkpointInterval", "broadcastThreshold", "use_local_checkpoints", "max_iter")
    def connectedComponents(
        self,
        algorithm: Literal["graphframes", "graphx", "two_phase", "randomized_contraction"] = "graphframes",
        checkpointInterval: int = 2,
        broadcastThreshold: int = 1_000_000,
        useLabelsAsComponents: bool = False,
        use_local_checkpoints: bool = False,
        max_iter: int = 2**31 - 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return the vertices with a column ``component``: the smallest id among those that paths join, in either direction.

        ``component`` is of type long for whole numbers, unless ``useLabelsAsComponents``, and of the ids' type otherwise. All
        algorithms run the same dataflow, to the end.
        """
        check_algorithm("connectedComponents", algorithm, ("graphframes", "graphx", "two_phase", "randomized_contraction"))
        components = algorithms.connected_components(**self._tables.arguments(options))
        return self._tables.with_column(
            components, "component", storage_level, components._result, as_long=not useLabelsAsComponents
        )

    def stronglyConnectedComponents(self, maxIter: int, **options: Unpack[RunOptions]) -> GraphResult:
        """Return the vertices with a column ``component``: the smallest id among those that reach each other.

        The result is that of any ``maxIter`` that is large enough: the dataflow runs to its end.
        """
        check_positive("stronglyConnectedComponents", "maxIter", maxIter)
        components = algorithms.strongly_connected_components(**self._tables.arguments(options))
        return self._tables.with_column(components, "component", DEFAULT_LEVEL, components._result, as_long=True)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def labelPropagation(
        self,
        maxIter: int,
        algorithm: Literal["graphx", "graphframes"] = "graphx",
        use_local_checkpoints: bool = False,
        checkpoint_interval: int = 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return the vertices with a column ``label``: an id, the one that most neighbours have after ``maxIter`` rounds.

        Of several the smallest, so that results are the same in each run.
        """
        check_algorithm("labelPropagation", algorithm, ("graphx", "graphframes"))
        labels = algorithms.label_propagation(**self._tables.arguments(options), rounds=maxIter)
        return self._tables.with_column(labels, "label", storage_level, labels._result)

    @without_effect("lg_nom_entries")
    def triangleCount(
        self,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        algorithm: Literal["exact", "approx"] = "exact",
        lg_nom_entries: int = 12,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return the vertices with a column ``count``: in how many triangles each is a corner, in any direction.

        The count is exact, also for ``algorithm="approx"``, for which ``lg_nom_entries`` would be the size of sketches.
        """
        check_algorithm("triangleCount", algorithm, ("exact", "approx"))
        counts = algorithms.triangle_count(**self._tables.arguments(options))
        return self._tables.with_column(counts, "count", storage_level, counts._result)

    def pageRank(
        self,
        resetProbability: float = 0.15,
        sourceId: Any | None = None,
        maxIter: int | None = None,
        tol: float | None = None,
        *,
        dangling: Dangling = "spread",
        total: float | None = None,
        **options: Unpack[RunOptions],
    ) -> GraphFrame:
        """Return the graph with a column ``pagerank`` of the vertices, and ``weight`` of the edges: 1 / out-degree of ``src``.

        Ranks add up to the number of vertices, those for a ``sourceId`` to 1, or to ``total``. Exactly one of ``maxIter`` rounds,
        and ``tol``, the greatest change of a rank in the last round. The rank of vertices without out-edges goes to all vertices,
        or to the source; with ``dangling="scale"`` it is lost and all are scaled up at the end, as GraphFrames does.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1,), (2,), (3,)], "id long")
        >>> e = session.createDataFrame([(1, 3), (2, 3), (3, 1)], "src long, dst long")
        >>> ranked = GraphFrame(v, e).pageRank(tol=1e-6)
        >>> [(row.id, round(row.pagerank, 2)) for row in ranked.vertices.orderBy("id").collect()]
        [(1, 1.39), (2, 0.15), (3, 1.46)]
        """
        if total is not None and not total > 0:
            raise ConfigurationError(f"pageRank: total must be above 0, not {total!r}")
        sources = [] if sourceId is None else [sourceId]
        table = ranks(self._tables, "pageRank", sources, resetProbability, maxIter, tol, dangling, options)
        rank = F.element_at("ranks", 1)
        if total is not None:
            whole = F.lit(1.0) if sourceId is not None else F.lit(float(self.vertices.count()))
            rank = rank * (F.lit(float(total)) / whole)
        column = table.select("node", rank.alias("pagerank"))
        return self._derived(*ranked(self._tables, column, "pagerank", table._result), whole=True)

    def parallelPersonalizedPageRank(
        self,
        resetProbability: float = 0.15,
        sourceIds: list[Any] | None = None,
        maxIter: int | None = None,
        *,
        dangling: Dangling = "spread",
        **options: Unpack[RunOptions],
    ) -> GraphFrame:
        """Return the graph with columns ``pageranks`` of the vertices and ``weight`` of the edges.

        ``pageranks`` is a vector with a rank for each of ``sourceIds``. The ranks of a source add up to 1. The rest is as for
        :meth:`pageRank`.
        """
        from pyspark.ml.functions import array_to_vector  # takes a second to import

        if not sourceIds:
            raise ConfigurationError("parallelPersonalizedPageRank: sourceIds must have an id: give a list of vertices' ids")
        table = ranks(self._tables, "parallelPersonalizedPageRank", sourceIds, resetProbability, maxIter, None, dangling, options)
        vectors = table.select("node", array_to_vector(F.col("ranks")).alias("pageranks"))
        return self._derived(*ranked(self._tables, vectors, "pageranks", table._result), whole=True)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def shortestPaths(
        self,
        landmarks: list[Any],
        algorithm: Literal["graphx", "graphframes"] = "graphx",
        use_local_checkpoints: bool = False,
        checkpoint_interval: int = 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        is_directed: bool = True,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return the vertices with a column ``distances``: a map from landmarks to the least number of edges of a path to them.

        Landmarks without a path are not in the map. Without ``is_directed`` a path takes edges in either direction.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([("a",), ("b",), ("c",)], "id string")
        >>> e = session.createDataFrame([("a", "b"), ("b", "c")], "src string, dst string")
        >>> found = GraphFrame(v, e).shortestPaths(["a", "c"])
        >>> {row.id: row.distances for row in found.collect()} == {"a": {"a": 0, "c": 2}, "b": {"c": 1}, "c": {"c": 0}}
        True
        """
        check_algorithm("shortestPaths", algorithm, ("graphx", "graphframes"))
        if not landmarks:
            raise ConfigurationError("shortestPaths: landmarks must have an id: give a list of vertices' ids")
        numbers = self._tables.numbered("shortestPaths", "landmarks", landmarks).alias("landmark")
        towards = self._tables.inner_edges().select(F.col(self.DST).alias(self.SRC), F.col(self.SRC).alias(self.DST))
        apply = partial(landmark_distances, landmarks=len(landmarks), both_ways=not is_directed)
        vertices = self._tables.node_column(numbers)
        pairs = self._tables.run(
            "shortestPaths", apply, DISTANCES, options, edges=towards, vertices=vertices, parameters=repr(landmarks)
        )
        names = self._tables.id_array("shortestPaths", "landmarks", landmarks)

        def entry(pair: Column) -> Column:
            return F.struct(F.element_at(names, pair["landmark"] + 1), pair["distance"])

        distances = F.map_from_entries(F.transform("distances", entry))
        maps = pairs.select("node", distances.alias("distances"))
        return self._tables.with_column(maps, "distances", storage_level, pairs._result)

    def bfs(
        self,
        fromExpr: str | Column,
        toExpr: str | Column,
        edgeFilter: str | Column | None = None,
        maxPathLength: int = 10,
        **options: Unpack[RunOptions],
    ) -> DataFrame:
        """Return all shortest paths from a vertex for which ``fromExpr`` holds to one for which ``toExpr`` holds.

        A row is a path, with the columns ``from, e0, v1, e1, ..., to``: structs of vertices and edges. Paths have up to
        ``maxPathLength`` edges, for which ``edgeFilter`` holds. Vertices for which both expressions hold are paths ``(from, to)``
        without edges. Where there is no path, there are no rows, and the columns are those of the vertices. The search runs at
        the call, since the columns depend on it.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([("a", 1), ("b", 2), ("c", 3)], "id string, n int")
        >>> e = session.createDataFrame([("a", "b"), ("b", "c")], "src string, dst string")
        >>> [(row["from"].id, row.v1.id, row.to.id) for row in GraphFrame(v, e).bfs("id = 'a'", "n = 3").collect()]
        [('a', 'b', 'c')]
        """
        if not isinstance(maxPathLength, int) or maxPathLength < 0:
            raise ConfigurationError(f"bfs: maxPathLength must be a whole number from 0 up, not {maxPathLength!r}")
        graph = self if edgeFilter is None else self.filterEdges(edgeFilter)
        return shortest_paths_between(graph._tables, fromExpr, toExpr, maxPathLength, f"{fromExpr}, {edgeFilter}", options)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def all_paths(
        self,
        from_expr: str | Column,
        to_expr: str | Column,
        edge_filter: str | Column | None = None,
        max_path_length: int = 5,
        is_directed: bool = True,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return ``(path, len)`` for each path without repeated vertices: its ids, and its number of edges.

        It has up to ``max_path_length`` edges, for which ``edge_filter`` holds. It begins at a vertex for which ``from_expr``
        holds, and ends at one for which ``to_expr`` holds. There may be exponentially many.
        """
        check_positive("all_paths", "max_path_length", max_path_length)
        graph = self if edge_filter is None else self.filterEdges(edge_filter)
        start, end = (F.coalesce(condition(expression), F.lit(False)) for expression in (from_expr, to_expr))
        apply = partial(simple_paths, limit=max_path_length, both_ways=not is_directed)
        vertices = self._tables.node_column(start.alias("start"), end.alias("end"))
        parameters = f"{from_expr}, {to_expr}, {edge_filter}"
        table = graph._tables.run(
            "all_paths", apply, self._tables.path_column(), options, vertices=vertices, node=False, parameters=parameters
        )
        paths = table.select("path", (F.size("path") - 1).cast("long").alias("len"))
        return derived_result(paths.persist(storage_level), table._result)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def detectingCycles(
        self,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return a column ``found_cycles`` with a row for each cycle without repeated vertices: its ids.

        The smallest id is the first and the last. There may be exponentially many.
        """
        paths = self._tables.run("detectingCycles", partial(simple_cycles), self._tables.path_column(), options, node=False)
        cycles = paths.select(F.col("path").alias("found_cycles"), F.element_at("path", 1).alias(self.ID))
        cycles = cycles.select("found_cycles")  # and sort("id") is possible all the same, as it is in GraphFrames
        return derived_result(cycles.persist(storage_level), paths._result)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def k_core(
        self,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return ``(id, kcore)``: the greatest ``k`` such that the vertex is in a subgraph whose degrees are all ``k`` or more.

        Degrees are those of :attr:`degrees`: repeated edges count, and a loop counts twice.
        """
        table = self._tables.run("k_core", partial(k_core), "core long", options)
        cores = table.select(F.col("node").alias(self.ID), F.col("core").cast("int").alias("kcore"))
        return derived_result(cores.persist(storage_level), table._result)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def maximal_independent_set(
        self,
        seed: int = 42,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return a column ``id`` of vertices of which no two are neighbours, and to which no other can be added.

        ``seed`` chooses one of the many sets, the same in each run.
        """
        apply = partial(maximal_independent_set, seed=seed)
        members = self._tables.run("maximal_independent_set", apply, "", options)
        return derived_result(members.select(F.col("node").alias(self.ID)).persist(storage_level), members._result)

    def powerIterationClustering(self, k: int, maxIter: int, weightCol: str | None = None) -> DataFrame:
        """Return ``(id, cluster)``: a cluster from 0 up to ``k - 1`` for each vertex with an edge, as Spark's MLlib finds it."""
        check_positive("powerIterationClustering", "k", k)
        return clusters(self._tables, k, maxIter, weightCol)

    def svdPlusPlus(
        self,
        rank: int = 10,
        maxIter: int = 2,
        minValue: float = 0.0,
        maxValue: float = 5.0,
        gamma1: float = 0.007,
        gamma2: float = 0.007,
        gamma6: float = 0.005,
        gamma7: float = 0.015,
        *,
        seed: int = 42,
        **options: Unpack[RunOptions],
    ) -> tuple[GraphResult, float]:
        """Return the vertices with the columns of a model of ratings, and its mean squared error.

        An edge is the rating that a user, its source, gave an item, in the column ``weight``. ``gamma1`` and ``gamma2`` are the
        rates of learning of biases and factors, ``gamma6`` and ``gamma7`` their regularization; predictions are from
        ``minValue`` up to ``maxValue``. ``column1`` are factors, ``column2`` those of implicit feedback, ``column3`` is the
        bias, and ``column4`` is 1 / sqrt(number of ratings), or of an item the sum of its squared errors. Without edges all are
        null, and the error is NaN. The job runs at the call. ``seed`` chooses where factors begin, the same in each run.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([("u",), ("v",), ("x",), ("y",)], "id string")
        >>> ratings = [("u", "x", 5.0), ("u", "y", 1.0), ("v", "x", 4.0)]
        >>> e = session.createDataFrame(ratings, "src string, dst string, weight double")
        >>> model, loss = GraphFrame(v, e).svdPlusPlus(rank=2, maxIter=300, gamma1=0.05, gamma2=0.05)
        >>> model.columns, loss < 0.05
        (['id', 'column1', 'column2', 'column3', 'column4'], True)
        """
        parameters = Factorization(
            rank=rank,
            rounds=maxIter,
            least=minValue,
            greatest=maxValue,
            bias_rate=gamma1,
            factor_rate=gamma2,
            bias_penalty=gamma6,
            factor_penalty=gamma7,
            seed=seed,
        )
        return factorized(self._tables, parameters, options)

    @without_effect("lg_nom_entries", "checkpoint_interval", "use_local_checkpoints")
    def neighborhood_aware_cdlp(
        self,
        max_iter: int,
        structural_similarity_multiplier: float = 0.5,
        ignore_direct_links: bool = False,
        initial_label_col: str | None = None,
        is_directed: bool = True,
        lg_nom_entries: int = 12,
        use_local_checkpoints: bool = False,
        checkpoint_interval: int = 2,
        storage_level: StorageLevel = DEFAULT_LEVEL,
        **options: Unpack[RunOptions],
    ) -> GraphResult:
        """Return the vertices with a column ``label``: the one with the most votes after ``max_iter`` rounds.

        Each edge votes for the label of its source, with 1, unless ``ignore_direct_links``, and
        ``structural_similarity_multiplier`` for each neighbour that its ends have in common, in any direction. Of several labels
        the greatest wins. Labels begin as ids, or as the values of ``initial_label_col``. Without ``is_directed`` edges vote both
        ways. Neighbours are counted exactly; ``lg_nom_entries`` would be the size of sketches.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1,), (2,), (3,)], "id long")
        >>> e = session.createDataFrame([(1, 2), (2, 3), (3, 1)], "src long, dst long")
        >>> sorted(tuple(row) for row in GraphFrame(v, e).neighborhood_aware_cdlp(1).collect())
        [(1, 3), (2, 1), (3, 2)]
        """
        check_positive("neighborhood_aware_cdlp", "max_iter", max_iter)
        multiplier = structural_similarity_multiplier
        if not (multiplier > 0 or (multiplier == 0 and not ignore_direct_links)):
            raise ConfigurationError(
                "neighborhood_aware_cdlp: structural_similarity_multiplier must be 0 or more, and above 0 where direct links are"
                f" ignored, not {multiplier!r}"
            )
        kind = column_type(self.vertices, initial_label_col or self.ID, "vertices")
        if isinstance(kind, ArrayType | MapType | StructType):
            raise SchemaError(
                f"neighborhood_aware_cdlp: {kind.simpleString()} cannot be a label: use a plain value, such as to_json()"
            )
        apply = partial(
            neighborhood_labels,
            rounds=max_iter,
            similarity=multiplier,
            direct=0.0 if ignore_direct_links else 1.0,
            both_ways=not is_directed,
        )
        vertices = self._tables.node_column(F.col(quoted(initial_label_col or self.ID)).alias("label"))
        schema = StructType([StructField("label", kind)])
        labels = self._tables.run(
            "neighborhood_aware_cdlp", apply, schema, options, vertices=vertices, parameters=str(initial_label_col)
        )
        return self._tables.with_column(labels, "label", storage_level, labels._result)

    @without_effect("checkpoint_interval", "use_local_checkpoints")
    def hyper_anf(
        self,
        n_hops: int = 3,
        lg_nom_entries: int = 12,
        edge_filter: Column | str | None = None,
        checkpoint_interval: int = 2,
        use_local_checkpoints: bool = False,
        storage_level: StorageLevel = DEFAULT_LEVEL,
    ) -> DataFrame:
        """Return ``(id, hop_0, ..., hop_n)``: one HyperLogLog sketch of the reachable vertices per hop.

        The rows are those of ids at which an edge starts for which ``edge_filter`` holds. ``hll_union`` of several hops is a
        sketch of all vertices within that distance, and ``hll_sketch_estimate`` estimates their number. A sketch has
        ``2**lg_nom_entries`` registers. Each hop is a join of the plan: this is for few hops.

        >>> from timely.spark import local_session
        >>> session = local_session(2)
        >>> v = session.createDataFrame([(1,), (2,), (3,)], "id long")
        >>> e = session.createDataFrame([(1, 2), (1, 3), (2, 3)], "src long, dst long")
        >>> sizes = GraphFrame(v, e).hyper_anf(2).select("id", *map(F.hll_sketch_estimate, ("hop_0", "hop_1", "hop_2")))
        >>> sorted(tuple(row) for row in sizes.collect())
        [(1, 1, 2, 1), (2, 1, 1, 0)]
        """
        check_positive("hyper_anf", "n_hops", n_hops)
        graph = self if edge_filter is None else self.filterEdges(edge_filter)
        return neighborhood_sketches(graph._tables.inner_edges(), n_hops, lg_nom_entries).persist(storage_level)


def _by_type(ends: DataFrame, column: str, values: Sequence[Any] | None, name: str) -> DataFrame:
    """Return ``(id, name)``, where ``name`` is a struct of counts of rows by the value of a column."""
    grouped = ends.groupBy(GraphFrame.ID).pivot(quoted(column), None if values is None else list(values))
    counted = grouped.agg(F.count(F.lit(1))).na.fill(0)
    fields = [F.col(quoted(field)).cast("int").alias(field) for field in counted.columns if field != GraphFrame.ID]
    return counted.select(GraphFrame.ID, F.struct(*fields).alias(name))
