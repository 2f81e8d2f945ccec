"""Programs run one after another, each in a fork of one process that has loaded what most of them import.

A Python of its own for each program spends half a second of processor time on imports. Of ``timely`` the process has loaded only
what ``import timely`` loads: a program that forgets an import still fails. A program has a ``__main__``, a folder, files for its
output and an interpreter that ends, all of its own.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.support.spark_programs import Ended

ROOT = Path(__file__).resolve().parents[2]


class ScriptServer:
    """The process that forks. It starts with the first program."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / "stdout", folder / "stderr"]
        self._process: subprocess.Popen[str] | None = None

    def run(self, source: str | Path, folder: Path) -> Ended:
        """Run a program in a folder: a script, or text as ``python -c`` does."""
        if self._process is None:
            env = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONIOENCODING": "utf-8",
                "CI": "true",
            }  # CI: Hypothesis has no deadline
            command = [sys.executable, "-m", "tests.support.script_server", *map(str, self._files)]
            self._process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        name, text = ("-c", source) if isinstance(source, str) else (str(source), source.read_text(encoding="utf-8"))
        print(json.dumps([text, str(folder), name]), file=self._process.stdin, flush=True)
        status = int(self._process.stdout.readline())
        return Ended(status, *(path.read_text(encoding="utf-8") for path in self._files))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            assert self._process.wait() == 0
            self._process.stdout.close()


def _serve(files: list[str]) -> tuple[str, str, str] | None:
    """Fork for each program, and return it in the fork; return ``None`` after the last."""
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            source, folder, name = json.loads(line)
            os.chdir(folder)
            for target, path in enumerate([os.devnull, *files]):
                opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                os.dup2(opened, target)
                os.close(opened)
            sys.stdin = os.fdopen(0, encoding="utf-8")  # the server's own has read ahead
            sys.argv = [name]
            sys.path[0] = "" if name == "-c" else str(Path(name).parent)
            return source, folder, name
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


if __name__ == "__main__":
    import hypothesis
    import numpy  # noqa: F401  # ICN001: for its own sake
    import pandas  # noqa: F401  # ICN001: pyarrow loads it where a program asks for Python's values
    import pyarrow  # noqa: F401
    import pyspark.sql  # noqa: F401
    import sqlglot  # noqa: F401

    import timely  # noqa: F401

    # Programs have so few random cases as the tests have: a page shows that one finds nothing, or an error that is planted.
    hypothesis.settings.register_profile("programs", hypothesis.settings.get_profile("ci"), max_examples=12)
    hypothesis.settings.load_profile("programs")
    gc.freeze()  # else each fork, as it ends, visits all objects: 0.4 s of processor time for a program that does nothing
    if (program := _serve(sys.argv[1:])) is not None:
        text, _, name = program
        sys.modules["__main__"] = main = ModuleType("__main__")
        if name != "-c":
            main.__file__ = name
        exec(compile(text, "<string>" if name == "-c" else name, "exec"), vars(main))
