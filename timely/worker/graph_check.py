"""``GraphCheck``: do all workers build the same dataflows? A pure state machine.

Messages name operators and channels by number, so workers that built different graphs would misread each other. Invariant: the
description of a dataflow is kept until every peer's was compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from timely.dataflow import ScopeBuilder
from timely.errors import GraphError

Description: TypeAlias = tuple[bytes, tuple[str, ...]]
"""A digest of a dataflow, and its first lines, for the error."""

_LINES: Final = 1000


def digest(text: str) -> bytes:
    """Return a checksum of 16 bytes, the same in every process and on every machine."""
    try:
        from _blake2 import blake2b  # hashlib loads OpenSSL, which takes each process of a run 4 ms
    except ImportError:  # other Pythons have it elsewhere
        from hashlib import blake2b
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()  # file names may contain them


def describe(scope: ScopeBuilder[Any]) -> tuple[str, ...]:
    """Return the graph of a dataflow as lines of text, the same on every worker that built the same one."""
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


def describe_with_names(scope: ScopeBuilder[Any]) -> tuple[str, ...]:
    """Return ``describe(scope)``, what its named relations are, and what else a checkpoint would compare."""
    made = scope.identities
    named = [f"{of.kind or 'block'} {name}: {of.definition}" for name, of in made.relations.items()]
    return (*describe(scope), *named, *(note for notes in made.notes.values() for note in notes))


class GraphCheck:
    """The dataflows that one worker and its peers have built; ``known`` are the numbers of this worker's."""

    __slots__ = ("_ended", "_index", "_open", "_peers", "known")

    def __init__(self, index: int, peers: int) -> None:
        self._index = index
        self._peers = peers
        self.known: set[int] = set()
        self._open: dict[int, tuple[Description, set[int]]] = {}
        self._ended: dict[int, int] = {}

    def built(self, number: int, lines: Sequence[str]) -> Description:
        """Note that this worker has built dataflow ``number``; return the description for its peers."""
        mine = digest("\n".join(lines)), tuple(lines[:_LINES])
        self.known.add(number)
        self._open[number] = mine, {peer for peer in range(self._peers) if peer != self._index}
        return mine

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
