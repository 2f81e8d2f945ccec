"""``timely run``: one ``build(scope, **inputs)``, from tables to tables, in workers of this machine or on Spark.

Both engines call the same program with the same rows, at time 0, and write the same folders. A failed run leaves no output.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

import timely
from timely.cli.program import Program
from timely.errors import ConfigurationError, StalledError, require_package
from timely.inspect import LivePage

Engine: TypeAlias = Literal["local", "spark"]


@attrs.frozen
class Job:
    """A program, its tables by name, and how to run it; ``live`` is the port of the live page.

    ``None`` for workers, hosts, index and credentials leaves them to the environment.
    """

    program: Program
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    workers: int | None = 1
    processes: int = 1
    overwrite: bool = False
    schemas: Mapping[str, str] = attrs.field(factory=dict)
    patience: float = 30.0
    live: int | None = None
    hosts: str | None = None
    index: int | None = None
    credentials: str | None = None

    def columns(self, output: str) -> str:
        """Return the declared columns of an output in Spark's notation; empty if there are none."""
        return self.schemas.get(output) or self.program.schemas.get(output, "")


def run(job: Job, engine: Engine, say: Callable[[str], object]) -> None:
    """Run a job, and ``say`` the number of rows of each output.

    ``ConfigurationError`` for inputs and outputs that do not fit the program, before anything runs.
    """
    job.program.check_inputs(job.inputs)
    _check_outputs(job)
    with contextlib.ExitStack() as stack:
        page = None if job.live is None else stack.enter_context(LivePage(job.live))
        if page is not None:
            say(f"to be seen at {page.url}")
        (_on_spark if engine == "spark" else _in_workers)(job, say, page)


def _check_outputs(job: Job) -> None:
    """Raise ``ConfigurationError`` if one output would be written over or into another."""
    names: dict[Path, str] = {}
    for name, path in job.outputs.items():
        other = names.setdefault(path.resolve(), name)
        if other != name:
            raise ConfigurationError(f"outputs {other!r} and {name!r} would both be written to {str(path)!r}: give each its own")
    for place, name in names.items():
        outer = next((names[parent] for parent in place.parents if parent in names), None)
        if outer is not None:
            raise ConfigurationError(
                f"output {name!r} would be written to {str(job.outputs[name])!r}, inside the folder of output {outer!r},"
                f" {str(job.outputs[outer])!r}: give each a folder of its own"
            )


def named(job: Job, built: object) -> Mapping[str, Any]:
    """Return the streams of ``build`` by name; ``ConfigurationError`` unless there is one for each output."""
    streams = {} if built is None else built
    if not isinstance(streams, Mapping) or set(job.outputs) - set(streams):
        has = ", ".join(map(str, streams)) if isinstance(streams, Mapping) else repr(built)
        raise ConfigurationError(f"{job.program.name} returned the outputs {has or 'none'}, but not all of {list(job.outputs)}")
    for name in job.outputs:
        if not isinstance(streams[name], timely.Stream):
            raise ConfigurationError(f"{job.program.name} returned {streams[name]!r} as the output {name!r}: return a stream")
    return streams


# -- workers of this machine ---------------------------------------------------------------------------------------------


def _in_workers(job: Job, say: Callable[[str], object], page: LivePage | None) -> None:
    require_package("pyarrow", "timely run", "arrow")
    from timely.cli.tables import Folder

    folders = {name: Folder(name, path, overwrite=job.overwrite, columns=job.columns(name)) for name, path in job.outputs.items()}

    def program(worker: timely.Worker) -> tuple[dict[str, int], list[str]]:
        if page is not None:
            page.watch(worker)
        parts = {name: folder.part(worker.index) for name, folder in folders.items()}
        with contextlib.ExitStack() as stack:
            for part in parts.values():
                stack.callback(part.close)
            scope, returned = build(job, worker, parts)
            try:
                worker.run()
            except StalledError as error:
                raise StalledError(f"{error}\n{worker.explain(scope)}") from error
        return {name: part.rows for name, part in parts.items()}, returned

    with contextlib.ExitStack() as stack:
        for folder in folders.values():
            stack.enter_context(folder)
        found = timely.execute(
            program,
            workers=job.workers,
            processes=job.processes,
            watch=job.patience,
            hosts=job.hosts,
            index=job.index,
            credentials=job.credentials,
        )
        rows = {name: sum(part[name] for part, _ in found) for name in folders}
        for name, folder in folders.items():
            if not rows[name]:
                folder.leave_empty()
        for folder in folders.values():
            folder.check_absent()  # before the first one is moved into place
    for name, path in job.outputs.items():
        say(f"{name}: {rows[name]:,} rows in {path}")
    returned = found[0][1]
    if returned and not job.outputs:
        keep = " ".join(f"--output {name}=FILE" for name in returned)
        print(f"timely: what {job.program.name} returned was discarded: keep it with {keep}", file=sys.stderr)


