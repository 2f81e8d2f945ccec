"""``InputWatcher``: files and directories as tables, which follow them.

In each round it looks at all files, and what has changed in them is one epoch. A file is read and applied as a whole, or not at
all: one that cannot be, or has other columns than its table, is left as it was, with its error.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import attrs
import pyarrow as pa

from timely.dataflow import OutputSchema, declared_schema
from timely.differential.tables.arrow_rows import arrow_rows, arrow_table, data_schema, plain_schema
from timely.differential.tables.names.statements import NAME, checked_name, is_append_only
from timely.differential.tables.values.kinds import columns_of, lower_case, row_check
from timely.errors import ConfigurationError, DifferenceError, SchemaError, TimelyError, did_you_mean, error_text, file_error_text
from timely.files.formats import extension_of, format_of
from timely.files.scanning import Fragment, Options, dataset_fragment, plan
from timely.files.text_files import TextFormat, batches_as_texts, header, looks, may_be_thousands, other_delimiter
from timely.server.catalog import late_of
from timely.server.contents import Row
from timely.server.served_relations import Changes
from timely.server.views import Views

_COUNT: Final = "count"
_CHANGE_TYPE: Final = "_change_type"

_SIGNS: Final = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
"""What a row of each change type adds to its count."""


class Signature(NamedTuple):
    """What differs when a file has changed."""

    modified: int
    size: int
    inode: int


@attrs.define
class _File:
    rows: Counter[Row] = attrs.Factory(Counter)  # as they are in the table
    applied: Signature | None = None
    refused: Signature | None = None
    seen: Signature | None = None  # in the last round
    error: str | None = None


@attrs.frozen
class FileChange:
    """What a file changes in its table; ``signature`` is ``None`` for one that is gone."""

    path: Path
    signature: Signature | None
    rows: Counter[Row]
    changes: dict[Row, int]


class WatchedInput:
    """The files of one table: one file, or those of a folder. With ``changes`` they have a column that says what a row changes.

    ``schema`` is that of the table; without it the first file that can be read gives it. ``ConfigurationError`` if there is none.
    ``delimiter``, ``decimal``, ``encoding`` and ``null_values`` are those of ``scope.read_csv``; the first line of CSV shows what
    separates it.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        schema: pa.Schema | str | None = None,
        *,
        changes: bool = False,
        delimiter: str | None = None,
        decimal: str = ".",
        encoding: str | None = None,
        null_values: Sequence[str] = ("",),
    ) -> None:
        self.name = checked_name(name)
        self.notes: list[str] = []
        """What its first file looks like, where that may not be what it was read as."""
        self._place = f"input {self.name}"
        self._path = path
        declare = f'create table {self.name} (..., "{{name}}" {{kind}}, ...) in a script such as views.sql'
        self._options = Options(None, None, delimiter, '"', encoding, null_values, decimal, declare)
        self._is_folder = path.is_dir()
        self._changes = changes
        self._files: dict[Path, _File] = {}
        self._rounds = 0
        self._missing: str | None = None
        self._declared = schema is not None
        self.schema: pa.Schema = self._found_schema() if schema is None else _lower_names(declared_schema(schema, self._place))
        columns_of(self.schema)  # which refuses types that tables do not have
        if schema is not None and is_append_only(declared_schema(schema, self._place)):
            raise ConfigurationError(f"{self._place} follows files, whose rows may go: declare the table without APPEND ONLY")

    def _found_schema(self) -> pa.Schema:
        errors = []
        for path in self._listed():
            try:
                table = _read_table(path, self._place, self._options)
                of_file = _plain_schema(table.schema)
                schema = _change_schema(of_file) if self._changes else of_file
                columns_of(schema)
            except Exception as error:
                errors.append(self._message(path, error))
            else:
                if _CHANGE_TYPE in schema.names:
                    raise ConfigurationError(
                        f"input {self.name}: {str(path)!r} has changes of rows ({_CHANGE_TYPE}): say so, --changes {self.name}"
                    )
                self._note(path, table)
                return schema
        if errors:
            raise ConfigurationError(f"input {self.name} has no columns: {errors[0]}")
        near = [each.name for each in self._path.parent.glob("*")]
        what = f"the folder {str(self._path)!r} has no files" if self._is_folder else f"there is no file {str(self._path)!r}"
        later = f"; where files come later, create table {self.name} (column type, ...) in a script such as views.sql"
        raise ConfigurationError(f"input {self.name}: {what}{did_you_mean(self._path.name, near) or later}")

    def _note(self, path: Path, table: pa.Table) -> None:
        """Take note of what users should know of the first file, where it is CSV."""
        kind = format_of(path, self._place)
        if kind.name != "csv":
            return
        options = _delimited(path, self._options)
        if options.delimiter != self._options.delimiter:
            self.notes.append(f"{self._place}: its values are separated by {options.delimiter!r}")
        if not table.num_rows:
            columns = f"create table {self.name} (column type, ...) in a script such as views.sql"
            self.notes.append(f"{self._place}: it has no rows yet, so its columns are texts; {columns} gives types")
        scan, [fragment] = plan(path, kind, options, 1, self._place)
        fields = [field for field in scan.schema if pa.types.is_string(field.type) or pa.types.is_floating(field.type)]
        batches = batches_as_texts(dataset_fragment(scan, fragment), [field.name for field in fields])
        first = next((batch for batch in batches if batch.num_rows), pa.record_batch({}))
        for field, texts in zip(fields, first.slice(0, 1000).columns):
            column = lower_case(field.name)
            name = column if NAME.fullmatch(column) else f'"{column}"'
            if not pa.types.is_string(field.type):
                if text := may_be_thousands(texts):
                    how = f"if points separate thousands, --decimal , and replace({name}, '.', '')::double in a view"
                    self.notes.append(f"{self._place}: column {column} has {text} as {float(text)}; {how}")
            elif look := looks(texts, name, options.written):
                self.notes.append(f"{self._place}: column {column} is text; it looks like {look}")

    def _listed(self) -> list[Path]:
        if self._is_folder:
            return sorted(each for each in self._path.iterdir() if each.name[0] not in "._" and each.is_file())
        return [self._path] if self._path.exists() else []

    @property
    def problems(self) -> list[str]:
        """The errors of files that are not applied."""
        errors = [self._missing, *(file.error for file in list(self._files.values()))]  # which another thread may change
        return [f"{self._place}: {error}" for error in errors if error]

    def resume(self, rows: Counter[Row]) -> None:
        """Take note of rows from an earlier run: they are those of the file, or of files of the folder that are gone."""
        if rows:
            self._files[self._path / "._earlier" if self._is_folder else self._path] = _File(rows)

    def poll(self) -> Iterator[FileChange]:
        """Yield what has changed, a file at a time; each is to be refused before the next one, or else accepted.

        A file counts as written when it is the same in two rounds, except in the first round.
        """
        self._rounds += 1
        try:
            listed = self._listed()
        except OSError as error:
            self._missing = f"{file_error_text(error)}: its rows stay"
            return
        self._missing = None
        for path in listed:
            self._files.setdefault(path, _File())
        for path in sorted(self._files):
            file = self._files[path]
            signature = _signature(path)
            seen, file.seen = file.seen, signature
            if signature is None:
                yield from self._gone(path, file, seen)
            elif signature == file.applied:
                file.error = file.refused = None
            elif signature != file.refused and (self._rounds == 1 or signature == seen):
                change = self._read(path, file, signature)
                if change is not None:
                    yield change

    def _gone(self, path: Path, file: _File, seen: Signature | None) -> Iterator[FileChange]:
        if not self._is_folder:  # it may be about to be replaced
            file.error = f"{str(path)!r} is not there: its rows stay"
        elif seen is None:
            yield FileChange(path, None, Counter(), {row: -count for row, count in file.rows.items()})

    def _read(self, path: Path, file: _File, signature: Signature) -> FileChange | None:
        try:
            rows = self._rows(path)
        except Exception as error:  # whatever it is, the other files are followed
            if _signature(path) == signature:  # else it is being written
                self._refused(file, signature, self._message(path, error))
            return None
        if _signature(path) != signature:
            return None
        before = file.rows
        if not before:
            return FileChange(path, signature, rows, dict(rows))
        changes = {row: rows[row] - before[row] for row in {**before, **rows}}
        return FileChange(path, signature, rows, {row: diff for row, diff in changes.items() if diff})

    def _rows(self, path: Path) -> Counter[Row]:
        table = _read_table(path, self._place, self._options, self.schema, declared=self._declared)
        return (_changes_of_file if self._changes else _rows_of_file)(table, path, self.schema)

    def _message(self, path: Path, error: Exception) -> str:
        """Return what an error says, with the names of the input and of the file."""
        text = str(error).removeprefix(f"{self._place}: ") if isinstance(error, TimelyError) else error_text(error)
        return text if str(path) in text else f"{str(path)!r}: {text}"

    def accept(self, change: FileChange) -> None:
        """Take note that a change is in the table."""
        if change.signature is None:
            del self._files[change.path]
        else:
            file = self._files[change.path]
            file.rows, file.applied, file.refused, file.error = change.rows, change.signature, None, None
        for other in self._files.values():  # it may fit now: a row that it deletes may be there
            other.refused = None

    def refuse(self, change: FileChange, error: Exception) -> None:
        """Take note that a change is not in the table."""
        self._refused(self._files[change.path], change.signature, self._message(change.path, error))

    @staticmethod
    def _refused(file: _File, signature: Signature | None, error: str) -> None:
        file.refused, file.error = signature, error


