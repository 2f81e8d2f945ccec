"""The relations of a dataflow as a checkpoint describes them (names, definitions, the lines of their graphs), and compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, Final

import attrs

from timely.dataflow import ScopeBuilder
from timely.dataflow.identity import without_functions
from timely.scopes import EGRESS, INGRESS, Subgraph

UNNAMED: Final = "the unnamed operators"
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
    made, lines = scope.identities, defaultdict[str, list[str]](list)

    def named(reader: str, path: str) -> str:  # how lines of a relation call an operator
        return made.identities.get(path, path).removeprefix(f"{reader}/" if reader else "\0")

    for subgraph in scope.scopes:
        own = made.relation_of.get(subgraph.path, "")
        lines[own].append(f"scope {named(own, subgraph.path)} with times {subgraph.domain.name}")
        for child in subgraph.children:
            path = f"{subgraph.path}/{child.name}#{child.index}"
            relation = made.relation_of[path]
            ports = f"{child.scope.inputs} inputs and {child.scope.outputs} outputs"
            lines[relation].append(f"operator {named(relation, path)} with {ports}")
        for edge in subgraph.edges:
            start, end = _path_at(subgraph, edge.source.node), _path_at(subgraph, edge.target.node)
            reader = made.relation_of.get(end if end != subgraph.path else start, "")
            source = made.relation_of.get(start, "")
            by_name = source != reader and made.relations[source].kind in KEPT if source else False
            text = source if by_name else f"{named(reader, start)} {edge.source.port}"
            exchanged = "" if edge.local else ", exchanged"
            lines[reader].append(f"edge from {text} to {named(reader, end)} {edge.target.port}{exchanged}")
    described = {relation: tuple(map(without_functions, some)) for relation, some in lines.items()}
    for relation, notes in made.notes.items():
        described[relation] = (*described.get(relation, ()), *notes)
    return {
        "": RelationGraph("", "", (), described.get("", ())),
        **{name: RelationGraph(of.kind, of.definition, of.reads, described.get(name, ())) for name, of in made.relations.items()},
    }


def _path_at(subgraph: Subgraph[Any, Any], node: int) -> str:
    """Return the path of what is at an end of an edge; that of the scope itself for its inputs and outputs."""
    if node in (INGRESS, EGRESS):
        return subgraph.path
    child = subgraph.children[node]
    return f"{subgraph.path}/{child.name}#{child.index}"


@attrs.frozen
class Comparison:
    """The names of relations that are the same, new, or gone, and those that have changed, with the first difference."""

    same: tuple[str, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]
    changed: Mapping[str, str]

    @property
    def is_same(self) -> bool:
        """Whether the program is that of the checkpoint."""
        return not (self.new or self.gone or self.changed)

    def __str__(self) -> str:
        parts = [
            *(f"{kind}: {', '.join(names)}" for kind in ("same", "new", "gone") if (names := getattr(self, kind))),
            *(f"changed: {name} ({difference})" for name, difference in self.changed.items()),
        ]
        return "; ".join(parts)


def compare(checkpoint: Relations, program: Relations, renamed: Mapping[str, str] | None = None) -> Comparison:
    """Compare the relations of a dataflow in a checkpoint and in a program; ``renamed`` has old names and new ones."""
    before = {called(name, renamed or {}): reading(relation, renamed or {}) for name, relation in checkpoint.items()}
    same = [name for name in program if name in before and before[name] == program[name]]
    return Comparison(
        tuple(name for name in same if name),
        tuple(name for name in program if name not in before),
        tuple(name for name in before if name not in program),
        {name or UNNAMED: difference(before[name], now) for name, now in program.items() if name in before and name not in same},
    )


def called(name: str, names: Mapping[str, str]) -> str:
    """Return the other name of a relation, where it or the one that it is below has another."""
    above = max((each for each in names if name == each or name.startswith(f"{each}/")), key=len, default="")
    return names.get(above, above) + name.removeprefix(above)


def reading(relation: RelationGraph, renamed: Mapping[str, str]) -> RelationGraph:
    """Return a relation of a checkpoint as it is with new names for those that it reads."""
    if not renamed:
        return relation
    edges = {f"edge from {old} to ": f"edge from {new} to " for old, new in renamed.items()}
    lines = list(relation.lines)
    for number, line in enumerate(lines):
        begin = next((old for old in edges if line.startswith(old)), "")
        lines[number] = edges.get(begin, "") + line.removeprefix(begin)
    return attrs.evolve(relation, reads=tuple(renamed.get(name, name) for name in relation.reads), lines=tuple(lines))


def difference(before: RelationGraph, now: RelationGraph) -> str:
    """Return the first difference in words."""
    for was, is_now in ((before.kind, now.kind), (before.definition, now.definition)):
        if was != is_now:
            return f"it was {was or 'unnamed'}, and is {is_now or 'unnamed'}"
    if before.reads != now.reads:
        return f"it read {', '.join(before.reads) or 'nothing'}, and reads {', '.join(now.reads) or 'nothing'}"
    pairs = zip_longest(before.lines, now.lines, fillvalue="nothing more")
    was, is_now = next((was, is_now) for was, is_now in pairs if was != is_now)
    return f"it has {was}, and now there is {is_now}"
