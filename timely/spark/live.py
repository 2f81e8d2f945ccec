"""What a live page is to a run on Spark: the workers tell it what they do, by way of the driver.

The page itself is :class:`timely.inspect.LivePage`; here stands only what is asked of one. Each worker calls what the page has it
call, around all of its work, with a function that takes a report to the driver: over the connection on which the worker has
registered, as in :mod:`timely.spark.metrics`. The invariant: of a run that is given no page nothing is told, and no worker waits
for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol

from timely.errors import ConfigurationError
from timely.spark.registration import Registration
from timely.spark.rendezvous import Run
from timely.worker import Worker

LIVE: Final = "live"
"""The kind of message by which a worker tells the page what it does."""

Look = Callable[[Worker, Callable[[dict[str, Any]], object]], AbstractContextManager[None]]
"""What a worker calls before it builds anything: ``look(worker, tell)``. It travels to the executors by pickle."""

Hear = Callable[[int, int, Mapping[str, Any]], None]
"""Takes what a worker tells: ``hear(worker, attempt, report)``, on the server's thread."""


class Page(Protocol):
    """What can be given as ``live``: a :class:`timely.inspect.LivePage`."""

    look: Look
    """What each worker calls."""

    def open(self, name: str) -> Hear:
        """Return what is to be told the reports of another run."""


def check_page(live: object) -> None:
    """Raise ConfigurationError for what is no page.

    >>> check_page(8080)
    Traceback (most recent call last):
    timely.errors.ConfigurationError: live=8080: give a timely.inspect.LivePage, within whose with-block the run is asked for
    """
    if live is not None and not (callable(getattr(live, "look", None)) and callable(getattr(live, "open", None))):
        raise ConfigurationError(f"live={live!r}: give a timely.inspect.LivePage, within whose with-block the run is asked for")


def show(run: Run, hear: Hear | None) -> None:
    """Have what the workers of a run tell shown, where there is a page."""
    if hear is not None:
        run.listen(LIVE, hear)


def looked_at(look: Look | None, worker: Worker, registration: Registration) -> AbstractContextManager[None]:
    """Return what a worker does all its work in: a page's look at it, or nothing."""
    return nullcontext() if look is None else look(worker, lambda report: registration.tell(LIVE, report))
