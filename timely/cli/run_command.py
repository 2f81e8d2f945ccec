"""``timely run``: one ``build(scope, **inputs)``, from tables to tables, in workers of this machine or on Spark.

Both engines call the same program with the same rows, and write the same outputs. A failed run leaves no output.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

import timely
from timely.cli.program import Program
from timely.dataflow import Preview, joined, preview
from timely.errors import ConfigurationError, StalledError, printable, require_package
from timely.inspect import LivePage

if TYPE_CHECKING:
    from timely.cli.output_files import TableOutput

Engine: TypeAlias = Literal["local", "spark"]

_PREVIEW: Final = 10
"""How many rows of a stream are shown where no output is asked for."""


@attrs.frozen
class Job:
    """A program, its tables by name, and how to run it; ``live`` is the port of the live page.

    ``folders`` are the outputs that are folders of parts, ``times`` the columns with the times of an input's rows.
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
    folders: frozenset[str] = frozenset()
    times: Mapping[str, str] = attrs.field(factory=dict)

    def columns(self, output: str) -> str:
        """Return the declared columns of an output in Spark's notation; empty if there are none."""
        return self.schemas.get(output) or self.program.schemas.get(output, "")


def run(job: Job, engine: Engine, say: Callable[[str], object]) -> None:
    """Run a job, and ``say`` the number of rows of each output.

    ``ConfigurationError`` for inputs and outputs that do not fit the program, before anything runs.
    """
    require_package("pyarrow", "timely run", "arrow")
    from timely.cli.output_files import is_standard, standard_input

    check(job)
    _check_outputs(job)
    if any(is_standard(path) for path in job.outputs.values()):
        say = _print_error
    with contextlib.ExitStack() as stack:
        job = attrs.evolve(job, inputs=stack.enter_context(standard_input(dict(job.inputs))))
        page = None if job.live is None else stack.enter_context(LivePage(job.live))
        if page is not None:
            say(f"to be seen at {page.url}")
        (_on_spark if engine == "spark" else _in_workers)(job, say, page)


def _print_error(text: str) -> None:
    print(printable(text), file=sys.stderr)


def check(job: Job) -> None:
    """Raise ``ConfigurationError`` unless the program can be called with the inputs, and the times are theirs."""
    job.program.check_inputs(job.inputs)
    unknown = sorted(set(job.times) - set(job.inputs))
    if unknown:
        raise ConfigurationError(f"--time names {', '.join(unknown)}, and the inputs are {', '.join(job.inputs) or 'none'}")


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
    outputs = _outputs(job)

    def program(worker: timely.Worker) -> tuple[dict[str, int], dict[str, Preview]]:
        if page is not None:
            page.watch(worker)
        parts = {name: output.part(worker.index) for name, output in outputs.items()}
        with contextlib.ExitStack() as stack:
            for part in parts.values():
                stack.callback(part.close)
            scope, seen = build(job, worker, parts)
            try:
                worker.run()
            except StalledError as error:
                raise StalledError(f"{error}\n{worker.explain(scope)}") from error
        shown = {name: rows.preview(bool(job.times)) for name, rows in seen.items()}
        return {name: part.rows for name, part in parts.items()}, shown

    with contextlib.ExitStack() as stack:
        for output in outputs.values():
            stack.enter_context(output)
        results = timely.execute(
            program,
            workers=job.workers,
            processes=job.processes,
            watch=job.patience,
            hosts=job.hosts,
            index=job.index,
            credentials=job.credentials,
        )
        for output in outputs.values():
            output.complete()
        for output in outputs.values():
            output.check_absent()  # before the first one is moved into place
    for name, path in job.outputs.items():
        rows = sum(part[name] for part, _ in results)
        say(f"{name}: {rows:,} rows in {path}")
    if not job.outputs:
        _show(job, [shown for _, shown in results], say)


def _outputs(job: Job) -> dict[str, TableOutput]:
    from timely.cli.output_files import TableOutput

    return {
        name: TableOutput(name, path, overwrite=job.overwrite, columns=job.columns(name), folder=name in job.folders)
        for name, path in job.outputs.items()
    }


def _show(job: Job, previews_of_workers: Sequence[Mapping[str, Preview]], say: Callable[[str], object]) -> None:
    """Show the first rows that the workers returned."""
    for name in previews_of_workers[0]:
        shown = joined([previews[name] for previews in previews_of_workers], limit=_PREVIEW)
        say(f"{name}: {shown.total:,} rows\n{shown}\n")
    if previews_of_workers[0]:
        keep = " ".join(f"--output {name}=FILE" for name in previews_of_workers[0])
        print(f"timely: no row was kept: keep them with {keep}", file=sys.stderr)


