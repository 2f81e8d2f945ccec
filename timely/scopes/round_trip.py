"""``RoundTripSummary``: a path that leaves a nested scope, goes through the world around it, and comes back in.

No summary of the inner times can express it, since the inner coordinates are lost on the way out and start anew on the way in. So
it keeps the three legs and applies them in turn. It only compares with another round trip, leg by leg.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs

from timely.order import PartialOrder
from timely.progress import PathSummary, Refinement

TO = TypeVar("TO", bound=PartialOrder)
TI = TypeVar("TI", bound=PartialOrder)


@attrs.define(eq=False, repr=False)
class RoundTripSummary(Generic[TO, TI]):
    """Out of a scope along ``before``, round the world along ``world``, and back in along ``after``.

    >>> from timely.order import Product
    >>> from timely.progress import ProductSummary, Step, refinement
    >>> stay = ProductSummary(Step(0), Step(0))
    >>> RoundTripSummary(stay, Step(1), stay, refinement(int, Product[int, int])).results_in(Product(3, 7))
    (4, 0)
    """

    before: PathSummary[TI]
    world: PathSummary[TO]
    after: PathSummary[TI] | RoundTripSummary[TO, TI]
    refinement: Refinement[TO, TI]
    _shape: object = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # which legs are round trips, and which of theirs: in deep nestings few are alike, and this tells them apart at once
        self._shape = tuple(leg._shape if isinstance(leg, RoundTripSummary) else None for leg in self._legs())

    def results_in(self, time: TI, /) -> TI | None:
        """Return the time at which ``time`` is back inside; ``None`` if it does not come back."""
        left = self.before.results_in(time)
        if left is None:
            return None
        returned = self.world.results_in(self.refinement.to_outer(left))
        return None if returned is None else self.after.results_in(self.refinement.to_inner(returned))

    def followed_by(self, other: PathSummary[TI] | RoundTripSummary[TO, TI], /) -> RoundTripSummary[TO, TI] | None:
        """Return the round trip that goes on with ``other`` after it is back inside."""
        after: PathSummary[TI] | RoundTripSummary[TO, TI] | None
        if isinstance(other, RoundTripSummary) and not isinstance(self.after, RoundTripSummary):
            again: RoundTripSummary[TO, TI] = other
            between = self.after.followed_by(again.before)
            after = None if between is None else RoundTripSummary[TO, TI](between, again.world, again.after, self.refinement)
        else:
            after = self.after.followed_by(other)
        return None if after is None else RoundTripSummary(self.before, self.world, after, self.refinement)

    def _legs(self) -> tuple[object, ...]:
        return (self.before, self.world, self.after)

    def __le__(self, other: object, /) -> bool:
        if not isinstance(other, RoundTripSummary) or self._shape != other._shape:
            return False
        return bool(self.before <= other.before and self.world <= other.world and self.after <= other.after)

    def __ge__(self, other: object, /) -> bool:
        return isinstance(other, RoundTripSummary) and other <= self

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, RoundTripSummary) and self._shape == other._shape and self._legs() == other._legs()

    def __hash__(self) -> int:
        return hash(self._legs())

    def __repr__(self) -> str:
        return f"RoundTripSummary({self.before!r}, {self.world!r}, {self.after!r})"
