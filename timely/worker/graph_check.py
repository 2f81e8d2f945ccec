"""``GraphCheck``: do all workers build the same dataflows? A pure state machine.

Messages name operators and channels by number, so workers that built different graphs would misread each other. Invariant: the
description of a dataflow is kept until every peer's was compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from timely.dataflow import ScopeBuilder
from timely.errors import GraphError
from timely.worker.digest import digest

Description: TypeAlias = tuple[bytes, tuple[str, ...]]
"""A digest of a dataflow, and its first lines, for the error."""

_LINES: Final = 1000


def describe(scope: ScopeBuilder[Any]) -> tuple[str, ...]:
    """Return the graph of a dataflow as lines of text, the same on every worker that built the same one.

    >>> import timely
    >>> with timely.Worker().dataflow(name="demo") as scope:
    ...     _ = scope.empty().map(str)
    >>> for line in describe(scope):
    ...     print(line)
    scope /demo with times int
    operator /demo/empty#0 with 0 inputs and 1 outputs
    operator /demo/map#1 with 1 inputs and 1 outputs
    edge of /demo: Source(0, 0) to Target(1, 0)
    """
    lines = []
    for subgraph in scope.scopes:
        lines.append(f"scope {subgraph.path} with times {subgraph.domain.name}")
        for child in subgraph.children:
            ports = f"{child.scope.inputs} inputs and {child.scope.outputs} outputs"
            lines.append(f"operator {subgraph.path}/{child.name}#{child.index} with {ports}")
        for edge in subgraph.edges:
            exchanged = "" if edge.local else ", exchanged"
            lines.append(f"edge of {subgraph.path}: {edge.source!r} to {edge.target!r}{exchanged}")
    return tuple(lines)


class GraphCheck:
    """The dataflows that one worker and its peers have built.

    >>> zero, one = GraphCheck(0, 2), GraphCheck(1, 2)
    >>> theirs = one.built(0, ("scope /a", "operator /a/map#0"))
    >>> _ = zero.built(0, ("scope /a", "operator /a/filter#0"))
    >>> zero.compare(0, 1, theirs)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    timely.errors.GraphError: ... worker 0 has operator /a/filter#0, worker 1 has operator /a/map#0; ...
    """

    __slots__ = ("_ended", "_index", "_known", "_open", "_peers")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._peers = peers
        self._known: set[int] = set()
        self._open: dict[int, tuple[Description, set[int]]] = {}
        self._ended: dict[int, int] = {}

    def built(self, number: int, lines: Sequence[str]) -> Description:
        """Note that this worker has built dataflow ``number``; return the description for its peers."""
        mine = digest("\n".join(lines)), tuple(lines[:_LINES])
        self._known.add(number)
        self._open[number] = mine, {peer for peer in range(self._peers) if peer != self._index}
        return mine

    def knows(self, number: int) -> bool:
        """Return whether this worker has ever built dataflow ``number``."""
        return number in self._known

    def compare(self, number: int, peer: int, theirs: Description) -> None:
        """Raise ``GraphError`` if ``peer`` has built something else under ``number``."""
        (checksum, lines), missing = self._open[number]
        if checksum == theirs[0]:
            missing.discard(peer)
            if not missing:
                del self._open[number]
            return
        difference = "they differ beyond the first operators"
        for mine, other in zip((*lines, "nothing more"), (*theirs[1], "nothing more"), strict=False):
            if mine != other:
                difference = f"worker {self._index} has {mine}, worker {peer} has {other}"
                break
        raise GraphError(
            f"dataflow {number} is not the same on workers {self._index} and {peer}: {difference}; every worker must build"
            " the same dataflows in the same order"
        )

    def end(self, peer: int, built: int) -> None:
        """Note that ``peer`` has built the dataflows below ``built``, and builds no more."""
        self._ended[peer] = built

    def expect(self, number: int, name: str) -> None:
        """Raise ``GraphError`` if a peer will never build dataflow ``number``."""
        for peer, built in self._ended.items():
            if number >= built:
                raise GraphError(
                    f"worker {peer} has ended without building dataflow {number} ({name!r}), which worker {self._index}"
                    " waits for; every worker must build the same dataflows in the same order"
                )
