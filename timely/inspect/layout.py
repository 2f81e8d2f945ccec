"""The layout of a picture: boxes in layers from top to bottom, each scope a box around its own.

Each child stands below those that it reads from; feedback is led round at the right. A stream that passes a layer gets a place
in it, and so crosses no box. One that would pass many layers runs along the left, in a lane shared by the streams of one output:
so the work is about linear in the streams. Boxes never overlap. The same snapshot gives the same layout.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import attrs

from timely.inspect.snapshots import ENTRY, EXIT, Snapshot, Wire

Point = tuple[float, float]
Key = tuple[str, int, int]
"""A thing with a place in a layer: a child, a port of the scope's boundary, or the passage of a wire."""

CHARACTER: Final = 6.9
LINE: Final = 15.0
TITLE: Final = 24.0
_PAD: Final = 14.0
_BETWEEN: Final = 22.0
_BELOW: Final = 34.0
_LANE: Final = 12.0
_SWEEPS: Final = 6
_FAR: Final = 12
"""A stream that passes more layers is led along the side."""


@attrs.define
class Box:
    """A child or a scope, with its place in its parent; ``entries`` and ``exits`` are the x of its inputs and outputs."""

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
    """The points of a wire, whether it leads back up, and whether it runs along a side."""

    wire: Wire
    points: tuple[Point, ...]
    back: bool
    aside: bool


def lay_out(shape: Snapshot, write: Callable[[Snapshot], list[str]]) -> Box:
    """Return the box of a snapshot, everything in it placed; ``write`` returns the text of a box."""
    lines = write(shape)
    if shape.kind != "scope":
        width = max(len(line) for line in lines) * CHARACTER + 2 * _PAD
        return Box(shape, lines, width, len(lines) * LINE + _PAD, _evenly(shape.inputs, width), _evenly(shape.outputs, width))
    return _Plan(shape, lines, [lay_out(child, write) for child in shape.children]).box()


def feedback_wires(shape: Snapshot) -> set[int]:
    """Return the numbers of a scope's own wires that close cycles, in a depth-first walk from its inputs and sources."""
    after: dict[int, list[tuple[int, int]]] = {}
    for number, wire in enumerate(shape.wires):
        after.setdefault(wire.source[0], []).append((number, wire.target[0]))
    back: set[int] = set()
    state: dict[int, bool] = {}  # False while a node is on the stack, True when it is done
    fed = {wire.target[0] for wire in shape.wires}
    for start in [ENTRY, *sorted((child.index for child in shape.children), key=lambda index: (index in fed, index))]:
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


def _evenly(ports: int, width: float) -> list[float]:
    return [width * (port + 1) / (ports + 1) for port in range(ports)]


