"""Queries that people mistype: those of the corpus with tokens deleted, doubled, swapped and replaced, beside DuckDB.

A view is right at every epoch, or refused by a ``TimelyError`` when it is built. It may fail at a row where DuckDB fails too.
"""

from __future__ import annotations

import functools
import random
import re
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pytest

import timely
from tests.differential import sql_epochs, test_scalars, test_tpch
from tests.differential.beside_duckdb import as_batches, database, register, rows_in, typed
from timely import differential as dd
from timely.errors import OperatorError, TimelyError

duckdb = pytest.importorskip("duckdb")

TOKEN = re.compile(
    r"\s+|--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|[\d.]*\d[\w.]*|\w+|::|\|\||<>|<=|>=|!=|->>|->|=>|:=|//|\*\*|.", re.DOTALL
)
ODD = [
    *("0", "-1", "1", "2.5", "1e3", ".5", "5.", "1e400", "99999999999999999999", "9223372036854775807", "-0.0", "null", "true"),
    *("''", "'a'", "'%'", "'0'", "'1'", "'-1'", "' 5 '", "'nan'", "'inf'", "'2024-02-30'", "'2024-02-29'", "'x'", "'é'"),
    *("date '2024-01-31'", "interval 1 month", "interval '1 day'", "timestamp '2024-01-31 10:00:00'", "time '10:00:00'"),
    *("[1, 2]", "[]", "{'a': 1}", "'NaN'::double", "1::tinyint", "0.10", "1_000", "0x1F", "e'a'", "$1", "?", "day"),
]
WORDS = [
    *("(", ")", "()", ",", ".", "*", "1", "::int", "::varchar", "::date", "[1]", "+", "-", "/", "//", "%", "||", "=", "<>", "<"),
    *("by", "over", "rows", "range", "groups", "preceding", "following", "unbounded", "current row", "exclude", "replace", ";"),
    *("nulls", "first", "last", "rollup", "recursive", "filter", "ignore nulls", "by name", "interval", "values", "semi", "--"),
    *("within group (order by id)", "at time zone 'UTC'", "collate nocase", "anti", "asof", "partition", "ties", "/*", "between"),
]
"""What is inserted, beside the reserved words."""


@functools.cache
def reserved() -> list[str]:
    """Return the reserved words of DuckDB."""
    words = database().execute("select keyword_name from duckdb_keywords() where keyword_category <> 'unreserved' order by all")
    return [word for (word,) in words.fetchall()]


def tokens_of(query: str) -> list[str]:
    """Return the tokens of a query, without spaces and comments."""
    return [token for token in TOKEN.findall(query) if not token.isspace() and not token.startswith("--")]


