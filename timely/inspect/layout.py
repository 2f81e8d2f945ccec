"""Where everything stands in a picture of a dataflow: boxes in layers from top to bottom, each scope a box around its own.

Every child stands below those that it reads from; what leads back up, as each loop does, is the exception, and is led round at
the right. What passes by a layer gets a place in it, so that no line runs through a box that it has no business with. The
invariant: boxes of one scope do not overlap, and lie inside it. The same snapshot is laid out the same way, to the pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from timely.inspect.snapshot import ENTRY, EXIT, Snapshot, Wire

Point = tuple[float, float]
Key = tuple[str, int, int]
"""What has a place in a layer: a child, a port of the scope's own boundary, or the passage of a wire."""

CHARACTER: Final = 6.9
LINE: Final = 15.0
TITLE: Final = 24.0
_PAD: Final = 14.0
_BETWEEN: Final = 22.0
_BELOW: Final = 34.0
_LANE: Final = 12.0
_SWEEPS: Final = 6


@attrs.define
class Box:
    """A child or a scope, with its place in the scope around it; ``lines`` are what is written in it.

    ``entries`` and ``exits`` say where along its upper and its lower side its inputs and outputs are.
    """

    shape: Snapshot
    lines: list[str]
    width: float
    height: float
    entries: list[float]
    exits: list[float]
    x: float = 0.0
    y: float = 0.0
    boxes: list[Box] = attrs.field(factory=list)
    paths: list[Path] = attrs.field(factory=list)


@attrs.frozen
class Path:
    """The way of a wire: the points that it goes through, and whether it leads back up."""

    wire: Wire
    points: tuple[Point, ...]
    back: bool


def lay_out(shape: Snapshot, write: Callable[[Snapshot], list[str]]) -> Box:
    """Return the box of a snapshot, with all that is in it placed; ``write`` says what is written in an operator's box."""
    lines = write(shape)
    if shape.kind != "scope":
        width = max(len(line) for line in lines) * CHARACTER + 2 * _PAD
        return Box(shape, lines, width, len(lines) * LINE + _PAD, _evenly(shape.inputs, width), _evenly(shape.outputs, width))
    return _Plan(shape, lines, [lay_out(child, write) for child in shape.children]).box()


def _evenly(ports: int, width: float) -> list[float]:
    return [width * (port + 1) / (ports + 1) for port in range(ports)]


