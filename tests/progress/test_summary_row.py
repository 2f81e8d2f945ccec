"""A row that keeps what is not empty is the list of antichains that it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.errors import GraphError
from timely.progress import Antichain, GraphBuilder, PathSummary, Source, Step, SummaryRow, Target, connected

Cell = Antichain[PathSummary[int]]
cells = st.lists(st.integers(0, 3), max_size=1).map(lambda steps: Antichain([Step(n) for n in steps]))


def sparse(row: list[Cell]) -> SummaryRow[int]:
    return SummaryRow(len(row), {place: cell for place, cell in enumerate(row) if cell})


@given(st.lists(cells, max_size=6), st.data())
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


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=4))
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
