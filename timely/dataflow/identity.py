"""Named relations of a dataflow, and the identities of its operators, by which a checkpoint knows them.

Invariant: the identities of a relation's operators depend on nothing outside it. Those of unnamed operators count unnamed ones
alone, and are their paths in a dataflow without names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import attrs

from timely.dataflow.operator_state import RelationStart, StateRegistry
from timely.dataflow.origin import Origin, origin
from timely.errors import GraphError, brief


@attrs.frozen
class NamedRelation:
    """A name, the ``kind`` of what has it, and its ``definition``: a text that differs where it means something else.

    ``reads`` are the relations that it was defined over.
    """

    name: str
    kind: str
    definition: str
    reads: tuple[str, ...]
    origin: Origin | None = attrs.field(default=None, eq=False)


def name_within(relation: str, operator: str) -> str:
    """Return what a relation calls an operator: nothing where it has the relation's own name, which may become another."""
    return "" if operator == relation else operator


class Identities:
    """The relations of one dataflow while it is built; ``current`` is the one that operators belong to, ``""`` without a name."""

    def __init__(self, path: str, registry: StateRegistry | None) -> None:
        self.current = ""
        self.relations: dict[str, NamedRelation] = {}
        self.starts: dict[str, RelationStart] = {}
        self.relation_of: dict[str, str] = {}  # by path
        self.identities: dict[str, str] = {}  # by path
        self.notes: dict[str, list[str]] = {}  # by relation
        self._path = path
        self._registry = registry
        self._counts: Counter[str] = Counter()

    def add(self, path: str, around: str, name: str) -> str:
        """Return the identity of an operator or scope ``name`` at ``path``, in the scope of the path ``around``."""
        top = around == self._path
        relation = self.relation_of[path] = self.current if top else self.relation_of[around]
        before = (relation or around) if top else self.identities[around]
        number = self._counts[before]
        self._counts[before] += 1
        identity = self.identities[path] = f"{before}/{name_within(relation, name)}#{number}"
        return identity

    def note(self, text: str) -> None:
        """Add what the graph does not show to the relation that operators belong to: it has changed where the text has."""
        self.notes.setdefault(self.current, []).append(text)

    def named(self, name: str, kind: str, definition: str, reads: tuple[str, ...]) -> AbstractContextManager[RelationStart]:
        """Have the operators of the block belong to a relation; the block gets what a checkpoint has of it."""
        if not isinstance(name, str) or not name or name.startswith("/"):
            raise GraphError(f"named: a name is a text that does not begin with '/', not {brief(name)}")
        return self._block(NamedRelation(name, kind, definition, reads, origin()))

    @contextmanager
    def _block(self, relation: NamedRelation) -> Iterator[RelationStart]:
        name = relation.name
        if name in self.relations:
            raise GraphError(
                f"there are two relations named {name!r}, at {self.relations[name].origin} and at {relation.origin}: state is"
                " found by its name, so give each a name of its own"
            )
        self.relations[name] = relation
        registry, start = self._registry, RelationStart()
        if registry is not None:
            start = registry.open(name, relation.kind, relation.definition, relation.reads)
        self.starts[name] = start
        around, self.current = self.current, name
        try:
            yield start
        finally:
            self.current = around
