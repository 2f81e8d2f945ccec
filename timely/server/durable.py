"""``Durable``: a directory that keeps what a server has decided, and the thread that decides.

The order of a write: check, append to the log, sync, make sure that no newer server has taken over, compute the epoch, publish,
answer. Invariant: readers see an epoch only when it is on disk. A restart reads the last checkpoint, which has the rows of
tables and views and the state of computations, and repeats the epochs of the log behind it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import logging
import os
import queue
import re
import secrets
import socket
import threading
import time as clock
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import timely
from timely.errors import CheckpointError, ConfigurationError, RecoveryError, TimelyError, ViewError, error_text, file_error_text
from timely.recovery import LocalStore
from timely.recovery.manifest import Layer
from timely.recovery.ownership import FencedError
from timely.recovery.relations import NO_RELATION, Relations
from timely.recovery.state_file import Key
from timely.recovery.store import make_directory, write_file
from timely.server.catalog import Catalog
from timely.server.checkpoints import CheckpointPart, ServerCheckpoints
from timely.server.computation import Computation
from timely.server.contents import EpochChanges, Row
from timely.server.log import Disk, Frame, LogReader, LogWriter, segments_before
from timely.server.requests import Request, RequestKey, RequestKeys
from timely.server.served_relations import Decision, RelationState, ServedRelations
from timely.worker.gc_control import collector_paused

try:
    import fcntl
except ImportError:  # without file locks the claim of a newer server fences the older one
    fcntl = None  # type: ignore[assignment]

REQUESTS: Final = 1000
"""Requests of one epoch."""
CHANGES: Final = 10_000
"""Changes of rows after which no request is added to an epoch."""
BYTES: Final = 64 << 20
"""Bytes of log since a checkpoint after which the next one is taken."""

_KEYS: Final = (0, "keys", 0)

_log = logging.getLogger("timely.server")

Waiting: TypeAlias = tuple[Request, Future[int]]


class _Checkpoint(NamedTuple):
    """A checkpoint that is being written."""

    time: int
    names: Collection[str]
    """Tables and views whose changes it has."""
    computations: Collection[Computation]
    """Those that it has."""
    written: Future[None]


class Durable:
    """The directory of ``relations``, which it restores; ``restored`` says what was found.

    ``ConfigurationError`` where another server has it, ``CheckpointError`` where it is damaged or cannot be read.
    """

    def __init__(self, directory: Path, relations: ServedRelations, most_seconds: float) -> None:
        self._directory = directory
        self._relations = relations
        relations.saves = True
        self.keys = RequestKeys()
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._marks: dict[str, object] = {}  # of tables and views: another one has other rows
        self._unsaved: dict[str, dict[Row, int] | None] = {}  # changes of rows since the checkpoint; None is all of them
        self._seconds = 0.0  # of computing, since the checkpoint
        self._most_seconds = most_seconds
        self._postponed = 1.0
        self._writing: _Checkpoint | None = None
        self._checkpoint_thread = ThreadPoolExecutor(1, "timely checkpoint")
        self._submitting = threading.Lock()  # who holds it adds to what waits
        self._closed = False
        self._failure: str | None = None
        try:
            make_directory(os.fspath(directory / "log"))
            self._lock = _locked(directory / "lock")
        except OSError as error:
            raise ConfigurationError(f"{str(directory)!r} cannot be the data of a server: {file_error_text(error)}") from error
        try:
            self.id = _read_id(directory / "id")
            self._checkpoints = ServerCheckpoints(LocalStore(directory / "state"))
            self._saved = 0  # the epoch of the last checkpoint
            self.restored = self._restore()
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise CheckpointError(f"{str(directory)!r} cannot be opened: {file_error_text(error)}") from error
            raise
        self._thread = threading.Thread(target=self._run, name="timely log", daemon=True)
        self._thread.start()

    # -- restart ---------------------------------------------------------------------------------------------------

    def _restore(self) -> str | None:
        """Restore the last checkpoint, repeat the log behind it, and begin a segment."""
        last = self._checkpoints.last
        if last is not None:
            notes = last.notes[0]
            if notes["id"] != self.id:
                raise CheckpointError(f"the checkpoints in {str(self._directory)!r} are of {notes['id']}, and it is {self.id}")
            self._saved = last.time - 1
            with collector_paused():
                functions = self._relations.catalog.functions
                catalog = Catalog.decode(notes["catalog"], functions)
                self._marks = catalog.marks
                goes_on = notes["version"] == _version() and not functions  # which may be others than before
                computations = self._checkpoints.computations(notes["epochs"] if goes_on else {})
                states = list(self._states(catalog, goes_on, notes["behind"]))
                self._unsaved = dict.fromkeys(self._relations.restore(self._saved, catalog, states, computations))
            for layer in self._checkpoints.items(_KEYS):
                for key, epoch, seconds in layer:
                    self.keys.note(RequestKey(*key), epoch, seconds)
        disk = Disk(self._directory / "log")
        reader = LogReader(disk, self.id)
        with collector_paused():
            for frame in reader.frames(self._saved + 1):
                self._repeat(frame)
        time = self._relations.time
        self._writer = LogWriter(disk, self.id, self._checkpoints.owner.run, time + 1, reader.end)
        self._disk = disk
        if not time:
            return None
        torn = f", and {reader.torn} bytes of an epoch that was not whole were cut" if reader.torn else ""
        repeated = time - self._saved
        return f"epoch {time} was restored, {repeated} {'epoch' if repeated == 1 else 'epochs'} of it by the log{torn}"

    def _states(self, catalog: Catalog, same_version: bool, behind: Mapping[str, int]) -> Iterator[RelationState]:
        for name, definition in catalog.definitions.items():
            if definition.schema is None and not same_version:  # it may have other rows now than those that had led to it
                yield RelationState(name, None, self._saved, [], behind[name])
                continue
            layers = self._checkpoints.items((0, f"/{name}", 0))
            rows: dict[Row, int] = dict(next(layers, ()))
            for layer in layers:
                for row, diff in layer:
                    if count := rows.pop(row, 0) + diff:
                        rows[row] = count
            start, epochs = self._saved, []
            for layer in self._checkpoints.items((0, f"/{name}", 1)):
                start = next(layer)
                epochs += [EpochChanges(*each) for each in layer]
            yield RelationState(name, rows, start, [each for each in epochs if each.time > start], behind[name])

    def _repeat(self, frame: Frame) -> None:
        """Have an epoch of the log happen again. One that failed then fails as it did."""
        seconds, keys, changes, catalog = frame.content
        functions = self._relations.catalog.functions
        decision = Decision(changes, None if catalog is None else Catalog.decode(catalog, functions))
        self._compute(decision, [RequestKey(*key) for key in keys], frame.epoch, seconds)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Future[int]:
        """Have a request happen in an epoch with those that wait with it, and return its future epoch."""
        if threading.current_thread() is self._thread:
            raise ViewError("a listener would wait for itself: have another thread change tables, views or definitions")
        future: Future[int] = Future()
        with self._submitting:
            if self._closed:
                future.set_exception(ViewError("the server has ended: nothing was changed"))
            else:
                self._waiting.put((request, future))
        return future

    def close(self) -> None:
        """End when what waits has happened, with a checkpoint; a no-op when it is closed."""
        with self._submitting:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (group := self._group()) is not None:
            before = self._failure
            self._protected(functools.partial(self._commit, group))
            for _, future in group:
                if not future.done():
                    known = "it is not known whether this was written" if before is None else "nothing was changed"
                    future.set_exception(ViewError(f"{known}: {self._failure}"))
            if self._writing is not None and self._writing.written.done():
                self._protected(self._end_checkpoint)
            due = self._seconds > self._most_seconds * self._postponed or self._writer.end.size > BYTES * self._postponed
            if due and self._writing is None:
                self._protected(self._begin_checkpoint)
        self._protected(self._end_checkpoint)
        if self._relations.time > self._saved:
            self._protected(self._begin_checkpoint)
            self._protected(self._end_checkpoint)
        self._checkpoint_thread.shutdown()
        self._writer.close()
        os.close(self._lock)

    def _protected(self, action: Callable[[], object]) -> None:
        """Do something, unless an earlier thing has failed: then nothing is written or computed any more."""
        if self._failure is None:
            try:
                action()
            except Exception as error:  # whatever it is, who waits learns of it
                self._failure = str(error) if isinstance(error, TimelyError) else error_text(error)
                self._relations.broken = self._failure

    def _group(self) -> list[Waiting] | None:
        """Return the requests that wait, at least one; ``None`` at the end."""
        first = self._waiting.get()
        if first is None:
            return None
        group = [first]
        while len(group) < REQUESTS and not self._waiting.empty():
            following = self._waiting.get()
            if following is None:
                self._waiting.put(None)  # it was the last
                break
            group.append(following)
        return group

    def _commit(self, group: list[Waiting]) -> None:
        """Decide the requests of a group in one epoch or several, and answer them."""
        waiting = [each for each in group if each[1].set_running_or_notify_cancel()]
        while waiting:
            waiting = self._commit_epoch(waiting)

    def _commit_epoch(self, waiting: list[Waiting]) -> list[Waiting]:
        """Decide requests up to a bound or a change of definitions, in one epoch; return those that are left."""
        earlier: dict[str, dict[Row, int]] = {}
        decision = Decision({})
        accepted: dict[Future[int], RequestKey | None] = {}
        keys: set[bytes] = set()
        size = taken = 0
        for request, future in waiting:
            if size > CHANGES or decision.catalog is not None or (request.key is not None and request.key.key in keys):
                break  # one with the same key waits for the first
            try:
                self._relations.check_whole()
                epoch = self.keys.first(request.key)
                own = Decision({}) if epoch is not None else request.prepare(earlier)
            except Exception as error:
                future.set_exception(error)
                taken += 1
                continue
            if own.catalog is not None and accepted:
                break  # it has an epoch of its own
            taken += 1
            if epoch is not None:
                future.set_result(epoch)
                continue
            accepted[future] = request.key
            if request.key is not None:
                keys.add(request.key.key)
            if own.catalog is not None:
                decision = own
                continue
            for name, changes in own.changes.items():
                table = earlier.setdefault(name, {})
                for row, diff in changes:
                    table[row] = table.get(row, 0) + diff
                size += len(changes)
        if accepted:
            if decision.catalog is None:
                changed = {name: [(row, diff) for row, diff in table.items() if diff] for name, table in earlier.items()}
                decision = Decision(changed)
            self._decide(decision, accepted)
        return waiting[taken:]

    def _decide(self, decision: Decision, accepted: dict[Future[int], RequestKey | None]) -> None:
        """Have an epoch be durable, compute it, and answer its requests."""
        epoch, seconds = self._relations.time + 1, clock.time()
        keys = [key for key in accepted.values() if key is not None]
        catalog = None if decision.catalog is None else decision.catalog.encode()
        try:
            self._writer.append(Frame(epoch, (seconds, [tuple(key) for key in keys], decision.changes, catalog)))
        except ViewError as error:
            for future in accepted:
                future.set_exception(error)
            if self._writer.closed:
                raise
            return
        try:
            self._checkpoints.owner.check()
        except (OSError, RecoveryError) as error:
            raise ViewError(str(error)) from error
        self._compute(decision, keys, epoch, seconds)
        for future in accepted:
            future.set_result(epoch)

    def _compute(self, decision: Decision, keys: list[RequestKey], epoch: int, seconds: float) -> None:
        """Compute an epoch, and take note of it."""
        began = clock.thread_time()
        epoch_changes = self._relations.decided(decision, advance=True)
        self._seconds += clock.thread_time() - began + (0.0 if decision.build is None else decision.build.seconds)
        for key in keys:
            self.keys.note(key, epoch, seconds)
        if decision.catalog is not None:
            marks = decision.catalog.marks
            self._unsaved.update(dict.fromkeys(name for name, mark in marks.items() if self._marks.get(name) != mark))
            self._marks = marks
        for name, changes in epoch_changes.items():
            unsaved = self._unsaved.setdefault(name, {})
            if unsaved is not None:
                for row, diff in changes:
                    unsaved[row] = unsaved.get(row, 0) + diff

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _begin_checkpoint(self) -> None:
        """Begin to write a checkpoint of what there is now, beside the epochs that follow."""
        time = self._relations.time
        try:
            self._writer.begin_segment(time + 1)
        except (OSError, TimelyError) as error:
            self._postpone(error)
            return
        catalog = self._relations.catalog
        relations = {"": NO_RELATION} | catalog.relations()
        computations: dict[str, Computation] = {}
        with collector_paused(stays=False):
            parts = list(self._parts(self._relations.states()))
            for name, view in self._relations.by_name.items():
                if view.computation is not None:
                    try:
                        parts += view.computation.save(self._checkpoints.layers)
                    except TimelyError as error:
                        _log.warning("view %s will be computed anew after a restart: %s", name, error)
                        continue
                    relations |= view.computation.relations
                    computations[name] = view.computation
        epochs = {name: computation.epochs for name, computation in computations.items()}
        notes = {
            "id": self.id,
            "version": _version(),
            "catalog": catalog.encode(),
            "segment": self._writer.end.name,
            "epochs": epochs,
            "behind": {name: each.behind for name, each in self._relations.by_name.items()},
        }
        written = self._checkpoint_thread.submit(self._write_checkpoint, time, notes, relations, parts)
        self._writing = _Checkpoint(time, self._unsaved.keys(), computations.values(), written)
        self._unsaved, self._seconds = {}, 0.0

    def _write_checkpoint(self, time: int, notes: Any, relations: Relations, parts: list[CheckpointPart]) -> None:
        """Write a checkpoint, and delete the segments that none needs any more."""
        with collector_paused(stays=False):
            self._checkpoints.write(time + 1, notes, relations, parts)
        first = min(manifest.notes[0]["segment"] for manifest in self._checkpoints.good)
        for name in segments_before(self._disk.names(), first):
            self._disk.delete(name)

    def _end_checkpoint(self) -> None:
        """Wait for the checkpoint that is being written; where that has failed, the log goes on."""
        if self._writing is None:
            return
        (time, names, computations, written), self._writing = self._writing, None
        layers: Mapping[Key, list[Layer]] = {}
        try:
            written.result()
        except FencedError:
            raise
        except (OSError, TimelyError) as error:
            self._unsaved.update(dict.fromkeys(names))
            self._postpone(error)
        else:
            self._saved, self._postponed = time, 1.0
            layers = self._checkpoints.layers
        for computation in computations:
            computation.saved(layers)

    def _postpone(self, error: Exception) -> None:
        self._postponed *= 2
        _log.warning("no checkpoint of %s could be taken: %s", self._directory, error_text(error))

    def _parts(self, states: list[RelationState]) -> Iterator[CheckpointPart]:
        """Yield what a checkpoint has, which no later epoch changes."""
        for state in states:
            yield self._rows_part((0, f"/{state.name}", 0), state.rows or {}, self._unsaved.get(state.name, {}))
            key = (0, f"/{state.name}", 1)
            full = self._checkpoints.wants_full(key)
            epochs = (tuple(each) for each in state.epochs if full or each.time > self._saved)
            yield CheckpointPart(key, full, [(None, state.start), *((None, epoch) for epoch in epochs)])
        full = self._checkpoints.wants_full(_KEYS)
        yield CheckpointPart(_KEYS, full, [(None, key) for key in self.keys.since(-1 if full else self._saved)])

    def _rows_part(self, key: Key, rows: Mapping[Row, int], unsaved: dict[Row, int] | None) -> CheckpointPart:
        if unsaved is None or self._checkpoints.wants_full(key) or 2 * len(unsaved) > len(rows):
            return CheckpointPart(key, True, zip(itertools.repeat(None), dict(rows).items()))
        return CheckpointPart(key, False, [(None, each) for each in unsaved.items() if each[1]])


def _version() -> str:
    """Return what the rows of a view depend on, beside its query and what it reads."""
    return f"{timely.__version__}, sqlglot {importlib.metadata.version('sqlglot')}"


def _locked(path: Path) -> int:
    """Return the descriptor of a lock, which ends with the process. ``ConfigurationError`` if another one has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(file, 200, 0).decode(errors="replace").strip()
        os.close(file)
        raise ConfigurationError(f"a server ({holder}) has {str(path.parent)!r}: end it, or use another directory") from error
    except OSError:
        pass  # the file system has no locks: see above
    os.ftruncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on host {socket.gethostname()}\n".encode(), 0)
    return file


def _read_id(path: Path) -> str:
    """Return the id of a directory, which is written first of all."""
    try:
        id = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        id = secrets.token_hex(8)
        write_file(path, lambda file: file.write(f"{id}\n".encode()), draft=f"{path}.partial")
    if not re.fullmatch("[0-9a-f]{16}", id):
        raise CheckpointError(f"{str(path)!r} is damaged: it has no 16 hexadecimal digits")
    return id
