"""Small graphs over which workers exchange progress: what the model checker explores, in tests and for as long as one likes."""

from __future__ import annotations

from typing import Any

import attrs

from timely.progress import LoopSummary, LoopTime, Product, ProductSummary, Source, Step, Target, Unit, UnitSummary
from timely.testing import GraphSpec, NodeSpec


def edges(*pairs: tuple[tuple[int, int], tuple[int, int]], local: bool = False) -> tuple[tuple[Source, Target, bool], ...]:
    """Edges from (node, output) to (node, input)."""
    return tuple((Source(*source), Target(*target), local) for source, target in pairs)


FEED, SINK = NodeSpec(0, 1, {}, ()), NodeSpec(1, 0, {}, (0,))
RELAY = NodeSpec(1, 1, {(0, 0): (Step(0),)}, ())
WATCHED = attrs.evolve(RELAY, observes=(0,))
LATER = attrs.evolve(WATCHED, summaries={(0, 0): (Step(1),)})

LINE = GraphSpec(int, (FEED, WATCHED), edges(((0, 0), (1, 0))))
CHAIN = GraphSpec(int, (FEED, RELAY, SINK), edges(((0, 0), (1, 0)), ((1, 0), (2, 0))))
LOOP = GraphSpec(int, (WATCHED, LATER), edges(((1, 0), (0, 0)), ((0, 0), (1, 0))))
# A message stays with the worker that sent it, and what comes of it is exchanged.
LOCAL = attrs.evolve(CHAIN, edges=(*edges(((0, 0), (1, 0)), local=True), *edges(((1, 0), (2, 0)))))

BOTH = NodeSpec(2, 1, {(0, 0): (Step(0),), (1, 0): (Step(0),)}, (0, 1))
TWO_INPUTS = GraphSpec(int, (FEED, FEED, BOTH), edges(((0, 0), (2, 0)), ((1, 0), (2, 1))))
# What comes in at 0 goes out at 0 as it is and at 1 later; what comes in at 1 goes out at 1 alone, which leads back to 1.
PORTS = NodeSpec(2, 2, {(0, 0): (Step(0),), (0, 1): (Step(2),), (1, 1): (Step(1),)}, (0, 1))
EACH_PAIR = GraphSpec(int, (FEED, PORTS), edges(((0, 0), (1, 0)), ((1, 1), (1, 1))))

UNIT_RELAY = NodeSpec(1, 1, {(0, 0): (UnitSummary(),)}, ())
ONE_TIME = GraphSpec(Unit, (FEED, UNIT_RELAY, SINK), CHAIN.edges)
AROUND = NodeSpec(1, 1, {(0, 0): (ProductSummary(Step(0), Step(1)),)}, (0,))
ROUNDS = GraphSpec(Product[int, int], (AROUND,), edges(((0, 0), (0, 0))))
# Two summaries, neither of which is before the other, lead back.
EITHER = NodeSpec(1, 1, {(0, 0): (ProductSummary(Step(0), Step(1)), ProductSummary(Step(1), Step(0)))}, (0,))
EITHER_WAY = GraphSpec(Product[int, int], (EITHER,), edges(((0, 0), (0, 0))))
# Naiad's own times: a stream enters a loop, whose feedback counts its rounds.
ENTERED = NodeSpec(2, 1, {(0, 0): (LoopSummary.ingress(1),), (1, 0): (LoopSummary(),)}, (0, 1))
BACK = NodeSpec(1, 1, {(0, 0): (LoopSummary.feedback(1),)}, ())
ENTERED_LOOP = GraphSpec(LoopTime, (FEED, ENTERED, BACK), edges(((0, 0), (1, 0)), ((1, 0), (2, 0)), ((2, 0), (1, 1))))

GRAPHS: dict[str, tuple[GraphSpec, Any]] = {  # each with a time that operators may go on to
    "line": (LINE, 1),
    "chain": (CHAIN, 1),
    "loop": (LOOP, 1),
    "local": (LOCAL, 1),
    "two inputs": (TWO_INPUTS, 1),
    "each pair": (EACH_PAIR, 1),
    "one time": (ONE_TIME, Unit()),
    "rounds": (ROUNDS, Product(1, 0)),
    "either way": (EITHER_WAY, Product(1, 0)),
    "entered loop": (ENTERED_LOOP, LoopTime(1)),
}
