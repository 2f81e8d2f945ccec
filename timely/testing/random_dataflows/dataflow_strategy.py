"""A Hypothesis strategy for whole dataflows over a type of times: small cases come first when it shrinks."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import assume
from hypothesis import strategies as st

from timely.testing.random_dataflows.dataflow_spec import Dataflow, Sending
from timely.testing.random_dataflows.operator_specs import (
    Advance,
    Concat,
    Cycle,
    Distinct,
    Filter,
    Input,
    Loop,
    Map,
    Operator,
    Repeat,
    Scoped,
    Shuffle,
    Total,
)
from timely.testing.strategies import TimeKit, time_kit

MOST_RECORDS: Final = 1_000
"""How many records the operators of a random dataflow make at most: loops in loops could multiply them without end."""

_RECORDS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


@st.composite
def dataflows(draw: st.DrawFn, spec: Any = int, *, max_operators: int = 6, max_sendings: int = 5) -> Dataflow:
    """Make whole dataflows over times of a type or a ``TimeKit``, with what is sent; every one ends.

    Operators work on records and on whole times, exchange, keep state, ask for notifications and advance times, on cycles too,
    in nested loops and scopes. ``flow.run(workers) == flow.reference()`` for a lawful type; a dataflow prints as what makes it.

    >>> from hypothesis import given, settings
    >>> from timely import Product
    >>> @settings(max_examples=5, deadline=None)
    ... @given(dataflows(Product[int, int]))
    ... def test(flow):
    ...     assert flow.run(workers=2) == flow.reference()
    >>> test()
    >>> from timely.testing import smallest
    >>> smallest(dataflows(), lambda flow: any(isinstance(operator, Total) for operator in flow.operators))
    Dataflow((Input(), Total(0)), ())
    """
    kit = time_kit(spec)
    inputs = draw(st.integers(1, 2))
    operators: list[Operator] = [Input() for _ in range(inputs)]
    for _ in range(draw(st.integers(0, max_operators))):
        operators.append(draw(_operators(len(operators), kit, depth=0, looping=False)))
    sendings = st.builds(Sending, st.integers(0, inputs - 1), st.integers(0, 2), kit.times, _RECORDS)
    flow = Dataflow(tuple(operators), tuple(draw(st.lists(sendings, max_size=max_sendings))), kit.spec)
    assume(flow.at_most() <= MOST_RECORDS)
    return flow


@st.composite
def _operators(draw: st.DrawFn, streams: int, kit: TimeKit, depth: int, looping: bool) -> Operator:
    """Make an operator that reads some of so many streams, in a scope whose times, but for the rounds of loops, a kit makes."""
    source = st.integers(0, streams - 1)
    nested = draw(st.integers(0, 4)) if depth < 2 else 0
    if nested < 3:
        return draw(_simple(source, kit))
    if nested == 4 and not looping:
        inner = draw(st.sampled_from([kit, *kit.inside]))
        return Scoped(draw(source), inner.spec, draw(_bodies(inner, depth, looping=False)))
    return Loop(draw(source), draw(_bodies(kit, depth, looping=True)), draw(st.integers(0, 3)))


def _simple(source: st.SearchStrategy[int], kit: TimeKit) -> st.SearchStrategy[Operator]:
    kinds: list[st.SearchStrategy[Operator]] = [
        st.builds(Map, source, st.integers(0, 3), st.integers(0, 3)),
        st.builds(Filter, source, st.integers(2, 4)),
        st.builds(Shuffle, source, st.integers(1, 3)),
        st.builds(Concat, st.lists(source, min_size=1, max_size=3).map(tuple)),
        st.builds(Distinct, source),
        st.builds(Total, source),
        st.builds(Repeat, source, st.integers(0, 2)),
        st.builds(Advance, source, kit.summaries | kit.advancing),
    ]
    if not kit.advancing.is_empty:
        kinds.append(st.builds(Cycle, source, kit.advancing))
    return st.one_of(kinds)


@st.composite
def _bodies(draw: st.DrawFn, kit: TimeKit, depth: int, looping: bool) -> tuple[Operator, ...]:
    body: list[Operator] = []
    for _ in range(draw(st.integers(1, 3))):
        body.append(draw(_operators(len(body) + 1, kit, depth + 1, looping)))
    return tuple(body)