class _Plan:
    """The layers of one scope, and the places in them."""

    def __init__(self, shape: Snapshot, lines: list[str], boxes: list[Box]) -> None:
        self._shape = shape
        self._lines = lines
        self._boxes = {box.shape.index: box for box in boxes}
        self._back = self._find_back()
        self._ranks = self._rank()
        self._layers: list[list[Key]] = []
        self._ups: dict[Key, list[Key]] = {}
        self._downs: dict[Key, list[Key]] = {}
        self._chains: dict[int, list[Key]] = {}
        self._x: dict[Key, float] = {}
        self._fill()

    # -- layers ------------------------------------------------------------------------------------------------------

    def _find_back(self) -> set[int]:
        """Return which wires lead back to what they come from: found in a walk from the scope's inputs and sources."""
        after: dict[int, list[tuple[int, int]]] = {}
        for number, wire in enumerate(self._shape.wires):
            after.setdefault(wire.source[0], []).append((number, wire.target[0]))
        back: set[int] = set()
        state: dict[int, bool] = {}  # False while what comes after a node is gone through, True when that is done
        fed = {wire.target[0] for wire in self._shape.wires}
        for start in [ENTRY, *sorted(self._boxes, key=lambda index: (index in fed, index))]:
            if start in state:
                continue
            state[start] = False
            stack = [(start, iter(after.get(start, ())))]
            while stack:
                node, rest = stack[-1]
                for number, target in rest:
                    if target not in state:
                        state[target] = False
                        stack.append((target, iter(after.get(target, ()))))
                        break
                    if not state[target]:
                        back.add(number)
                else:
                    state[node] = True
                    stack.pop()
        return back

    def _rank(self) -> dict[int, int]:
        """Return the layer of each child: one below the lowest that it reads from. The scope's own inputs are above all."""
        ahead = [wire for number, wire in enumerate(self._shape.wires) if number not in self._back]
        waits = dict.fromkeys(self._boxes, 0)
        after: dict[int, list[int]] = {}
        for wire in ahead:
            if wire.source[0] in waits and wire.target[0] in waits:
                waits[wire.target[0]] += 1
                after.setdefault(wire.source[0], []).append(wire.target[0])
        ranks = dict.fromkeys(self._boxes, 1)
        ready = [index for index, count in waits.items() if not count]
        while ready:
            index = ready.pop()
            for target in after.get(index, ()):
                ranks[target] = max(ranks[target], ranks[index] + 1)
                waits[target] -= 1
                if not waits[target]:
                    ready.append(target)
        return ranks

    def _end(self, end: tuple[int, int]) -> Key:
        node, port = end
        return ("in", port, 0) if node == ENTRY else ("out", port, 0) if node == EXIT else ("box", node, 0)

    def _rank_of(self, key: Key) -> int:
        return 0 if key[0] == "in" else self._last if key[0] == "out" else self._ranks[key[1]]

    def _fill(self) -> None:
        """Put all that has a place into its layer, and bring the layers into an order with few crossings."""
        self._last = max(self._ranks.values(), default=0) + 1
        self._layers = [[] for _ in range(self._last + 1)]
        self._layers[0] = [("in", port, 0) for port in range(self._shape.inputs)]
        self._layers[-1] = [("out", port, 0) for port in range(self._shape.outputs)]
        for index, rank in self._ranks.items():
            self._layers[rank].append(("box", index, 0))
        for number, wire in enumerate(self._shape.wires):
            if number in self._back:
                continue
            above, below = self._end(wire.source), self._end(wire.target)
            chain = [above]
            for rank in range(self._rank_of(above) + 1, self._rank_of(below)):
                passage: Key = ("wire", number, rank)
                self._layers[rank].append(passage)
                chain.append(passage)
            chain.append(below)
            self._chains[number] = chain
            for upper, lower in itertools.pairwise(chain):
                self._downs.setdefault(upper, []).append(lower)
                self._ups.setdefault(lower, []).append(upper)
        for sweep in range(_SWEEPS):
            layers, near = (self._layers[1:], self._ups) if sweep % 2 == 0 else (self._layers[-2::-1], self._downs)
            places = {key: place for layer in self._layers for place, key in enumerate(layer)}
            for layer in layers:
                layer.sort(key=lambda key: (_mean([places[n] for n in near.get(key, ())], places[key]), places[key]))
                places.update((key, place) for place, key in enumerate(layer))

    # -- places ------------------------------------------------------------------------------------------------------

    def _width(self, key: Key) -> float:
        return self._boxes[key[1]].width if key[0] == "box" else _LANE

    def _place(self) -> None:
        """Give everything in the layers its middle, near the middle of what it is connected to."""
        for layer in self._layers:
            self._spread(layer, [0.0] * len(layer))
        for sweep in range(_SWEEPS):
            layers, near = (self._layers, self._ups) if sweep % 2 == 0 else (self._layers[::-1], self._downs)
            for layer in layers:
                self._spread(layer, [_mean([self._x[n] for n in near.get(key, ())], self._x[key]) for key in layer])

    def _spread(self, layer: Sequence[Key], wished: Sequence[float]) -> None:
        """Place a layer in its order, each as near to where it is wished as its neighbours let it, to both sides alike."""
        right, left = [0.0] * len(layer), [0.0] * len(layer)
        edge = -float("inf")
        for place, key in enumerate(layer):
            right[place] = max(wished[place], edge + self._width(key) / 2)
            edge = right[place] + self._width(key) / 2 + _BETWEEN
        edge = float("inf")
        for place in reversed(range(len(layer))):
            half = self._width(layer[place]) / 2
            left[place] = min(wished[place], edge - half)
            edge = left[place] - half - _BETWEEN
        for place, key in enumerate(layer):
            self._x[key] = (right[place] + left[place]) / 2

    def box(self) -> Box:
        """Return the scope's box with everything placed in it."""
        self._place()
        lanes = len(self._back) * _LANE
        edges = [(self._x[key] - self._width(key) / 2, self._x[key] + self._width(key) / 2) for key in self._x]
        leftmost, rightmost = min((left for left, _ in edges), default=0.0), max((right for _, right in edges), default=0.0)
        title = max((len(line) for line in self._lines), default=0) * CHARACTER + 2 * _PAD
        inner = max(rightmost - leftmost + 2 * _PAD, title - lanes)
        shift = (inner - (rightmost - leftmost)) / 2 - leftmost
        heights = [max((self._boxes[key[1]].height for key in layer if key[0] == "box"), default=0.0) for layer in self._layers]
        tops, y = [], TITLE
        for height in heights:
            tops.append(y)
            y += height + (_BELOW if height else _BELOW / 2)
        for key in self._x:
            self._x[key] += shift
        entries = [self._x["in", port, 0] for port in range(self._shape.inputs)]
        exits = [self._x["out", port, 0] for port in range(self._shape.outputs)]
        box = Box(self._shape, self._lines, inner + lanes, y + _PAD / 2, entries, exits)
        for rank, layer in enumerate(self._layers):
            for key in layer:
                if key[0] == "box":
                    child = self._boxes[key[1]]
                    child.x, child.y = self._x[key] - child.width / 2, tops[rank] + (heights[rank] - child.height) / 2
        box.boxes = [self._boxes[child.index] for child in self._shape.children]
        middles = [top + height / 2 for top, height in zip(tops, heights, strict=True)]
        for number, wire in enumerate(self._shape.wires):
            if number in self._back:
                lane = inner + sorted(self._back).index(number) * _LANE
                points = self._round(wire, lane)
            else:
                chain = self._chains[number]
                passages = [(self._x[key], middles[key[2]]) for key in chain[1:-1]]
                points = (self._leaves(wire.source, box), *passages, self._arrives(wire.target, box))
            box.paths.append(Path(wire, points, number in self._back))
        return box

    def _leaves(self, end: tuple[int, int], box: Box) -> Point:
        """Return where a wire begins: at the bottom of a child, or at the top of the scope."""
        node, port = end
        if node == ENTRY:
            return box.entries[port], 0.0
        child = self._boxes[node]
        return child.x + child.exits[port], child.y + child.height

    def _arrives(self, end: tuple[int, int], box: Box) -> Point:
        """Return where a wire ends: at the top of a child, or at the bottom of the scope."""
        node, port = end
        if node == EXIT:
            return box.exits[port], box.height
        child = self._boxes[node]
        return child.x + child.entries[port], child.y

    def _round(self, wire: Wire, lane: float) -> tuple[Point, ...]:
        """Return the way of a wire that leads back up, by a lane of its own at the right."""
        from_x, from_y = self._leaves(wire.source, self._boxes[wire.source[0]])
        to_x, to_y = self._arrives(wire.target, self._boxes[wire.target[0]])
        down, up = from_y + _BELOW / 3, to_y - _BELOW / 3
        return (from_x, from_y), (from_x, down), (lane, down), (lane, up), (to_x, up), (to_x, to_y)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