class InputWatcher:
    """Has tables of ``views`` follow their inputs, every ``seconds``, on a thread of its own, until ``close``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "orders.csv")
    ...     _ = path.write_text("customer,price\\nada,30\\n")
    ...     views = Views()
    ...     watcher = InputWatcher(views, [WatchedInput("orders", path)])
    ...     views.view("totals", "select customer, sum(price) as total from orders group by customer")
    ...     _ = path.write_text("customer,price\\nada,30\\nbob,5\\n")
    ...     _ = watcher.poll(), watcher.poll()
    >>> views.time, views.changes("totals", since=0)
    (1, [EpochChanges(time=1, changes=[(('bob', 5), 1)])])
    """

    def __init__(self, views: Views, inputs: Iterable[WatchedInput], seconds: float = 0.5) -> None:
        self._views = views
        self._inputs = list(inputs)
        self._seconds = seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: str | None = None
        for each in self._inputs:
            views.table(each.name, each.schema)
            views.feed(each.name)
            rows = Counter(dict(views.read(each.name).rows))
            late = views.read(late_of(each.name)).rows if each.name in views.late else []
            for (*row, change), count in late:  # the files have made these changes, and the table has not
                rows[tuple(row)] += change * count
            each.resume(Counter({row: count for row, count in rows.items() if count}))
        self._commit(views.fill)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the inputs now."""
        of_inputs = [problem for each in self._inputs for problem in each.problems]
        return of_inputs if self._error is None else [*of_inputs, self._error]

    def poll(self) -> bool:
        """Look at all files once; return whether an epoch has changed something."""
        return self._commit(self._views.commit)

    def _commit(self, commit: Callable[[Mapping[str, Changes]], object]) -> bool:
        accepted: list[tuple[WatchedInput, FileChange]] = []
        changes: dict[str, Counter[Row]] = {}
        for each in self._inputs:
            together: Counter[Row] = Counter()
            for change in each.poll():
                try:
                    self._views.check(each.name, change.changes, {each.name: together})
                except (SchemaError, DifferenceError) as error:
                    each.refuse(change, error)
                else:
                    together.update(change.changes)
                    accepted.append((each, change))
            if any(together.values()):
                changes[each.name] = together
        if changes:
            commit(changes)
        for each, change in accepted:
            each.accept(change)
        return bool(changes)

    def start(self) -> None:
        """Start polling the files on a thread."""
        self._thread = threading.Thread(target=self._run, name="timely inputs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self.poll()
                self._error = None
            except Exception as error:  # the thread goes on, whatever it is
                self._error = f"the inputs are not followed: {error_text(error)}"

    def close(self) -> None:
        """Look no more; a no-op when it is closed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _signature(path: Path) -> Signature | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return Signature(status.st_mtime_ns, status.st_size, status.st_ino)


