"""Building graphs: what is accepted and refused, path summaries and rows of them, and how graphs are compiled."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import GraphError, TimestampError
from timely.order import Product
from timely.progress import (
    Antichain,
    GraphBuilder,
    PathSummary,
    ProductSummary,
    Source,
    Step,
    SummaryRow,
    Target,
    Tracker,
    connected,
)


def step(n: int, limit: int | None = None) -> list[list[Antichain[Step]]]:
    return [[Antichain([Step(n, limit)])]]


def chain(length: int, **edge: bool) -> GraphBuilder[int]:
    """An input and so many nodes after it, of which only the last observes its input."""
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(0, 0, 1, [])
    for node in range(1, length):
        graph.add_node(node, 1, 1, step(0), observes=[] if node < length - 1 else None)
        graph.add_edge(Source(node - 1, 0), Target(node, 0), **edge)
    return graph


def test_summaries_may_be_sparse() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(0, 1000, 1000, {i: {i: Antichain([Step(i)])} for i in range(0, 1000, 100)})
    graph.build()
    assert graph.summary(Target(0, 300), Source(0, 300)) == Antichain([Step(300)])
    assert graph.summary(Target(0, 300), Source(0, 400)) == Antichain()


def test_unconnected_graphs_and_nodes_without_ports() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    tracker = graph.build()
    assert (tracker.size, tracker.propagate(), tracker.counts(), tracker.is_empty()) == (0, [], {}, True)
    graph = GraphBuilder(int)
    graph.add_node("nothing", 0, 0, [])
    graph.add_node("closed", 2, 0, [(), ()], observes=[1])
    graph.add_node("open", 0, 2, [])
    tracker = graph.build()
    assert tracker.observed == [Target("closed", 1)]
    for location in (Source("open", 1), Target("closed", 0), Target("closed", 1)):
        tracker.update(location, 4, 1)
    assert tracker.propagate() == [(Target("closed", 1), 4, 1)]
    assert [tracker.frontier(Target("closed", port)) for port in (0, 1)] == [Antichain([4])] * 2
    assert [tracker.frontier(Source("open", port)) for port in (0, 1)] == [Antichain(), Antichain([4])]


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        (Source("b", 0), Target("a", 0), "start at .*node 'b' was not added"),
        (Source("a", 2), Target("a", 0), r"start at .*node 'a' \(both ways\) has 1 inputs and 2 outputs"),
        (Source("a", -1), Target("a", 0), r"start at .*node 'a' \(both ways\) has 1 inputs and 2 outputs"),
        (Source("a", 0), Target("b", 0), "end at .*node 'b' was not added"),
        (Source("a", 0), Target("a", 1), r"end at .*node 'a' \(both ways\) has 1 inputs and 2 outputs"),
        (Target("a", 0), Source("a", 0), "start at .*from Source to Target"),
        (Source("a", 0), Source("a", 0), "end at .*from Source to Target"),
        ("a", Target("a", 0), "start at .*from a Source to a Target"),
    ],
)
def test_edge_without_an_end_is_refused(source: Any, target: Any, says: str) -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node("a", 1, 2, [[Antichain(), Antichain()]], name="both ways")
    with pytest.raises(GraphError, match=f"no edge can {says}"):
        graph.add_edge(source, target)


def test_second_source_of_an_input_is_refused() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(0, 1, 2, [[Antichain(), Antichain()]], name="twice")
    graph.add_edge(Source(0, 0), Target(0, 0))
    for port in (0, 1):
        with pytest.raises(GraphError, match="twice.*an input has one"):
            graph.add_edge(Source(0, port), Target(0, 0))


@pytest.mark.parametrize("summary", [Step(0), 0, None, [Step(0), 1]])
def test_a_summary_where_an_antichain_is_due_is_refused(summary: Any) -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    says = r"from input 0 to output 0 of node 'plain' \(map\) must be an Antichain of .* as in Antichain\(\[Step\(0\)\]\), not "
    with pytest.raises(GraphError, match=f"{says}{re.escape(repr(summary))}: ") as error:
        graph.add_node("plain", 1, 1, [[summary]], name="map")
    assert isinstance(error.value.__cause__, TypeError)


class Stamp(int):
    """A time whose identity gives times of another type."""

    @classmethod
    def minimum(cls) -> Any:
        return cls(0)

    @classmethod
    def identity(cls) -> Any:
        return Step(0)


def test_a_refused_summary_is_not_suggested_as_one_that_fits() -> None:
    graph: GraphBuilder[Any] = GraphBuilder(Stamp)
    with pytest.raises(TimestampError, match=r"^Step\(0\), .* does not fit .*: 0 is of type int, not Stamp$"):
        graph.add_node("odd", 1, 1, step(0))
    with pytest.raises(TimestampError, match=r"^Step\(1\), .*; one that fits is Step\(0\), which does not advance them$"):
        graph.add_node("odd", 1, 1, step(1))


def test_node_that_cannot_be_is_refused() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    graph.add_node(0, 1, 1, step(0), name="first")
    with pytest.raises(GraphError, match="first"):
        graph.add_node(0, 1, 1, step(0))
    with pytest.raises(GraphError, match="observe"):
        graph.add_node(2, 1, 1, step(0), observes=[1])


class Unhashable(Step):
    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("summary", [1, None, ProductSummary(Step(0), Step(0)), Unhashable(1)])
def test_summary_of_other_times_is_refused(summary: Any) -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    with pytest.raises(TimestampError, match=r"'odd'.*of type int"):
        graph.add_node("odd", 1, 1, [[Antichain([summary])]])
    pairs: GraphBuilder[Product[int, int]] = GraphBuilder(Product[int, int])
    with pytest.raises(TimestampError, match="'odd'"):
        pairs.add_node("odd", 1, 1, step(0))


class Stray(Step):
    """A step that leads to what is no time."""

    __slots__ = ()

    def results_in(self, time: int, /) -> int | None:
        return time - 1


def test_summary_that_leads_out_of_the_times_is_refused() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    with pytest.raises(TimestampError, match=r"'astray'.*-1 is before the minimum"):
        graph.add_node("astray", 1, 1, [[Antichain([Stray(0)])]])


def test_a_graph_is_built_once() -> None:
    graph = chain(3)
    with pytest.raises(GraphError, match="build"):
        graph.summary(Source(0, 0), Target(1, 0))
    graph.build()
    for change in (
        lambda: graph.add_node(9, 0, 0, []),
        lambda: graph.add_edge(Source(0, 0), Target(1, 0)),
        lambda: graph.build(),
    ):
        with pytest.raises(GraphError, match="built already"):
            change()


def cells(tracker: Tracker[int]) -> int:
    return len(tracker.cells())


def test_local_chain_is_contracted_to_what_is_observed() -> None:
    assert cells(chain(100, local=True).build()) == 1
    assert cells(chain(100, local=False).build()) == cells(chain(100).build()) == 1 + 2 * 98 + 1


def test_a_long_chain_is_no_matter() -> None:
    length = 3_000  # beyond the depth to which Python recurses
    for local in (False, True):
        graph = chain(length, local=local)
        tracker = graph.build()
        tracker.update(Source(0, 0), 3, 1)
        assert tracker.propagate() == [(Target(length - 1, 0), 3, 1)]
        assert tracker.summary(Source(0, 0), Target(length - 1, 0)) == Antichain([Step(0)])
        assert len(tracker.explain(Target(length - 1, 0))[0].path) == 2 * (length - 1)


class Counted(Step):
    """A step that counts how often it is composed with what comes after it."""

    __slots__ = ()
    composed = 0

    def followed_by(self, other: Step, /) -> Step | None:
        Counted.composed += 1
        return super().followed_by(other)


def test_each_way_is_gone_once_where_there_are_no_cycles() -> None:
    """A shortcut that turns out worse, at every node: in another order each would be gone again and again."""
    length = 100
    graph: GraphBuilder[int] = GraphBuilder(int)
    for node in range(length):
        graph.add_node(node, 2, 1, [[Antichain([Counted(0)])], [Antichain([Counted(1)])]])
    for node in range(1, length):
        graph.add_edge(Source(node - 1, 0), Target(node, 0))
        graph.add_edge(Source(max(node - 2, 0), 0), Target(node, 1))
    tracker = graph.build()
    Counted.composed = 0
    assert tracker.summaries_to(Source(length - 1, 0))[Target(0, 1)] == Antichain([Step(1)])
    assert Counted.composed == 2 * length


NO_ROWS: list[Any] = [None, 5, Step(0), [None], [Step(0)], [5], {0: [Antichain([Step(0)])]}, {0: 7}, [], [[]]]
NO_TABLES: list[tuple[int, Any]] = [
    *((1, wrong) for wrong in NO_ROWS),
    (2, []),
    (2, [[Antichain()]]),
    (2, [[Antichain(), Antichain()]] * 2),
    (2, {0: {1: Antichain()}}),
    (2, {2: {0: Antichain([Step(0)])}}),
]


@pytest.mark.parametrize(("inputs", "summaries"), NO_TABLES)
def test_summaries_that_are_no_table_of_the_ports_are_refused(inputs: int, summaries: Any) -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    with pytest.raises(GraphError, match=f"(the summaries of node 'x' do not fit|there is a summary).*{inputs} (inputs|rows)"):
        graph.add_node("x", inputs, 1, summaries)


@pytest.mark.parametrize(("inputs", "outputs"), [("1", 1), (1, "1"), (None, 0), (0, 1.5), (-1, 0), (0, -1)])
def test_ports_are_so_many(inputs: Any, outputs: Any) -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    with pytest.raises(GraphError, match=f"node 'x' cannot have {inputs!r} inputs and {outputs!r} outputs"):
        graph.add_node("x", inputs, outputs, [])


Cell = Antichain[PathSummary[int]]
filled = st.lists(st.integers(0, 3), max_size=1).map(lambda steps: Antichain([Step(n) for n in steps]))


def sparse(row: list[Cell]) -> SummaryRow[int]:
    return SummaryRow(len(row), {place: cell for place, cell in enumerate(row) if cell})


@given(st.lists(filled, max_size=6), st.data())
def test_a_row_is_the_list_that_it_stands_for(row: list[Cell], data: st.DataObject) -> None:
    result = sparse(row)
    assert len(result) == len(row)
    assert list(result) == row
    assert result == row and row == result and result == sparse(row)
    assert dict(result.connected()) == dict(connected(row))
    if row:
        place = data.draw(st.integers(-len(row), len(row) - 1))
        assert result[place] == row[place]
        assert result[place:] == row[place:] and result[::-1] == row[::-1]
        assert result != row[1:] and result != [*row[:place], Antichain([Step(9)]), *row[place + 1 or len(row) :]]


@pytest.mark.parametrize("place", [3, -4])
def test_there_is_nothing_beyond_its_ends(place: int) -> None:
    with pytest.raises(IndexError):
        SummaryRow(3, {})[place]


def test_what_is_read_from_an_empty_place_is_not_stored() -> None:
    row: SummaryRow[int] = SummaryRow(2, {})
    row[1].insert(Step(5))
    assert row == [Antichain(), Antichain()]


def test_it_equals_no_other_thing_and_is_no_key() -> None:
    row: SummaryRow[int] = SummaryRow(0, {})
    assert row != 0
    assert row.__eq__(0) is NotImplemented
    assert SummaryRow(2, {}) != SummaryRow(3, {})
    assert SummaryRow(2, {0: Antichain([Step(1)])}) != [1, 2]
    with pytest.raises(TypeError):
        hash(row)


def test_it_prints_as_what_makes_it_again() -> None:
    row = SummaryRow(3, {1: Antichain([Step(2)])})
    assert eval(repr(row)) == row


@given(st.lists(st.tuples(filled, filled), min_size=1, max_size=4))
def test_a_graph_is_the_same_whichever_way_its_rows_are_given(rows: list[tuple[Cell, Cell]]) -> None:
    lists: GraphBuilder[int] = GraphBuilder(int)
    lists.add_node("n", len(rows), 2, [list(row) for row in rows])
    from_rows: GraphBuilder[int] = GraphBuilder(int)
    from_rows.add_node("n", len(rows), 2, [sparse(list(row)) for row in rows])
    one, other = lists.build(), from_rows.build()
    for i in range(len(rows)):
        assert one.summaries_from(Target("n", i)) == other.summaries_from(Target("n", i))
    assert one.summaries_to(Source("n", 1)) == other.summaries_to(Source("n", 1))


def test_a_row_of_another_width_does_not_fit() -> None:
    graph: GraphBuilder[int] = GraphBuilder(int)
    with pytest.raises(GraphError, match="do not fit"):
        graph.add_node("n", 1, 2, [SummaryRow(3, {})])


@pytest.mark.parametrize("place", [-1, 2, 5])
def test_an_entry_outside_of_the_row_is_refused(place: int) -> None:
    with pytest.raises(GraphError, match=f"no place {place}"):
        SummaryRow(2, {place: Antichain([Step(0)])})
