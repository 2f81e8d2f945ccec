"""The names of operators, the named relations of a dataflow, and the identities by which a checkpoint knows its operators.

Invariant: the identities of a relation's operators depend on nothing outside it. Those of unnamed operators count unnamed ones
alone, and are their paths in a dataflow without names.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, MethodType

import attrs

from timely.dataflow.info import RelationStart, StateRegistry
from timely.dataflow.origin import Origin, is_ours, origin
from timely.errors import GraphError, brief


def operator_name(kind: str, name: str | None, function: object = None) -> str:
    """Return ``name``, else ``"kind · function"``; the kind alone for lambdas, built-ins and functions of the library.

    ``GraphError`` for a name that is no string with something in it.

    >>> def clean(text):
    ...     return text.strip()
    >>> operator_name("map", None, clean), operator_name("map", None, lambda x: x), operator_name("map", "words", clean)
    ('map · clean', 'map', 'words')
    """
    if name is not None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"{kind}: name= is what pictures and errors call the operator, a string, not {brief(name)}")
        return name
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    code, called = getattr(function, "__code__", None), getattr(function, "__name__", None)
    if not isinstance(code, CodeType) or not isinstance(called, str) or called == "<lambda>" or is_ours(code.co_filename):
        return kind
    return f"{kind} · {called}"


def without_functions(text: str) -> str:
    """Return ``text`` with the paths in it as they are whatever the functions are called: what checkpoints go by.

    >>> without_functions("operator /words/map · clean#1 with 1 input")
    'operator /words/map#1 with 1 input'
    """
    return re.sub(r" · \w+(?=#[0-9])", "", text)


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