# -- files -----------------------------------------------------------------------------------------------------------------


def _delimited(path: Path, options: Options) -> Options:
    """Return the options of a file of CSV with its delimiter: the one that is given, or that its first line shows."""
    usual = "\t" if extension_of(path) == ".tsv" else ","
    names = [] if options.delimiter else header(str(path), TextFormat(usual, options.quote, options.encoding))
    return attrs.evolve(options, delimiter=other_delimiter(names, usual) or options.delimiter)


def _read_table(path: Path, place: str, options: Options, schema: pa.Schema | None = None, *, declared: bool = False) -> pa.Table:
    """Return a file as a table with the types that tables have, and names in lower case.

    Text formats are read with the types of ``schema``, which the script has ``declared``, or an earlier file has shown. What
    cannot be read is a ``SchemaError`` or ``ConfigurationError``.
    """
    kind = format_of(path, place)
    scan, [fragment] = plan(path, kind, _delimited(path, options) if kind.name == "csv" else options, 1, place)
    if schema is not None and kind.name in ("csv", "json"):
        types = {field.name: _readable(field.type) if kind.name == "json" else field.type for field in schema}
        fields = [field.with_type(types.get(lower_case(field.name), field.type)) for field in scan.schema]
        if kind.name == "json":  # which leaves out what is null
            names = {lower_case(field.name) for field in fields}
            fields += [pa.field(name, table) for name, table in types.items() if name not in names]
        numeric = frozenset(field.name for field in fields if pa.types.is_integer(field.type) or pa.types.is_floating(field.type))
        scan = attrs.evolve(scan, schema=pa.schema(fields), numeric=frozenset() if declared else numeric)
    whole = Fragment(0, fragment.path, os.path.getsize(path))
    loose = pa.schema([field.with_nullable(True) for field in scan.schema])  # as batches come
    table = pa.Table.from_batches(scan.batches(whole), loose)
    return arrow_table(pa.Table.from_arrays(table.columns, schema=_lower_names(scan.schema)), f"{place}: {str(path)!r}")


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Arrow reads one from JSON: it takes no texts for dates."""
    return pa.timestamp("us") if pa.types.is_date(kind) else kind


def _rows_of_file(table: pa.Table, path: Path, schema: pa.Schema) -> Counter[Row]:
    """Return the rows of a file with the columns of ``schema``, each with how often it is there."""
    return Counter(table_rows(_conformed(table, path, schema)))


def table_rows(table: pa.Table) -> Iterable[Row]:
    """Return the rows of a table; lists and structs become tuples."""
    rows = arrow_rows(table)
    return (
        map(row_check(columns_of(table.schema), table.schema), rows) if any(map(pa.types.is_nested, table.schema.types)) else rows
    )


def _changes_of_file(table: pa.Table, path: Path, schema: pa.Schema) -> Counter[Row]:
    """Return the rows of a file of changes, each with what it adds to its count; ``SchemaError`` for an unknown change."""
    _change_schema(table.schema)
    name = _CHANGE_TYPE if _CHANGE_TYPE in table.column_names else _COUNT
    values = table.column(name).to_pylist()
    counts = [_SIGNS.get(each) for each in values] if name == _CHANGE_TYPE else values
    for position, count in enumerate(counts):
        if type(count) is not int:
            known = f"one of {', '.join(_SIGNS)}" if name == _CHANGE_TYPE else "a whole number"
            raise SchemaError(f"row {position + 1}: {name} is {values[position]!r}, and should be {known}")
    counted: Counter[Row] = Counter()
    for row, count in zip(table_rows(_conformed(table.drop_columns([name]), path, schema)), counts, strict=True):
        counted[row] += count
    return Counter({row: count for row, count in counted.items() if count})


def _conformed(table: pa.Table, path: Path, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of ``schema``; ``SchemaError`` for others, and where a value would change."""
    for place, field in enumerate(table.schema):
        wanted = schema.field(field.name).type if schema.names.count(field.name) == 1 else field.type
        if pa.types.is_timestamp(field.type) and pa.types.is_date(wanted):
            try:
                table = table.set_column(place, field.name, table.column(place).cast(wanted))
            except pa.ArrowException as error:
                raise SchemaError(f"{str(path)!r}: column {field.name!r}: {error}") from None
    conform = OutputSchema(str(path), schema, "file").conform
    return pa.Table.from_batches([conform(batch) for batch in table.to_batches()], schema)


def _lower_names(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_name(lower_case(field.name)) for field in schema])


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types of tables, and names in lower case; columns without a value are texts."""
    return _lower_names(plain_schema(data_schema(schema).remove_metadata(), narrow=True))


def _change_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table without the column that a file of changes has beside it; ``SchemaError`` without one."""
    names = [name for name in (_CHANGE_TYPE, _COUNT) if name in schema.names]
    if not names:
        raise SchemaError(f"a file of changes has a column {_COUNT} or {_CHANGE_TYPE}")
    return schema.remove(schema.get_field_index(names[0]))
