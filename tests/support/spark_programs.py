"""Programs with a Spark session, run one after another in one process: Java starts once for all of them.

A program has a ``__main__`` and a folder of its own. One that asks for a local session gets a new one on the context that is up:
a context more takes 3 s. Others begin without one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Ended(NamedTuple):
    """What became of a program."""

    status: int
    stdout: str
    stderr: str


class SparkPrograms:
    """The process that runs them. It starts with the first program, in a folder that must stay empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "start"
        self.folder.mkdir()
        self._files = (folder / "stdout", folder / "stderr")
        # Copied here: a program may run on another thread, while pytest changes it.
        self._env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "CI": "true"}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(self, source: str, folder: Path, name: str = "<string>") -> Ended:
        """Run a program in a folder."""
        with self._lock:
            if self._process is None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            seen = [path.stat().st_size for path in self._files]
            print(json.dumps([source, str(folder), name]), file=self._process.stdin, flush=True)
            status = self._replies.readline()
            assert status, self._files[1].read_text(encoding="utf-8")
            out, err = (path.read_bytes()[size:].decode() for path, size in zip(self._files, seen))
            return Ended(int(status), out, err)

    def close(self) -> None:
        """End the process, and check that it left nothing in its folder."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            assert self._process.wait() == 0
            self._replies.close()
            assert list(self.folder.iterdir()) == []

    def _start(self) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "tests.support.spark_programs", str(writing)]
        # Appended to, so that Java, which keeps the files that it started with, writes behind what is there.
        with self._files[0].open("ab") as out, self._files[1].open("ab") as err:
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": out, "stderr": err, "pass_fds": [writing]}
            self._process = subprocess.Popen(command, cwd=self.folder, env=self._env, text=True, **streams)
        os.close(writing)
        self._replies = os.fdopen(reading, encoding="utf-8")


def _run(source: str, folder: str, name: str) -> int:
    """Run a program as a script would be, and return its exit status."""
    from pyspark import SparkContext  # only this process needs it

    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = [name]
    os.chdir(folder)
    gateway = SparkContext._gateway
    if gateway is not None:  # Java has started in the folder of the first program
        gateway.jvm.java.lang.System.setProperty("user.dir", folder)
        hadoop = gateway.jvm.org.apache.hadoop
        hadoop.fs.FileSystem.getLocal(hadoop.conf.Configuration()).setWorkingDirectory(hadoop.fs.Path(folder))
    try:
        _prepare("local_session(" in source)
        exec(compile(source, name, "exec"), vars(main))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0


def _prepare(local: bool) -> None:
    """Leave nothing of the session of another program: no views, settings or streams, and with ``local`` a new one."""
    from pyspark.sql import SparkSession

    from timely.spark import local_session

    session = SparkSession.getActiveSession()
    if not local and session is not None:
        session.stop()
    if local:
        session = session or local_session(3)
        for query in session.streams.active:
            query.stop()
        session.catalog.clearCache()
        SparkSession._instantiatedSession = None  # the new one takes its place
        session.newSession()


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as replies:
        for line in sys.stdin:
            print(_run(*json.loads(line)), file=replies, flush=True)
