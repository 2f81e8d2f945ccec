"""What a program would do with the state of a checkpoint: a pure comparison of relations."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

import attrs

from timely.recovery.relations import RelationGraph, Relations

UNNAMED: Final = "the unnamed operators"


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
    """Return the comparison of a dataflow's relations in a checkpoint and in a program; ``renamed`` has old names and new ones.

    >>> orders = RelationGraph("table", "n BIGINT", (), ("operator input#0",))
    >>> print(compare({"orders": orders, "old": orders}, {"orders": attrs.evolve(orders, definition="n DOUBLE"), "new": orders}))
    new: new; gone: old; changed: orders (it was n BIGINT, and is n DOUBLE)
    """
    before = {called(name, renamed or {}): reading(relation, renamed or {}) for name, relation in checkpoint.items()}
    same = [name for name in program if name in before and before[name] == program[name]]
    return Comparison(
        tuple(name for name in same if name),
        tuple(name for name in program if name not in before),
        tuple(name for name in before if name not in program),
        {name or UNNAMED: difference(before[name], now) for name, now in program.items() if name in before and name not in same},
    )


def called(name: str, names: Mapping[str, str]) -> str:
    """Return the other name of a relation, where it or the one that it is below has another.

    >>> called("totals/output", {"totals": "sums"}), called("total", {"totals": "sums"})
    ('sums/output', 'total')
    """
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
