"""``Recovery`` takes checkpoints of a worker's dataflows and resumes them from the last one.

Everything is collective: each worker makes its ``Recovery``, calls ``checkpoint`` with the same times, and closes it. The
invariants: a checkpoint is one consistent cut of all workers, or does not exist; it is durable once ``checkpoint`` returns; of
several runs on one store only the newest can commit. Source: Naiad section 3.4, with the cut found by progress tracking.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time as clock
from collections.abc import Callable, Collection, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, cast

import attrs

from timely.dataflow.containers.pickling import dumps
from timely.dataflow.info import Piece
from timely.errors import (
    ChangedDataflowError,
    CheckpointError,
    ConfigurationError,
    RecoveryError,
    StateError,
    brief,
    error_text,
    file_error_text,
    out_of_files,
)
from timely.recovery.changed_programs import Change
from timely.recovery.history import StateFiles, collect_garbage, damage_of, retained
from timely.recovery.in_flight import MessagesInFlight
from timely.recovery.manifest import MANIFEST, FileInfo, Layer, Manifest, checkpoint_name, generation_of, state_name
from timely.recovery.ownership import Ownership, Takeover, end_line
from timely.recovery.quiesce import check_time, pause, quiesce
from timely.recovery.relations import KEPT, Comparison
from timely.recovery.state_file import Key, Known, StateWriter
from timely.recovery.state_registry import FLOOR, LAYERS, RegisteredState, WorkerState
from timely.recovery.store import Store, open_store
from timely.worker import Worker, internals
from timely.worker.gc_control import collector_paused

T = TypeVar("T")

_log = logging.getLogger("timely.recovery")


@attrs.frozen
class Checkpoint:
    """A checkpoint: its ``time``, the ``generation`` of the run, its ``name`` in the store, the ``bytes`` that all workers wrote,
    and the ``seconds`` it took, quiescing included.
    """

    time: Any
    generation: int
    name: str
    bytes: int
    seconds: float


@attrs.frozen
class WorkerSnapshot:
    """What one worker wrote: its file, which parts are full snapshots, the bytes of each, and its pickled notes."""

    file: FileInfo
    full: dict[Key, bool]
    sizes: dict[Key, int]
    notes: bytes
    files: set[str]
    """The names of the files that have its blocks: its own, and earlier ones with what has not changed."""


class Recovery:
    """Checkpoints the dataflows that are built while it is open in a store: a path, a URI, or a ``Store``.

    ``keep`` is the number of checkpoints that stay. With logged state they share files. With ``full_every=n`` every n-th one is
    written in full, and one that shares no file with the newest stays too. ``version`` is your own text; a checkpoint with
    another one is refused, for program changes that the graph does not show. A store belongs to one program and one run at a
    time: a newer run fences off the older one. ``ConfigurationError`` for a bad argument.

    ``CheckpointError`` where the store cannot be read or has no good checkpoint; ``ChangedDataflowError`` for another version or
    dataflow; ``StateError`` for an operator that does not declare its state, or whose state cannot be rescaled.

    >>> import tempfile, timely
    >>> def total(key, value, state):
    ...     state = (state or 0) + value
    ...     return state, [state]
    >>> def program(worker, epochs):
    ...     with Recovery(worker, directory) as recovery:
    ...         with worker.dataflow() as scope:
    ...             numbers, stream = scope.new_input()
    ...             totals = stream.state_machine(total).capture()
    ...         start = recovery.time or 0
    ...         numbers.advance_to(start)
    ...         for epoch in range(start, epochs):
    ...             numbers.send(("total", epoch))
    ...             numbers.advance_to(epoch + 1)
    ...         recovery.checkpoint(epochs)
    ...         numbers.close()
    ...         worker.run()
    ...     return totals.extract()
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     timely.execute(lambda worker: program(worker, 2)), timely.execute(lambda worker: program(worker, 4))
    ([[(0, [0]), (1, [1])]], [[(2, [3]), (3, [6])]])
    """

    def __init__(
        self,
        worker: Worker,
        where: str | os.PathLike[str] | Store,
        *,
        keep: int = 2,
        version: str | None = "",
        full_every: int | None = None,
        changed: Literal["refuse", "migrate"] = "refuse",
        renamed: Mapping[str, str] | None = None,
        dropped: Collection[str] = (),
    ) -> None:
        if changed not in ("refuse", "migrate") or ((renamed or dropped) and changed == "refuse"):
            raise ConfigurationError(
                f"changed={changed!r}: give 'refuse' or 'migrate'; renamed= and dropped= say what 'migrate' does"
            )
        if not isinstance(keep, int) or keep < 1:
            raise ConfigurationError(f"keep={keep!r}: at least one checkpoint has to stay")
        if full_every is not None and (not isinstance(full_every, int) or full_every < 1):
            raise ConfigurationError(f"full_every={full_every!r}: give a number of checkpoints of 1 or more, or nothing")
        if not isinstance(version, str | None):
            raise ConfigurationError(f"version={version!r}: give a string, or nothing")
        if internals.state_registries(worker) is not None:
            raise ConfigurationError(f"worker {worker.index} has a Recovery already that is open: close it first")
        self._worker = worker
        self._store = open_store(where)
        self._keep = keep
        self._full_every = full_every
        self._broken = False
        self._writers: dict[str, StateWriter] = {}  # of the checkpoints that this run has taken, by name
        self._names: list[str] = []
        self._version = version or ""
        self._number = 0
        self._closed = False
        self._owner, self._good = self._open()
        self._run = self._owner.run
        self._last = self._good[0] if self._good else None
        if self._last is not None and self._last.in_flight and self._last.peers != worker.peers:
            raise StateError(
                f"checkpoint {self._last.name} was taken with messages in flight on {self._last.peers} workers, and cannot go on"
                f" with {worker.peers}: run {self._last.peers} workers, or use another directory to start anew"
            )
        change = Change(changed == "migrate", dict(renamed or {}), frozenset(dropped))
        self._check_rows(change.migrate)
        if self._last is not None:
            change.check(self._last.dataflows)
        self._notes: list[Any] = [] if self._last is None else pickle.loads(dumps(self._last.notes))  # threads share the manifest
        files = None if self._last is None else StateFiles(self._store, self._last)
        self._state = WorkerState(worker.index, worker.peers, self._last, files, change)
        internals.set_state_registries(worker, self._state.open)

    def _check_rows(self, migrates: bool) -> None:
        """Raise ``ChangedDataflowError`` unless the checkpoint has rows of tables and views by name as this run wants it."""
        start = self._last
        if start is None or migrates == start.migrates:
            return
        if any(relation.kind in KEPT for relations in start.dataflows for relation in relations.values()):
            now, before = ("migrate", "refuse") if migrates else ("refuse", "migrate")
            raise ChangedDataflowError(
                f"checkpoint {start.name} was written with changed={before!r}, and this run has changed={now!r}: rows of tables"
                f" and views are in checkpoints of 'migrate' alone. Run it with {before!r}, or start anew in another directory"
            )

    @property
    def time(self) -> Any | None:
        """The time of the checkpoint that this run resumes from; ``None`` for a fresh start."""
        return None if self._state.start is None else self._state.start.time

    @property
    def notes(self) -> list[Any]:
        """The notes of each worker in that checkpoint, in worker order; ``[]`` for a fresh start."""
        return list(self._notes)

    @property
    def worker(self) -> Worker:
        """The worker whose dataflows it checkpoints."""
        return self._worker

    @property
    def comparisons(self) -> list[Comparison]:
        """How the dataflows built so far compare with those of the checkpoint: what is the same, new, gone and changed."""
        return [comparison for _, comparison in sorted(self._state.comparisons.items())]

    def agree(self, value: T) -> list[T]:
        """Return the values of all workers, in worker order: a collective all-gather."""
        return self._worker.all_gather(value)

    def _on_all(self, what: str, action: Callable[[], T]) -> list[T]:
        """Run ``action`` on every worker and return all results; if it failed anywhere, all raise the first failure.

        Unexpected errors, of a custom store for example, are raised unchanged where they happened.
        """
        result: Any = None
        failure: Exception | None = None
        try:
            result = action()
        except Exception as error:
            failure = error
        outcomes = self.agree((_portable(failure), result))
        if failure is not None and not isinstance(failure, RecoveryError | OSError):
            raise failure
        for worker, (trouble, _) in enumerate(outcomes):
            if trouble is not None:
                kind, text = trouble
                raise kind(f"{what} failed on worker {worker}: {text}") from (failure if worker == self._worker.index else None)
        return [value for _, value in outcomes]

    def _on_first(self, what: str, action: Callable[[], T]) -> T:
        """Run ``action`` on worker 0 and return its result on every worker."""
        return cast(T, self._on_all(what, lambda: action() if self._worker.index == 0 else None)[0])

    def _open(self) -> tuple[Ownership, list[Manifest]]:
        """Take over the store, and return the retained checkpoints; the run resumes from the first."""
        takeover = Takeover(self._store, self._version)
        try:
            while True:
                left = self._on_first("reading the checkpoints", takeover.read)
                while left and (damage := self._find_damage(left[0])):
                    if self._worker.index == 0:
                        takeover.report_damage(f"checkpoint {left[0].name}: {damage}")
                    left = left[1:]
                good = retained(left, self._keep, spare=self._full_every is not None)

                def take(left: list[Manifest] = left, good: list[Manifest] = good) -> str | None:
                    taken = takeover.take(left)
                    if taken is None:
                        return None
                    owner, names = taken
                    collect_garbage(self._store, names, good, owner.run)
                    return owner.run

                run = self._on_first("taking over", take)
                if run is not None:
                    return Ownership(self._store, run), good
        except BaseException:
            takeover.abandon()
            raise

    def _find_damage(self, manifest: Manifest) -> str:
        """Verify the files of a checkpoint, divided among the workers; return what is wrong with one of them."""
        mine = dict(sorted(manifest.files.items())[self._worker.index :: self._worker.peers])
        damages = self._on_all("reading the checkpoints", lambda: damage_of(mine, self._store))
        return next((damage for damage in damages if damage), "")

    def checkpoint(self, time: Any = None, notes: Any = None, *, in_flight: bool = False) -> Checkpoint:
        """Take a durable checkpoint of everything before ``time``.

        Every worker calls it with the same time, has sent nothing at or after that, and has advanced its inputs to it or closed
        them; without a time, it is the first that all sources allow (``timely.connect``). The call steps the worker until
        everything before the time is complete everywhere, then writes the state. ``notes`` is any picklable value for the program
        itself, or a function that returns it, called once the dataflows are at rest.

        With ``in_flight`` nothing need be complete: the call pauses the workers where they are, in the middle of loops too, and
        writes the messages in flight with the state. Only as many workers can resume from that.

        ``CheckpointError`` if the dataflows were built before this was made, cannot quiesce, or cannot be written, or if a newer
        run has taken over. Except in the last case the worker may go on and try again; the checkpoint before stays good.
        ``StateError`` for state, a message or a time that cannot be pickled, a time that changes by pickling, and with
        ``in_flight`` for operators that cannot be saved then.
        """
        began, earliest = clock.monotonic(), 0
        if self._closed:
            raise CheckpointError("this Recovery is closed: take checkpoints inside its with-block")
        worker = self._worker
        followers = self._state.followers
        try:
            if followers:  # before any worker waits for the others, which would send more
                earliest = max(self.agree(self._state.stop(otherwise=0 if self._last is None else self._last.time)))
                time = earliest if time is None else time
            calls = self._on_all("the checkpoint", lambda: (self._checked(time, in_flight), in_flight))
            if any(other != time for other, _ in calls):
                times = brief([other for other, _ in calls])
                raise CheckpointError(f"the workers call checkpoint with different times, {times}: they must agree on one")
            if any(other != in_flight for _, other in calls):
                raise CheckpointError("some workers call checkpoint with in_flight=True, and some without: they must agree")
            if followers and (not isinstance(time, int) or time < earliest):
                raise CheckpointError(
                    f"sources are at {earliest} already, and cut their epochs themselves: call checkpoint() without a time, not"
                    f" with {brief(time)}"
                )
            for follower in followers:
                follower.advance(time)
            (pause if in_flight else quiesce)(worker, self._state.scopes, time)
            name = checkpoint_name(self._run, self._number)
            self._number += 1
            try:
                written = self._on_all("writing the checkpoint", lambda: self._write(name, notes, in_flight))
                _check_same_parts(written)
            except Exception:
                self._discard(name)
                raise
            manifest = self._manifest(name, time, written, in_flight)
            missing = self._on_first("the end of the checkpoint", lambda: self._commit(manifest))
            if missing:
                self._broken = True
                raise CheckpointError(
                    f"{missing} at {self._store} is gone, and checkpoint {name} builds on it: let nothing else delete files"
                    " there. The next checkpoint is written in full"
                )
        finally:
            worker.paused = False
            for follower in followers:
                follower.resume()
        self._committed(manifest)
        taken = Checkpoint(
            time, generation_of(self._run), name, sum(part.file.size for part in written), clock.monotonic() - began
        )
        if worker.index == 0:
            _log.info("checkpoint %s at %r was written: %d bytes in %.3f s", name, time, taken.bytes, taken.seconds)
        return taken

    def check_in_flight(self) -> None:
        """Raise ``StateError`` for operators that cannot be saved with messages in flight: custom scopes, and those whose state
        is whole only between two times.
        """
        self._state.check_in_flight()

    def _checked(self, time: Any, in_flight: bool) -> Any:
        """Return the time if a checkpoint can be taken at it."""
        if in_flight:
            self.check_in_flight()
        self._state.check_complete()
        if self._worker.scopes and not self._state.scopes:
            raise CheckpointError(
                "this Recovery has no dataflow to checkpoint: it has those that are built while it is open, so make the Recovery"
                " before the dataflows"
            )
        check_time(self._state.scopes, time)
        _check_round_trip(time)
        if self._last is not None and not _at_or_before(self._last.time, time):
            raise CheckpointError(f"{brief(time)} is not at or after {brief(self._last.time)}, the time of the checkpoint before")
        return time

    def _write(self, name: str, notes: Any, in_flight: bool) -> WorkerSnapshot:
        """Write this worker's state file. Errors while items are read are the operator's, any others those of notes or store."""
        worker = self._worker
        states: dict[Key, RegisteredState | MessagesInFlight] = dict(self._state.in_order())
        if in_flight:
            states.update(self._state.messages)
        before = self._state.layers
        whole = self._broken or (self._full_every is not None and int(name.rpartition("-")[2]) % self._full_every == 0)
        full = {key: state.is_full(before.get(key, []), whole) for key, state in states.items()}
        writer = StateWriter(state_name(name, worker.index), None if whole else self._unchanged())
        current: RegisteredState | MessagesInFlight | None = None

        def contents() -> Iterator[tuple[Key, Iterator[Piece]]]:
            nonlocal current
            for key, state in states.items():
                current = state
                yield key, state.items(full[key])

        def chunks() -> Iterator[bytes]:
            with _unpicklable(lambda: "" if current is None else current.holder):
                yield from writer.chunks(contents())

        if worker.index == 0:
            self._owner.check()
        note = notes() if callable(notes) else notes
        with _unpicklable(lambda: "the checkpoint has notes"):
            note = dumps(note)
            pickle.loads(note)
        with collector_paused(stays=False):  # which would go through all of the state every few blocks: a quarter of the time
            self._owner.write(writer.name, chunks())
        self._writers[name] = writer
        return WorkerSnapshot(FileInfo(writer.size, writer.digest), full, writer.sizes, note, writer.files)

    def _unchanged(self) -> Known:
        """Return the blocks that need not be written again, if they are the same: those of parts without a log.

        They are those of the oldest checkpoint that stays, so that the others share no such file with the new one, nor its fate.
        None where its files are many, or mostly hold what has changed since.
        """
        base = self._base()
        writer = self._writers.get(base.name) if base is not None else None
        if base is None or writer is None or len(writer.files) >= LAYERS:
            return {}
        if sum(base.files[name].size for name in writer.files) > 2 * sum(writer.sizes.values()) + FLOOR:
            return {}
        return writer.known(key for key, state in self._state.parts.items() if state.log is None)

    def _base(self) -> Manifest | None:
        """Return the checkpoint that will go when the next one has been committed."""
        return self._good[self._keep - 1] if len(self._good) >= self._keep else None

    def _manifest(self, name: str, time: Any, written: list[WorkerSnapshot], in_flight: bool) -> Manifest:
        peers, last = self._worker.peers, self._last
        before = self._state.layers
        layers: dict[Key, list[Layer]] = {}
        for key, full in written[self._worker.index].full.items():
            new = Layer(name, peers, full, sum(snapshot.sizes.get(key, 0) for snapshot in written))
            layers[key] = [new] if full else [*before.get(key, []), new]
        needed = {state_name(layer.checkpoint, w) for stack in layers.values() for layer in stack for w in range(layer.peers)}
        needed.update(*(snapshot.files for snapshot in written))
        earlier = [manifest.files for manifest in (self._base(), last) if manifest is not None]
        files = {file: info for infos in earlier for file, info in infos.items() if file in needed}
        files.update((state_name(name, index), snapshot.file) for index, snapshot in enumerate(written))
        notes = [pickle.loads(snapshot.notes) for snapshot in written]
        parent = None if last is None else last.name
        return Manifest(
            name,
            self._version,
            parent,
            time,
            notes,
            peers,
            self._state.descriptions,
            layers,
            files,
            in_flight,
            self._state.change.migrate,
        )

    def _commit(self, manifest: Manifest) -> str:
        """Write the manifest, on worker 0. It is not acknowledged if a newer run has taken over by then, or a file is missing.

        Return the missing file.
        """
        self._owner.write(manifest.name + MANIFEST, [manifest.encode()])
        self._names = self._owner.check()
        missing = sorted(manifest.files.keys() - set(self._names))
        if missing:
            with contextlib.suppress(OSError):
                self._store.delete(manifest.name + MANIFEST)
        return "".join(missing[:1])

    def _discard(self, name: str) -> None:
        """Delete this worker's file of an abandoned checkpoint, if possible."""
        with contextlib.suppress(OSError):
            self._store.delete(state_name(name, self._worker.index))

    def _committed(self, manifest: Manifest) -> None:
        """Use the new checkpoint as the base of the next, and collect garbage."""
        self._last = manifest
        self._state.layers = manifest.layers
        self._broken = False
        self._good = retained([manifest, *self._good], self._keep, spare=self._full_every is not None)
        self._writers = {good.name: writer for good in self._good if (writer := self._writers.get(good.name)) is not None}
        self._state.forget_files()
        for state in self._state.parts.values():
            state.committed()
        if self._worker.index == 0:
            collect_garbage(self._store, self._names, self._good, self._run)
        for follower in self._state.followers:
            follower.committed(self._good[-1].time)

    def clear(self) -> None:
        """Delete all checkpoints and close: the work is done, and the next run starts fresh. Collective.

        A small claim and fence stay, against runs that should be dead. ``CheckpointError`` where a newer run has taken over, or
        the store cannot be written.
        """
        self._on_all("clearing the checkpoints", lambda: None)
        self._on_first("clearing the checkpoints", self._fence_off)
        self.close()

    def _fence_off(self) -> None:
        last, names = end_line(self._owner)
        collect_garbage(self._store, names, [], last.run)

    def close(self) -> None:
        """Take no more checkpoints; later dataflows are not recoverable. The checkpoints stay."""
        if not self._closed:
            self._closed = True
            internals.set_state_registries(self._worker, None)
            self._state.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _at_or_before(before: Any, time: Any) -> bool:
    """Whether one time is at or before another; false for times that cannot be compared."""
    try:
        return bool(before <= time)
    except (TypeError, AttributeError):
        return False


