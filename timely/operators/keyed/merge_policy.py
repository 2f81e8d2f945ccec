"""``MergePolicy``: which neighbours of a list of sorted runs merge next, as in a log-structured merge tree (O'Neil et al. 1996).

With ``GEOMETRIC``, runs shrink by half or more from the oldest to the newest once nothing is due. So there are logarithmically
many, and an entry is copied a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs


@attrs.frozen
class MergePolicy:
    """Neighbours merge where the older has less than ``ratio`` times the size of the newer; without a ratio, all runs merge."""

    ratio: int | None

    def due(self, sizes: Sequence[int], cancelling: Sequence[bool] = ()) -> slice | None:
        """Return the runs to merge into one, of those with ``sizes``, oldest first; ``None`` where nothing is due.

        A run whose entries may cancel is due alone when no neighbours are.
        """
        if self.ratio is None:
            return slice(0, len(sizes)) if len(sizes) > 1 or any(cancelling) else None
        for newer in range(len(sizes) - 1, 0, -1):
            if sizes[newer - 1] < self.ratio * sizes[newer]:
                return slice(newer - 1, newer + 1)
        return next((slice(run, run + 1) for run, cancels in enumerate(cancelling) if cancels), None)


GEOMETRIC: Final = MergePolicy(ratio=2)
"""What all sorted runs merge by."""

EVERYTHING: Final = MergePolicy(ratio=None)
"""One run at all times: tests show with it that results do not depend on the policy."""
