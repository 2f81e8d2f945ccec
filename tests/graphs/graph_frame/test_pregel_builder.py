"""Pregel programs of column expressions: the cases of GraphFrames' own tests, programs that stop, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tests.graphs.graph_frame.graphs import column, people
from timely import ConfigurationError, SchemaError
from timely.graphs.spark import GraphFrame, Pregel

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_a_program_runs_to_its_end_and_sends_both_ways(session: SparkSession) -> None:
    """The smallest name of a component, and how far its vertex is; ``maxIter`` is far beyond the end."""
    g = people(session)
    nearer = F.when(F.coalesce(Pregel.src("least") < Pregel.dst("least"), F.lit(False)), Pregel.src("least"))
    further = F.when(Pregel.dst("least") < Pregel.src("least"), Pregel.dst("least"))
    program = (
        g.pregel.setMaxIter(1000)
        .setEarlyStopping(True)
        .withVertexColumn("least", F.col("name"), F.coalesce(Pregel.msg(), F.col("least")))
        .withVertexColumn("changes", F.lit(0), F.col("changes") + Pregel.msg().isNotNull().cast("int"))
        .sendMsgToDst(nearer)
        .sendMsgToSrc(further)
        .aggMsgs(F.min(Pregel.msg()))
    )
    result = program.run()
    assert result.columns == ["id", "name", "least", "changes"]
    assert {row.id: (row.least, row.changes) for row in result.collect()} == {
        1: ("Ada", 0),
        2: ("Ada", 1),
        3: ("Ada", 1),
        4: ("Ada", 2),
        5: ("Ada", 2),
        6: ("Flo", 0),
    }
    result.unpersist()


@pytest.mark.soak
@pytest.mark.parametrize("skip", [False, True])
def test_vertices_vote_to_halt(session: SparkSession, skip: bool) -> None:
    """Distances from 1: only a vertex whose distance has changed is active, and the type of ``far`` is that of its update."""
    better = F.coalesce(Pregel.msg() < F.col("far"), Pregel.msg().isNotNull())
    program = (
        people(session)
        .pregel.setMaxIter(100)
        .setStopIfAllNonActiveVertices(True)
        .setSkipMessagesFromNonActiveVertices(skip)
        .setInitialActiveVertexExpression(F.col("id") == 1)
        .setUpdateActiveVertexExpression(better)
        .withVertexColumn("far", F.when(F.col("id") == 1, 0), F.when(better, Pregel.msg()).otherwise(F.col("far")))
        .sendMsgToDst(Pregel.src("far") + F.lit(1).cast("long"))
        .aggMsgs(F.min(Pregel.msg()))
    )
    result = program.run()
    assert result.schema["far"].dataType.simpleString() == "bigint"
    assert column(result, "far") == {1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: None}


def test_names_with_dots_and_backticks(session: SparkSession) -> None:
    vertices = session.createDataFrame([(1, 4.0), (2, 9.0), (3, 2.0)], "id long, `x.y` double")
    edges = session.createDataFrame([(1, 2, 1.0), (2, 3, 0.5)], "src long, dst long, `a``b` double")
    program = GraphFrame(vertices, edges).pregel.setMaxIter(2)
    program = program.withVertexColumn("most.`of", F.col("`x.y`"), F.greatest(F.col("`most.``of`"), Pregel.msg()))
    result = program.sendMsgToDst(Pregel.src("`most.``of`") * Pregel.edge("`a``b`")).aggMsgs(F.max(Pregel.msg())).run()
    assert {row.id: row["most.`of"] for row in result.collect()} == {1: 4.0, 2: 9.0, 3: 4.5}


@pytest.mark.soak
def test_edges_attributes_structs_and_several_aggregates(session: SparkSession) -> None:
    """Of each vertex, how many likes and how many names it gets; a loop sends as any edge."""
    like = F.struct((Pregel.edge("how") == "likes").cast("long").alias("likes"), Pregel.src("name").alias("who"))
    both = F.struct(F.sum(Pregel.msg().getField("likes")).alias("likes"), F.count(Pregel.msg().getField("who")).alias("all"))
    program = (
        people(session)
        .pregel.setMaxIter(1)
        .withVertexColumn("got", F.lit(None).cast("struct<likes: long, all: long>"), Pregel.msg())
        .sendMsgToDst(like)
        .aggMsgs(both)
    )
    assert {one: got and tuple(got) for one, got in column(program.run(), "got").items()} == {
        1: (1, 2),
        2: (1, 2),
        3: (0, 1),
        4: (1, 2),
        5: (0, 1),
        6: None,
    }


def minimal(graph: GraphFrame, **changed: Any) -> Pregel:
    """A program with one part changed."""
    parts: dict[str, Any] = {
        "first": F.lit(0),
        "update": Pregel.msg(),
        "send": Pregel.src("id"),
        "agg": F.max(Pregel.msg()),
        **changed,
    }
    program = graph.pregel.withVertexColumn("x", parts["first"], parts["update"])
    return program.sendMsgToDst(parts["send"]).aggMsgs(parts["agg"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda: {"send": F.rand()}, r"rand\(.*an expression Rand, which workers cannot compute as Spark does"),
        (lambda: {"agg": F.stddev(Pregel.msg())}, "has the aggregate stddev"),
        (lambda: {"agg": F.count_distinct(Pregel.msg())}, "has the aggregate count"),
        (lambda: {"update": Pregel.msg().cast("decimal(9, 2)") + 1}, r"of decimal\(9,2\)"),
        (lambda: {"send": Pregel.src("name").cast("int")}, "casts string to integer"),
        (lambda: {"update": F.try_add(Pregel.msg(), F.lit(1))}, "TryAdd"),
        (lambda: {"first": F.lit("a")}, "'x' is string at first, and bigint after a superstep"),
        (lambda: {"update": F.struct("x")}, "have another type after each superstep"),
    ],
)
def test_expressions_that_are_refused(session: SparkSession, changed: Callable[[], dict[str, Column]], told: str) -> None:
    with pytest.raises((ConfigurationError, SchemaError), match=f"pregel: .*{told}"):
        minimal(people(session), **changed()).run()


def test_programs_that_are_refused(session: SparkSession) -> None:
    g = people(session)
    for program in (g.pregel, g.pregel.sendMsgToDst(F.lit(1)).aggMsgs(F.sum(Pregel.msg()))):
        with pytest.raises(
            ConfigurationError, match="a program needs withVertexColumn, sendMsgToDst or sendMsgToSrc, and aggMsgs"
        ):
            program.run()
    with pytest.raises(ConfigurationError, match="setMaxIter: there must be 1 superstep or more, not 0"):
        g.pregel.setMaxIter(0)
    with pytest.raises(ConfigurationError, match="'id' cannot be the name of a new column"):
        g.pregel.withVertexColumn("id", F.lit(1), F.lit(1))
    with pytest.raises(SchemaError, match="the vertices have a column 'NAME' already"):
        g.pregel.withVertexColumn("NAME", F.lit(1), F.lit(1))
    with pytest.raises(ConfigurationError, match="sendMsgToDst takes a column expression"):
        g.pregel.sendMsgToDst("src.id")  # type: ignore[arg-type]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (lambda: {"send": F.lit(2**62), "agg": F.sum(Pregel.msg())}, "a sum of whole numbers overflows"),
        (lambda: {"send": Pregel.src("id") / (Pregel.src("id") - 1)}, "division by zero"),
        (lambda: {"update": Pregel.msg() + F.lit(2**63 - 1)}, "overflow"),
    ],
)
def test_a_value_for_which_spark_raises_is_an_error(
    session: SparkSession, changed: Callable[[], dict[str, Column]], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        minimal(people(session), **changed()).run().collect()
