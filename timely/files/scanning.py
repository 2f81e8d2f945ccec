"""What is read of which files: a plan of fragments, each a file or a row group of one, and the batches of a fragment.

Invariant: a fragment yields the same rows however often it is read, with the columns and types of the plan, or raises an error
that names its file. One worker plans, so that all workers read parts of the same list.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from timely.dataflow import OutputSchema, check_layout, check_moments, declared_schema, declared_types
from timely.errors import ConfigurationError, SchemaError, TimelyError, brief, printable
from timely.files.formats import FORMATS, Format, check_path, extension_of, format_of
from timely.files.places import Paths, places_of
from timely.files.text_files import (
    TextFormat,
    are_long,
    batches_as_texts,
    codes_in,
    delimiter_remedy,
    header,
    json_batches,
    json_schema,
    may_have_codes,
    misquoted,
    no_text,
    other_format,
    remedy,
)

ROWS: Final = 1 << 16
"""The most rows of a batch."""

ColumnTypes: TypeAlias = pa.Schema | str | Mapping[str, str | pa.DataType]
"""All columns with their types, or the types of some columns by name."""

_DECLARE: Final = "schema={{'{name}': '{kind}'}}"
_DECLARED: Final = "type {kind} in schema="
_FLAGS: Final = {"delimiter": "--sep", "decimal": "--decimal", "encoding": "--encoding", "null_values": "--null"}


@attrs.frozen
class Fragment:
    """A part of a table that one worker reads: a file, or some row groups of one.

    ``keys`` are the columns that the names of its folders hold, as in ``year=2024``. ``rows_before`` counts the rows of the file
    that come before it.
    """

    number: int
    path: str
    size: int
    keys: tuple[tuple[str, str | None], ...] = ()
    row_groups: tuple[int, ...] | None = None
    rows_before: int = 0


@attrs.frozen
class Options:
    """What the program says of the columns and of the format."""

    columns: Sequence[str] | None = None
    schema: ColumnTypes | None = None
    delimiter: str | None = None
    quote: str | None = '"'
    encoding: str | None = None
    null_values: Sequence[str] = ("",)
    decimal: str = "."
    declare: str | None = None
    """How to declare the type of a column on the command line, for errors."""

    @property
    def may_be_given(self) -> bool:
        """Whether a program can give options, which errors then propose."""
        return self.declare is None

    def written(self, option: str, value: str) -> str:
        """Return how a program or a command gives an option, for errors."""
        if not self.may_be_given:
            return f"{_FLAGS[option]} {shlex.quote(value)}"
        return f"{option}={['', value] if option == 'null_values' else value!r}"

    def check(self, place: str) -> None:
        """Raise ``ConfigurationError`` for characters, texts and encodings that are none."""
        for name, character in (("delimiter", self.delimiter), ("quote", self.quote), ("decimal", self.decimal)):
            one = isinstance(character, str) and len(character) == 1 and character.isascii() and character not in "\r\n"
            if character is not None and not one:
                raise ConfigurationError(f"{place}: {name}= is one ASCII character, not {brief(character)}")
        if self.quote is not None and self.quote == self.delimiter:
            raise ConfigurationError(
                f"{place}: delimiter= and quote= are both {self.quote!r}: quote=None has values without quotes"
            )
        if isinstance(self.null_values, str) or not all(isinstance(text, str) for text in self.null_values):
            raise ConfigurationError(f"{place}: null_values= is a list of texts, not {brief(self.null_values)}")
        try:
            " ".encode(self.encoding or "utf-8")
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{place}: encoding= is a name of Python's, such as 'latin-1': {error}") from None


@attrs.frozen
class Scan:
    """How fragments are read: the format, the columns with their types, and the options.

    ``declared`` says that the program has given the types. Files of formats that know their types are cast to these, where no
    value changes. Without it all files must have the same types.
    """

    place: str
    format: str
    options: Options
    schema: pa.Schema = attrs.field(factory=lambda: pa.schema([]))
    declared: bool = False
    selected: bool = False
    numeric: frozenset[str] = frozenset()
    """Columns of CSV whose values have been found to be numbers: what is a code instead, such as ``007``, is an error."""

    @property
    def declare(self) -> str:
        """How a column ``{name}`` is declared to be of a type ``{kind}``, for errors."""
        return self.options.declare or (_DECLARE if self.options.schema is None else _DECLARED)

    def batches(self, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a fragment, none of them empty; ``SchemaError`` for what is not as planned."""
        path = fragment.path
        keys = dict(fragment.keys)
        fields = [field for field in self.schema if field.name not in keys]
        finite = set[str]()  # columns whose infinite values are written so
        with self.blaming(path):
            if os.path.getsize(path) != fragment.size:
                raise SchemaError(f"{self.place}: {path!r} has changed since the run began: write a new file instead")
            if self.format == "json":
                read = json_batches(path, self.options.encoding, pa.schema(fields), ROWS, strict=not self.selected)
            else:
                read = self._dataset_batches(fragment, fields)
            row = fragment.rows_before + 1
            for batch in read:
                if batch.num_rows:
                    where = f"{self.place}: {path!r}, rows {row} to {row + batch.num_rows - 1}"
                    if self.format in ("ipc", "parquet"):
                        check_layout(batch, where)  # Arrow takes offsets as they come, and ends the process at a wrong one
                    for name, column in zip(batch.schema.names, batch.columns, strict=True):
                        self._check_moments(name, column, where)
                        if self.format == "csv" and _has_infinite(column) and name not in finite:
                            self._check_finite(fragment, name, column.type)
                            finite.add(name)
                    yield self._whole(batch, keys, path)
                    row += batch.num_rows

    def text_format(self, path: str) -> TextFormat:
        """Return how the values of a file of CSV are written."""
        options = self.options
        return TextFormat(options.delimiter or ("\t" if extension_of(path) == ".tsv" else ","), options.quote, options.encoding)

    @contextlib.contextmanager
    def blaming(self, path: str) -> Iterator[None]:
        """Raise errors of Arrow and of the system as errors about the file."""
        try:
            yield
        except TimelyError:
            raise
        except (OSError, pa.ArrowException, UnicodeError) as error:  # names of columns need not be texts
            if isinstance(error, OSError) and error.errno is not None:  # what the system says, and not a codec
                raise ConfigurationError(f"{self.place}: {path!r} cannot be read: {error}") from error
            message = re.sub(r"^Could not open .* input source '.*': \w+: ", "", str(error))
            with contextlib.suppress(pa.ArrowException, OSError, UnicodeError):  # it can be looked at no further
                message = self._explained(path, message)
            quoted = pa.ArrowInvalid(printable(str(error)))  # a traceback shows it, and it quotes the file
            raise SchemaError(f"{self.place}: {path!r} cannot be read as {self.format}: {message}") from quoted

    def _explained(self, path: str, message: str) -> str:
        """Return what Arrow says of a file in the words of its users, with a remedy."""
        how, written = self.text_format(path), self.options.written
        if self.format in ("csv", "json"):
            columns = header(path, how) if self.format == "csv" else []
            other = other_format(path) if how.encoding is None else None
            if other is not None and not path.endswith(".gz"):
                what, encoding = other
                return what + (f": {written('encoding', encoding)} may read it" if encoding else "")
            if trouble := no_text(path, how, columns):
                return f"{trouble}; save it as UTF-8, or {written('encoding', 'latin-1')} may read it"
            if self.format == "csv":
                return misquoted(path, how) or remedy(message, columns, self.declare, how, path, written)
        if self.format == "parquet":
            return f"{_damaged_part(path, self.schema.names)}{message}"
        if "onver" not in message and "changed" not in message and "unexpected field" not in message:
            return message
        name = re.search(r"column '(.*?)'|Column\(/([^/)]+)", message)
        declared = self.declare.format(name=name[1] or name[2] if name else "name", kind="type")
        late = ", which the first megabyte has not" if "unexpected field" in message else ""
        return f"{message}{late}; {declared} declares {'it' if late else 'another type'}"

    def _check_moments(self, name: str, column: pa.Array, where: str) -> None:
        """Raise ``SchemaError`` for dates and the like that are none in Python, with what to do."""
        try:
            check_moments(name, column, where)
        except SchemaError as error:
            remedy = f"{self.declare.format(name=name, kind='string')} reads it as text"
            if self.format not in ("csv", "json"):
                remedy = "columns= can leave it out" if self.options.may_be_given else "write it as a string"
            raise SchemaError(f"{error}; {remedy}") from None

    def _check_numbers(self, fragment: Any, path: str) -> None:
        """Raise ``SchemaError`` for a file with a code in a column of numbers: as a number it would be another value."""
        names = [name for name in self.schema.names if name in self.numeric]
        if not names or not may_have_codes(path, self.text_format(path)):
            return
        for batch in batches_as_texts(fragment, names):
            for name, value in codes_in(zip(names, batch.columns, strict=True)).items():
                raise SchemaError(
                    f"{self.place}: column {name!r} of {path!r} has {value!r}, where earlier values are numbers:"
                    f" {self.declare.format(name=name, kind='string')} reads it as text"
                )

    def _check_finite(self, fragment: Fragment, name: str, kind: pa.DataType) -> None:
        """Raise ``SchemaError`` for a number of a column that Arrow reads as infinite."""
        for batch in batches_as_texts(dataset_fragment(self, fragment), [name]):
            for text in batch.column(0).filter(pc.match_substring_regex(batch.column(0), r"\d[eE]|\d{39}")).to_pylist():
                if _has_infinite(pa.array([float(text.replace(self.options.decimal, "."))]).cast(kind)):
                    raise SchemaError(
                        f"{self.place}: column {name!r} of {fragment.path!r} has {brief(text)}, which is beyond a {kind}:"
                        f" {self.declare.format(name=name, kind='string')} reads it as text"
                    )

    def _dataset_batches(self, fragment: Fragment, fields: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
        dataset = dataset_fragment(self, fragment)
        physical = dataset.physical_schema
        for field in physical:
            _read_names(field)
        names = [field.name for field in fields]
        check_columns(self.place, fragment.path, physical.names, names, exactly=not self.selected)
        if self.format == "csv":
            if trouble := misquoted(fragment.path, self.text_format(fragment.path)):
                raise pa.ArrowInvalid(trouble)
            self._check_numbers(dataset, fragment.path)
            schema = pa.schema(fields)  # types are the reader's choice
        else:
            schema = pa.schema([physical.field(name) for name in names])
        return iter(dataset.to_batches(schema=schema, columns=names, batch_size=ROWS, batch_readahead=2, fragment_readahead=1))

    def _whole(self, batch: pa.RecordBatch, keys: dict[str, str | None], path: str) -> pa.RecordBatch:
        """Return a batch with the columns that the folder has, and the types of the plan."""
        columns = []
        for field in self.schema:
            if field.name in keys:
                columns.append(pa.array([keys[field.name]], pa.string()).cast(field.type).take(pa.array([0] * batch.num_rows)))
            else:
                columns.append(batch.column(field.name))
        whole = pa.RecordBatch.from_arrays(columns, self.schema.names)
        if self.declared:
            return OutputSchema(path, self.schema, "file").conform(whole)
        for field, column in zip(self.schema, whole.columns, strict=True):
            if column.type != field.type:
                raise SchemaError(
                    f"{self.place}: column {field.name!r} is {column.type} in {path!r}, and {field.type} in the first file:"
                    f" {self.declare.format(name=field.name, kind='string')} declares its type"
                )
        return whole


def _read_names(field: pa.Field) -> None:
    """Read the name of a field and of all within it: ``UnicodeError`` for one that is no text, which Arrow finds out per row."""
    field.name  # noqa: B018  # reading it decodes it
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for index in range(kind.num_fields):
        _read_names(kind.field(index))


def _damaged_part(path: str, names: Sequence[str]) -> str:
    """Return the first row group and column of a file of Parquet that cannot be read, for errors."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            for name in names:
                try:
                    file.read_row_group(group, columns=[name])
                except (pa.ArrowException, OSError):
                    return f"row group {group + 1}, column {name!r}: "
    return ""


def dataset_fragment(scan: Scan, fragment: Fragment) -> Any:
    """Return Arrow's fragment."""
    import pyarrow.dataset as datasets  # imports pandas: a quarter of a second, which a view without files need not take
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions
    from pyarrow.fs import LocalFileSystem

    kind: Any
    if scan.format == "csv":
        how = scan.text_format(fragment.path)
        kind = datasets.CsvFileFormat(
            read_options=ReadOptions(encoding=how.encoding or "utf8"),
            parse_options=ParseOptions(
                delimiter=how.delimiter,
                quote_char=how.quote or False,
                newlines_in_values=True,  # else a value is cut where a block ends in it
            ),
            convert_options=ConvertOptions(
                null_values=list(scan.options.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                decimal_point=scan.options.decimal,
            ),
        )
    elif scan.format == "ipc":
        kind = datasets.IpcFileFormat()
    else:
        kind = datasets.ParquetFileFormat(pre_buffer=False, page_checksum_verification=True)
        if fragment.row_groups is not None:
            return kind.make_fragment(fragment.path, filesystem=LocalFileSystem(), row_groups=list(fragment.row_groups))
    return kind.make_fragment(fragment.path, filesystem=LocalFileSystem())


def check_columns(place: str, path: str, columns: Sequence[str], wanted: Sequence[str], *, exactly: bool) -> None:
    """Raise ``SchemaError`` unless a file has the wanted columns, once each, and with ``exactly`` no others."""
    has = ", ".join(map(repr, columns)) or "none"
    for name in wanted:
        if columns.count(name) != 1:
            how = "no" if name not in columns else "more than one"
            raise SchemaError(f"{place}: {path!r} has {how} column {name!r}; it has {has}")
    for name in columns if exactly else ():
        if name not in wanted:
            raise SchemaError(
                f"{place}: {path!r} has a column {name!r} that the first file has not: say which columns to read with columns="
            )


# -- planning --------------------------------------------------------------------------------------------------------


def plan(paths: Paths, kind: Format, options: Options, workers: int, place: str) -> tuple[Scan, list[Fragment]]:
    """Return how to read the files of ``paths``, and their fragments in order of name.

    ``ConfigurationError`` where there are none, or where they end in another extension; ``SchemaError`` for a column that the
    first file has not.
    """
    options.check(place)
    files = list(_files(paths, kind, place))
    fragments = [Fragment(number, path, os.path.getsize(path), _keys(path, root)) for number, (path, root) in enumerate(files)]
    if kind.compressed:  # these are texts, which may be empty: Spark writes such files for empty partitions
        fragments = [fragment for fragment in fragments if fragment.size] or fragments
    first = fragments[0]
    for fragment in fragments:
        if [name for name, _ in fragment.keys] != [name for name, _ in first.keys]:
            raise SchemaError(
                f"{place}: the folders of {fragment.path!r} and {first.path!r} name different columns: read them one by one"
            )
    has_schema = options.schema is not None
    whole = has_schema and not isinstance(options.schema, Mapping)
    # The program may change its lists before they are read. Mappings of its own need not be sendable.
    fixed = attrs.evolve(options, columns=None, schema=options.schema if whole else None, null_values=tuple(options.null_values))
    scan = Scan(place, kind.name, fixed)
    with scan.blaming(first.path):
        physical = _physical_schema(scan, first)
        _ = physical.names  # raises for one that is no text
        if kind.name == "csv":
            how = delimiter_remedy(physical.names, scan.text_format(first.path).delimiter)
            if how is not None and options.delimiter is None:
                raise SchemaError(f"{place}: {first.path!r} has one column, {physical.names[0]!r}; {how}")
            physical = _texts_in(physical, scan, first)
    keys = pa.schema([pa.field(name, _key_type([dict(one.keys)[name] for one in fragments])) for name, _ in first.keys])
    for name in keys.names:
        if name in physical.names:
            raise SchemaError(f"{place}: column {name!r} is in the file {first.path!r}, and in the name of its folder")
    known = pa.schema([*physical, *keys])
    if isinstance(options.schema, Mapping):
        schema = _with_types(known, declared_types(options.schema, place), first.path, place, more=kind.name == "json")
    else:
        schema = known if options.schema is None else declared_schema(options.schema, place)
    if options.columns is not None:
        schema = _chosen(schema, options.columns, place)
    if kind.name == "json" and not known.names and not has_schema:
        raise SchemaError(
            f"{place}: {first.path!r} has no object with a field, which says what columns there are: declare a schema"
        )
    if kind.name == "json" and set(schema.names) <= set(keys.names):  # Arrow counts no rows without a field
        raise SchemaError(f"{place}: {brief(schema.names)} are names of folders alone: read a field of the files too")
    if kind.name != "json" or not has_schema:  # a declared field may come later, or never
        check_columns(place, first.path, known.names, schema.names, exactly=False)
    selected = options.columns is not None or whole
    guessed = set(physical.names) if kind.name == "csv" and not whole else set()
    guessed -= options.schema.keys() if isinstance(options.schema, Mapping) else set()
    numeric = frozenset(field.name for field in schema if field.name in guessed and _is_number(field.type))
    if any(field.name in guessed and pa.types.is_binary(field.type) for field in schema):  # which Arrow could not decode
        with scan.blaming(first.path):
            raise pa.ArrowInvalid("some values are not UTF-8")
    if kind.name == "parquet" and not whole:
        with scan.blaming(first.path):
            lost = _lost_types(first, scan)
        for name in [name for name in schema.names if name in lost and name not in (options.schema or ())]:
            raise SchemaError(
                f"{place}: column {name!r} of {first.path!r} is {lost[name]}, which would be read as bytes: write it as a string"
                + (f", or {scan.declare.format(name=name, kind='binary')} reads the bytes" if options.may_be_given else "")
            )
    scan = attrs.evolve(scan, schema=schema, declared=has_schema, selected=selected, numeric=numeric)
    if kind.name == "parquet" and len(fragments) < 4 * workers and workers > 1:
        fragments = list(_row_groups(scan, fragments))
    return scan, fragments


def _physical_schema(scan: Scan, fragment: Fragment) -> pa.Schema:
    if scan.format == "json":
        return json_schema(fragment.path, scan.options.encoding)
    return dataset_fragment(scan, fragment).physical_schema


def _lost_types(fragment: Fragment, scan: Scan) -> dict[str, str]:
    """Return the types of columns of Parquet that Arrow reads as bytes, though they are more."""
    parquet = dataset_fragment(scan, fragment)
    fields = [field for field in parquet.physical_schema if "extension" not in str(field.type)]
    lost: dict[str, str] = {}
    for leaf in map(parquet.metadata.schema.column, range(len(parquet.metadata.schema))):
        for kind in {"UUID", "INTERVAL"} & {leaf.logical_type.type, leaf.converted_type}:
            lost |= {field.name: kind for field in fields if f"{leaf.path}.".startswith(f"{field.name}.")}
    return lost


def _has_infinite(column: pa.Array) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_inf(column)).as_py())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _texts_in(schema: pa.Schema, scan: Scan, fragment: Fragment) -> pa.Schema:
    """Return the schema of a file of CSV. Columns of codes, of whole numbers beyond 64 bits, or without a value are texts."""
    numbers = [field.name for field in schema if _is_number(field.type) and schema.names.count(field.name) == 1]
    texts = {field.name for field in schema if pa.types.is_null(field.type)}
    if numbers:
        for batch in batches_as_texts(dataset_fragment(scan, fragment), numbers):
            if batch.num_rows:  # of the block that the types are inferred from
                columns = dict(zip(numbers, batch.columns, strict=True))
                texts.update(codes_in(columns.items()))
                doubles = [name for name in numbers if pa.types.is_floating(schema.field(name).type)]
                texts.update(name for name in doubles if are_long(columns[name]))
                break
    return pa.schema([field.with_type(pa.string()) if field.name in texts else field for field in schema])


