"""Plans of queries: every column that is read is there, equal queries have equal plans, and no subquery is left to build.

White box: what a view holds does not show which plan it has.
"""

from __future__ import annotations

import pytest

from tests.differential.sql_epochs import QUERIES, SCHEMAS
from timely.differential.tables.expressions.bound import Subquery, ids_in, parts_in
from timely.differential.tables.names.binder import Binder
from timely.differential.tables.names.queries import query_of
from timely.differential.tables.plan.decorrelate import decorrelated
from timely.differential.tables.plan.nodes import JoinRows, QueryPlan, free, ids, plans_in
from timely.differential.tables.plan.push_down import pushed_down
from timely.differential.tables.values.kinds import columns_of


def bound(query: str) -> tuple[QueryPlan, Binder]:
    binder = Binder({name: columns_of(schema) for name, schema in SCHEMAS.items()})
    return binder.query(query_of(query), None, binder.tables).plan, binder


@pytest.mark.parametrize("query", QUERIES[::7])
def test_every_column_that_a_plan_reads_is_one_of_its_inputs(query: str) -> None:
    plan, binder = bound(query)
    assert not free(plan)
    flat = decorrelated(plan, binder.fresh)
    for changed in (flat, pushed_down(flat)):
        assert [ref.id for ref in changed.columns] == [ref.id for ref in plan.columns]
        for node in plans_in(changed):
            assert not any(isinstance(part, Subquery) for part in parts_in(node.expressions))
            assert ids_in(*node.expressions) <= {number for inner in node.inputs for number in ids(inner)}


@pytest.mark.parametrize(
    ("before", "behind"), [("(", " <> any (select w > 2 from edges))"), ("(w > 1) <> all (select ", " from edges)")]
)
def test_nested_comparisons_with_any_grow_by_their_depth(before: str, behind: str) -> None:
    sizes = []
    for depth in (12, 24):
        plan, binder = bound(f"select {before * depth}true{behind * depth} from edges")
        sizes.append(sum(len(parts_in(node.expressions)) for node in plans_in(decorrelated(plan, binder.fresh))))
    assert sizes[1] < 3 * sizes[0]


def test_equal_queries_have_equal_plans() -> None:
    one, other, another = (bound(f"select id, sum(amount) as s from orders where id > {n} group by id")[0] for n in (1, 1, 2))
    assert one == other != another
    assert bound("select (ID), sum(orders.amount) S from orders where (id > 1) group by 1")[0] == one


@pytest.mark.parametrize("join", ["left join", "right join"])
def test_conditions_on_the_side_without_a_match_are_asked_below_the_join(join: str) -> None:
    own = "o.amount" if join == "right join" else "l.n"
    plan, binder = bound(f"select o.id from orders o {join} lines l on o.id = l.order_id and {own} = 1")
    (made,) = [node for node in plans_in(pushed_down(decorrelated(plan, binder.fresh))) if isinstance(node, JoinRows)]
    assert len(made.conditions) == 1
