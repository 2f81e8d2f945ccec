"""Hypothesis strategies for what is built of scopes: nestings of operators with summaries, and whole dataflows with records.

Both take a type of times, or a :class:`~timely.testing.TimeKit` for one's own, and nest scopes of three kinds in each other:
regions, loops, and scopes with times that refine those around them. The invariant: what is made is data, whose ``repr`` makes
it again, and every dataflow ends. A caller may rely on small cases coming first when Hypothesis shrinks: fewer operators, fewer
scopes, fewer records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, get_origin

from hypothesis import assume
from hypothesis import strategies as st

from tests.support.dataflow_spec import Dataflow, Sending
from tests.support.nesting import Link, Nesting, OpSpec, ScopeSpec, Shift
from tests.support.operator_specs import (
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
from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Source, Target
from timely.testing import TimeKit, smallest, time_kit

Wires: TypeAlias = tuple[tuple[bool, int, bool], ...]
"""For each input of an operator: whether something leads there, from which output (counted round), and exchanged or not."""

_WIRES = st.tuples(st.integers(0, 6).map(bool), st.integers(0, 15), st.booleans())
_ROUNDS: Final = time_kit(int)


@st.composite
def nestings(
    draw: st.DrawFn, spec: Any = int, *, max_ops: int = 7, max_scopes: int = 6, limits: bool = True, exchanges: bool = False
) -> Nesting:
    """Make nestings of scopes; cycles on which time does not advance are possible: see :meth:`Nesting.repaired`.

    >>> from timely.testing import smallest
    >>> smallest(nestings(), lambda nesting: len(nesting.links) > 0).ops[0].scope
    0
    """
    kits = [time_kit(spec)]
    scopes = [ScopeSpec(0, False)]
    ops: list[OpSpec] = []
    wires: list[Wires] = []
    order: list[tuple[bool, int]] = []
    while len(order) < max_ops + max_scopes - 1:
        made = draw(_members(kits, len(ops) < max_ops, len(scopes) < max_scopes, limits))
        if made is None:
            break
        first, second = made
        if isinstance(first, OpSpec):
            order.append((False, len(ops)))
            ops.append(first)
            wires.append(second)
        else:
            order.append((True, len(scopes)))
            scopes.append(first)
            kits.append(second)
    return Nesting(tuple(scopes), tuple(ops), tuple(_links(ops, wires, exchanges)), tuple(order), kits[0].spec)


def _links(ops: list[OpSpec], wires: list[Wires], exchanges: bool) -> Iterator[Link]:
    sources = [Source(op, o) for op, made in enumerate(ops) for o in range(made.outputs)]
    for op, wired in enumerate(wires):
        for i, (connected, number, exchanged) in enumerate(wired):
            if sources and connected:
                yield Link(sources[number % len(sources)], Target(op, i), exchanges and exchanged)


@st.composite
def _members(draw: st.DrawFn, kits: list[TimeKit], op: bool, scope: bool, limits: bool) -> tuple[Any, Any] | None:
    """Make an operator with its wires, or a scope with its kit, in one of the scopes there are, as far as is allowed; or end.

    One draw makes it all, by the same decisions whatever is allowed, so that Hypothesis can leave it out when it shrinks.
    """
    if draw(st.integers(0, 11)) == 0:
        return None
    where, preferred = draw(st.sampled_from([*range(len(kits)), len(kits) - 1])), draw(st.booleans())
    if scope and (preferred or not op):
        return draw(_scopes(where, kits[where]))
    made = draw(_ops(where, kits[where], limits))
    return made, tuple(draw(_WIRES) for _ in made.observes)


@st.composite
def _scopes(draw: st.DrawFn, parent: int, around: TimeKit) -> tuple[ScopeSpec, TimeKit]:
    """Make a scope in another one, and the kit of its times."""
    refining = bool(around.inside) and draw(st.booleans())
    if refining:
        kit = draw(st.sampled_from(around.inside))
        return ScopeSpec(parent, False, kit.spec), kit
    iterative = draw(st.booleans())
    return ScopeSpec(parent, iterative), around.product(_ROUNDS) if iterative else around


@st.composite
def _ops(draw: st.DrawFn, scope: int, kit: TimeKit, limits: bool) -> OpSpec:
    coordinates = _coordinates(kit)
    inputs, outputs = draw(st.integers(0, 2)), draw(st.sampled_from([1, 1, 1, 0, 2]))
    rows = []
    for _ in range(inputs):
        looping = draw(st.booleans())
        row: list[tuple[Shift, ...]] = []
        for _ in range(outputs):
            count = draw(st.sampled_from([1, 1, 1, 1, 2, 0]))
            row.append(tuple(draw(_shifts(coordinates, advancing=looping, limits=limits)) for _ in range(count)))
        rows.append(tuple(row))
    return OpSpec(scope, outputs, tuple(rows), tuple(draw(st.booleans()) for _ in range(inputs)))


@st.composite
def _shifts(draw: st.DrawFn, kits: list[TimeKit], *, advancing: bool, limits: bool) -> Shift:
    """Make a shift of times with such coordinates; an advancing one advances at least one of them, mostly the innermost."""
    by: list[Any] = [draw(st.sampled_from([0, 0, 0, 1, 2]) if kit.spec is int else kit.summaries) for kit in kits]
    able = [place for place, kit in enumerate(kits) if not kit.advancing.is_empty]
    if advancing and able and not any(type(n) is int and n for n in by):
        place = draw(st.sampled_from([*able, able[-1]]))
        by[place] = 1 if kits[place].spec is int else draw(kits[place].advancing)
    bounds = [n + draw(st.integers(0, 3)) if type(n) is int and limits and draw(st.integers(0, 7)) == 7 else None for n in by]
    return Shift(tuple(by), tuple(bounds))


def _coordinates(kit: TimeKit) -> list[TimeKit]:
    """Return the kits of the coordinates of a product nested in its outer coordinate, the outermost first; else the kit."""
    if kit.parts is not None:
        return [*_coordinates(kit.parts[0]), kit.parts[1]]
    if get_origin(kit.spec) is Product:
        raise ConfigurationError(f"the kit of {kit.spec} does not say what it is a product of: make it by TimeKit.product")
    return [kit]


def smallest_nesting(strategy: st.SearchStrategy[Nesting], condition: Callable[[Nesting], bool]) -> Nesting:
    """Return the simplest nesting that fulfils a condition: what Hypothesis finds, and then without whatever can be left out."""
    return without_needless(smallest(strategy, condition), condition)


def without_needless(found: Nesting, condition: Callable[[Nesting], bool]) -> Nesting:
    """Return a nesting that fulfils a condition, without what it does not need for it."""
    while (smaller := next(filter(condition, found.smaller()), None)) is not None:
        found = smaller
    return found


MOST_RECORDS: Final = 1_000
"""How many records the operators of a random dataflow make at most: loops in loops could multiply them without end."""

_RECORDS = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


@st.composite
def dataflows(draw: st.DrawFn, spec: Any = int, *, max_operators: int = 6, max_sendings: int = 5) -> Dataflow:
    """Make whole dataflows, with what is sent: inputs, record-wise operators, exchanges, state, notifications, paths along which
    times advance, cycles, nested loops and scopes.

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
