"""What is checked of dataflows: that all workers build the same ones, and that each has a visible effect.

Messages name operators and channels by number, so workers that built different graphs would misread each other. Invariant: the
description of a dataflow is kept until every peer's was compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from timely.dataflow import Operator, ScopeBuilder, warn
from timely.errors import GraphError
from timely.scopes import Subgraph

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
    """The dataflows that one worker and its peers have built; ``known`` are this worker's numbers. A pure state machine."""

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


_EFFECTS: Final = "inspect"
"""The prefix of the names of operators with side effects."""


def warn_of_no_way_out(scope: ScopeBuilder[Any]) -> None:
    """Warn of each nested scope that streams enter but none leaves, and in which nothing captures or probes."""
    for subgraph in scope.scopes[1:]:
        if subgraph.inputs and not subgraph.outputs:
            _warn_of(subgraph)


def _warn_of(subgraph: Subgraph[Any, Any]) -> None:
    dangling: list[Operator[Any]] = []
    for child in subgraph.children:
        operator = child.scope
        if not isinstance(operator, Operator) or not operator.outputs or operator.name.startswith(_EFFECTS):
            return
        if any(not port.tee for port in operator.output_ports):
            dangling.append(operator)
    if dangling:
        last = dangling[-1]
        warn(
            f"nothing leaves scope {subgraph.path}, and nothing in it captures or probes what {last.name!r} sends: call leave()"
            " on that stream",
            last.info.origin,
        )


def warn_of_the_same(scope: ScopeBuilder[Any], theirs: Mapping[str, str]) -> None:
    """Warn of each source that sends the same records here and on another worker."""
    for path, (sketch, place) in scope.given.items():
        if theirs.get(path) == sketch:
            warn(
                f"each of the {scope.allocator.peers} workers sends the same to {path} ({sketch}), so that every record comes"
                f" {scope.allocator.peers} times: give on=0 to have worker 0 send alone, or on='each' if that is meant",
                place,
            )


def warn_of_never_run(scope: ScopeBuilder[Any]) -> None:
    """Warn of a dataflow with operators that read, none of which has ever run."""
    operators = [child.scope for subgraph in scope.scopes for child in subgraph.children if isinstance(child.scope, Operator)]
    if not scope.has_run and any(operator.inputs for operator in operators):
        warn(
            f"dataflow {scope.name!r} was built and never run: call worker.run(), or step the worker, before it is closed",
            operators[0].info.origin,
        )
