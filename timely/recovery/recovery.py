"""``Recovery``: takes checkpoints of a worker's dataflows, and has them go on from the last one.

Made on every worker before the dataflows that it keeps, and closed after the last checkpoint. All of it is collective: every
worker makes it, calls ``checkpoint`` with the same times, and closes it. The invariants: a checkpoint is one consistent cut of
all workers, or it does not exist; once ``checkpoint`` has returned it is durable; and of several runs at one place only the
newest can commit. Source: Naiad section 3.4, with the moment found by progress tracking.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import pickle
import random
import secrets
import time as clock
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import attrs

from timely.dataflow.operator_state import Piece
from timely.dataflow.pickling import dumps
from timely.errors import (
    ChangedDataflowError,
    CheckpointError,
    ConfigurationError,
    RecoveryError,
    StateError,
    out_of_files,
    shown,
    told,
    what_failed,
)
from timely.recovery import quiesce
from timely.recovery.history import History, superfluous
from timely.recovery.manifest import (
    CLAIM,
    FENCE,
    MANIFEST,
    Fence,
    FileInfo,
    Layer,
    Manifest,
    checkpoint_name,
    generation_of,
    run_name,
    state_name,
)
from timely.recovery.state_file import Key, StateFile, StateWriter
from timely.recovery.state_registry import Ledger
from timely.recovery.store import Store, is_lost, open_store
from timely.worker import Worker, internals

T = TypeVar("T")

_log = logging.getLogger("timely.recovery")

_SHORTEST: Final = 0.01
_LONGEST: Final = 0.32
"""Up to so many seconds it waits before it begins once more where somebody was quicker: at first, and after many times."""


@attrs.frozen
class Checkpoint:
    """A checkpoint that was taken: its ``time``, the ``generation`` of the run, its ``name`` in the store, how many ``bytes`` all
    workers wrote for it, and how many ``seconds`` it took, the way to the boundary included.
    """

    time: Any
    generation: int
    name: str
    bytes: int
    seconds: float


@attrs.frozen
class Share:
    """What one worker has written: its file, which parts it has in full, the bytes of each, and a pickle of the notes."""

    file: FileInfo
    full: dict[Key, bool]
    sizes: dict[Key, int]
    notes: bytes


class Recovery:
    """Keeps the state of the dataflows that are built while it is open, at ``where``: a path, a URI, or a ``Store``.

    ``keep`` is how many checkpoints stay. ``version`` is your own text: a checkpoint with another is refused, for a change of
    the program that its graph does not show. A directory belongs to one program, and to one run of it at a time: when another
    run is made there, this one can take no more checkpoints. ``ConfigurationError`` for what is no place, number or version.

    ``CheckpointError`` where nothing there can be read, or none of the checkpoints there is good; ``ChangedDataflowError``
    where the newest is of another version, and for a dataflow that is not the one that was kept; ``StateError`` for an operator
    that does not declare its state, or whose state cannot be dealt to this number of workers.

    >>> import tempfile, timely
    >>> def total(capability, info):
    ...     sums = {}
    ...     info.keep(lambda: [(None, sums.copy())], lambda items: [sums.update(item) for item in items])
    ...     def logic(input, output):
    ...         for cap, batch in input:
    ...             sums["total"] = sums.get("total", 0) + sum(batch)
    ...             output.session(cap).give(sums["total"])
    ...     return logic
    >>> def program(worker, epochs):
    ...     with Recovery(worker, directory) as recovery:
    ...         with worker.dataflow() as scope:
    ...             numbers, stream = scope.new_input()
    ...             totals = stream.unary(timely.Pipeline, "total", total).capture()
    ...         start = recovery.time or 0
    ...         numbers.advance_to(start)
    ...         for epoch in range(start, epochs):
    ...             numbers.send(epoch)
    ...             numbers.advance_to(epoch + 1)
    ...         recovery.checkpoint(epochs)
    ...         numbers.close()
    ...         worker.run()
    ...     return totals.extract()
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     timely.execute(lambda worker: program(worker, 2)), timely.execute(lambda worker: program(worker, 4))
    ([[(0, [0]), (1, [1])]], [[(2, [3]), (3, [6])]])
    """

    def __init__(self, worker: Worker, where: str | os.PathLike[str] | Store, *, keep: int = 2, version: str | None = "") -> None:
        if not isinstance(keep, int) or keep < 1:
            raise ConfigurationError(f"keep={keep!r}: at least one checkpoint has to stay")
        if not isinstance(version, str | None):
            raise ConfigurationError(f"version={version!r}: give a string, or nothing")
        if internals.state_registries(worker) is not None:
            raise ConfigurationError(f"worker {worker.index} has a Recovery already that is open: close it first")
        self._worker = worker
        self._store = open_store(where)
        self._keep = keep
        self._version = version or ""
        self._number = 0
        self._closed = False
        self._run, self._good = self._open()
        self._last = self._good[0] if self._good else None
        self._notes: list[Any] = [] if self._last is None else pickle.loads(dumps(self._last.notes))  # threads share manifests
        self._ledger = Ledger(worker.index, worker.peers, self._store, self._last)
        internals.set_state_registries(worker, self._ledger.open)

    @property
    def time(self) -> Any | None:
        """The boundary of the checkpoint that this run goes on from; ``None`` for a fresh start."""
        return None if self._ledger.start is None else self._ledger.start.time

    @property
    def notes(self) -> list[Any]:
        """What each worker gave as notes with that checkpoint, in the order of the workers that there were; ``[]`` for a fresh
        start.
        """
        return list(self._notes)

    # -- agreement -----------------------------------------------------------------------------------------------------

    def agree(self, value: T) -> list[T]:
        """Return the values that all workers give to this call, in worker order."""
        return self._worker.all_gather(value)

    def _together(self, what: str, action: Callable[[], T]) -> list[T]:
        """Do something on every worker, and return what came of it; where it failed on any, all raise what the first one did.

        What nobody foresees, an error in a store of somebody's own say, is raised as it is where it happened.
        """
        result: Any = None
        failure: Exception | None = None
        try:
            result = action()
        except Exception as error:
            failure = error
        told = self.agree((_portable(failure), result))
        if failure is not None and not isinstance(failure, RecoveryError | OSError):
            raise failure
        for worker, (trouble, _) in enumerate(told):
            if trouble is not None:
                kind, text = trouble
                raise kind(f"{what} failed on worker {worker}: {text}") from (failure if worker == self._worker.index else None)
        return [value for _, value in told]

    def _first(self, what: str, action: Callable[[], T]) -> T:
        """Do something on worker 0, and return on every worker what came of it."""
        told = self._together(what, lambda: action() if self._worker.index == 0 else None)
        return cast(T, told[0])

    # -- opening -------------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[str, list[Manifest]]:
        """Agree on the name of this run, and on the checkpoints that it keeps, the one that it goes on from first.

        Somebody may have committed, or begun, after the checkpoints were read and before the fence was there. Then it is not
        known whether that is in the past of this run, and all is done once more. Of several that begin at once each keeps the
        others from it; so they wait before that, none as long as another, and longer each time.
        """
        patience = _SHORTEST
        while True:
            run, good = self._try_to_open()
            if run is not None:
                return run, good
            if self._worker.index == 0:
                clock.sleep(random.uniform(0.0, patience))
            patience = min(2 * patience, _LONGEST)

    def _try_to_open(self) -> tuple[str | None, list[Manifest]]:
        """Open, unless somebody was quicker; then there is no name."""
        history: list[History] = []

        def candidates() -> list[Manifest]:
            history.append(History(self._store))
            return self._of_version(history[0])

        left = self._first("reading the checkpoints", candidates)
        while left and (damage := self._find_damage(left[0])):
            if history:
                history[0].blame(f"checkpoint {left[0].name}: {damage}")
            left = left[1:]

        def moved(run: str = "") -> bool:
            """Whether somebody else has committed or begun since the checkpoints were read."""
            return bool(History(self._store).milestones() - {run + CLAIM, run + FENCE} - history[0].milestones())

        def take_over() -> str | None:
            if not left and history[0].damaged:
                if moved():  # and deleted what was to be read
                    return None
                raise CheckpointError(
                    f"no checkpoint at {self._store} is good: {'; '.join(history[0].damaged)}; use another directory to start"
                    " anew"
                )
            run = run_name(history[0].generation() + 1, secrets.token_hex(4))
            fence = Fence(run, left[0].name if left else None).encode()
            try:
                try:
                    self._store.write(run + CLAIM, [fence])
                    quicker = moved(run)
                    if not quicker:
                        self._store.write(run + FENCE, [fence])
                except OSError:
                    quicker = moved(run)  # a newer run deletes what older ones have not finished, as if they were dead
                    if not quicker:
                        raise
            except BaseException:
                for mark in (FENCE, CLAIM):  # which would keep an older run from committing, for nobody
                    with contextlib.suppress(OSError):
                        self._store.delete(run + mark)
                raise
            if quicker:
                self._store.delete(run + CLAIM)
                return None
            self._tidy(run, left[: self._keep])
            return run

        return self._first("taking over", take_over), left[: self._keep]

    def _of_version(self, history: History) -> list[Manifest]:
        """The lineage as far as it is needed; ``ChangedDataflowError`` if its newest has another version."""
        found: list[Manifest] = []
        for manifest in history.lineage():
            if manifest.version != self._version:
                if found:
                    break
                raise ChangedDataflowError(
                    f"checkpoint {manifest.name} has version {manifest.version!r}, and this program has {self._version!r}: run"
                    " the program that wrote it, or use another directory to start anew"
                )
            found.append(manifest)
        return found

    def _find_damage(self, manifest: Manifest) -> str:
        """Read the files of a checkpoint, each worker its share; return what is wrong with any of them."""
        mine = sorted(manifest.files.items())[self._worker.index :: self._worker.peers]

        def check() -> str:
            try:
                for name, info in mine:
                    StateFile(name, functools.partial(self._store.open, name), info.size, info.digest).check()
            except CheckpointError as error:
                if isinstance(error.__cause__, OSError) and not is_lost(error.__cause__):
                    raise  # it may be good
                return str(error)
            return ""

        return next((damage for damage in self._together("reading the checkpoints", check) if damage), "")

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def checkpoint(self, time: Any, notes: Any = None) -> Checkpoint:
        """Take a checkpoint at the boundary ``time``; when this returns it is durable, and a later run goes on from it.

        Every worker calls it with the same time, has sent nothing at or after that, and has advanced its inputs at least to it,
        or closed them. Steps until everything before the time is complete everywhere and nothing is in flight, and writes the
        state of each worker. ``notes`` is anything that can be pickled, for the program itself to have back; a function is called
        for it at the boundary, when all that is before it has come out.

        ``CheckpointError`` if the dataflows were built before this was made, if the boundary cannot be reached, if the state
        cannot be written (the disk is full), or if a newer run has taken over: the checkpoint before is still good, and except in
        the last case the worker may go on and try again.
        ``StateError`` for state that cannot be saved, and for a time that cannot be pickled, or becomes another by that.
        """
        began = clock.monotonic()
        if self._closed:
            raise CheckpointError("this Recovery is closed: take checkpoints inside its with-block")
        worker = self._worker
        try:
            times = self._together("the checkpoint", lambda: self._checked(time))
            if any(other != time for other in times):
                raise CheckpointError(f"the workers call checkpoint with different times, {shown(times)}: they must agree on one")
            quiesce.reach(worker, self._ledger.scopes, time)
            name = checkpoint_name(self._run, self._number)
            self._number += 1
            try:
                written = self._together("writing the checkpoint", lambda: self._write(name, notes))
                _check_alike(written)
            except Exception:
                self._discard(name)
                raise
            manifest = self._manifest(name, time, written)
            self._first("the end of the checkpoint", lambda: self._commit(manifest))
        finally:
            worker.paused = False
        self._accept(manifest)
        taken = Checkpoint(
            time, generation_of(self._run), name, sum(part.file.size for part in written), clock.monotonic() - began
        )
        if worker.index == 0:
            _log.info("checkpoint %s at %r was written: %d bytes in %.3f s", name, time, taken.bytes, taken.seconds)
        return taken

    def _checked(self, time: Any) -> Any:
        """Return the time, if a checkpoint can be taken at it."""
        self._ledger.check_complete()
        if self._worker.scopes and not self._ledger.scopes:
            raise CheckpointError(
                "this Recovery has no dataflow to keep: it keeps those that are built while it is open, so make the Recovery"
                " before the dataflows"
            )
        quiesce.check(self._ledger.scopes, time)
        _check_comes_back(time)
        if self._last is not None and not _at_or_before(self._last.time, time):
            raise CheckpointError(f"{shown(time)} is not at or after {shown(self._last.time)}, the time of the checkpoint before")
        return time

    def _layers(self, key: Key) -> list[Layer]:
        return [] if self._last is None else self._last.layers.get(key, [])

    def _write(self, name: str, notes: Any) -> Share:
        """Write this worker's state. What goes wrong in the chunks is the state's fault, and all else that of notes or store."""
        worker, ledger, writer = self._worker, self._ledger, StateWriter()
        full = {key: kept.is_full(self._layers(key)) for key, kept in ledger.parts.items()}
        current = "the checkpoint has notes"

        def parts() -> Iterator[tuple[Key, Iterator[Piece]]]:
            nonlocal current
            for key, kept in ledger.parts.items():
                current = f"{kept.label} has state"
                yield key, kept.pieces(full[key])

        def chunks() -> Iterator[bytes]:
            with _unpicklable(lambda: current):
                yield from writer.chunks(parts())

        if worker.index == 0:
            self._check_owner()
        note = notes() if callable(notes) else notes
        with _unpicklable(lambda: current):
            note = dumps(note)
            pickle.loads(note)
        self._write_own(state_name(name, worker.index), chunks())
        return Share(FileInfo(writer.size, writer.digest), full, writer.sizes, note)

    def _manifest(self, name: str, time: Any, written: list[Share]) -> Manifest:
        """Put together what the checkpoint is, from what all workers have written."""
        peers, last = self._worker.peers, self._last
        layers: dict[Key, list[Layer]] = {}
        for key, full in written[self._worker.index].full.items():
            new = Layer(name, peers, full, sum(share.sizes.get(key, 0) for share in written))
            layers[key] = [new] if full else [*self._layers(key), new]
        needed = {state_name(layer.checkpoint, w) for found in layers.values() for layer in found for w in range(layer.peers)}
        files = {} if last is None else {file: info for file, info in last.files.items() if file in needed}
        files.update((state_name(name, index), share.file) for index, share in enumerate(written))
        notes = [pickle.loads(share.notes) for share in written]
        parent = None if last is None else last.name
        return Manifest(name, self._version, parent, time, notes, peers, self._ledger.descriptions, layers, files)

    def _commit(self, manifest: Manifest) -> None:
        """Make the checkpoint exist; on worker 0. If a newer run has taken over by then, it is in nobody's past."""
        self._write_own(manifest.name + MANIFEST, [manifest.encode()])
        self._check_owner(manifest.name)

    def _write_own(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a piece of a checkpoint. If a newer run has taken over, it deletes what is not finished: then say that."""
        try:
            self._store.write(name, chunks)
        except OSError:
            self._check_owner()
            raise

    def _discard(self, name: str) -> None:
        """Delete what this worker has written for a checkpoint that will not exist; what cannot be deleted stays."""
        with contextlib.suppress(OSError):
            self._store.delete(state_name(name, self._worker.index))

    def _check_owner(self, start: str | None = None) -> None:
        """Raise ``CheckpointError`` if a newer run has taken over, unless it went on from the checkpoint ``start``."""
        history = History(self._store)
        newest = history.newest()
        if newest is not None and newest > self._run:
            fence = history.fence(newest)
            if start is None or fence is None or fence.start != start:
                raise CheckpointError(
                    f"run {newest} has taken over at {self._store}, so that run {self._run} takes no more checkpoints there:"
                    " end it"
                )

    def _accept(self, manifest: Manifest) -> None:
        """Take note that the checkpoint exists, and delete what nobody needs any more."""
        self._last = manifest
        self._good = [manifest, *self._good][: self._keep]
        self._ledger.forget_files()
        for kept in self._ledger.parts.values():
            kept.saved()
        if self._worker.index == 0:
            self._tidy(self._run, self._good)

    def _tidy(self, run: str, good: list[Manifest]) -> None:
        """Delete what this and older runs have left and no good checkpoint needs; what cannot be deleted stays."""
        try:
            for name in superfluous(self._store.names(), good, run):
                self._store.delete(name)
        except Exception as error:  # of whatever kind: what was written is good without it
            _log.warning("older checkpoints at %s could not be deleted: %s", self._store, error)

    # -- the end -------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete all checkpoints, once every worker has called this, and close: the work is done, and the next run begins anew.

        One small file stays, which tells runs that should be dead that they have been taken over from. ``CheckpointError`` where
        a newer run has taken over already, or the place cannot be written to.
        """
        self._together("clearing the checkpoints", lambda: None)
        self._first("clearing the checkpoints", self._begin_anew)
        self.close()

    def _begin_anew(self) -> None:
        self._check_owner()
        run = run_name(generation_of(self._run) + 1, secrets.token_hex(4))
        self._store.write(run + FENCE, [Fence(run, None).encode()])  # from here on nothing is gone on from
        self._tidy(run, [])

    def close(self) -> None:
        """Keep nothing more; what is built from now on is not kept. The checkpoints stay."""
        if not self._closed:
            self._closed = True
            internals.set_state_registries(self._worker, None)
            self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _at_or_before(before: Any, time: Any) -> bool:
    """Whether one time is at or before another; of times that cannot be compared, none is."""
    try:
        return bool(before <= time)
    except (TypeError, AttributeError):
        return False


def _check_comes_back(time: Any) -> None:
    """Raise ``StateError`` unless a run that goes on would have the same time: from another it would do things again."""
    with _unpicklable(lambda: f"the checkpoint has a time, {shown(time)},"):
        found = pickle.loads(dumps(time))
    if found != time:
        raise StateError(
            f"the checkpoint has a time, {shown(time)}, that becomes {shown(found)} when it is pickled and unpickled, so that"
            f" a run would go on from there: have {type(time).__name__} pickle all that it is compared by"
        )


@contextlib.contextmanager
def _unpicklable(what: Callable[[], str]) -> Iterator[None]:
    """Have whatever is raised, if it is none of ours already, say that ``what()`` cannot be pickled, or be read again."""
    try:
        yield
    except RecoveryError:
        raise
    except Exception as error:
        raise StateError(f"{what()} that cannot be pickled: {told(error)}") from error


def _check_alike(written: list[Share]) -> None:
    """Raise ``StateError`` if a part is declared on some workers only: the manifest has what worker 0 has, for all of them."""
    for worker, share in enumerate(written):
        for _, path, number in sorted(share.full.keys() ^ written[0].full.keys()):
            here, there = (worker, 0) if any(key[1:] == (path, number) for key in share.full) else (0, worker)
            raise StateError(
                f"part {number} of operator {path} is declared on worker {here} and not on worker {there}: have its constructor"
                " declare the same on all workers, whatever they have to say"
            )


def _portable(error: Exception | None) -> tuple[type[RecoveryError], str] | None:
    """Return an error as what can be sent to any worker: its type, of ours, and its text."""
    if error is None:
        return None
    if isinstance(error, RecoveryError):
        return type(error), str(error)
    return CheckpointError, f"{type(error).__name__}: {what_failed(error)}" if out_of_files(error) else told(error)
