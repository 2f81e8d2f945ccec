"""The reports of a custom scope are checked: each kind of lie raises a ``ProgressError`` with the scope's path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scopes.handmade import NOWHERE, STAY, HandMade, Parent, subgraph, through
from timely import GraphError, ProgressError, Source, Step, Target
from timely.scopes import INGRESS, ValidatingScope

Sent = list[tuple[int, Any, int]]


def parent_of(child: HandMade) -> Parent:
    sub = subgraph()
    sub.add_child("liar", child)
    for port in range(child.inputs):
        sub.add_edge(Source(INGRESS, sub.new_input()), Target(0, port), local=True)
    return Parent(sub).set()


LIES: dict[str, tuple[Sent, Sent, Sent]] = {
    "a capability before the one it holds": ([(0, 2, 1)], [], []),
    "a message before its capability": ([], [], [(0, 2, 1)]),
    "a capability on an output where it holds none": ([(1, 9, 1)], [], []),
    "a capability before what the message allows": ([(1, 5, 1)], [(0, 4, 1)], []),
    "a message before what the message allows": ([], [(0, 4, 1)], [(1, 5, 1)]),
    "a capability from an input that is not connected": ([(1, 99, 1)], [(1, 0, 1)], []),
    "a capability given back that it never held": ([(0, 4, -1)], [], []),
    "a capability given back twice": ([(0, 3, -2)], [], []),
    "a negative number of messages read": ([], [(0, 4, -1)], []),
    "a negative number of messages sent": ([], [], [(0, 4, -1)]),
}
TRUTHS: dict[str, tuple[Sent, Sent, Sent]] = {
    "nothing": ([], [], []),
    "a downgrade": ([(0, 3, -1), (0, 8, 1)], [], []),
    "another capability, later": ([(0, 4, 1)], [], []),
    "a message with the capability that is given back": ([(0, 3, -1)], [], [(0, 3, 7)]),
    "a capability from a message": ([(1, 6, 1)], [(0, 4, 1)], []),
    "a message from a message": ([], [(0, 4, 1)], [(1, 6, 1), (0, 3, 1)]),
    "messages read for nothing": ([], [(0, 4, 5), (1, 0, 1)], []),
}


def scope() -> HandMade:
    """Two inputs: the first advances by one to output 0, by two to output 1; the second leads nowhere. Holds 3 on output 0."""
    return HandMade([[through(Step(1)), through(Step(2))], [STAY, NOWHERE]], 2, [[(3, 1)], []])


@pytest.mark.parametrize("lie", LIES)
def test_OC2_OC4_a_lie_is_refused_by_path(lie: str) -> None:
    child = scope()
    parent = parent_of(child)
    child.report(*LIES[lie])
    with pytest.raises(ProgressError, match="'liar' \\(/sub/liar\\)"):
        parent.pull()


@pytest.mark.parametrize("truth", TRUTHS)
def test_OC2_OC4_the_truth_is_not(truth: str) -> None:
    child = scope()
    parent = parent_of(child)
    child.report(*TRUTHS[truth])
    parent.pull()


def test_a_scope_holds_what_it_reported() -> None:
    child = scope()
    parent = parent_of(child)
    child.report(internal=[(0, 3, -1), (0, 8, 1)])
    parent.pull()
    child.report(internal=[(0, 5, 1)])
    assert isinstance(parent.scope, object)
    parent.scope.activate(0)
    with pytest.raises(ProgressError, match="holds a capability at 5 on output 0"):
        parent.pull()


class Unobservant(HandMade):
    """A scope that receives no frontiers."""

    observes = ()


def test_what_the_scope_is_held_to_can_be_seen() -> None:
    checked = ValidatingScope(scope(), "child", "/sub/child")
    summaries, counts = checked.get_internal_summary()
    assert checked.summaries == summaries == [[through(Step(1)), through(Step(2))], [STAY, NOWHERE]]
    assert [list(held.items()) for held in checked.held] == counts == [[(3, 1)], []]
    assert (checked.observes, checked.shared) == ((0, 1), False)
    assert ValidatingScope(Unobservant([[STAY]], 1), "child", "/sub/child").observes == ()


def test_a_summary_of_the_wrong_shape_is_refused_by_path() -> None:
    lopsided = HandMade([[STAY], [STAY, STAY]], 1)
    with pytest.raises(GraphError, match=r"/sub/lopsided.*2 inputs and 1 outputs"):
        ValidatingScope(lopsided, "lopsided", "/sub/lopsided").get_internal_summary()


class SharedScope(HandMade):
    """A scope that exchanges its progress with its peers itself."""

    shared = True


def test_a_shared_scope_reports_for_all_workers() -> None:
    sub = subgraph()
    sub.add_child("own", HandMade([], 1))
    sub.add_child("shared", SharedScope([], 1))
    assert [child.shared for child in sub.subgraph.children] == [False, True]
