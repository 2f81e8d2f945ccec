"""Streams to files: a folder, into which each worker writes a file for each time, once the time is complete.

Invariant: a file has its name when it is complete, and then holds the worker's rows of one time, once. What an earlier run has
left is removed by the worker whose number it has, before that worker gives any file its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple
from urllib.parse import quote

import attrs

from timely.dataflow import Capability, Distribute, InputPort, OperatorInfo, OutputPort, Pact, Pipeline, Stream, scope_of
from timely.errors import ConfigurationError, GraphError, StateError, TimestampError, brief, file_error_text
from timely.files.places import read_places
from timely.operators.generic import unary_frontier
from timely.operators.pending import Pending
from timely.operators.state_registration import ResumeTime, register_list_state, resume_time
from timely.operators.type_variables import T
from timely.order import reaches

try:
    import fcntl
except ImportError:  # without file locks two writers into one folder go unnoticed
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import pyarrow as pa

    from timely.files.formats import PartWriter

_NAME: Final = re.compile(r"\.?time-(?P<time>.*)-part-(?P<part>[0-9]{5,})\.[a-z]+(\.draft)?")
_WHOLE: Final = re.compile(r"-?[0-9]+")


class WrittenFile(NamedTuple):
    """A file that is complete, and its number of rows."""

    path: str
    rows: int


def write_parquet(
    stream: Stream[T, Any],
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | str | None = None,
    overwrite: bool = False,
    on: int | None = None,
    name: str = "write_parquet",
) -> Stream[T, WrittenFile]:
    """Write the stream into a folder of Parquet files, and return the stream of the files, each when it is complete.

    Each worker writes one file for each time at which it has rows, when the time is complete; with ``on=0`` worker 0 writes all.
    A file appears whole: ``time-0000000003-part-00001.parquet`` has the rows of time 3 on worker 1. Containers are Arrow batches
    of one schema. With ``schema``, a ``pyarrow.Schema`` or a text such as ``"node long, name string"``, they may be rows: tuples
    by position, and dictionaries, data classes and attrs objects by name.

    ``ConfigurationError`` where the folder has files: ``overwrite`` removes those that an earlier run has written. A run that
    resumes from a checkpoint keeps the files of times before it. ``SchemaError`` for other columns or values.

    >>> import pathlib, tempfile, timely
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "words.parquet")
    >>> def build(scope):
    ...     words = scope.to_stream([(3, "to"), (5, "be"), (5, "or")]).delay(lambda record, time: record[0])
    ...     return words.write_parquet(folder, schema="day long, word string").map(lambda file: file.rows)
    >>> timely.example(build)
    [(3, [1]), (5, [2])]
    >>> sorted(file.name for file in folder.iterdir())
    ['time-0000000003-part-00000.parquet', 'time-0000000005-part-00000.parquet']
    """
    return _write(stream, path, "parquet", name, schema, overwrite, on)


def write_csv(
    stream: Stream[T, Any],
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | str | None = None,
    overwrite: bool = False,
    on: int | None = None,
    name: str = "write_csv",
) -> Stream[T, WrittenFile]:
    """Write the stream into a folder of CSV files with a header, as ``write_parquet`` does. Missing values are empty.

    >>> import pathlib, tempfile, timely
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "words.csv")
    >>> found = timely.example(lambda scope: scope.to_stream([("to", 2)]).write_csv(folder, schema="word string, n long"))
    >>> (folder / "time-0000000000-part-00000.csv").read_text()
    '"word","n"\\n"to",2\\n'
    """
    return _write(stream, path, "csv", name, schema, overwrite, on)


def write_json(
    stream: Stream[T, Any],
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | str | None = None,
    overwrite: bool = False,
    on: int | None = None,
    name: str = "write_json",
) -> Stream[T, WrittenFile]:
    """Write the stream into a folder of files with one JSON object a line (``.jsonl``), as ``write_parquet`` does.

    Dates and times are ISO 8601. ``SchemaError`` for bytes, decimals and numbers that are not finite.

    >>> import pathlib, tempfile, timely
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "words")
    >>> found = timely.example(lambda scope: scope.to_stream([("to", 2)]).write_json(folder, schema="word string, n long"))
    >>> (folder / "time-0000000000-part-00000.jsonl").read_text()
    '{"word": "to", "n": 2}\\n'
    """
    return _write(stream, path, "json", name, schema, overwrite, on)


def write_ipc(
    stream: Stream[T, Any],
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | str | None = None,
    overwrite: bool = False,
    on: int | None = None,
    name: str = "write_ipc",
) -> Stream[T, WrittenFile]:
    """Write the stream into a folder of Arrow IPC files (``.arrow``), as ``write_parquet`` does.

    >>> import pathlib, tempfile, timely
    >>> folder = pathlib.Path(tempfile.mkdtemp(), "words")
    >>> found = timely.example(lambda scope: scope.to_stream(["to", "be"]).write_ipc(folder, schema="word string"))
    >>> timely.example(lambda scope: scope.read_ipc(folder))
    [(0, [('be',), ('to',)])]
    """
    return _write(stream, path, "ipc", name, schema, overwrite, on)


def _write(
    stream: Stream[T, Any],
    path: str | os.PathLike[str],
    kind: str,
    name: str,
    schema: pa.Schema | str | None,
    overwrite: bool,
    on: int | None,
) -> Stream[T, WrittenFile]:
    from timely.files.formats import FORMATS, ROWS, PartWriter, SchemaCheck, check_path, sync

    scope = scope_of(stream, name)
    folder = Path(path)
    format = FORMATS[kind]
    place = f"{name}({os.fspath(path)!r})"
    check_path(os.fspath(path), place)
    check = SchemaCheck(name, schema, place)
    pact: Pact = Pipeline
    if on is not None:
        if on not in range(scope.allocator.peers):
            raise GraphError(f"{place}: on={on!r} is not the number of one of the {scope.allocator.peers} workers")
        worker = on
        pact = Distribute(lambda time, batch, workers: [(worker, batch)])

    def check_not_read() -> None:
        target = folder.resolve()
        for read in map(Path.resolve, read_places(scope)):
            if overwrite and (read == target or target in read.parents or read in target.parents):
                raise ConfigurationError(
                    f"{place}: overwrite=True would remove what the same dataflow reads from {str(read)!r}: write elsewhere"
                )

    scope.checks.append(check_not_read)

    def constructor(capability: Capability[T], info: OperatorInfo) -> Callable[..., object]:
        names: _TimeNames[T] = _TimeNames(place)
        held: Pending[T, _Part[T]] = Pending()
        begun: set[PartWriter] = set()
        # A checkpoint holds what waits, so that nothing may be in a draft by then.
        rows = ROWS if info.state.registry is None else None
        opened = _Folder(folder, info, resume_time(scope, info), overwrite, place)

        def part_of(capability: Any) -> _Part[T]:
            file = folder / f"time-{names.of(capability.time)}-part-{info.worker:05}{format.written}"
            writer = PartWriter(file, format, rows)
            begun.add(writer)
            return _Part(capability, writer)

        def save() -> Iterator[tuple[T, pa.RecordBatch]]:
            for time in held:
                for batch in held[time].writer.waiting:
                    yield time, batch

        def load(items: Iterable[tuple[T, pa.RecordBatch]]) -> None:
            for time, batch in items:
                held.at(time, lambda: part_of(capability.delayed(time))).writer.write(batch)  # noqa: B023  # called at once

        def discard() -> None:
            for writer in begun:
                writer.abandon()
            opened.close()

        register_list_state(info, save, load)
        info.at_end(discard)
        info.describe(lambda: f"{len(held)} files begun" if len(held) else "")
        capability.drop()
        info.activator.activate()

        def logic(input: InputPort[T, Any], output: OutputPort[T]) -> None:
            opened.open()
            for capability, batch in input:
                if len(batch):
                    conformed = check.conform(batch)
                    held.at(capability.time, lambda: part_of(capability.retain())).writer.write(conformed)  # noqa: B023
            done = [part for _, part in held.take(lambda time: not reaches(input.elements, time))]
            for part in done:
                part.writer.finish()
                begun.remove(part.writer)
            if done:
                sync(folder)  # the names; once for all times that are complete together
            for part in done:
                output.session(part.capability).give(WrittenFile(str(part.writer.path), part.writer.rows))
                part.capability.drop()

        return logic

    return unary_frontier(stream, pact, name, constructor)


@attrs.frozen
class _Part(Generic[T]):
    """The file of one time, and the capability to say that it is written."""

    capability: Capability[T]
    writer: PartWriter


class _Folder:
    """The folder, locked for the files of one worker, and what an earlier run has left in it.

    That is listed when the dataflow is built, before any worker can have written a file of this run. Each worker removes what has
    its own number, or one that no worker has.
    """

    def __init__(self, folder: Path, info: OperatorInfo, begins: ResumeTime[Any] | None, overwrite: bool, place: str) -> None:
        self._folder = folder
        self._begins = begins
        self._overwrite = overwrite
        self._place = place
        self._worker, self._peers = info.worker, info.peers
        self._found: list[Path] | None
        self._found = sorted(folder.iterdir()) if folder.is_dir() else []
        self._lock = folder / f".part-{info.worker:05}.lock"
        self._locked = -1

    def open(self) -> None:
        """Make the folder, lock it, and remove what is in the way, once; ``ConfigurationError`` where that may not be done."""
        leftover, self._found = self._found, None
        if leftover is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._locked = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
            if fcntl is not None:
                fcntl.flock(self._locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._locked)
            self._locked = -1  # it is another's, who unlocks it
            raise ConfigurationError(
                f"{self._place}: another operator or program is writing into the folder: give each its own"
            ) from None
        except OSError as error:
            raise ConfigurationError(f"{self._place}: the folder cannot be written to: {file_error_text(error)}") from error
        # Another run may have ended since. What has a number of this worker's cannot be of this run yet.
        self._remove(dict.fromkeys([*leftover, *filter(self._is_own, self._folder.iterdir())]))

    def _is_own(self, file: Path) -> bool:
        match = _NAME.fullmatch(file.name)
        return match is not None and int(match["part"]) % self._peers == self._worker

    def close(self) -> None:
        locked, self._locked = self._locked, -1
        if locked >= 0:
            self._lock.unlink(missing_ok=True)
            os.close(locked)

    def _remove(self, files: Iterable[Path]) -> None:
        for file in files:
            match = _NAME.fullmatch(file.name)
            if match is None and file.name.startswith("."):
                continue
            if match is None:
                raise ConfigurationError(f"{self._place}: {file.name!r} in the folder is of another program: take another folder")
            draft = file.name.startswith(".")
            if not draft and not self._overwrite and self._begins is None:
                raise ConfigurationError(
                    f"{self._place}: the folder has the files of an earlier run: overwrite=True removes them, or take"
                    " another folder"
                )
            if self._is_own(file) and (draft or not self._stays(match["time"])):
                file.unlink(missing_ok=True)

    def _stays(self, time: str) -> bool:
        """Return whether a file is of a time before the one that a run resumes at, and so is part of its result."""
        if self._begins is None:
            return False
        if _WHOLE.fullmatch(time) is None:
            raise StateError(
                f"{self._place}: the run goes on from a checkpoint, and files of times that are no whole numbers do not say"
                " whether they are of before: write at whole numbers, as with delay_batch"
            )
        return not self._begins.reached(int(time))


class _TimeNames(Generic[T]):
    """Names of times: whole numbers with ten digits, so that names sort as times do; ``TimestampError`` for two of one name."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._others: dict[str, T] = {}

    def of(self, time: T) -> str:
        text = _time_name(time)
        if type(time) is not int and self._others.setdefault(text, time) != time:
            raise TimestampError(
                f"{self._place}: two times, {brief(time)} and {brief(self._others[text])}, have the same text, and would be one"
                " file: map them to others with delay_batch"
            )
        return text


def _time_name(time: Any) -> str:
    if isinstance(time, tuple):  # also the times of loops
        return "-".join(map(_time_name, time))
    if type(time) is int:
        return f"{time:010}"
    return quote(str(time), safe="")
