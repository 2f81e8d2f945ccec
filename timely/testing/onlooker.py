"""The one who looks on while a simulation runs, and checks after each turn that every invariant holds.

It keeps the books of each dataflow (:mod:`timely.testing.books`), from the moment when the first worker has built it until it is
dropped somewhere or a worker fails. The invariant: what is checked is right for any program that ``execute`` would run, so that a
violation is a fault of the engine or of an operator that goes round it; the first that was found is the one that is raised. A
caller checks after each turn, and need not say what happened in it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from timely.errors import InvariantViolation
from timely.progress import ProgressExchange
from timely.scopes import Subgraph
from timely.testing.books import Books, Looked
from timely.testing.invariants import violation
from timely.testing.network import Network
from timely.testing.passage import Passage
from timely.testing.site import Site
from timely.testing.structure import Found


class Tracer:
    """Keeps the books of every dataflow of a run, and checks all of them after each turn.

    Where workers pass progress on, ``passage`` is what knows of whom it is.
    """

    def __init__(self, network: Network, passage: Passage | None = None) -> None:
        self._network = network
        self._passage = passage
        self._workers: dict[int, Looked] = {}
        self._books: dict[int, Books] = {}
        self._closed: set[int] = set()
        self._fault: InvariantViolation | None = None
        self._blind = False

    def watch(self, worker: Looked) -> None:
        """Take in that there is a worker."""
        self._workers[worker.index] = worker

    def built(
        self,
        worker: int,
        number: int,
        scopes: Sequence[Subgraph[Any, Any]],
        exchange: ProgressExchange[tuple[int, int, Any]] | None,
        labels: Sequence[str],
    ) -> None:
        """Take in that a worker has built a dataflow."""
        if number in self._closed:
            return
        site = Site(worker, scopes, exchange, labels)
        books = self._books.get(number)
        if books is None:
            note = functools.partial(self._note, number)
            books = self._books[number] = Books(number, site, self._network, note, self._passage)
            self._look(books.check_graph())
        elif site.flat.places != books.flat.places:
            self._close(number)  # the workers find out themselves that their graphs differ
            return
        books.ledger.enter(site)

    def flushed(self, worker: int, number: int) -> None:
        """Take in that a worker has just told its peers what it did in a dataflow."""
        if number in self._books:
            self._books[number].flushed(worker)

    def _note(self, number: int, invariant: str, found: str) -> None:
        """Take note of the first violation: operators' errors are wrapped, so that it is raised when the turn is over.

        What is done in a dataflow whose books are closed is still told by those who had built it until then.
        """
        if self._fault is None and number not in self._closed:
            self._fault = violation(invariant, found)

    def _close(self, number: int) -> None:
        self._closed.add(number)
        self._books.pop(number, None)

    def dropped(self, number: int) -> None:
        """Take in that a dataflow is dropped somewhere, with what it held: there is nothing to compare any more."""
        self._close(number)

    def give_up(self) -> None:
        """Look away: a worker has failed, so that nothing need hold any more."""
        self._blind = True

    def check(self, turned: int) -> None:
        """Check everything after the turn of a worker; raises the first :class:`~timely.errors.InvariantViolation`."""
        self.raise_fault()
        if not self._blind:
            for books in self._books.values():
                self._look(books.check(turned, self._workers))

    def _look(self, check: Found) -> None:
        """Raise the first violation that a check finds, and take note of it, since it may be wrapped or caught on its way."""
        for invariant, found in check:
            self._fault = violation(invariant, found)
            raise self._fault

    def raise_fault(self) -> None:
        """Raise the violation that was found, if there was one, whatever has become of it since."""
        if self._fault is not None:
            raise self._fault

    def check_end(self) -> None:
        """Check, after every program has ended well, that nothing is left (Z5)."""
        for books in self._books.values():
            self._look(books.check_end())
