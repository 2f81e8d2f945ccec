"""Rows become batches of declared columns, or are refused."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import attrs
import pytest

from timely.errors import ConfigurationError, SchemaError

pa: Any = pytest.importorskip("pyarrow")

from timely.dataflow import OutputSchema, declared_schema  # noqa: E402

RANKS = pa.schema([("node", pa.int64()), ("rank", pa.float64())])


class Rank(NamedTuple):
    rank: float
    node: int


@attrs.frozen
class RankObject:
    rank: float
    node: int


@dataclasses.dataclass
class RankData:
    rank: float
    node: int


@pytest.mark.parametrize(
    "rows",
    [
        [(7, 0.5), (8, None)],
        [{"rank": 0.5, "node": 7}, {"node": 8, "rank": None}],
        [Rank(0.5, 7), (8, None)],
        [RankObject(0.5, 7), RankData(None, 8)],  # type: ignore[arg-type]
    ],
)
def test_rows_are_read_by_position_or_by_name(rows: list[Any]) -> None:
    assert OutputSchema("out", RANKS).conform(rows).to_pydict() == {"node": [7, 8], "rank": [0.5, None]}


def test_innermost_values_are_columns_where_these_are_as_many() -> None:
    names = pa.schema([("node", pa.int64()), ("left", pa.string()), ("right", pa.string())])
    result = OutputSchema("out", names).conform([(1, ("a", "b")), (2, "c", "d")])
    assert result.to_pydict() == {"node": [1, 2], "left": ["a", "c"], "right": ["b", "d"]}
    words = OutputSchema("out", pa.schema([("word", pa.string())])).conform(["to", "be"])
    assert words.to_pydict() == {"word": ["to", "be"]}
    listed = pa.schema([("node", pa.int64()), ("of", pa.list_(pa.int64()))])
    lists = OutputSchema("out", listed).conform([(1, [2, 3]), (2, None), (3, (4, None))])
    assert lists.to_pydict() == {"node": [1, 2, 3], "of": [[2, 3], None, [4, None]]}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1,)], "a row has the values of its columns 'node', 'rank'"),
        ([(1, 2.0, 3)], "and .*3.* has not: map it"),
        ([{"node": 1}], "has not: map it"),
        ([{"node": 1, "rank": 0.5, "more": 2}], "has not: map it"),
        ([1], "and 1 has not"),
        ([("1", 0.5)], "column 'node' is declared int64, and the batch has string"),
        ([(1.5, 0.5)], "column 'node' is declared int64, and the batch has double"),
        ([(True, 0.5)], "column 'node' is declared int64, and the batch has bool"),
        ([(1, 0.5), ("1", 0.5)], "column 'node' is declared int64, and its values are of no Arrow type"),
        ([(1 << 70, 0.5)], "column 'node' is declared int64, and its values are of no Arrow type"),
    ],
)
def test_a_row_that_is_not_as_declared_is_refused(rows: list[Any], message: str) -> None:
    with pytest.raises(SchemaError, match=f"output 'out': .*{message}"):
        OutputSchema("out", RANKS).conform(rows)


@pytest.mark.parametrize("columns", ["", "node", "node whole", "node long, node long", "node array<long>", 7])
def test_columns_that_are_none_are_refused(columns: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^here: "):
        declared_schema(columns, "here")
    assert declared_schema("at timestamp, `n`: INT", "here") == pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int32())])
