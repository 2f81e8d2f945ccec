"""What a changed program may do with the state of a checkpoint.

Relations that are the same go on with their state. Those that are new or have changed begin anew, and are sent the rows of what
they read at the time of the checkpoint, with all that came before added up. Invariant: whoever is sent such sums computes from
sums alone, or the checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError, brief
from timely.recovery.in_flight import children
from timely.recovery.relations import KEPT, UNNAMED, Comparison, Relations, called
from timely.scopes import Subgraph

Refusal = Callable[[str], Exception]
"""Returns the error that refuses a checkpoint for a difference."""


@attrs.frozen
class Change:
    """What may become of a program between two runs: whether it is migrated, its names that are others now, and what goes."""

    migrate: bool = False
    renamed: Mapping[str, str] = attrs.field(factory=dict)
    dropped: frozenset[str] = frozenset()

    def check(self, dataflows: Iterable[Relations]) -> None:
        """Raise ``ConfigurationError`` for a name that no relation of a checkpoint had, or has got."""
        known = {name for relations in dataflows for name in relations}
        for old, new in self.renamed.items():
            if old not in known and new not in known:
                raise ConfigurationError(
                    f"renamed={{{old!r}: {new!r}}}: the checkpoint has neither; it has {brief(sorted(known))}"
                )

    def within(self, relations: Relations) -> Change:
        """Return what concerns the relations of one dataflow, without the names that they have got already."""
        renamed = {old: new for old, new in self.renamed.items() if old in relations}
        for old, new in renamed.items():
            if new in relations:  # names that change places would do so in every run
                raise ConfigurationError(
                    f"renamed={{{old!r}: {new!r}}}: the checkpoint has both: leave out what is renamed already, or rename"
                    f" {new!r} in a run before"
                )
        return attrs.evolve(self, renamed=renamed)

    def former(self, name: str) -> str:
        """Return the name that a relation had in the checkpoint: none of there for a new one with a name that another had."""
        nowhere = {old: f"/{old}" for old in self.renamed}
        return called(name, nowhere | {new: old for old, new in self.renamed.items()})


def check_migration(
    scope: ScopeBuilder[Any], before: Relations, comparison: Comparison, fresh: set[str], change: Change, refusal: Refusal
) -> None:
    """Raise ``refusal(difference)`` for a program that cannot go on from a checkpoint whose relations were ``before``."""
    if UNNAMED in comparison.changed:
        raise refusal(
            f"unnamed operators have changed, {comparison.changed[UNNAMED]}; name what is to change, by name= of dd.table and"
            " dd.sql, or in a block of scope.named(...)"
        )
    for name in comparison.gone:
        former = before[change.former(name)]
        if former.kind in ("table", "rows") and name not in change.dropped:
            raise refusal(
                f"table {name!r} is gone, and its rows would be lost: build it, give its new name as renamed={{{name!r}: ...}},"
                f" or give it up with dropped={{{name!r}}}"
            )
    for name, difference in comparison.changed.items():
        if name not in fresh:
            raise refusal(
                f"{name!r} has changed, {difference}; give it another name, or if it is a view, have it begin anew with"
                f" dropped={{{name!r}}}"
            )
    _Flow(scope, fresh, refusal).check()


class _Flow:
    """Which operators are sent sums in place of history."""

    def __init__(self, scope: ScopeBuilder[Any], fresh: set[str], refusal: Refusal) -> None:
        self._names = scope.identities
        self._fresh = fresh
        self._refusal = refusal
        self._root: Subgraph[Any, Any] = scope.subgraph
        self._paths = [f"{scope.path}/{child.name}#{child.index}" for child in self._root.children]
        self._relations = [self._names.relation_of[path] for path in self._paths]
        self._edges = [(edge.source.node, edge.target.node) for edge in self._root.edges]

    def check(self) -> None:
        sums = self._with_sums()
        reached: list[int] = []
        for source, target in self._edges:
            read, reader = self._relations[source], self._relations[target]
            if read == reader:
                continue
            if read not in self._names.relations or self._names.relations[read].kind not in KEPT:
                if (read in self._fresh) != (reader in self._fresh):
                    raise self._refusal(
                        f"{self._call(reader)} begins anew, or what it reads does, and the rows of {self._call(read)} are not"
                        " kept: make it a table with dd.table(collection, schema, name=...), and read that"
                    )
            elif read in sums and (read in self._fresh or reader in self._fresh):
                reached.append(target)
        self._check_reached(reached)

    def _with_sums(self) -> set[str]:
        """Return the relations whose rows at the time of the checkpoint are sums of what came before."""
        starts = self._names.starts
        sums = {name for name in self._names.relations if name not in self._fresh or starts[name].before is not None}
        while True:
            more = {self._relations[target] for source, target in self._edges if self._relations[source] in sums}
            if more <= sums:
                return sums
            sums |= more

    def _check_reached(self, reached: list[int]) -> None:
        seen: set[int] = set()
        while reached:
            node = reached.pop()
            if node in seen:
                continue
            seen.add(node)
            child = self._root.children[node]
            operators: Iterable[Any] = [child.scope] if child.nested is None else children(child.nested)
            for operator in operators:
                state = operator.info.state
                info = operator.info
                if not state.collection and operator.inputs and operator.outputs:
                    raise self._refusal(
                        f"{self._call(self._relations[node])} would be sent sums of what came before the checkpoint, and operator"
                        f" {info.name!r} ({info.path}), built at {info.origin}, may depend on how they came about; only operators"
                        " of collections go on from sums: run the program from the beginning, in another directory"
                    )
            reached += [end for start, end in self._edges if start == node and self._relations[end] == self._relations[node]]

    def _call(self, relation: str) -> str:
        return repr(relation) if relation else UNNAMED
