"""The tests against the compiled package: ``python -m tests.compiled`` builds the compiled wheel, and runs pytest with it.

The wheel is made of a copy of the checkout as anybody would make it, with ``TIMELY_COMPILE=1 pip wheel``. It must work in a new
environment that has only what the package requires. Then it is unpacked over the copy, and the tests of the checkout run there:
the same tests, of the same source. Arguments are handed on to pytest. The invariant: nothing compiled ever lies in the checkout,
where it would be imported instead of the source beside it. The copies are in the user's cache (``XDG_CACHE_HOME``, or else
``~/.cache``), in ``timely-compiled``, one for each state of the source; they may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "timely-compiled"
PACKAGE = ("timely", "setup.py", "pyproject.toml", "README.md", "LICENSE")
"""What the wheel is made of."""
LITTER = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", ".*_cache", ".hypothesis")

CHECK = """
import sys, timely
assert timely.compiled, timely.__file__
assert "mypy_extensions" not in sys.modules
assert timely.example(lambda scope: scope.to_stream([1, 2]).map(lambda x: 2 * x)) == [(0, [2, 4])]
"""


class NotCompiled(Exception):
    """The package cannot be compiled here; says why."""


def compiled_copy() -> Path:
    """Return a copy of the checkout in which the package is compiled, made now unless there is one of this very source.

    ``NotCompiled`` where that fails: for want of a compiler, of Python's headers, or of mypyc.
    """
    folder = CACHE / f"{_digest()}-python{sysconfig.get_python_version()}"
    done = folder / "compiled"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _copy(folder, PACKAGE)
        _unpack(_wheel(folder), folder)
        done.touch()
    _copy(folder, ["tests", "benchmarks", "docs", "examples", ".ci", ".gitignore", *(path.name for path in ROOT.glob("*.md"))])
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables for a Python that is to import the package, and all else of ours, from ``folder``."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}


def _digest() -> str:
    """Return a name for the state of what the wheel is made of."""
    content = hashlib.sha256()
    for name in PACKAGE:
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            content.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:16]


def _copy(folder: Path, names: tuple[str, ...] | list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=LITTER)
        elif source.exists():
            shutil.copyfile(source, target)


def _wheel(folder: Path) -> Path:
    """Build the compiled wheel of the copy, and see that it works where nothing else is installed."""
    print(f"compiling the package in {folder}", file=sys.stderr, flush=True)
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", "dist", "."], folder, TIMELY_COMPILE="1")
    shutil.rmtree(folder / "build", ignore_errors=True)
    [wheel] = (folder / "dist").glob("*.whl")
    if "-none-any" in wheel.name:
        raise NotCompiled(f"{wheel.name} is a pure wheel, though a compiled one was asked for")
    bare = folder / "dist" / "bare"
    venv.create(bare, with_pip=True, symlinks=True)
    python = str(bare / ("Scripts" if os.name == "nt" else "bin") / "python")
    _run([python, *pip, "install", str(wheel)], bare)
    _run([python, "-I", "-c", CHECK], bare)
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    """Put the wheel's content over the sources in the copy, which are the same files, and compiled modules beside them."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    shutil.rmtree(folder / "dist")


def _run(command: list[str], folder: Path, **variables: str) -> None:
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode:
        raise NotCompiled(f"{' '.join(command)} failed in {folder}:\n{done.stdout}{done.stderr}")


def main() -> int:
    """Return what pytest returned."""
    folder = compiled_copy()
    subprocess.run([sys.executable, "-c", CHECK], cwd=folder, env=environment(folder), check=True)
    return subprocess.call([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=folder, env=environment(folder))


if __name__ == "__main__":
    sys.exit(main())
