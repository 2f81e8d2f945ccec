"""What must hold of every run: each invariant that a simulation checks, by its id, with its sentence and its source.

Those who check (:mod:`timely.testing.onlooker`, :mod:`timely.testing.ledger`) name an invariant by its id. The invariant of this
table: an id means the same here, in an error, and in ``docs/invariants.md``, which has a paragraph on each.
"""

from __future__ import annotations

from typing import Final

import attrs

from timely.errors import InvariantViolation


@attrs.frozen
class Invariant:
    """One thing that must hold: its id, the sentence, and where it comes from."""

    id: str
    sentence: str
    source: str


_AMIR: Final = "Abadi, McSherry, Murray and Rodeheffer 2013"
_ITP: Final = "Brun, Decova, Lattuada and Traytel 2021"
_NAIAD: Final = "Murray et al. 2013 (Naiad)"

INVARIANTS: Final[dict[str, Invariant]] = {
    invariant.id: invariant
    for invariant in (
        Invariant("OC2", "whatever is new needs a capability, or a message read in the same activation", _NAIAD + " 2.2"),
        Invariant("OC3", "every message that was sent is counted until it is read, and none besides", _NAIAD + " 2.3"),
        Invariant("OC4", "nobody gives up a capability that it does not have", _NAIAD + " 2.3"),
        Invariant("X2", "all that is still to come from a worker is supported by what it holds or takes away", _AMIR),
        Invariant("X3", "a worker's view and all that is still to come to it add up to the truth", _AMIR),
        Invariant("X4", "where a worker's view is vacant up to a time, so is the truth", _AMIR),
        Invariant("X6", "where the truth is vacant up to a time, it stays so", _AMIR),
        Invariant("I1", "no true count is negative", _ITP),
        Invariant("I4", "where a worker counts a negative number, it counts a positive one at or before it", _ITP),
        Invariant("I5", "a frontier never goes back", _ITP),
        Invariant("I6", "what is on its way to a worker lies at or beyond what the worker's view allows for", _ITP),
        Invariant("G9", "a frontier is what the counts result in by definition: no earlier, no later", _ITP),
        Invariant("G10", "the changes that an operator is told of add up to its frontier", _ITP),
        Invariant("Z1", "what could still arrive anywhere, every worker's frontier there allows for", _ITP),
        Invariant("Z3", "no message is read that the frontier shown before did not allow for", _ITP),
        Invariant("Z4", "no message waits at an input whose frontier has passed it", _NAIAD + " 2.2"),
        Invariant("Z5", "when all is done, nothing is left anywhere", _NAIAD + " 2.3"),
    )
}
"""The invariants that a simulation checks, by their ids."""


def violation(invariant: str, found: str) -> InvariantViolation:
    """Return the error that names an invariant, says what it is, and what was found instead.

    >>> print(violation("I1", "there are -2 messages"))
    I1: no true count is negative; but there are -2 messages
    """
    return InvariantViolation(invariant, f"{INVARIANTS[invariant].sentence}; but {found}")
