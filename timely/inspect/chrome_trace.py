"""``ChromeTrace``: what workers do, as a file in the Chrome trace format, for ui.perfetto.dev or chrome://tracing.

Each worker is a track, each run of an operator a slice on it. Processes append whole lines to one file, so it needs no server and
loses at most the last second of a process that is killed.
"""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Self

from timely.errors import ConfigurationError, brief
from timely.inspect.event_log import Ended, Event, EventLog, Notified, RecordsSent, Scheduled, Waited
from timely.worker import Worker

_BATCH: Final = 256
"""Lines that are written at once."""

_FLUSHED: Final = 1.0
"""Seconds after which lines are written in any case, if anything happens."""

_COUNTED: Final = 0.05
"""Least seconds between two values of a counter."""


class ChromeTrace:
    """Writes a trace of workers to a file, until ``close`` or the end of its ``with`` block.

    Call ``watch(worker)`` before the worker's dataflows are built, in this process or in one that ``timely.execute`` forks. After
    ``most`` events of a worker its track ends with one that says so: about 150 bytes each. ``ConfigurationError`` if the file
    cannot be written.

    >>> import json, tempfile, timely
    >>> file = Path(tempfile.mkdtemp()) / "trace.json"
    >>> with ChromeTrace(file) as trace:
    ...     worker = timely.Worker()
    ...     trace.watch(worker)
    ...     with worker.dataflow(name="df") as scope:
    ...         _ = scope.to_stream(range(5)).map(str).probe()
    ...     worker.run()
    >>> slices = [event for event in json.loads(file.read_text()) if event["ph"] == "X"]
    >>> {"/df/map#1"} <= {event["args"].get("path") for event in slices}
    True
    """

    def __init__(self, path: str | Path, most: int = 1_000_000) -> None:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._file = os.open(path, flags, 0o666)
        except OSError as error:
            raise ConfigurationError(f"the trace {str(path)!r} cannot be written: {error}") from error
        self._most = most
        self._begun = perf_counter()  # on one clock with forked processes
        self._process = os.getpid()
        self._tracks: list[_Track] = []
        self._is_closed = False
        os.write(self._file, b"[\n")

    def watch(self, worker: Worker) -> None:
        """Trace the dataflows that are built on a worker from now on. Called on the worker's thread."""
        log = EventLog(worker)
        track = _Track(self._file, worker.index, perf_counter() - self._begun - log.now, self._most)
        log.subscribe(track.receive)
        self._tracks.append(track)

    def close(self) -> None:
        """End the file; a forked process writes only what it has. Later events are dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        for track in self._tracks:
            track.close()
        if os.getpid() == self._process:
            end = {"name": "end of the trace", "ph": "i", "s": "g", "ts": round((perf_counter() - self._begun) * 1e6, 1)}
            os.write(self._file, json.dumps({**end, "pid": self._process, "tid": 0}).encode() + b"\n]\n")
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Track:
    """The events of one worker, as lines of the file."""

    def __init__(self, file: int, worker: int, offset: float, most: int) -> None:
        self._file = file
        self._worker = worker
        self._offset = offset
        self._left = most
        self._lines: list[str] = []
        self._flushed = 0.0
        self._counted = -_COUNTED
        self._sent: dict[str, int] = {}
        self._is_closed = False
        self._lock = threading.Lock()  # the file may be closed while the worker runs, and its number given to another
        self._write({"name": "process_name", "ph": "M", "args": {"name": "timely"}})
        self._write({"name": "thread_name", "ph": "M", "args": {"name": f"worker {worker}"}})

    def receive(self, event: Event) -> None:
        """Write what can be drawn of an event. On the worker's thread."""
        with self._lock:
            if not self._is_closed and self._left > 0:
                self._receive(event)

    def _receive(self, event: Event) -> None:
        if isinstance(event, Scheduled):
            name = event.path.rpartition("/")[2]
            self._slice(name, "operator", event.at, event.seconds, {"path": event.path})
        elif isinstance(event, Waited):
            self._slice("idle", "idle", event.at, event.seconds, {})
        elif isinstance(event, Notified):
            self._instant(f"complete: {brief(event.time)}", event.at, {"path": event.path})
        elif isinstance(event, RecordsSent):
            self._count(event)
        elif isinstance(event, Ended):
            self._write_counter(event.at)
            self._instant(f"{event.path} is over", event.at, {})
            self._flush()

    def _slice(self, name: str, kind: str, over: float, seconds: float, more: dict[str, str]) -> None:
        begun = self._microseconds(over - seconds)
        self._event({"name": name, "cat": kind, "ph": "X", "ts": begun, "dur": round(seconds * 1e6, 1), "args": more}, over)

    def _instant(self, name: str, at: float, more: dict[str, str]) -> None:
        self._event({"name": name, "ph": "i", "s": "t", "ts": self._microseconds(at), "args": more}, at)

    def _count(self, event: RecordsSent) -> None:
        """Count records by dataflow; now and then write how many there are."""
        dataflow = "/" + event.path.split("/", 2)[1]
        self._sent[dataflow] = self._sent.get(dataflow, 0) + event.records
        if event.at - self._counted >= _COUNTED:
            self._write_counter(event.at)

    def _write_counter(self, at: float) -> None:
        self._counted = at
        name = f"records sent by worker {self._worker}"
        self._event({"name": name, "ph": "C", "ts": self._microseconds(at), "args": dict(self._sent)}, at)

    def _event(self, event: dict[str, Any], at: float) -> None:
        self._left -= 1
        self._write(event)
        if not self._left:
            full = {"name": "the trace is full: later events are left out", "ph": "i", "s": "t", "ts": self._microseconds(at)}
            self._write(full)
            self._flush()
        elif len(self._lines) >= _BATCH or at - self._flushed >= _FLUSHED:
            self._flushed = at
            self._flush()

    def _write(self, event: dict[str, Any]) -> None:
        self._lines.append(json.dumps({**event, "pid": os.getpid(), "tid": self._worker}) + ",\n")

    def _flush(self) -> None:
        """Write the gathered lines, at once: other processes append to the same file."""
        lines, self._lines = self._lines, []
        content = "".join(lines).encode()
        while content:
            content = content[os.write(self._file, content) :]

    def close(self) -> None:
        """Write the rest."""
        with self._lock:
            self._is_closed = True
            self._flush()

    def _microseconds(self, at: float) -> float:
        return round((at + self._offset) * 1e6, 1)