def _with_types(schema: pa.Schema, types: Mapping[str, pa.DataType], path: str, place: str, *, more: bool) -> pa.Schema:
    """Return a schema with other types for some columns; there may be ``more`` columns in JSON, which come later."""
    for name, kind in types.items():
        if more and name not in schema.names:
            schema = schema.append(pa.field(name, kind))
        if schema.names.count(name) != 1:
            raise SchemaError(f"{place}: {path!r} has no column {name!r}; it has {', '.join(map(repr, schema.names))}")
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def _chosen(schema: pa.Schema, columns: Sequence[str], place: str) -> pa.Schema:
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns) or not columns:
        raise ConfigurationError(f"{place}: columns= is a list of names, not {brief(columns)}")
    for name in columns:
        if schema.names.count(name) != 1:
            raise SchemaError(f"{place}: there is no column {name!r}; there are {', '.join(map(repr, schema.names))}")
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"{place}: columns= names a column twice: {brief(columns)}")
    return pa.schema([schema.field(name) for name in columns])


def format_of_files(paths: Paths, place: str) -> Format:
    """Return the format of the first file of ``paths``; ``ConfigurationError`` where there is none, or for an unknown one."""
    return format_of(next(_listed(paths, place))[0], place)


def _files(paths: Paths, kind: Format, place: str) -> Iterator[tuple[str, str]]:
    """Yield the files of one format as ``_listed`` does; ``ConfigurationError`` for another extension."""
    for file, root in _listed(paths, place):
        check_path(file, place)
        if extension_of(file) not in kind.extensions or (Path(file).suffix == ".gz" and not kind.compressed):
            other = next((one.name for one in FORMATS.values() if extension_of(file) in one.extensions), None)
            advice = f"read it with read_{other}" if other and other != kind.name else "name the files with a glob"
            raise ConfigurationError(f"{place}: {file!r} should end in one of {', '.join(kind.extensions)}: {advice}")
        yield file, root


