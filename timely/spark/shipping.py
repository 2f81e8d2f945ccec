"""Packages for executors that lack them, and a clear error from an executor that still does.

:func:`ship` sends pure Python packages with the application. :func:`carried` makes what Spark calls in a task: a function that
needs nothing but Python and Spark, and checks what the executor has before it unpickles the dataflow. The invariant: only
the version of the library that pickled a dataflow unpickles it, and the error that the user sees names what is missing, and the
remedy.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.machinery
import importlib.util
import inspect
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import timely
from timely.errors import ConfigurationError
from timely.spark.connect import is_connect
from timely.spark.gathered_rendezvous import MARK
from timely.spark.session import context_of
from timely.spark.stage_messages import describe

NEEDED = ("timely", "attr", "attrs", "sortedcontainers", "typing_extensions")
"""What the workers need beside Spark's own requirements, pyarrow and pandas; all of it is pure Python."""

_COMPILED = (*importlib.machinery.EXTENSION_SUFFIXES, ".so", ".pyd", ".dylib")
_WHEN = (1980, 1, 1, 0, 0, 0)

_dumps: Callable[[object], Any] = cloudpickle.dumps
_shipped: set[tuple[str, str]] = set()
_shipping = threading.Lock()


def ship(session: SparkSession, *modules: ModuleType | str) -> list[str]:
    """Send this library, its requirements and ``modules`` to the executors of a session; return the names of what was sent.

    ``modules`` are packages or modules that the driver can import, or their names; of a submodule the whole package is sent. Call
    it before :func:`~timely.spark.run`. What was sent already, and has not changed, is not sent again.

    Raises :class:`~timely.errors.ConfigurationError` for a module that cannot be found, that belongs to Python, or that has
    compiled parts: give the executors a packed environment (``spark.archives``) for these.

    >>> from timely.spark import local_session, ship
    >>> ship(local_session(2), "json")
    Traceback (most recent call last):
    timely.errors.ConfigurationError: 'json' cannot be shipped: it is a part of Python, and every executor has its own
    """
    remote: Any = session if is_connect(session) else None
    owner = str(context_of(session).applicationId if remote is None else remote.session_id)
    names = list(dict.fromkeys([*NEEDED, *(_top_level(module) for module in modules)]))
    files = {name: _files(name) for name in names}
    with _shipping:
        archive = _zipped(files)
        if (key := (owner, archive.name)) not in _shipped:
            if remote is None:
                context_of(session).addPyFile(str(archive))
            else:
                remote.addArtifacts(str(archive), pyfile=True)
            _shipped.add(key)
    return names


def _top_level(module: ModuleType | str) -> str:
    name = module.__name__ if isinstance(module, ModuleType) else module
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"what is shipped are modules or their names, not {module!r}")
    if name == "__main__":
        raise ConfigurationError("__main__ need not be shipped: functions of the program itself travel with the dataflow")
    return name.partition(".")[0]


def _files(name: str) -> dict[str, bytes]:
    """Return the files of a top-level module by their names in an archive. ConfigurationError for one that cannot be shipped."""
    if name in sys.stdlib_module_names:
        raise ConfigurationError(f"{name!r} cannot be shipped: it is a part of Python, and every executor has its own")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{name!r} cannot be shipped: it cannot be imported here: {error}") from error
    if spec is None:
        raise ConfigurationError(f"{name!r} cannot be shipped: there is no module of this name here")
    if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        raise _compiled(name, str(spec.origin))
    if spec.submodule_search_locations is None:
        origin = Path(spec.origin or "")
        if origin.suffix != ".py" or not origin.is_file():
            raise ConfigurationError(f"{name!r} cannot be shipped: its source is not a file here, but {spec.origin}")
        return {origin.name: origin.read_bytes()}
    contents: dict[str, bytes] = {}
    for folder in map(Path, spec.submodule_search_locations):
        if not folder.is_dir():
            raise ConfigurationError(f"{name!r} cannot be shipped: its source is not a folder here, but {folder}")
        for path in sorted(folder.rglob("*")):
            if path.name.endswith(_COMPILED) and name != timely.__name__:  # ours are the same modules, only quicker
                raise _compiled(name, path.name)
            if path.suffix != ".pyc" and path.is_file():
                contents.setdefault(f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    if name == timely.__name__:
        contents = {path: content for path, content in contents.items() if path.endswith(".py")}
    return contents


def _compiled(name: str, part: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name!r} cannot be shipped: it has compiled parts ({Path(part).name}), which run only where they were installed for "
        "the machine. Install it on every executor, or give the executors the driver's environment: pack it with venv-pack or "
        "conda-pack, and set spark.archives=environment.tar.gz#environment and PYSPARK_PYTHON=./environment/bin/python"
    )