def _check_round_trip(time: Any) -> None:
    """Raise ``StateError`` for a time that pickling changes: a run would resume from another one."""
    with _unpicklable(lambda: f"the checkpoint has a time, {brief(time)},"):
        unpickled = pickle.loads(dumps(time))
    if unpickled != time:
        raise StateError(
            f"the checkpoint has a time, {brief(time)}, that becomes {brief(unpickled)} when it is pickled and unpickled, so that"
            f" a run would go on from there: have {type(time).__name__} pickle all that it is compared by"
        )


@contextlib.contextmanager
def _unpicklable(what: Callable[[], str]) -> Iterator[None]:
    """Turn foreign errors into a ``StateError`` that says that ``what()`` cannot be pickled."""
    try:
        yield
    except RecoveryError:
        raise
    except Exception as error:
        raise StateError(f"{what()} that cannot be pickled: {error_text(error)}") from error


def _check_same_parts(written: list[WorkerSnapshot]) -> None:
    """Raise ``StateError`` if a part is declared on some workers only: the manifest has worker 0's parts for all."""
    for worker, snapshot in enumerate(written):
        for _, path, number in sorted(snapshot.full.keys() ^ written[0].full.keys()):
            here, there = (worker, 0) if any(key[1:] == (path, number) for key in snapshot.full) else (0, worker)
            raise StateError(
                f"part {number} of operator {path} is declared on worker {here} and not on worker {there}: have its constructor"
                " declare the same on all workers, whatever they have to say"
            )


def _portable(error: Exception | None) -> tuple[type[RecoveryError], str] | None:
    """Return an error in a form that can be sent to any worker: one of our types and its text."""
    if error is None:
        return None
    if isinstance(error, RecoveryError):
        return type(error), str(error)
    return CheckpointError, f"{type(error).__name__}: {file_error_text(error)}" if out_of_files(error) else error_text(error)