def spans(tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield what stands in balanced parentheses, with them, and the arguments in between commas."""
    opened: list[list[int]] = []
    for place, token in enumerate(tokens):
        if token == "(":
            opened.append([place, place + 1])
        elif token == "," and opened:
            yield opened[-1].pop(), place
            opened[-1].append(place + 1)
        elif token == ")" and opened:
            first, *_, last = opened.pop()
            yield last, place
            yield first, place + 1


def class_of(tokens: Sequence[str], place: int) -> str:
    """Return what stands at a place: a literal, a keyword, a function, a name or a sign."""
    token = tokens[place]
    if token[0] == "'" or token.lstrip(".")[:1].isdigit():
        return "literal"
    if not (token[0].isalpha() or token[0] in '_"'):
        return "sign"
    if token.lower() in reserved():
        return "keyword"
    return "function" if tokens[place + 1 : place + 2] == ["("] else "name"


class Mutants:
    """A source of mutants of some queries."""

    def __init__(self, queries: Sequence[str], snippets: Sequence[str], seed: object) -> None:
        self._random = random.Random(str(seed))
        self._queries = [tokens_of(query) for query in queries]
        self._snippets = [tokens_of(snippet) for snippet in snippets]
        self._snippets += [query[start:end] for query in self._queries for start, end in spans(query) if 0 < end - start < 40]
        self._alike: dict[str, list[str]] = {"literal": [token for odd in ODD for token in [odd] * 5]}
        for query in self._queries:
            for place, token in enumerate(query):
                self._alike.setdefault(class_of(query, place), []).append(token)

    def query(self) -> str:
        """Return a mutant."""
        tokens = list(self._random.choice(self._queries))
        for _ in range(self._random.choice([1, 1, 1, 2, 2, 3])):
            if tokens:
                self._random.choice(MUTATIONS)(self, tokens, self._random.randrange(len(tokens)))
        text = " ".join(tokens)
        return text if self._random.random() < 0.5 else re.sub(r" ?([().,]|::) ?", r"\1", text)

    def learn(self, query: str) -> None:
        """Mutate a query further: one that is right, as a rule."""
        tokens = tokens_of(query)
        if len(tokens) < 80:
            self._queries.append(tokens)

    def _delete(self, tokens: list[str], at: int) -> None:
        del tokens[at : at + self._random.choice([1, 1, 1, 2, 3, 5])]

    def _double(self, tokens: list[str], at: int) -> None:
        tokens[at:at] = tokens[at : at + self._random.choice([1, 1, 2, 4])]

    def _swap(self, tokens: list[str], at: int) -> None:
        other = self._random.choice([at - 1, at - 2, self._random.randrange(len(tokens))])
        tokens[at], tokens[other] = tokens[other], tokens[at]

    def _insert(self, tokens: list[str], at: int) -> None:
        tokens.insert(at, self._random.choice(self._random.choice([WORDS, reserved()])))

    def _replace(self, tokens: list[str], at: int) -> None:
        tokens[at] = self._random.choice(self._alike[class_of(tokens, at)])

    def _enclose(self, tokens: list[str], at: int) -> None:
        end = at + self._random.choice([1, 1, 2, 3, 5])
        tokens[at:end] = ["(", *tokens[at:end], ")"]

    def _change_case(self, tokens: list[str], at: int) -> None:
        tokens[at] = self._random.choice([str.upper, str.lower, str.title])(tokens[at])

    def _splice(self, tokens: list[str], at: int) -> None:
        start, end = self._random.choice([*spans(tokens), (at, at + 1)])
        tokens[start:end] = self._random.choice(self._snippets)


MUTATIONS = [
    *[Mutants._delete, Mutants._double, Mutants._swap, Mutants._insert, Mutants._insert, Mutants._change_case],
    *[Mutants._enclose, Mutants._enclose, *[Mutants._replace] * 8, *[Mutants._splice] * 6],
]


class Refused(Exception):
    """A view was refused when it was built."""


class TooLarge(Exception):
    """A query takes DuckDB too long, too much memory or gives too many rows."""


DEADLINE = 20
"""Seconds that a view may take: far more than any does, also on a busy machine."""
MOST_ROWS = 3_000

NO_VALUE = re.compile(r"NaN|does not exist|division by zero|out of range|years 1 to 9999")
"""What the documentation says is an error of a row, where DuckDB has NULL, NaN, or a moment outside of the years 1 to 9999."""
PICKS = re.compile(r"\b(limit|offset)\s+\d+|\bdistinct on\s*\([^()]*(\([^()]*\)[^()]*)*\)", re.IGNORECASE)
"""What picks some of the rows that tie."""
ORDERS_TIES = re.compile(r"\b(rows|lag|lead|row_number|ntile|first_value|last_value|nth_value)\b", re.IGNORECASE)
"""What depends on the order in which a window has rows that tie, in one column for each window."""

REFUSALS = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.NotImplementedException)


def rows_of(connection: Any, query: str) -> Counter[Any]:
    """Return the rows of a query in DuckDB."""
    timer = threading.Timer(3, connection.interrupt)
    timer.start()
    try:
        result = connection.execute(query)
        if result is None:
            raise duckdb.ParserException("no statement")
        rows = rows_in(result, MOST_ROWS + 1)
    except (duckdb.InterruptException, duckdb.OutOfMemoryException) as error:
        raise TooLarge from error
    finally:
        timer.cancel()
    if len(rows) > MOST_ROWS:
        raise TooLarge
    return typed((row, 1) for row in rows)


def _expire(number: int, frame: Any) -> None:
    raise TimeoutError(f"a view takes longer than {DEADLINE} seconds")


@attrs.frozen(slots=False)
class Subject:
    """Tables that change, the queries over them, and DuckDB with what the tables hold at each epoch, in several orders."""

    schemas: dict[str, pa.Schema]
    changes: list[Any]
    queries: list[str]
    snippets: list[str]

    @functools.cached_property
    def databases(self) -> list[list[Any]]:
        """For each epoch connections whose tables hold the same rows in other orders."""
        held: dict[str, Counter[Any]] = {name: Counter() for name in self.schemas}
        by_epoch = []
        for epoch in self.changes:
            connections = [duckdb.connect(config={"threads": 1, "memory_limit": "400MB"}) for _ in range(3)]
            for name, schema in self.schemas.items():
                for record, diff in epoch.get(name, ()):
                    held[name][record] += diff
                rows = sorted(held[name].elements(), key=repr)
                orders = [rows, rows[::-1], random.Random(1).sample(rows, len(rows))]
                for connection, order in zip(connections, orders):
                    register(connection, name, order, schema)
            for connection in connections:
                connection.execute("set timezone = 'UTC'")
            connections[-1].execute("pragma disable_optimizer")  # which leaves out rows that are errors
            by_epoch.append(connections)
        return by_epoch

    def expected(self, query: str) -> list[list[Counter[Any]]]:
        """Return what DuckDB gives at each epoch, for each order of rows."""
        return [[rows_of(connection, query) for connection in epoch] for epoch in self.databases]

    def found(self, query: str, *, run: bool = True) -> list[Counter[Any]]:
        """Return what a view holds at each epoch, of rows or columns; ``Refused`` if it is refused when it is built."""
        signal.signal(signal.SIGALRM, _expire)
        signal.setitimer(signal.ITIMER_REAL, DEADLINE)
        try:
            with warnings.catch_warnings(), timely.Worker() as worker:
                warnings.simplefilter("ignore")
                with worker.dataflow(int) as scope:
                    tables = {name: dd.table(scope, schema, name=name) for name, schema in self.schemas.items()}
                    try:
                        output = dd.sql(scope, query, **tables).output()
                    except TimelyError as error:
                        raise Refused(str(error)) from error
                for time, epoch in enumerate(self.changes if run else []):
                    for name, table in tables.items():
                        changes = epoch.get(name, ())
                        if len(query) % 2:
                            for batch, diff in as_batches(changes, self.schemas[name]):
                                table.session.insert_columns(batch, diff=diff)
                            continue
                        for record, diff in changes:
                            table.session.update(record, diff)
                    for table in tables.values():
                        table.session.advance_to(time + 1)
                for table in tables.values():
                    table.session.close()
                return [typed(output.at(time).items()) for time in range(len(self.changes))] if run else []
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def outcome(self, query: str) -> tuple[str, Any]:
        """Return what becomes of a query: a word, and what shows it where it is a finding."""
        try:
            expected: Any = self.expected(query)
        except TooLarge:
            return "too large", None
        except REFUSALS as error:
            expected = error
        except duckdb.Error as error:
            expected = error
            if isinstance(error, duckdb.InternalException | duckdb.FatalException):
                self.__dict__.pop("databases")
        refused = isinstance(expected, REFUSALS)
        try:
            result = self.found(query, run=not refused)
        except Refused as error:
            return ("both refuse" if refused else "refused"), str(error)
        except OperatorError as error:
            cause = error.__cause__
            if not isinstance(cause, TimelyError):
                return ("slow" if isinstance(cause, TimeoutError) else "crash"), cause
            if isinstance(expected, Exception):
                return "both fail at a row", None
            return ("no value" if NO_VALUE.search(str(cause)) else "wrong"), (cause, expected)
        except TimeoutError as error:
            return "slow", error
        except Exception as error:
            return "crash", error
        if refused:
            return "accepted alone", expected
        if isinstance(expected, Exception):
            return "fails in DuckDB alone", (expected, result)
        ways = [agreement(mine, theirs) for mine, theirs in zip(result, expected)]
        if None not in ways:
            return ("open" if "open" in ways else "equal"), None
        mine, theirs = result[ways.index(None)], expected[ways.index(None)]
        if PICKS.search(query) and mine.total() == theirs[0].total():
            more = PICKS.sub(lambda pick: {"l": "limit 999", "o": "offset 0", "d": ""}[pick[0][0].lower()], query)
            return ("open" if self.outcome(more)[0] in ("equal", "open") else "wrong"), (mine, theirs)
        if ORDERS_TIES.search(query) and mine.total() == theirs[0].total():
            different = sum(one != other for one, other in zip(columns_of(mine), columns_of(theirs[0])))
            return ("open" if different <= query.lower().count("over") else "wrong"), (mine, theirs)
        return "wrong", (mine, theirs)


def agreement(mine: Counter[Any], theirs: Sequence[Counter[Any]]) -> str | None:
    """Return how rows agree with those of DuckDB, whose tables had their rows in several orders: None where they do not.

    Where DuckDB's results differ among the orders, lists and texts are compared without the order in them, and where these
    differ too, the number of rows is compared, and each column that does not differ.
    """
    if all(rows == theirs[0] for rows in theirs):
        return "equal" if mine == theirs[0] else None
    loose, *others = (_unordered(rows) for rows in (mine, *theirs))
    if all(rows == others[0] for rows in others):
        return "open" if loose == others[0] else None
    if loose.total() not in {rows.total() for rows in others}:
        return None
    columns, *ways = map(columns_of, (loose, *others))
    same = [all(way[place : place + 1] == [part] for way in ways) for place, part in enumerate(ways[0])]
    if any(fixed and columns[place : place + 1] != [part] for place, (fixed, part) in enumerate(zip(same, ways[0]))):
        return None
    return "open"


def columns_of(rows: Counter[Any]) -> list[Counter[Any]]:
    """Return the values of each column."""
    return [Counter(column) for column in zip(*rows.elements())]


def _unordered(rows: Counter[Any]) -> Counter[Any]:
    """Return rows whose lists and texts are sorted."""
    return Counter([tuple(map(_sorted, row)) for row in rows.elements()])


def _sorted(value: Any) -> Any:
    if value and isinstance(value[0], tuple):
        return tuple(sorted(map(_sorted, value), key=repr))
    return (value[0], "".join(sorted(value[1]))) if value and isinstance(value[1], str) else value


@functools.cache
def subjects() -> list[Subject]:
    """Return the tables of the corpus, one with columns of all types, and those of TPC-H."""
    columns = test_scalars.COLUMNS
    kinds = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in columns.items())])
    source = random.Random(5)
    rows = [(number, *(source.choice(values) for _, values in columns.values())) for number in range(24)]
    changes = [[*((row, 1) for row in rows[:16])], [*((row, 1) for row in rows[16:]), *((row, -1) for row in rows[:9])]]
    expressions = [part for parts in test_scalars.EXPRESSIONS.values() for part in parts]
    selects = [f"select id, {part} as x from kinds" for part in expressions]
    tpch = test_tpch.epochs(1)
    return [
        Subject(dict(sql_epochs.SCHEMAS), list(sql_epochs.stream(1).changes[:4]), sql_epochs.QUERIES, []),
        Subject({"kinds": kinds}, [{"kinds": part} for part in changes], selects, expressions),
        Subject(dict(tpch.schemas), list(tpch.changes[:3]), list(test_tpch.QUERIES.values()), []),
    ]