def build(job: Job, worker: timely.Worker, parts: Mapping[str, Any]) -> tuple[timely.ScopeBuilder[int], list[str]]:
    """Build a job's dataflow; return the scope, and the names of the returned streams."""
    with worker.dataflow(int, name=job.program.title) as scope:
        outputs = named(job, job.program.build(scope, **{name: _read(scope, name, path) for name, path in job.inputs.items()}))
        for name, part in parts.items():
            outputs[name].inspect_batch(part.write)
    return scope, [name for name, stream in outputs.items() if isinstance(stream, timely.Stream)]


def _read(scope: timely.ScopeBuilder[int], name: str, path: Path) -> timely.Stream[int, Any]:
    from timely.files.formats import format_of
    from timely.files.reading import RowOrder, read_files
    from timely.files.scanning import Options

    place = f"input {name!r}"
    return read_files(scope, path, format_of(path, f"table {name!r}"), Options(), RowOrder(), name=name, place=place)


# -- Spark ---------------------------------------------------------------------------------------------------------------


def _on_spark(job: Job, say: Callable[[str], object], page: LivePage | None) -> None:
    try:
        from timely.spark import local_session
        from timely.spark import run as run_on_spark
    except ModuleNotFoundError as error:
        raise ConfigurationError('--engine spark needs pyspark: pip install "timely-dataflow[spark]"') from error
    from timely.files.formats import format_of

    if job.hosts is not None:
        raise ConfigurationError("--hosts is for --engine local: Spark places its workers itself")
    if not job.inputs or not job.outputs:
        raise ConfigurationError("--engine spark needs at least one --input and one --output")
    missing = [name for name in job.outputs if not job.columns(name)]
    if missing:
        raise ConfigurationError(
            f"Spark has to know the columns of {', '.join(missing)} beforehand: give --schema {missing[0]}='node long, ...', or"
            f" define OUTPUTS = {{{missing[0]!r}: 'node long, ...'}} in the program"
        )
    formats = {name: format_of(path, f"table {name!r}").name for name, path in {**job.inputs, **job.outputs}.items()}
    if "ipc" in formats.values():
        raise ConfigurationError("Spark reads and writes .parquet, .csv, .json and .jsonl, and not Arrow's files")
    _check_absent(job)
    workers = (job.workers or 1) * job.processes
    session = local_session(workers)
    try:
        options: dict[str, Any] = {"header": True, "inferSchema": True}
        places = {name: str(path.resolve()) for name, path in {**job.inputs, **job.outputs}.items()}  # not Spark's folder
        inputs = {name: session.read.load(places[name], formats[name], **options) for name in job.inputs}
        schemas = {name: job.columns(name) for name in job.outputs}
        with _carried(job.program):
            result = run_on_spark(_built(job), inputs, schemas, workers=workers, live=page)
            _check_absent(job)  # somebody else may have written there since
            for name, path in job.outputs.items():
                result[name].write.mode("overwrite").save(places[name], formats[name], header=True)
                say(f"{name}: {session.read.load(places[name], formats[name], **options).count():,} rows in {path}")
    finally:
        session.stop()


def _check_absent(job: Job) -> None:
    existing = [str(path) for path in job.outputs.values() if path.exists()]
    if existing and not job.overwrite:
        raise ConfigurationError(f"{', '.join(existing)} is there already; give --overwrite to replace it")


@contextlib.contextmanager
def _carried(program: Program) -> Iterator[None]:
    """Pickle the modules in the program's folder by value: Spark's workers cannot import them."""
    import pyspark

    cloudpickle: Any = pyspark.cloudpickle
    folder = program.folder
    own = [] if folder is None else [module for name, module in list(sys.modules.items()) if _is_in(module, name, folder)]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _is_in(module: Any, name: str, folder: Path) -> bool:
    """Whether a module is a file of the program's folder, and not installed."""
    file = getattr(module, "__file__", None)
    if file is None or name == "__main__" or name.partition(".")[0] == "timely" or "site-packages" in file:
        return False
    return Path(file).resolve().is_relative_to(folder)


def _built(job: Job) -> Any:
    """Return the program as Spark's workers call it: under its own name, with the requested outputs only."""

    def built(scope: timely.ScopeBuilder[int], **inputs: timely.Stream[int, Any]) -> dict[str, Any]:
        streams = named(job, job.program.build(scope, **inputs))
        return {name: streams[name] for name in job.outputs}

    built.__name__ = job.program.title
    return built
