"""``Board``: what a live page shows, put together from the reports of all workers, wherever they run.

Workers of one run are shown together: a dataflow is drawn once, as the first of them sees it, and what each of its operators has
done stands there for every worker. The invariant: what is shown is derived from the newest report of each worker alone, and of no
attempt but the newest; so a report that is lost is missed by nobody. Any thread may call what is here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from timely.inspect.picture import Picture
from timely.inspect.report import DRAWN, shaped
from timely.inspect.snapshot import Snapshot

Report: TypeAlias = Mapping[str, Any]
"""What ``timely.inspect.report.Reporter`` tells."""

M = TypeVar("M")

_REMEMBERED: Final = 8
"""Runs that are shown, at most: the newest."""

_STUCK: Final = 3
"""Different things that workers say about what is stuck, at most."""

_AT_ONCE: Final = 32
"""Runs of this machine that are not over and are shown, at most: the newest."""


@attrs.define(eq=False)
class _Group(Generic[M]):
    """Workers that are peers: as many as each says, and none with the index of another."""

    peers: int
    members: dict[int, M] = attrs.field(factory=dict)


class Groups(Generic[M]):
    """Workers of this machine by the runs that they are of, with something of each of them; ``is_over`` says when that is over.

    Nobody says which workers are of one run: those who say that they have so many peers, and come one after the other. So runs
    are forgotten as a whole, those first that are over.

    >>> groups = Groups[str](lambda member: False)
    >>> for member in ("0 of 2", "1 of 2", "1 of 2 again", "0 of 1", "0 of 2 again"):
    ...     groups.add(int(member[0]), int(member[5]), member)
    >>> groups.all()
    [['0 of 2', '1 of 2'], ['0 of 2 again', '1 of 2 again'], ['0 of 1']]
    """

    def __init__(self, is_over: Callable[[M], bool]) -> None:
        self._is_over = is_over
        self._groups: list[_Group[M]] = []

    def add(self, worker: int, peers: int, member: M) -> None:
        """Take in a worker: into the newest run that it may be of."""
        for group in reversed(self._groups):
            if group.peers == peers and worker not in group.members:
                group.members[worker] = member
                return
        over = [group for group in self._groups if all(map(self._is_over, group.members.values()))]
        known = [group for group in self._groups if group not in over[:-_REMEMBERED]]
        self._groups = [*known, _Group(peers, {worker: member})][-_REMEMBERED - _AT_ONCE :]

    def all(self) -> list[list[M]]:
        """Return the runs, oldest first, each with its workers in order."""
        return [[group.members[index] for index in sorted(group.members)] for group in self._groups]


@attrs.define(eq=False)
class _Told:
    """The newest report of a worker of another process, with when it came."""

    at: float
    report: Report


@attrs.define(eq=False)
class _Run:
    """The newest reports of the workers of one run, with when they came; ``attempt`` is the newest that was heard of."""

    name: str
    attempt: int = -1
    heard: dict[int, tuple[float, Report]] = attrs.field(factory=dict)


class Board:
    """Keeps what workers elsewhere report, and puts it together with what those of this process do.

    >>> board = Board()
    >>> hear = board.open("ranks")
    >>> report = {"worker": 0, "peers": 1, "host": "h", "process": 7, "memory": 1, "over": False, "dataflows": []}
    >>> hear(0, 5, report)
    >>> [(run["name"], len(run["workers"])) for run in board.state([])]
    [('ranks', 1)]
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: list[_Run] = []
        self._forked: Groups[_Told] = Groups(lambda told: bool(told.report["over"]))

    def open(self, name: str) -> Callable[[int, int, Report], None]:
        """Return what hears the reports of another run: ``hear(worker, attempt, report)``. Only the newest attempt counts."""
        run = _Run(name)

        def hear(worker: int, attempt: int, report: Report) -> None:
            with self._lock:
                if attempt < run.attempt:
                    return
                if attempt > run.attempt:
                    run.attempt, run.heard = attempt, {}
                if run not in self._runs:
                    self._runs = [*self._runs, run][-_REMEMBERED:]
                run.heard[worker] = self._clock(), report

        return hear

    def hear(self, report: Report) -> None:
        """Take in what a worker of another process of this machine tells; a report that was begun before the last one is late."""
        with self._lock:
            for told in itertools.chain.from_iterable(self._forked.all()):
                if _who(told.report) == _who(report):
                    if told.report["number"] < report["number"]:
                        told.at, told.report = self._clock(), report
                    return
            self._forked.add(report["worker"], report["peers"], _Told(self._clock(), report))

    def state(self, here: Sequence[Sequence[Report]]) -> list[dict[str, Any]]:
        """Return what is to be shown of each run; ``here`` are those of this process, with the reports of their workers."""
        with self._lock:
            forked = [self._aged((told.at, told.report) for told in group) for group in self._forked.all()]
            runs = [(run.name, self._aged(run.heard.values())) for run in self._runs]
        found = [_together("", [{**report, "silent": 0.0} for report in group]) for group in here]
        found += [_together("", group) for group in forked]
        return found + [_together(name, sorted(told, key=lambda report: int(report["worker"]))) for name, told in runs]

    def _aged(self, heard: Iterable[tuple[float, Report]]) -> list[Report]:
        """Return reports with how many seconds nothing has been heard since, where more is to come."""
        now = self._clock()
        return [{**report, "silent": 0.0 if report["over"] else now - at} for at, report in heard]