def _listed(paths: Paths, place: str) -> Iterator[tuple[str, str]]:
    """Yield the files, in order of name, each with the folder below which the names of folders are columns."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise ConfigurationError(f"{place}: there is no path")
    for path in [os.fspath(one) for one in listed]:
        check_path(path, place)
        if os.path.isdir(path):
            files = sorted(_within(path))
            root = path
        elif os.path.exists(path):
            files, root = [path], os.path.dirname(path)
        elif glob.has_magic(path):
            matches = [match for match in sorted(glob.glob(path, recursive=True)) if not os.path.basename(match).startswith("_")]
            files = [file for match in matches for file in (sorted(_within(match)) if os.path.isdir(match) else [match])]
            files = list(dict.fromkeys(files))  # ** matches folders, and the files in them
            (root,) = map(str, places_of(path))
        else:
            raise ConfigurationError(f"{place}: there is no file or folder {path!r}")
        if not files:
            raise ConfigurationError(
                f"{place}: {path!r} has no files" if os.path.isdir(path) else f"{place}: nothing is {path!r}"
            )
        yield from ((file, root) for file in files)


def _within(folder: str) -> Iterator[str]:
    """Yield the files in a folder and below, without those that other programs hide or mark success with."""
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(place, name) for name in files if not name.startswith((".", "_")))


def _keys(path: str, root: str) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that the folders between ``root`` and the file hold, as Hive and Spark write them."""
    folders = os.path.relpath(os.path.dirname(path) or ".", root or ".").split(os.sep)
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    return tuple((unquote(name), None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)) for name, value in pairs)


def _key_type(values: Iterable[str | None]) -> pa.DataType:
    whole = all(value is None or re.fullmatch(r"-?[1-9][0-9]{0,17}|0", value) for value in values)
    return pa.int64() if whole else pa.string()


def _row_groups(scan: Scan, fragments: Sequence[Fragment]) -> Iterator[Fragment]:
    """Split files that are fewer than the workers could share by their row groups."""
    from pyarrow.parquet import read_metadata

    number = 0
    for fragment in fragments:
        with scan.blaming(fragment.path):
            metadata = read_metadata(fragment.path)
        rows = 0
        for group in range(metadata.num_row_groups):
            yield attrs.evolve(fragment, number=number, row_groups=(group,), rows_before=rows)
            rows += metadata.row_group(group).num_rows
            number += 1
