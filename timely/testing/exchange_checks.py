"""What must hold whenever workers tell each other of progress: each invariant by itself, against definitions.

One pointstamp *could result in* another if a path leads from the one to the other in time; it is *strictly before* it if they
differ too. A bag of counts is *vacant up to* a pointstamp if it counts nothing that could result in it, and *upright* if whatever
it counts positively has something strictly before it that it counts negatively. The invariant of this module: its checks know
nothing of the protocol, and every path summary is found by brute force. A caller may give it one value after another: what was
found right once is not looked at again.

* I1: no true count is negative.
* X3, I2 *conservation*: a worker's view, all that is on its way to it, and all that nobody has said yet, are the truth.
* X1: what a worker has not said yet is upright, less all that the worker holds: as if it let go of all that now. X2: so is any
  end of what another has still to hear from it. Where it holds nothing these are the paper's, word for word.
* I3: the same two are *justified* by what the worker holds: whatever is new there, the worker holds more of it than is new, or
  holds something strictly before it, or takes something away that was. Of sums over workers it follows.
* X4: where a view is vacant, so is the truth. X5, I7: and stays so for ever, whatever becomes of the view.
* X6: where the truth was vacant it stays so, and where a view was it stays so.
* I4: where a view counts nothing positively it counts nothing. I6: what is on its way to a worker could come of what it counts.
* G9: a tracker's frontiers are what the view's positive counts result in, by definition. G10: the changes that it tells of are
  those from the frontiers before to these.
* I5: no frontier goes back. S0: nothing that is there could result in what a frontier has passed, at any worker (Z1, Z2).

Sources: Naiad section 3.3 and the book's chapter on progress tracking (S0); Abadi, McSherry, Murray and Rodeheffer, *Formal
Analysis of a Distributed Algorithm for Tracking Progress* (X); Brun, Decova, Lattuada and Traytel, *Verified Progress Tracking
for Timely Dataflow* (I, G, Z).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from timely.errors import InvariantViolation
from timely.progress import Location, Target, Tracker
from timely.testing.code import as_code
from timely.testing.exchange_state import EMPTY, Bag, ExchangeState, Ground, minus, plus
from timely.testing.oracles import Change, Oracle, Pointstamp

Frontiers = dict[Location, tuple[Any, ...]]
Found = Iterator[tuple[str, str]]
"""What was found wrong: the id of an invariant, and what there is instead."""


class ViewTracker:
    """Takes one tracker from view to view, and remembers which frontiers it has shown of each.

    >>> from timely.progress import Source
    >>> from timely.testing import GraphSpec, NodeSpec
    >>> graph = GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ())
    >>> ViewTracker(graph.build(), graph.locations()).frontiers(frozenset({((Source(0, 0), 3), 1)}))
    {Source(0, 0): (3,)}
    """

    def __init__(self, tracker: Tracker[Any], locations: Iterable[Location]) -> None:
        self._tracker = tracker
        self._locations = list(locations)
        self._counted: Bag = EMPTY
        self._shown: dict[Bag, Frontiers] = {}

    def frontiers(self, view: Bag) -> Frontiers:
        """Return the frontiers that the tracker shows of a view."""
        found = self._shown.get(view)
        if found is None:
            self._count(view)
            found = {location: self._tracker.frontier(location).elements for location in self._locations}
            self._shown[view] = found
        return found

    def changes(self, before: Bag, view: Bag) -> list[Change]:
        """Return which changes the tracker tells of when it gets from one view to another."""
        self._count(before)
        return self._count(view)

    def _count(self, view: Bag) -> list[Change]:
        for (location, time), diff in minus(view, self._counted):
            self._tracker.update(location, time, diff)
        self._counted = view
        return list(self._tracker.propagate())


class ExchangeChecks:
    """The invariants among ``workers``, over an ``oracle``'s graph; ``tracked`` shows frontiers, and tells of the ``observed``.

    >>> from timely.progress import Source
    >>> from timely.testing import ExchangeRules, GraphSpec, NodeSpec
    >>> rules = ExchangeRules(GraphSpec(int, (NodeSpec(0, 1, {}, ()),), ()), workers=1)
    >>> list(rules.violations(rules.initial()))
    []
    """

    def __init__(self, observed: list[Target], workers: int, oracle: Oracle, tracked: ViewTracker) -> None:
        self._workers = workers
        self._oracle = oracle
        self._tracked = tracked
        self._observed = observed
        self._right: set[ExchangeState] = set()
        self._fine: set[Hashable] = set()
        self._grounds: dict[Bag, Ground] = {}
        self._concluded: dict[tuple[frozenset[Ground], Bag], frozenset[Ground]] = {}

    def violations(self, state: ExchangeState, before: ExchangeState | None) -> Iterator[InvariantViolation]:
        """Return everything that does not hold of a state, and of the step to it from the one before, causes first."""
        if state not in self._right:
            wrong = False
            for violation in self._of_state(state):
                wrong = True
                yield violation
            if not wrong:
                self._right.add(state)
        if before is not None:
            for invariant, message in self._of_step(before, state):
                yield InvariantViolation(invariant, message)

    # -- what is known of each bag ---------------------------------------------------------------------------------------

    def conclude(self, known: frozenset[Ground], view: Bag) -> frozenset[Ground]:
        """Return what a worker has concluded when it comes to a view after all that it had concluded before."""
        found = self._concluded.get((known, view))
        if found is None:
            new = self._ground(view)
            if any(self._within(old, new) for old in known):
                found = known
            else:
                found = frozenset({new, *(old for old in known if not self._within(new, old))})
            self._concluded[known, view] = found
        return found

    def _ground(self, bag: Bag) -> Ground:
        found = self._grounds.get(bag)
        if found is None:
            places = [place for place, _ in bag]
            found = frozenset(p for p in places if not any(q != p and self._oracle.leads(q, p) for q in places))
            self._grounds[bag] = found
        return found

    def _within(self, inner: Ground, outer: Ground) -> bool:
        """Return whether all that could come of one ground could come of the other."""
        return all(self._reached(outer, place) for place in inner)

    def _reached(self, ground: Iterable[Pointstamp], place: Pointstamp) -> bool:
        return any(self._oracle.leads(start, place) for start in ground)

    def _before(self, starts: Iterable[Pointstamp], place: Pointstamp) -> bool:
        return any(start != place and self._oracle.leads(start, place) for start in starts)

    def _once(self, key: tuple[Hashable, ...], check: Callable[..., Found]) -> Found:
        """Return what ``check`` finds of the values in ``key`` (after its name), unless they were found right before."""
        if key not in self._fine:
            fine = True
            for found in check(*key[1:]):
                fine = False
                yield found
            if fine:
                self._fine.add(key)

    # -- of a state ------------------------------------------------------------------------------------------------------

    def _of_state(self, state: ExchangeState) -> Iterator[InvariantViolation]:
        truth = state.truth()
        for bag in (truth, *state.held):
            for invariant, message in self._once(("I1", bag), self._natural):
                yield InvariantViolation(invariant, message)
        for worker in range(self._workers):
            for invariant, message in self._of_worker(state, worker, truth):
                yield InvariantViolation(invariant, f"worker {worker} {message}")

    def _of_worker(self, state: ExchangeState, worker: int, truth: Bag) -> Found:
        view, held = state.views[worker], state.held[worker]
        yield from self._conserved(state, worker, truth)
        yield from self._once(("X1", "X1", held, state.unsaid[worker]), self._upright)
        yield from self._once(("I3", held, state.unsaid[worker]), self._justified)
        for receiver in range(self._workers):
            for coming in state.coming(worker, receiver, self._workers)[1:]:
                yield from self._once(("X2", "X2", held, coming), self._upright)
                yield from self._once(("I3", held, coming), self._justified)
        for sender in range(self._workers):
            for batch in state.queues[sender * self._workers + worker]:
                yield from self._once(("I6", view, batch.updates), self._expected)
        yield from self._once(("X4", view, truth), self._vacant)
        yield from self._once(("X5", state.concluded[worker], truth), self._for_ever)
        yield from self._once(("I4", view), self._positive)
        yield from self._once(("G9", view), self._exact)
        yield from self._once(("S0", view, truth), self._safe)

    def _natural(self, bag: Bag) -> Found:
        for place, count in bag:
            if count < 0:
                yield "I1", f"there are {count} of {as_code(place)}"

    def _conserved(self, state: ExchangeState, worker: int, truth: Bag) -> Found:
        total = state.views[worker]
        for sender in range(self._workers):
            total = plus(total, state.coming(sender, worker, self._workers)[-1])
        if total != truth:
            yield "X3", f"has heard and will hear {dict(total)}, but there is {dict(truth)}"

    def _upright(self, invariant: str, held: Bag, coming: Bag) -> Found:
        counts = minus(coming, held)
        away = [place for place, count in counts if count < 0]
        for place, count in counts:
            if count > 0 and not self._before(away, place):
                yield invariant, f"tells of {as_code(place)}, and neither holds nor takes away what it could come of"

    def _justified(self, held: Bag, coming: Bag) -> Found:
        holds = dict(held)
        starts = [place for place, count in coming if count < 0] + [place for place, count in held if count > 0]
        for place, count in coming:
            if count > 0 and count >= holds.get(place, 0) and not self._before(starts, place):
                yield "I3", f"tells of {as_code(place)} without a right to it"

    def _expected(self, view: Bag, updates: tuple[tuple[Pointstamp, int], ...]) -> Found:
        positive = [place for place, count in view if count > 0]
        for place, _ in updates:
            if not self._reached(positive, place):
                yield "I6", f"has still to hear of {as_code(place)}, which nothing that it counts could result in"

    def _vacant(self, view: Bag, truth: Bag) -> Found:
        for place, _ in truth:
            if not self._reached(self._ground(view), place):
                yield "X4", f"counts nothing that {as_code(place)} could come of, but there it is"

    def _for_ever(self, concluded: frozenset[Ground], truth: Bag) -> Found:
        for ground in concluded:
            for place, _ in truth:
                if not self._reached(ground, place):
                    yield "X5", f"has once counted nothing that {as_code(place)} could come of, but there it is"

    def _positive(self, view: Bag) -> Found:
        positive = [place for place, count in view if count > 0]
        for place, count in view:
            if count < 0 and not self._reached(positive, place):
                yield "I4", f"counts {count} of {as_code(place)}, and nothing that it could come of"

    def _exact(self, view: Bag) -> Found:
        shown = self._tracked.frontiers(view)
        for location, times in self._oracle.frontiers(dict(view)).items():
            if set(shown[location]) != times or len(shown[location]) != len(times):
                yield "G9", f"shows {as_code(shown[location])} at {location}, not {times}, where it counts {dict(view)}"

    def _safe(self, view: Bag, truth: Bag) -> Found:
        frontiers = self._tracked.frontiers(view)
        for (location, time), _ in truth:
            for end, summaries in self._oracle.summaries[location].items():
                for arrival in (summary.results_in(time) for summary in summaries):
                    if arrival is not None and not any(shown <= arrival for shown in frontiers[end]):
                        gone, there = as_code((end, arrival)), as_code((location, time))
                        yield "S0", f"takes {gone} for gone, but there is {there}; its frontier is {as_code(frontiers[end])}"

    # -- of a step -------------------------------------------------------------------------------------------------------

    def _of_step(self, before: ExchangeState, state: ExchangeState) -> Found:
        if before.held != state.held or before.messages != state.messages:
            yield from self._once(("X6", before.truth(), state.truth()), self._vacancy_of_truth)
        for worker, (old, new) in enumerate(zip(before.views, state.views, strict=True)):
            if old != new:
                for invariant, message in self._once(("step", old, new), self._step):
                    yield invariant, f"worker {worker} {message}"

    def _vacancy_of_truth(self, before: Bag, truth: Bag) -> Found:
        for place, _ in truth:
            if not self._reached(self._ground(before), place):
                yield "X6", f"there is {as_code(place)}, which nothing could result in of what there was: {dict(before)}"

    def _step(self, before: Bag, view: Bag) -> Found:
        """Check a step from one view to the next: vacancy, frontiers, and the changes that are told."""
        for place, _ in view:
            if not self._reached(self._ground(before), place):
                yield "X6", f"counts {as_code(place)}, which nothing could result in of what it counted: {dict(before)}"
        old = self._tracked.frontiers(before)
        told = self._tracked.changes(before, view)
        new = self._tracked.frontiers(view)
        for location, times in new.items():
            for time in times:
                if not any(shown <= time for shown in old[location]):
                    yield "I5", f"has its frontier at {location} go back to {as_code(time)} from {as_code(old[location])}"
        gone = [(target, time, -1) for target in self._observed for time in old[target] if time not in new[target]]
        come = [(target, time, 1) for target in self._observed for time in new[target] if time not in old[target]]
        if set(told) != {*gone, *come} or len(told) != len(gone + come):
            yield "G10", f"is told of {told}, but its frontiers changed by {gone + come}"
