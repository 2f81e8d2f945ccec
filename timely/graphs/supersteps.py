"""``pregel``: graph algorithms written as a function of a vertex and its messages.

Vertices are Python records, so this is slower than the columnar algorithms, and states, edges and messages may be anything. It
is a loop with one operator in it, and a superstep is a round. The invariant: the messages of a superstep are all those that
were sent to the vertex in the one before, on all workers. The loop ends when no message is under way, and then the states are
output.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar

import attrs

from timely.dataflow import Exchange, OperatorInfo, Pact, Stream
from timely.errors import SchemaError
from timely.graphs.stages.gathering import gather_loop
from timely.graphs.stages.repartitioned_state import register_parts
from timely.operators.type_variables import E, S, T
from timely.order import Product

N = TypeVar("N", bound=Hashable)
M = TypeVar("M")


@attrs.frozen
class PregelVertex(Generic[N, S, E]):
    """The vertex that ``compute`` runs for, in which ``superstep``, from 0."""

    node: N
    state: S
    edges: list[E]
    superstep: int


Compute: TypeAlias = Callable[[PregelVertex[N, S, E], list[M]], tuple[S, Iterable[tuple[N, M]]]]


def pregel(
    vertices: Stream[T, tuple[N, S]],
    edges: Stream[T, tuple[N, E]],
    compute: Compute[N, S, E, M],
    combine: Callable[[M, M], M] | None = None,
) -> Stream[T, tuple[N, S]]:
    """Return ``(node, state)`` for every vertex, when no more messages are sent.

    ``vertices`` are records ``(node, state)``, ``edges`` are ``(node, edge)`` for edges that start at ``node``; an ``edge`` is
    whatever ``compute`` needs, as the target, or that and a weight. Nodes are keys of an exchange. ``compute(vertex,
    messages)`` returns the new state, and pairs ``(node, message)`` to send. It runs for every vertex in superstep 0, and then
    for those that received messages; a vertex that sends nothing has voted to halt. ``combine`` reduces the messages to a node,
    two at a time, in any order. Each time is a graph of its own. ``SchemaError``, as the cause of an ``OperatorError``, for two
    vertices with one node, and for edges or messages of nodes that are no vertices. Source: Malewicz et al., "Pregel: a system
    for large-scale graph processing" (2010).

    >>> import timely
    >>> def greatest(vertex, messages):
    ...     state = max([vertex.state, *messages])
    ...     improved = vertex.superstep == 0 or state > vertex.state
    ...     return state, [(target, state) for target in vertex.edges if improved]
    >>> def build(scope):
    ...     vertices = scope.to_stream([("a", 3), ("b", 6), ("c", 2), ("d", 1)])
    ...     edges = scope.to_stream([("a", "b"), ("b", "a"), ("b", "d"), ("d", "c")])
    ...     return pregel(vertices, edges, greatest, max)
    >>> timely.example(build)
    [(0, [('a', 6), ('b', 6), ('c', 6), ('d', 6)])]
    """
    supersteps: _Supersteps[T] = _Supersteps(compute, combine)
    by_node = Exchange(_node)
    inputs: list[tuple[Stream[T, Any], Pact]] = [(vertices, by_node), (edges, by_node)]
    return gather_loop("pregel", inputs, by_node, supersteps.finish, keep=supersteps.register, ended=supersteps.states)


def _node(record: tuple[Any, Any]) -> Any:
    return record[0]


@attrs.frozen(eq=False)
class _Part:
    """One worker's vertices of one outer time."""

    states: dict[Any, Any] = attrs.field(factory=dict)
    edges: defaultdict[Any, list[Any]] = attrs.field(factory=lambda: defaultdict(list))


@attrs.frozen(eq=False)
class _Supersteps(Generic[T]):
    """The finish functions of one worker."""

    _compute: Callable[..., Any]
    _combine: Callable[[Any, Any], Any] | None
    _parts: defaultdict[T, _Part] = attrs.field(factory=lambda: defaultdict(_Part))

    def register(self, info: OperatorInfo) -> None:
        """Register the vertices of each outer time."""
        register_parts(info, self._parts, "supersteps/1")

    def finish(self, info: OperatorInfo, time: Product[T, int], collected: list[list[Any]]) -> list[Any]:
        """Run a superstep; return the messages."""
        vertices, edges, messages = ([record for batch in batches for record in batch] for batches in collected)
        part = self._parts[time.outer]
        for node, state in vertices:
            if node in part.states:
                raise SchemaError(f"{info.path}: there are two vertices {node!r}; a vertex has one initial state")
            part.states[node] = state
        for node, edge in edges:
            self._check(info, part, node, "an edge starts at")
            part.edges[node].append(edge)
        inboxes: defaultdict[Any, list[Any]] = defaultdict(list)
        for node, message in messages:
            self._check(info, part, node, "a message was sent to")
            inboxes[node].append(message)
        return [self._superstep(info, part, time.inner, inboxes), []]

    def _check(self, info: OperatorInfo, part: _Part, node: Any, what: str) -> None:
        if node not in part.states:
            raise SchemaError(f"{info.path}: {what} {node!r}, which is no vertex: add it to the vertices, with its state")

    def _superstep(self, info: OperatorInfo, part: _Part, superstep: int, inboxes: dict[Any, list[Any]]) -> list[tuple[Any, Any]]:
        """Run ``compute``; return the messages."""
        outboxes: defaultdict[Any, list[Any]] = defaultdict(list)
        for node in list(part.states) if superstep == 0 else inboxes:
            vertex = PregelVertex(node, part.states[node], part.edges.get(node, []), superstep)
            result = self._compute(vertex, self._combined(inboxes.get(node, [])))
            try:
                part.states[node], sent = result
                messages = iter(sent)
            except (TypeError, ValueError) as error:
                raise SchemaError(
                    f"{info.path}: compute returns a state and pairs (node, message), and for {node!r} it returned {result!r}"
                ) from error
            for target, message in messages:
                outboxes[target].append(message)
        return [(node, message) for node, messages in outboxes.items() for message in self._combined(messages)]

    def _combined(self, messages: list[Any]) -> list[Any]:
        if self._combine is None or len(messages) < 2:
            return messages
        return [functools.reduce(self._combine, messages)]

    def states(self, info: OperatorInfo, outer: T) -> list[Any]:
        """Return the states, and forget the time."""
        return list(self._parts.pop(outer).states.items())
