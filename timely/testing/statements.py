"""What must hold of all that a worker's peers have still to hear of it: invariants X1, X2, I3 and OC1.

What is new in it needs a reason: something that it takes away, or a capability that the worker holds. The invariant: these
checks know nothing of how batches are made; a batch is whatever is on its way as one. A caller asks when a worker's turn is
over, with all batches of its that were not acted on yet, in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timely.testing.flattened import Flattened, Sums, add, below


class Statements:
    """The checks of what workers say of one dataflow; ``flat`` is its graph.

    Both notions of a reason are about sums of changes. They are *upright* if each gain is later than some loss, and *justified*
    by capabilities if each gain is later than some loss or another capability, or makes for some of more capabilities than it
    adds. Held capabilities count as given up where uprightness is asked for, since in that model nothing is held.
    """

    def __init__(self, flat: Flattened) -> None:
        self._flat = flat

    def check_upright(self, invariant: str, changes: Sums, held: Sums) -> Iterator[tuple[str, str]]:
        """X1, X2: of all changes, less what is held, each that is a gain is at or after one that is a loss."""
        gains = [stamp for stamp, diff in changes.items() if diff > held.get(stamp, 0)]
        if gains:
            lost = [stamp for stamp, diff in changes.items() if diff < 0]
            lost += [stamp for stamp, count in held.items() if changes.get(stamp, 0) < count]
            reached = self._flat.frontiers(lost)
            for place, time in gains:
                if not below(reached[place], time):
                    yield invariant, f"{self._flat.show((place, time))}, and of nothing before it"

    def check_justified(self, changes: Sums, held: Sums) -> Iterator[tuple[str, str]]:
        """I3: each capability that is all new is later than another one, or than something that is taken away."""
        for stamp, diff in changes.items():
            if 0 < diff == held.get(stamp, 0):
                reasons = [other for other, change in changes.items() if change < 0]
                reached = self._flat.frontiers([*reasons, *(other for other in held if other != stamp)])
                if not below(reached[stamp[0]], stamp[1]):
                    yield "I3", f"the capability {self._flat.show(stamp)}, and of nothing that it could come from"

    def check_together(self, changes: Sums, held: Sums) -> Iterator[tuple[str, str]]:
        """I3 for what several workers have still to say, and hold, together."""
        yield from self.check_upright("I3", changes, held)
        yield from self.check_justified(changes, held)

    def check_ends(self, unsaid: Sums, batches: Sequence[Sums], held: Sums) -> Iterator[tuple[str, str]]:
        """X1 for what is not said yet; X2 for every end of what a peer has still to hear; I3 for both."""
        end = dict(unsaid)
        yield from self.check_upright("X1", end, held)
        yield from self.check_justified(end, held)
        for batch in reversed(batches):
            for stamp, diff in batch.items():
                add(end, stamp, diff)
            yield from self.check_upright("X2", end, held)
            yield from self.check_justified(end, held)


def in_parts(sent: int, left: bool) -> str | None:
    """OC1: return how what was done in one turn was said in parts, if it was: in several batches, or with something left unsaid.

    >>> in_parts(1, False), in_parts(0, True)
    (None, None)
    >>> in_parts(2, False), in_parts(1, True)
    ('in 2 batches', 'in part')
    """
    if sent > 1:
        return f"in {sent} batches"
    return "in part" if sent > 0 and left else None


def total(parts: Sequence[Sums]) -> Sums:
    """Return the sum of all.

    >>> total([{(1, 0): 2}, {(1, 0): -2, (2, 0): 1}])
    {(2, 0): 1}
    """
    found: Sums = {}
    for part in parts:
        for stamp, diff in part.items():
            add(found, stamp, diff)
    return found
