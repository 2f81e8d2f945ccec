"""A Hypothesis strategy for nestings of operators with summaries, in regions, loops and scopes whose times refine those around.

It takes a type of times, or a :class:`~timely.testing.TimeKit`. Small cases come first when Hypothesis shrinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias, get_origin

from hypothesis import strategies as st

from tests.support.nesting import Link, Nesting, OpSpec, ScopeSpec, Shift
from timely.errors import ConfigurationError
from timely.order import Product
from timely.progress import Source, Target
from timely.testing import TimeKit, time_kit

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
