"""The invariants of every run, in the order of ``docs/invariants.md``."""

from __future__ import annotations

from typing import Final

import attrs

from timely.errors import InvariantViolation


@attrs.frozen
class Invariant:
    """One invariant; ``checked`` says when it is checked, or by which other invariant.

    >>> INVARIANTS["X4"].checked, INVARIANTS["I2"].checked
    ('after each step', 'X3')
    """

    id: str
    sentence: str
    source: str
    checked: str


_BOOK: Final = "the timely dataflow book, on progress tracking"
_AMIR: Final = "Abadi, McSherry, Murray and Rodeheffer 2013"
_ITP: Final = "Brun, Decova, Lattuada and Traytel 2021"
_POSTS: Final = "the posts on hierarchical scopes, 2014"
_NAIAD: Final = "Murray et al. 2013 (Naiad)"

BUILT: Final = "when the dataflow is built"
CHANGE: Final = "with each change"
STEP: Final = "after each step"
REST: Final = "when all has come to rest"
REST_IF_ASKED: Final = "at rest, with `liveness`"
END: Final = "at the end"

_TABLE: Final = (
    Invariant("S0", "no message comes where what a worker has received leads to none", f"{_BOOK}; {_NAIAD} 3.3", CHANGE),
    Invariant("OC1", "what is done in one activation is sent in one batch", _BOOK, STEP),
    Invariant("OC2", "whatever is new needs a capability, or a message read in the same activation", _NAIAD + " 2.2", CHANGE),
    Invariant("OC3", "every message that was sent is counted until it is read, and none besides", _NAIAD + " 2.3", STEP),
    Invariant("OC4", "no operator gives up a capability that it does not have", _NAIAD + " 2.3", CHANGE),
    Invariant("OC5", "what an activation has read stays counted until it is over", _BOOK, STEP),
    Invariant("OC6", "what a nested scope reports is compared with the truth, not with its worker's view", _POSTS, "X3"),
    Invariant("X1", "what a worker has not sent yet is upright, less what it holds", _AMIR, STEP),
    Invariant("X2", "every end of what is still to come from a worker is upright, less what it holds", _AMIR, STEP),
    Invariant("X3", "a worker's view and all that is still to come to it add up to the truth", _AMIR, STEP),
    Invariant("X4", "where a worker's view is vacant up to a time, so is the truth", _AMIR, STEP),
    Invariant("X5", "where a worker's view was vacant up to a time once, the truth stays so", _AMIR, STEP),
    Invariant("X6", "where the truth is vacant up to a time, it stays so", _AMIR, STEP),
    Invariant("I1", "no true count is negative", _ITP, f"{CHANGE}, and {STEP}"),
    Invariant("I2", "capabilities and messages are a worker's view and all that is still to come to it", _ITP, "X3"),
    Invariant("I3", "all that is still to come is justified by what is held", _ITP, STEP),
    Invariant("I4", "where a worker counts a negative number, it counts a positive one at or before it", _ITP, STEP),
    Invariant("I5", "a frontier never goes back", _ITP, STEP),
    Invariant("I6", "what is in flight to a worker lies at or beyond what the worker's view allows for", _ITP, STEP),
    Invariant("I7", "no message is where a worker's view was vacant up to its time once", _ITP, STEP),
    Invariant("G1", "summaries keep the order of times, and compose", _ITP, f"{BUILT}, and {STEP}"),
    Invariant("G2", "whatever goes round a cycle comes back strictly later", _ITP, BUILT),
    Invariant("G3", "path summaries are the minimal ones of all paths", _ITP, BUILT),
    Invariant("G4", "a worker counts something new only where its own frontier allows for it", _ITP, CHANGE),
    Invariant("G5", "what a frontier is derived from is settled before it", _ITP, BUILT),
    Invariant("G6", "no frontier is derived from a count that is not positive", _ITP, STEP),
    Invariant("G7", "each cell is made of its own positive counts and the frontiers of those before it", _ITP, STEP),
    Invariant("G8", "no frontier has passed what a positive count could result in", _ITP, STEP),
    Invariant("G9", "a frontier is no earlier than what positive counts result in", _ITP, f"{STEP}, and {REST}"),
    Invariant("G10", "the changes that an operator is shown add up to its frontier", _ITP, STEP),
    Invariant("G11", "propagation comes to an end", _ITP, STEP),
    Invariant("Z1", "where a message could still lead to, every worker's frontier allows for it", _ITP, STEP),
    Invariant("Z2", "where a capability of any worker could still lead to, every worker's frontier allows for it", _ITP, STEP),
    Invariant("Z3", "no message is read that the frontier shown before did not allow for", _ITP, CHANGE),
    Invariant("Z4", "nothing is still to come at or before a time that was notified", _NAIAD + " 2.2", f"{CHANGE}, and {STEP}"),
    Invariant("Z5", "when all is done, nothing is left anywhere", _NAIAD + " 2.3", END),
    Invariant(
        "L1", "at rest, no operator holds a capability at a time that its inputs have passed", _NAIAD + " 2.3", REST_IF_ASKED
    ),
)

INVARIANTS: Final[dict[str, Invariant]] = {invariant.id: invariant for invariant in _TABLE}
"""The invariants, by their ids."""


def violation(invariant: str, difference: str) -> InvariantViolation:
    """Return the error for an invariant and what was found instead."""
    return InvariantViolation(invariant, f"{INVARIANTS[invariant].sentence}; but {difference}")