def _zipped(files: dict[str, dict[str, bytes]]) -> Path:
    """Write one archive of all files, named by its content; return its path."""
    content = {path: data for each in files.values() for path, data in each.items()}
    digest = hashlib.sha256()
    for path, data in sorted(content.items()):
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    archive = _folder() / f"timely-shipped-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
            for path, data in sorted(content.items()):
                target.writestr(zipfile.ZipInfo(path, _WHEN), data, zipfile.ZIP_DEFLATED)
    return archive


_made: list[Path] = []


def _folder() -> Path:
    """Return a folder of this process, deleted when it ends: executors that start late still fetch from it."""
    if not _made:
        _made.append(Path(tempfile.mkdtemp(prefix="timely-shipped-")))
        atexit.register(shutil.rmtree, _made[0], ignore_errors=True)
    return _made[0]


Function = Callable[[Iterator[Any]], Iterator[Any]]
"""What Spark calls in a task: a function of Arrow batches."""


def _pickled(function: object) -> bytes:
    try:
        pickled: bytes = _dumps(function)
        return pickled
    except Exception as error:
        names = ", ".join(_unpicklable(getattr(getattr(function, "__self__", None), "build", function)))
        raise ConfigurationError(
            f"the dataflow cannot be sent to the executors: {names or 'what build refers to'} cannot be pickled: make it inside"
            f" build ({error})"
        ) from error


def _unpicklable(build: object) -> Iterator[str]:
    """Yield the names of what a function refers to, and functions inside of it do, that cannot be pickled."""
    if not isinstance(build, FunctionType):
        return
    codes = [build.__code__]
    for code in codes:
        codes += (part for part in code.co_consts if isinstance(part, CodeType))
    used = {name: build.__globals__[name] for code in codes for name in code.co_names if name in build.__globals__}
    for name, value in {**used, **inspect.getclosurevars(build).nonlocals}.items():
        try:
            _dumps(value)
        except Exception:
            yield repr(name)


def carried(function: Function, name: str) -> Function:
    """Return ``function`` in a form that an executor without this library can unpickle, under ``name`` in Spark's plans.

    There it raises, naming the executor and what to do, where the library is missing or of another version, or ``function``
    cannot be loaded. Actions raise it as a :class:`~timely.errors.ConfigurationError`. Raises this error where ``function``
    cannot be pickled.
    """
    content = _pickled(function)
    version = timely.__version__
    described, mark = describe(ConfigurationError(), -1), MARK

    # A function inside another one is pickled by its code, not by its name, so that an executor needs no module to have it. It
    # must use nothing of this module, therefore.
    def load() -> Function:
        import pickle
        import platform
        import sys

        def refusal(why: str, module: object) -> ImportError:
            text = (
                f"the executor on {platform.node()} (Python {platform.python_version()}, {sys.executable}) {why}. Call"
                " timely.spark.ship(session) before run, for pure Python packages (name your own:"
                f" ship(session, {str(module or 'mine').partition('.')[0]!r})); or install them on every executor, or give the"
                " executors the driver's environment (spark.archives)"
            )
            return ImportError(text)

        try:
            import timely
        except ImportError as error:
            raise refusal(f"cannot import timely: {error}", None) from None
        if timely.__version__ != version:
            raise refusal(f"has timely {timely.__version__}, and the driver {version}: both must be the same", None)
        try:
            function: Function = pickle.loads(content)
        except Exception as error:  # importing a module may raise anything
            why = f"cannot load the dataflow: {type(error).__name__}: {error}"
            raise refusal(why, getattr(error, "name", None)) from error
        return function

    def start(batches: Iterator[Any]) -> Iterator[Any]:
        import json

        try:
            function = load()
        except ImportError as error:
            error.add_note(mark + json.dumps({**described, "message": str(error)[:4096]}))
            raise
        yield from function(batches)

    start.__name__ = start.__qualname__ = name
    return start
