"""The relations of a dataflow as a checkpoint describes them: what has a name, its definition, and the lines of its graph."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import attrs

from timely.dataflow import ScopeBuilder
from timely.dataflow.operator_names import without_functions
from timely.scopes import EGRESS, INGRESS, Subgraph

KEPT: Final = ("table", "rows", "view")
"""Kinds of relations whose rows are kept where a program may change: others read them by name."""


@attrs.frozen
class RelationGraph:
    """What a checkpoint has of a named relation, or of the unnamed operators of a dataflow.

    The lines call its own operators by their names within it, and a table or view that it reads by its name.
    """

    kind: str
    definition: str
    reads: tuple[str, ...]
    lines: tuple[str, ...]


NO_RELATION: Final = RelationGraph("", "", (), ())

Relations = dict[str, RelationGraph]
"""The relations of a dataflow by name; ``""`` has the unnamed operators."""


def name_of(relations: Relations) -> str:
    """Return the name of a dataflow; nothing for one that was not built."""
    lines = relations[""].lines if relations else ("",)
    return lines[0].removeprefix("scope /").rpartition(" with times ")[0]


def relations_of(scope: ScopeBuilder[Any]) -> Relations:
    """Return the relations of a dataflow that is built."""
    return _Description(scope).relations()


class _Description:
    def __init__(self, scope: ScopeBuilder[Any]) -> None:
        self._scope = scope
        self._made = scope.identities
        self._lines: dict[str, list[str]] = defaultdict(list)

    def relations(self) -> Relations:
        for subgraph in self._scope.scopes:
            self._add(subgraph)
        for relation, notes in self._made.notes.items():
            self._lines[relation] += notes
        named = self._made.relations
        return {
            "": RelationGraph("", "", (), tuple(self._lines[""])),
            **{name: RelationGraph(of.kind, of.definition, of.reads, tuple(self._lines[name])) for name, of in named.items()},
        }

    def _add(self, subgraph: Subgraph[Any, Any]) -> None:
        own = self._made.relation_of.get(subgraph.path, "")
        self._line(own, f"scope {self._name(own, subgraph.path)} with times {subgraph.domain.name}")
        for child in subgraph.children:
            path = f"{subgraph.path}/{child.name}#{child.index}"
            relation = self._made.relation_of[path]
            ports = f"{child.scope.inputs} inputs and {child.scope.outputs} outputs"
            self._line(relation, f"operator {self._name(relation, path)} with {ports}")
        for edge in subgraph.edges:
            start, end = self._end(subgraph, edge.source.node), self._end(subgraph, edge.target.node)
            reader = self._made.relation_of.get(end if end != subgraph.path else start, "")
            source = self._made.relation_of.get(start, "")
            by_name = source != reader and self._made.relations[source].kind in KEPT if source else False
            text = source if by_name else f"{self._name(reader, start)} {edge.source.port}"
            exchanged = "" if edge.local else ", exchanged"
            self._line(reader, f"edge from {text} to {self._name(reader, end)} {edge.target.port}{exchanged}")

    def _end(self, subgraph: Subgraph[Any, Any], node: int) -> str:
        """Return the path of what is at an end of an edge; that of the scope itself for its inputs and outputs."""
        if node in (INGRESS, EGRESS):
            return subgraph.path
        child = subgraph.children[node]
        return f"{subgraph.path}/{child.name}#{child.index}"

    def _line(self, relation: str, line: str) -> None:
        self._lines[relation].append(without_functions(line))

    def _name(self, reader: str, path: str) -> str:
        """Return how lines of a relation call an operator."""
        return self._made.identities.get(path, path).removeprefix(f"{reader}/" if reader else "\0")