class _Plan:
    """The layers of one scope, and the places in them."""

    def __init__(self, shape: Snapshot, lines: list[str], boxes: list[Box]) -> None:
        self._shape = shape
        self._lines = lines
        self._boxes = {box.shape.index: box for box in boxes}
        self._back = feedback_wires(shape)
        self._ranks = self._rank()
        self._layers: list[list[Key]] = []
        self._ups: dict[Key, list[Key]] = {}
        self._downs: dict[Key, list[Key]] = {}
        self._chains: dict[int, list[Key]] = {}
        self._far: list[int] = []
        self._x: dict[Key, float] = {}
        self._fill()

    # -- layers ------------------------------------------------------------------------------------------------------

    def _rank(self) -> dict[int, int]:
        """Return the layer of each child: one below the lowest that it reads from."""
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
        """Fill the layers, and order them so that few wires cross."""
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
            if self._rank_of(below) - self._rank_of(above) > _FAR:
                self._far.append(number)
                continue
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
        """Place everything near the middle of what it is connected to."""
        for layer in self._layers:
            self._spread(layer, [0.0] * len(layer))
        for sweep in range(_SWEEPS):
            layers, near = (self._layers, self._ups) if sweep % 2 == 0 else (self._layers[::-1], self._downs)
            for layer in layers:
                self._spread(layer, [_mean([self._x[n] for n in near.get(key, ())], self._x[key]) for key in layer])

    def _spread(self, layer: Sequence[Key], wished: Sequence[float]) -> None:
        """Place a layer in its order, each key as near to its wished place as the neighbours allow."""
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

    def _lanes(self, wires: Iterable[tuple[int, Hashable]]) -> tuple[dict[int, int], int]:
        """Return the lane of each wire, and the number of lanes: wires with the same thing share a lane, as do disjoint ones."""
        sharing: dict[Hashable, list[int]] = {}
        for number, thing in wires:
            sharing.setdefault(thing, []).append(number)
        spans = []
        for numbers in sharing.values():
            ends = [end for number in numbers for end in (self._shape.wires[number].source, self._shape.wires[number].target)]
            layers = [self._rank_of(self._end(end)) for end in ends]
            spans.append((min(layers), max(layers), numbers))
        lanes: dict[int, int] = {}
        ending: list[tuple[int, int]] = []
        for top, bottom, numbers in sorted(spans):
            lane = heapq.heappop(ending)[1] if ending and ending[0][0] < top else len(ending)
            heapq.heappush(ending, (bottom, lane))
            lanes.update(dict.fromkeys(numbers, lane))
        return lanes, len(ending)

    def box(self) -> Box:
        """Return the scope's box with everything placed in it."""
        self._place()
        wires = self._shape.wires
        back, right = self._lanes((number, number) for number in sorted(self._back))
        far, left = self._lanes((number, wires[number].source) for number in self._far)
        inner = self._center(left * _LANE, right * _LANE)
        self._stack()
        self._box = Box(
            self._shape,
            self._lines,
            left * _LANE + inner + right * _LANE,
            self._bottom(self._last) + (_PAD if self._shape.outputs else 0.0),
            [self._x["in", port, 0] for port in range(self._shape.inputs)],
            [self._x["out", port, 0] for port in range(self._shape.outputs)],
            boxes=[self._boxes[child.index] for child in self._shape.children],
        )
        for number, wire in enumerate(wires):
            if number in back:
                points = self._aside(wire, left * _LANE + inner + back[number] * _LANE)
            elif number in far:
                points = self._aside(wire, (left - far[number]) * _LANE)
            else:
                points = self._through(number)
            self._box.paths.append(Path(wire, points, number in back, number in back or number in far))
        return self._box

    def _center(self, left: float, right: float) -> float:
        """Move everything between the lanes, centred below the title; return its width."""
        edges = [(self._x[key] - self._width(key) / 2, self._x[key] + self._width(key) / 2) for key in self._x]
        leftmost, rightmost = min((start for start, _ in edges), default=0.0), max((end for _, end in edges), default=0.0)
        title = max((len(line) for line in self._lines), default=0) * CHARACTER + 2 * _PAD
        inner = max(rightmost - leftmost + 2 * _PAD, title - left - right)
        shift = left + (inner - (rightmost - leftmost)) / 2 - leftmost
        for key in self._x:
            self._x[key] += shift
        return inner

    def _stack(self) -> None:
        """Stack the layers, and put the boxes into them."""
        boxes = [[self._boxes[key[1]] for key in layer if key[0] == "box"] for layer in self._layers]
        self._heights = [max((child.height for child in layer), default=0.0) for layer in boxes]
        self._tops, y = [], TITLE
        for height in self._heights:
            self._tops.append(y)
            y += height + (_BELOW if height else _BELOW / 2)
        for index, child in self._boxes.items():
            rank = self._ranks[index]
            child.x = self._x["box", index, 0] - child.width / 2
            child.y = self._tops[rank] + (self._heights[rank] - child.height) / 2

    def _through(self, number: int) -> tuple[Point, ...]:
        """Return the points of a wire that leads down: straight within layers, bent between them."""
        wire, chain = self._shape.wires[number], self._chains[number]
        (from_x, from_y), (to_x, to_y) = self._leaves(wire.source), self._arrives(wire.target)
        points = [(from_x, from_y), (from_x, max(from_y, self._bottom(self._rank_of(chain[0]))))]
        for key in chain[1:-1]:
            points += [(self._x[key], self._tops[key[2]]), (self._x[key], self._bottom(key[2]))]
        points += [(to_x, self._tops[self._rank_of(chain[-1])]), (to_x, to_y)]
        return tuple(point for point, _ in itertools.groupby(points))

    def _bottom(self, rank: int) -> float:
        return self._tops[rank] + self._heights[rank]

    def _leaves(self, end: tuple[int, int]) -> Point:
        """Return the start of a wire: the bottom of a child, or the top of the scope."""
        node, port = end
        if node == ENTRY:
            return self._box.entries[port], 0.0
        child = self._boxes[node]
        return child.x + child.exits[port], child.y + child.height

    def _arrives(self, end: tuple[int, int]) -> Point:
        """Return the end of a wire: the top of a child, or the bottom of the scope."""
        node, port = end
        if node == EXIT:
            return self._box.exits[port], self._box.height
        child = self._boxes[node]
        return child.x + child.entries[port], child.y

    def _aside(self, wire: Wire, lane: float) -> tuple[Point, ...]:
        """Return the points of a wire along a side, in its lane."""
        (from_x, from_y), (to_x, to_y) = self._leaves(wire.source), self._arrives(wire.target)
        first, last = self._rank_of(self._end(wire.source)), self._rank_of(self._end(wire.target))
        out, back = self._bottom(first) + _BELOW / 3, self._tops[last] - _BELOW / 3
        return (from_x, from_y), (from_x, out), (lane, out), (lane, back), (to_x, back), (to_x, to_y)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
