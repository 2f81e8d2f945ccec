"""A subgraph driven by hand through the six members of the protocol, as the scope around it would."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scopes.handmade import NOWHERE, STAY, HandMade, Parent, subgraph, through
from timely import Antichain, CycleError, GraphError, Product, ProductSummary, Source, Step, Target
from timely.progress import ProgressExchange, refinement
from timely.scopes import EGRESS, INGRESS, RoundTripSummary, SubgraphBuilder, TrustedScope


def chain(*scopes: HandMade, peers: int = 1, inner: Any = int) -> SubgraphBuilder[Any, int]:
    """A subgraph with one input and one output, and these scopes one after the other between them."""
    sub = subgraph(inner, peers=peers, exchange=ProgressExchange(0, peers) if peers > 1 else None)
    source = Source(INGRESS, sub.new_input())
    for scope in scopes:
        child = sub.add_child("child", scope)
        sub.add_edge(source, Target(child, 0), local=True)
        source = Source(child, 0)
    sub.add_edge(source, Target(EGRESS, sub.new_output()), local=True)
    return sub


def test_summaries_that_only_look_different_inside_are_one_outside() -> None:
    inside = HandMade([[through(ProductSummary(Step(0), Step(5)), ProductSummary(Step(1), Step(0)))]], 1, [[]])
    assert chain(inside, inner=Product[int, int]).get_internal_summary() == ([[STAY]], [[]])


def test_a_path_that_nothing_which_enters_gets_through_is_none() -> None:
    first = HandMade([[through(ProductSummary(Step(0), Step(3)))]], 1, [[]])
    second = HandMade([[through(ProductSummary(Step(0), Step(0, limit=2)))]], 1, [[]])
    assert chain(first, second, inner=Product[int, int]).get_internal_summary()[0] == [[NOWHERE]]


def test_initial_capabilities_are_projected_to_the_outputs() -> None:
    sub = chain(HandMade([[STAY]], 1, [[(4, 2), (7, 1)]]), HandMade([[through(Step(1))]], 1, [[(9, 1)]]))
    parent = Parent(sub)
    assert parent.summaries == [[through(Step(1))]]
    assert parent.work() == [Antichain([5])]


def test_one_pull_is_one_statement() -> None:
    """A message comes in, is read, becomes a capability, a message to a sibling, and leaves: all in one report."""
    first, second = HandMade([[STAY]], 1, [[]]), HandMade([[through(Step(1))]], 1, [[]])
    sub = chain(first, second)
    parent = Parent(sub).set()
    parent.pull()
    sub.subgraph.enter(0, 0, 3)
    first.report(consumed=[(0, 0, 3)], produced=[(0, 0, 2)])
    second.report(consumed=[(0, 0, 2)], internal=[(0, 1, 1)], produced=[(0, 1, 5)])
    for child in (0, 1):
        sub.subgraph.activate(child)
    assert parent.pull() == (True, [[(0, 3)]], [[(1, 5)]])
    assert parent.work() == [Antichain([1])]
    second.report(internal=[(0, 1, -1)])
    sub.subgraph.activate(1)
    assert parent.pull()[1:] == ([[]], [[]])
    assert parent.work() == [Antichain()]


class Shared(HandMade):
    """A scope whose peers report the same, and which receives what they did in any order."""

    shared = True


@pytest.mark.parametrize("before", [0, 1], ids=["as the first child", "as another child"])
def test_counts_at_a_shared_scope_hide_nothing_further_on(before: int) -> None:
    """A message of the shared scope has been read elsewhere before its being sent was received: what came of it counts."""
    sub = subgraph(peers=2, exchange=ProgressExchange(0, 2))
    for _ in range(before):
        sub.add_child("another", HandMade([], 0))
    sink = HandMade([[]], 0)
    shared, relay, end = (sub.add_child("child", scope) for scope in (Shared([], 1, [[]]), Quiet([[STAY]], 1, [[]]), sink))
    sub.add_edge(Source(shared, 0), Target(relay, 0), local=True)
    sub.add_edge(Source(relay, 0), Target(end, 0), local=True)
    parent = Parent(sub).set()
    [tracker] = sub.subgraph.trackers
    sub.subgraph.receive(tracker.index(Target(relay, 0)), 3, -1)
    sub.subgraph.receive(tracker.index(Source(relay, 0)), 3, +1)
    parent.pull()
    assert sink.frontiers == [{3: 1}]


class Attached(HandMade, TrustedScope[int]):
    """A scope whose frontiers the scope around it keeps."""

    def __init__(self, inputs: int = 2) -> None:
        super().__init__([[] for _ in range(inputs)], 0)
        self.observes = tuple(range(1, inputs))
        self.kept: list[list[int]] = []
        self.runs = 0

    def attach(self, *numbers: object) -> list[list[int]]:
        self.kept = [[] for _ in range(self.inputs)]
        return self.kept

    def run(self) -> bool:
        self.runs += 1
        return self.busy


def test_an_attached_child_keeps_the_scope_alive_as_long_as_it_is_busy() -> None:
    sub = subgraph()
    child = Attached(inputs=0)
    sub.add_child("attached", child)
    parent = Parent(sub).set()
    child.busy = True
    assert [parent.pull()[0] for _ in range(3)] == [True] * 3
    child.busy = False
    sub.subgraph.run_now(0)
    assert (parent.pull()[0], child.runs) == (False, 4), "it had nothing more to do when it was run out of turn"


def test_several_tracers_may_intercept_an_attached_child() -> None:
    class Reader(Attached):
        def attach(self, *account: Any) -> list[list[int]]:
            _, [first, _], _, _, self.note = account
            self.first = first
            return super().attach(*account)

        def run(self) -> bool:
            self.note.update_at(self.first, 0, -1)
            return super().run()

    sub = subgraph()
    child = Reader()
    sub.add_child("attached", child)
    parent = Parent(sub).set()
    seen: list[str] = []

    def look(name: str) -> None:
        def around(child: int, hold: Any, note: Any) -> tuple[Any, Any]:
            def notes(number: int, time: int, diff: int) -> None:
                seen.append(f"{name}: read {-diff}")
                note(number, time, diff)

            return hold, notes

        def timed(child: int, run: Any) -> Any:
            def runs() -> bool:
                seen.append(f"{name}: run")
                return bool(run())

            return runs

        sub.subgraph.intercept(around)
        sub.subgraph.time_runs(timed)

    look("one")
    look("another")
    parent.pull()
    assert sorted(seen) == ["another: read 1", "another: run", "one: read 1", "one: run"]
    assert (child.runs, sub.subgraph.trackers[0].counts()) == (1, {(Target(0, 0), 0): -1})


def test_outstanding_work_is_described_for_each_child() -> None:
    first, second, nested = HandMade([[STAY]], 1, [[(4, 2)]]), HandMade([[STAY]], 1, [[]]), subgraph()
    sub = chain(first, second)
    nested.add_child("inner", HandMade([], 1))
    nested.add_edge(Source(0, 0), Target(EGRESS, nested.new_output()), local=True)
    sub.add_child("nested", nested)
    parent = Parent(sub).set()
    assert sub.subgraph.outstanding() == ["a capability of /sub/child#0 at 4", "a capability of /sub/inner#0 at 0"]
    first.report(internal=[(0, 4, -2)], produced=[(0, 4, 3)])
    parent.pull()
    assert sub.subgraph.outstanding() == ["a message for /sub/child#1 at 4", "a capability of /sub/inner#0 at 0"]


class Quiet(HandMade):
    """A scope that wants to hear of no frontier."""

    observes: tuple[int, ...] = ()


# -- how the world leads back ----------------------------------------------------------------------------------------------


def test_a_cycle_through_the_parent_that_does_not_advance_is_refused() -> None:
    with pytest.raises(CycleError, match="/sub.*does not advance"):
        Parent(chain(HandMade([[STAY]], 1))).set([[STAY]])


def test_a_way_round_the_scope_further_out_hides_no_cycle_through_the_parent() -> None:
    """That scope has checked such ways itself; what leads back within the parent is to be checked here."""
    further_out = RoundTripSummary(Step(0), Step(1), Step(0), refinement(int, int))
    for back in ([further_out, Step(0)], [Step(0), further_out]):
        with pytest.raises(CycleError, match="/sub.*does not advance"):
            Parent(chain(HandMade([[STAY]], 1))).set([[Antichain[Any](back)]])
    Parent(chain(HandMade([[STAY]], 1))).set([[Antichain[Any]([further_out, Step(1)])]])


def test_a_cycle_through_the_parent_may_advance_on_either_side() -> None:
    Parent(chain(HandMade([[STAY]], 1))).set([[through(Step(1))]])
    Parent(chain(HandMade([[through(Step(1))]], 1))).set([[STAY]])
    Parent(chain(HandMade([[NOWHERE]], 1))).set([[STAY]])


def test_rounds_inside_do_not_make_a_cycle_through_the_parent_advance() -> None:
    sub = subgraph(Product[int, int])
    sub.add_child("child", HandMade([[through(ProductSummary(Step(0), Step(1)))]], 1, [[]]))
    sub.add_edge(Source(INGRESS, sub.new_input()), Target(0, 0), local=True)
    sub.add_edge(Source(0, 0), Target(EGRESS, sub.new_output()), local=True)
    with pytest.raises(CycleError):
        Parent(sub).set([[STAY]])


# -- building --------------------------------------------------------------------------------------------------------------


def test_nothing_can_be_added_once_it_is_built() -> None:
    sub = chain(HandMade([[STAY]], 1))
    sub.get_internal_summary()
    with pytest.raises(GraphError, match="built already"):
        sub.new_input()
    with pytest.raises(GraphError, match="built already"):
        sub.new_output()
    with pytest.raises(GraphError, match="built already"):
        sub.add_child("late", HandMade([], 0))
    with pytest.raises(GraphError, match="built already"):
        sub.add_edge(Source(0, 0), Target(0, 0), local=True)
    with pytest.raises(GraphError, match="built already"):
        sub.get_internal_summary()


def test_an_attached_child_is_held_to_its_ports_as_well() -> None:
    class Misshapen(Attached):
        def get_internal_summary(self):  # type: ignore[no-untyped-def]
            return [[]], []

    sub = subgraph()
    sub.add_child("attached", Misshapen())
    with pytest.raises(GraphError, match="/sub/attached.*2 inputs and 0 outputs"):
        sub.get_internal_summary()


@pytest.mark.parametrize(
    ("summaries", "counts"),
    [
        ([], [[]]),
        ([[STAY, STAY]], [[]]),
        ([{0: STAY}], [[]]),
        ({0: {0: STAY}}, [[]]),
        (None, [[]]),
        ([[STAY]], []),
        ([[STAY]], [[], []]),
        ([[STAY]], None),
        ([[STAY]], [0]),
        ([[STAY]], [[0]]),
    ],
    ids=[
        "no row for the input",
        "a column too many",
        "a mapping for a row",
        "a mapping of rows",
        "no rows at all",
        "no counts for the output",
        "counts for an output too many",
        "no counts at all",
        "a time for the counts of an output",
        "a time without its count",
    ],
)
def test_an_internal_summary_of_the_wrong_shape_is_refused(summaries: object, counts: object) -> None:
    class Misshapen(HandMade):
        def get_internal_summary(self):  # type: ignore[no-untyped-def]
            return summaries, counts

    sub = chain(Misshapen([[STAY]], 1))
    with pytest.raises(GraphError, match="/sub/child"):
        sub.get_internal_summary()


def test_a_cycle_among_children_names_them() -> None:
    sub = subgraph()
    for name in ("ping", "pong"):
        sub.add_child(name, HandMade([[STAY]], 1))
    sub.add_edge(Source(0, 0), Target(1, 0), local=True)
    sub.add_edge(Source(1, 0), Target(0, 0), local=True)
    with pytest.raises(CycleError, match="ping.*pong|pong.*ping"):
        sub.get_internal_summary()