def _who(report: Report) -> tuple[int, int]:
    """Return who tells: of one process, a reporter for each worker that it has had."""
    return report["process"], report["reporter"]


def _together(name: str, reports: Sequence[Report]) -> dict[str, Any]:
    """Return what is shown of one run; ``reports`` are those of its workers, in order."""
    numbers = sorted({dataflow["number"] for report in reports for dataflow in report["dataflows"]})
    memory = {(report["host"], report["process"]): report["memory"] for report in reports}
    return {
        "name": name,
        "memory": sum(memory.values()),
        "workers": [{key: value for key, value in report.items() if key != "dataflows"} for report in reports],
        "dataflows": [_dataflow(number, reports) for number in numbers],
    }


def _dataflow(number: int, reports: Sequence[Report]) -> dict[str, Any]:
    """Return what is shown of one dataflow: what each worker has done in each operator, and how that stands as one sees it."""
    parts = {report["worker"]: part for report in reports for part in report["dataflows"] if part["number"] == number}
    shape = next((shaped(part["shape"]) for part in parts.values() if part["shape"] is not None), None)
    done = [parts[report["worker"]]["done"] if report["worker"] in parts else {} for report in reports]
    return {
        "number": number,
        "path": next(part["path"] for part in parts.values()),
        "over": all(part["over"] for part in parts.values()),
        "svg": None if shape is None else Picture(shape).svg(),
        "stuck": _stuck(parts)[:_STUCK],
        "operators": [_operator(*each, done) for each in _operators(shape, done)],
    }


def _stuck(parts: Mapping[int, Report]) -> list[dict[str, Any]]:
    """Return what workers say that a dataflow is stuck at: once, where they say the same but for the first line, and who does."""
    said: dict[str, dict[str, Any]] = {}
    for worker, part in parts.items():
        if words := part["stuck"]:
            said.setdefault(words.partition("\n")[2] or words, {"workers": [], "words": words})["workers"].append(worker)
    return list(said.values())


def _operators(shape: Snapshot | None, done: Sequence[Mapping[str, Any]]) -> list[tuple[str, Snapshot | None]]:
    """Return the operators by path: all that are drawn, or else those that have taken the longest."""
    if shape is not None:
        return [(operator.path, operator) for operator in shape.operators()]
    seconds: dict[str, float] = {}
    for each in done:
        for path, numbers in each.items():
            seconds[path] = seconds.get(path, 0.0) + numbers[1]
    return [(path, None) for path in sorted(seconds, key=lambda path: -seconds[path])[:DRAWN]]


def _operator(path: str, shape: Snapshot | None, done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a line of the table; ``by_worker`` has runs, seconds, records read and sent of each worker, in order."""
    return {
        "path": path,
        "built_at": "" if shape is None else shape.built_at,
        "frontiers": [] if shape is None else shape.frontiers,
        "held": [] if shape is None else shape.held,
        "waiting": [] if shape is None else shape.waiting,
        "by_worker": [each.get(path, (0, 0.0, 0, 0)) for each in done],
    }
