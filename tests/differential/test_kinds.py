"""Values of every kind: as keys on several workers, through checkpoints, and out as Arrow data.

White box: that a kind is one object, also after pickling, shows in no result.
"""

from __future__ import annotations

import datetime
import pickle
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.differential.epochs import changing, contents
from timely import differential as dd
from timely.differential.tables.values.kinds import Kind, common, list_of, struct_of
from timely.testing import differential

BERLIN = datetime.timezone(datetime.timedelta(hours=1))
SCHEMA = pa.schema(
    [
        ("whole", pa.int16()),
        ("number", pa.float32()),
        ("price", pa.decimal128(8, 2)),
        ("name", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("moment", pa.timestamp("us")),
        ("instant", pa.timestamp("us", "Europe/Berlin")),
        ("span", pa.duration("us")),
        ("sizes", pa.list_(pa.int64())),
        ("place", pa.struct([("Street", pa.string()), ("numbers", pa.list_(pa.int64()))])),
        ("prices", pa.map_(pa.string(), pa.float32())),
    ]
)


def row(number: int) -> Any:
    """Return one of four rows, in one of the forms that are taken."""
    instant = datetime.datetime(2024, 1, 1, number % 4, tzinfo=datetime.UTC)
    return (
        number % 4,
        [0.5, 1, -0.0, None][number % 4],
        Decimal(number % 4) / 4,
        "abcd"[number % 4],
        bytes([number % 4]),
        datetime.date(2024, 1, 1 + number % 4),
        datetime.time(number % 4),
        datetime.datetime(2024, 1, 1, number % 4),
        instant if number < 8 else instant.astimezone(BERLIN),
        datetime.timedelta(number % 4),
        [number % 4, None] if number < 8 else (number % 4, None),
        ("x", (number % 4,)) if number < 8 else {"street": "x", "numbers": [number % 4]},
        {"a": number % 4, "b": None} if number < 8 else (("a", float(number % 4)), ("b", None)),
    )


def changes() -> list[Any]:
    return [(row(number), number // 4, 1) for number in range(12)] + [(row(3), 2, -1), (row(9), 3, -1)]


def grouped(rows: Any) -> Any:
    table = dd.table(rows.map(lambda record: record[0]), SCHEMA)
    names = ", ".join(SCHEMA.names)
    query = f"""
        with g as (select {names}, count(*) as n from t group by {names})
        select g.*, o.n as m from g join g as o on g.clock = o.clock and g.sizes = o.sizes and g.place = o.place
            and g.prices = o.prices and g.instant = o.instant and g.span = o.span and g.bytes = o.bytes
    """
    return dd.sql(rows.scope, query, t=table).collection


LAST = {0: (3, 3), 1: (2, 2), 2: (3, 3), 3: (2, 2)}


def counts_of(result: Any, time: int) -> dict[int, tuple[int, int]]:
    held = Counter(differential.accumulated(result, time))
    assert all(count == 1 for count in held.values()) and len(held) == 4
    return {record[0]: record[-2:] for record in held}


def plain_changes() -> list[Any]:
    """Return the changes with the values that a table keeps: all are hashable."""
    with changing(lambda rows: dd.table(rows.map(row), SCHEMA).output()) as (session, output):
        for number in range(12):
            session.insert(number)
        session.close()
        by_key = {record[0]: record for record in output.at(0)}
        assert list(output.at(0).values()) == [3] * 4  # the forms that are taken are one record
    return [((by_key[record[0]],), time, diff) for record, time, diff in changes()]


@pytest.mark.parametrize("workers", [1, 3])
def test_values_of_every_kind_are_keys(workers: int) -> None:
    result = differential.run(grouped, plain_changes(), workers=workers)
    assert counts_of(result, 3) == LAST


def test_values_of_every_kind_go_through_a_checkpoint(tmp_path: Path) -> None:
    result = differential.run_resumed(grouped, plain_changes(), directory=tmp_path, workers=(2, 3))
    assert counts_of(result, 3) == LAST


def test_values_of_every_kind_come_out_as_arrow_data_and_go_in_again() -> None:
    with changing(lambda rows: dd.table(rows.map(row), SCHEMA).output()) as (session, output):
        for number in range(12):
            session.insert(number)
        session.insert(0)
        session.close()
        data = output.to_arrow(0, counts=True)
        held = output.at(0)
    assert data.schema.field("price").type == pa.decimal128(38, 2) and data.schema.field("place").type.field(0).name == "street"
    assert contents(lambda scope: dd.table(scope, data.drop_columns(["count"]))).keys() == held.keys()


def test_kinds_are_one_object_each() -> None:
    nested = list_of(struct_of((("a", Kind.DATE),)))
    assert pickle.loads(pickle.dumps(nested)) is nested
    assert common(nested, list_of(struct_of((("a", Kind.TIMESTAMP),)))) is list_of(struct_of((("a", Kind.TIMESTAMP),)))
    assert common(nested, list_of(struct_of((("b", Kind.DATE),)))) is None