def build(job: Job, worker: timely.Worker, parts: Mapping[str, Any]) -> tuple[timely.ScopeBuilder[Any], dict[str, _FirstRows]]:
    """Build a job's dataflow; return the scope, and what will have the first rows of each stream if the job has no outputs."""
    seen: dict[str, _FirstRows] = {}
    with worker.dataflow(_type_of_times(job), name=job.program.title) as scope:
        inputs = {name: _read(scope, name, path, job.times.get(name)) for name, path in job.inputs.items()}
        outputs = named(job, job.program.build(scope, **inputs))
        for name, part in parts.items():
            outputs[name].inspect_batch(part.write, name=f"write {name}")
        for name, stream in outputs.items():
            if not job.outputs and isinstance(stream, timely.Stream):
                seen[str(name)] = _FirstRows()
                stream.inspect_batch(seen[str(name)].add, name=f"preview {name}")
    return scope, seen


def _type_of_times(job: Job) -> type[Any]:
    """Return the type of the columns with times: ``int``, ``date`` or ``datetime``. ``ConfigurationError`` where they differ."""
    if not job.times:
        return int
    import pyarrow as pa

    from timely.files.formats import format_of
    from timely.files.scanning import Options, plan

    types: dict[str, type[Any]] = {}
    for name, column in job.times.items():
        path = job.inputs[name]
        schema = plan(path, format_of(path, f"table {name!r}"), Options(), 1, f"input {name!r}")[0].schema
        if column not in schema.names:
            continue  # reading says so, with the columns that there are
        kind = schema.field(column).type
        if pa.types.is_date(kind):
            types[name] = datetime.date
        elif pa.types.is_timestamp(kind) and kind.tz is None:
            types[name] = datetime.datetime
        elif pa.types.is_integer(kind):
            types[name] = int
        else:
            raise ConfigurationError(
                f"--time {name}={column}: times are whole numbers, dates, or timestamps without a time zone, and these are {kind}"
            )
    if len(set(types.values())) > 1:
        text = ", ".join(f"{kind.__name__} in {name}" for name, kind in types.items())
        raise ConfigurationError(f"--time takes columns of one type, and these are {text}: convert one of them")
    return next(iter(types.values()), int)


@attrs.define
class _FirstRows:
    """The first containers of a stream, and how many records follow."""

    messages: list[tuple[Any, Any]] = attrs.field(factory=list)
    left: int = _PREVIEW
    more: int = 0

    def add(self, time: Any, container: Any) -> None:
        if self.left > 0:
            self.messages.append((time, container))
            self.left -= len(container)
        else:
            self.more += len(container)

    def preview(self, times: bool) -> Preview:
        self.messages.sort(key=lambda message: message[0])
        shown = preview(self.messages, limit=_PREVIEW, first="time" if times else None)
        return attrs.evolve(shown, total=shown.total + self.more)


def _read(scope: timely.ScopeBuilder[Any], name: str, path: Path, time: str | None) -> timely.Stream[Any, Any]:
    from timely.files.formats import format_of
    from timely.files.read_files import RowOrder, read_files
    from timely.files.scanning import Options

    place = f"input {name!r}"
    return read_files(scope, path, format_of(path, f"table {name!r}"), Options(), RowOrder(time), name=name, place=place)


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
    if job.times:
        raise ConfigurationError("--time is for --engine local: Spark's rows are all at time 0")
    outputs = _outputs(job)
    formats = {name: format_of(path, f"table {name!r}").name for name, path in job.inputs.items()}
    formats |= {name: outputs[name].format.name for name in outputs if name in job.folders}
    if "ipc" in formats.values():
        raise ConfigurationError("Spark reads and writes .parquet, .csv, .json and .jsonl, and not Arrow's files")
    workers = (job.workers or 1) * job.processes
    session = local_session(workers)
    try:
        options: dict[str, Any] = {"header": True, "inferSchema": True}
        places = {name: str(path.resolve()) for name, path in {**job.inputs, **job.outputs}.items()}  # not Spark's folder
        inputs = {name: session.read.load(places[name], formats[name], **options) for name in job.inputs}
        schemas = {name: job.columns(name) for name in job.outputs}
        with _carried(job.program), contextlib.ExitStack() as stack:
            result = run_on_spark(_built(job), inputs, schemas, workers=workers, live=page)
            for output in outputs.values():
                output.check_absent()  # somebody else may have written there since
            for name, path in job.outputs.items():
                if name in job.folders:
                    place, kind = places[name], formats[name]
                else:
                    output = stack.enter_context(outputs[name])
                    place, kind = str(output.draft.resolve() / "spark"), "parquet"
                result[name].write.mode("overwrite").save(place, kind, header=True)
                if name not in job.folders:
                    output.complete(Path(place), kind)
                say(f"{name}: {session.read.load(place, kind, **options).count():,} rows in {path}")
    finally:
        session.stop()


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
