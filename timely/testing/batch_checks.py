"""The checks of what a worker has yet to send, or its peers to receive: X1, X2 and I3. What is new in it needs a reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timely.testing.flat_dataflow import Counts, FlatDataflow, add, below


class BatchChecks:
    """Changes are *upright* if each gain is later than some loss, where held capabilities count as given up.

    They are *justified* if each gain is later than some loss or another capability, or is one more of a capability that is held.
    """

    def __init__(self, flat: FlatDataflow) -> None:
        self._flat = flat

    def check_upright(self, invariant: str, changes: Counts, held: Counts) -> Iterator[tuple[str, str]]:
        """X1, X2: of all changes, less what is held, each gain is at or after a loss."""
        gains = [stamp for stamp, diff in changes.items() if diff > held.get(stamp, 0)]
        if gains:
            lost = [stamp for stamp, diff in changes.items() if diff < 0]
            lost += [stamp for stamp, count in held.items() if changes.get(stamp, 0) < count]
            reached = self._flat.frontiers(lost)
            for place, time in gains:
                if not below(reached[place], time):
                    yield invariant, f"{self._flat.show((place, time))}, and of nothing before it"

    def check_justified(self, changes: Counts, held: Counts) -> Iterator[tuple[str, str]]:
        """I3: each capability that is all new is later than another one, or than a loss."""
        for stamp, diff in changes.items():
            if 0 < diff == held.get(stamp, 0):
                losses = [other for other, change in changes.items() if change < 0]
                reached = self._flat.frontiers([*losses, *(other for other in held if other != stamp)])
                if not below(reached[stamp[0]], stamp[1]):
                    yield "I3", f"the capability {self._flat.show(stamp)}, and of nothing that it could come from"

    def check_together(self, changes: Counts, held: Counts) -> Iterator[tuple[str, str]]:
        """I3 for what several workers have yet to send, and hold, together."""
        yield from self.check_upright("I3", changes, held)
        yield from self.check_justified(changes, held)

    def check_ends(self, unsent: Counts, batches: Sequence[Counts], held: Counts) -> Iterator[tuple[str, str]]:
        """X1 for what is unsent; X2 for every end of what a peer has yet to receive; I3 for both."""
        end = dict(unsent)
        yield from self.check_upright("X1", end, held)
        yield from self.check_justified(end, held)
        for batch in reversed(batches):
            for stamp, diff in batch.items():
                add(end, stamp, diff)
            yield from self.check_upright("X2", end, held)
            yield from self.check_justified(end, held)
