"""A bounded model checker: every interleaving of a small configuration, every invariant in every state.

The configurations are those of :mod:`timely.testing.exchange`: a few workers over a small graph, that make a number of
statements among them in any way that is permitted, and tell and hear of them in any order that the protocol allows. States
are visited breadth first and each once, by the real ``ProgressExchange`` and ``Tracker``. The invariant of a search that
ends without a violation is that there is none: not in any run of the configuration. A caller may rely on a violation
coming with a trace that no shorter one leads to.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from timely.errors import InvariantViolation, ProgressError
from timely.testing.code import Described
from timely.testing.exchange import ExchangeRules, run_of
from timely.testing.exchange_state import Decision, Do, ExchangeState
from timely.testing.graph import GraphSpec


@attrs.frozen(repr=False)
class Configuration(Described):
    """What is explored: ``statements`` of all workers together, at the minimum and what comes of it, and at ``times``.

    ``believed`` is the graph that the trackers are told of, if it is to be another one, and ``rules`` those that are followed.

    >>> Configuration(GraphSpec(int, (), ()), workers=2, statements=3)
    Configuration(GraphSpec(int, (), ()), 2, 3)
    """

    graph: GraphSpec
    workers: int
    statements: int
    times: Sequence[Any] = ()
    believed: GraphSpec | None = None
    rules: type[ExchangeRules] = ExchangeRules


@attrs.frozen
class Explored:
    """What a search has seen: how many different ``states``, how many ``steps`` between them, and how ``deep`` the last lies.

    ``complete`` says that these were all.

    >>> explore(Configuration(GraphSpec(int, (), ()), workers=2, statements=3))
    Explored(states=1, steps=0, deep=0, complete=True)
    """

    states: int
    steps: int
    deep: int
    complete: bool


_Node = tuple[ExchangeState, int]
_Trace = tuple[_Node, Decision] | None


def explore(configuration: Configuration, *, max_states: int | None = None, max_seconds: float | None = None) -> Explored:
    """Visit every state of a configuration, or so many, or those of so many seconds, and check all invariants in each.

    Raises the :class:`~timely.errors.InvariantViolation` that the fewest decisions lead to; its message ends with a program
    that takes them. Source of the approach: the model of Naiad's protocol in TLA+ by Abadi and others, checked exhaustively.

    >>> from timely.progress import Source, Target
    >>> from timely.testing import NodeSpec
    >>> feed, sink = NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, (0,))
    >>> line = GraphSpec(int, (feed, sink), ((Source(0, 0), Target(1, 0), False),))
    >>> explore(Configuration(line, workers=2, statements=2))
    Explored(states=342, steps=560, deep=6, complete=True)
    """
    rules = configuration.rules(configuration.graph, configuration.workers, configuration.times, configuration.believed)
    first = rules.initial(), configuration.statements
    found: dict[_Node, _Trace] = {first: None}
    queue: deque[tuple[_Node, int]] = deque([(first, 0)])
    steps = deep = 0
    end = None if max_seconds is None else time.monotonic() + max_seconds
    _checked(rules, found, first, None)
    while queue:
        if end is not None and time.monotonic() > end:
            return Explored(len(found), steps, deep, complete=False)
        node, deep = queue.popleft()
        for decision in _decisions(rules, node):
            steps += 1
            following = _follow(rules, found, node, decision)
            if following not in found:
                if max_states is not None and len(found) >= max_states:
                    return Explored(len(found), steps, deep, complete=False)
                found[following] = node, decision
                queue.append((following, deep + 1))
            _checked(rules, found, following, (node, decision))
    return Explored(len(found), steps, deep, complete=True)


def _decisions(rules: ExchangeRules, node: _Node) -> Iterator[Decision]:
    state, left = node
    yield from rules.quiet(state)
    for worker in range(rules.workers if left else 0):
        for statement in rules.statements(state, worker):
            yield Do(worker, statement)


def _follow(rules: ExchangeRules, found: dict[_Node, _Trace], node: _Node, decision: Decision) -> _Node:
    try:
        return rules.after(node[0], decision), node[1] - isinstance(decision, Do)
    except ProgressError as error:
        raise _violation(rules, found, (node, decision), "protocol", str(error)) from error


def _checked(rules: ExchangeRules, found: dict[_Node, _Trace], node: _Node, last: _Trace) -> None:
    try:
        rules.check(node[0], None if last is None else last[0][0])
    except InvariantViolation as violation:
        raise _violation(rules, found, last, violation.invariant, violation.message) from None


def _violation(
    rules: ExchangeRules, found: dict[_Node, _Trace], last: _Trace, invariant: str, message: str
) -> InvariantViolation:
    """Return the violation with the decisions that lead to it."""
    decisions: list[Decision] = []
    while last is not None:
        decisions.append(last[1])
        last = found[last[0]]
    decisions.reverse()
    return InvariantViolation(invariant, f"{message}; after\n{run_of(rules, decisions)}")
