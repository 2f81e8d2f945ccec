"""Programs of GraphFrames with one changed import: what its own Python tests do, with its steering parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from tests.graphs.graph_frame.graphs import column, graph_of, people, rows
from timely.errors import TimelyWarning
from timely.graphs.spark import AggregateMessages as AM
from timely.graphs.spark import AggregateNeighbors as AN
from timely.graphs.spark import GraphFrame, Pregel

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:distutils")]  # of PySpark 3.5

STEERING: dict[str, Any] = {"checkpoint_interval": 5, "use_local_checkpoints": True, "storage_level": StorageLevel.DISK_ONLY}
"""What GraphFrames' loops of jobs are steered by; the storage level is that of the result here too."""

LETTERS = dict.fromkeys("abc", "a")


def letters(session: SparkSession) -> GraphFrame:
    """A cycle of three, a vertex beside it, and one without edges; attributes have the same names on both sides."""
    g = graph_of(session, "abcde", [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")], "string")
    named = [F.upper("id").alias("A"), F.lit("x").alias("B")]
    return GraphFrame(g.vertices.select("id", *named), g.edges.select("src", "dst", F.upper("src").alias("A")), workers=2)


CALLS: dict[str, tuple[list[Any], list[str]]] = {
    "aggregate_neighbors": (["id = 'a'", ["n"], ["0"], ["n + 1"], 3, "true"], ["n", "id", "hop"]),
    "all_paths": (["A = 'B'", "A = 'D'"], ["path", "len"]),
    "detectingCycles": ([], ["found_cycles"]),
    "hyper_anf": ([1], ["id", "hop_0", "hop_1"]),
    "k_core": ([], ["id", "kcore"]),
    "labelPropagation": ([5, "graphframes"], ["id", "A", "B", "label"]),
    "maximal_independent_set": ([12345], ["id"]),
    "neighborhood_aware_cdlp": ([5], ["id", "A", "B", "label"]),
    "shortestPaths": ([["a", "d"], "graphframes"], ["id", "A", "B", "distances"]),
}


@pytest.mark.parametrize("method", CALLS)
def test_steering_parameters_change_nothing_and_are_warned_of(session: SparkSession, method: str) -> None:
    arguments, columns = CALLS[method]
    with pytest.warns(TimelyWarning, match=f"{method}: .*checkpoint.* changes nothing here: ") as warned:
        frame = getattr(letters(session), method)(*arguments, **STEERING)
    (warning,) = (warning for warning in warned if warning.category is TimelyWarning)
    assert (warning.filename, "checkpoint_interval=5" in str(warning.message)) == (__file__, True)
    assert "use_local_checkpoints=True" in str(warning.message)
    assert (frame.columns, frame.storageLevel) == (columns, STEERING["storage_level"])
    frame.unpersist()


@pytest.mark.filterwarnings("ignore:.* changes nothing here")
def test_a_little_of_each(session: SparkSession) -> None:
    g = letters(session).cache()
    g.validate()
    assert column(g.stronglyConnectedComponents(3), "component") == {**LETTERS, "d": "d", "e": "e"}
    assert column(g.k_core(**STEERING), "kcore") == {"a": 2, "b": 2, "c": 2, "d": 1, "e": 0}
    assert rows(g.detectingCycles(**STEERING).sort("id")) == [(["a", "b", "c", "a"],)]
    assert rows(g.all_paths("A = 'B'", "A = 'D'", **STEERING)) == [(["b", "c", "d"], 2)]
    walks = g.aggregate_neighbors(
        starting_vertices=F.col("id") == "a",
        accumulator_names=["length", "seen"],
        accumulator_inits=[F.lit(0), "id"],
        accumulator_updates=[F.col("length") + 1, F.concat("seen", AN.dst_attr("A"), AN.edge_attr("A"))],
        target_condition=AN.dst_attr("id") == "d",
        required_vertex_attributes=["A"],
        required_edge_attributes=["A"],
        edge_filter=AN.edge_attr("A") != "D",
        **STEERING,
    )
    assert rows(walks) == [(3, "aBACBDC", "d", 3)]
    g.unpersist()


@pytest.mark.filterwarnings("ignore:connectedComponents")
@pytest.mark.parametrize(
    ("algorithm", "threshold", "as_labels"),
    [
        ("two_phase", -1, False),
        ("randomized_contraction", 10_000, True),
        pytest.param("graphframes", -1, True, marks=pytest.mark.soak),
        pytest.param("graphx", 10_000, False, marks=pytest.mark.soak),
    ],
)
def test_components_are_the_same_by_any_algorithm(session: SparkSession, algorithm: Any, threshold: int, as_labels: bool) -> None:
    components = letters(session).connectedComponents(
        algorithm=algorithm,
        checkpointInterval=1,
        broadcastThreshold=threshold,
        useLabelsAsComponents=as_labels,
        use_local_checkpoints=True,
        max_iter=31,
        storage_level=StorageLevel.DISK_ONLY,
    )
    assert components.columns == ["id", "A", "B", "component"]
    components.write.mode("overwrite").format("noop").save()
    assert column(components, "component") == {**LETTERS, "d": "a", "e": "e"}


@pytest.mark.filterwarnings("ignore:pregel. set")
def test_a_pregel_program_with_every_setting(session: SparkSession) -> None:
    """Shares go round a cycle of three and past it; the program's own columns are taken of the instance, as of the class."""
    g = graph_of(session, range(4), [(0, 1), (1, 2), (2, 0), (2, 3)])
    pregel = GraphFrame(g.vertices.join(g.outDegrees, "id", "left").na.fill(0).cache(), g.edges).pregel
    program = (
        pregel.setMaxIter(2)
        .setEarlyStopping(True)
        .setUseLocalCheckpoints(True)
        .setIntermediateStorageLevel(StorageLevel.MEMORY_AND_DISK)
        .setCheckpointInterval(3)
        .required_src_columns("share", "outDegree")
        .required_dst_columns("id")
        .withVertexColumn("share", F.lit(12.0), F.coalesce(pregel.msg(), F.lit(0.0)))
        .sendMsgToDst(pregel.src("share") / pregel.src("outDegree"))
        .aggMsgs(F.sum(Pregel.msg()))
    )
    assert program is pregel
    assert column(program.run(), "share") == {0: 6.0, 1: 6.0, 2: 12.0, 3: 6.0}


def test_belief_propagation(session: SparkSession) -> None:
    """A loop of the user's on a grid of two by two: a result is joined by its own columns, and checkpointed in each round."""
    cells = [(i, j) for i in range(2) for j in range(2)]
    bias, pull = {cell: 1.0 + cell[0] - 2 * cell[1] for cell in cells}, 0.5
    pairs = [(a, b) for a in cells for b in cells if a < b and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
    vertices = [(f"{i},{j}", (i + j) % 2, bias[i, j], 0.0) for i, j in cells]
    v = session.createDataFrame(vertices, "id string, color int, a double, belief double")
    e = session.createDataFrame(
        [(f"{a[0]},{a[1]}", f"{b[0]},{b[1]}", pull) for a, b in pairs], "src string, dst string, b double"
    )
    g = GraphFrame(v, e)
    expected = dict.fromkeys(cells, 0.0)
    sigmoid = F.udf(lambda x: None if x is None else float(1 / (1 + np.exp(-x))), "double")  # of all rows
    for color in (0, 1):
        to_src = F.when(AM.src["color"] == color, AM.edge["b"] * AM.dst["belief"])
        to_dst = F.when(AM.dst["color"] == color, AM.edge["b"] * AM.src["belief"])
        sums = g.aggregateMessages(F.sum(AM.msg).alias("sums"), sendToSrc=to_src, sendToDst=to_dst)
        v = g.vertices
        received = (v["color"] == color) & sums["sums"].isNotNull()
        joined = v.join(sums, on=(v["id"] == sums["id"]), how="left_outer").drop(sums["id"])
        joined = joined.withColumn("new", F.when(received, sigmoid(sums["sums"] + v["a"])).otherwise(v["belief"]))
        g = GraphFrame(joined.drop("sums", "belief").withColumnRenamed("new", "belief").localCheckpoint(), g.edges)
        for i, j in cells:
            if (i + j) % 2 == color:
                near = sum(pull * expected[cell] for cell in cells if abs(cell[0] - i) + abs(cell[1] - j) == 1)
                expected[i, j] = 1 / (1 + np.exp(-near - bias[i, j]))
    assert column(g.vertices, "belief") == pytest.approx({f"{i},{j}": belief for (i, j), belief in expected.items()})


def test_names_that_differ_in_case_alone(session: SparkSession) -> None:
    """GraphFrames' tutorials have such columns, and this setting."""
    session.conf.set("spark.sql.caseSensitive", "true")
    try:
        g = people(session)
        g = GraphFrame(g.vertices.withColumn("Id", F.lower("name")), g.edges.withColumn("Src", F.lit("x")))
        assert column(g.shortestPaths([5]).where("Id = 'cy'"), "distances") == {3: {5: 1}}
        assert rows(g.find("(a)-[e]->(b)").where("a.Id = 'cy' AND e.Src = 'x'").select("b.Id")) == [("ada",), ("di",), ("eve",)]
        degrees = g.aggregateMessages(F.count(AM.msg).alias("n"), sendToDst=F.lit(1))
        assert rows(degrees) == [(1, 2), (2, 2), (3, 1), (4, 2), (5, 1)]
    finally:
        session.conf.unset("spark.sql.caseSensitive")
