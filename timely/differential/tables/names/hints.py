"""Hints: what to write here instead of what people of other databases write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from sqlglot import Token, TokenType

from timely.errors import did_you_mean

_INSTEAD: Final = {
    "strftime(moment, '%Y-%m-%d')": "to_char, date_format, format_date, format_datetime, datename",
    "strptime(text, '%d.%m.%Y')::date": "to_date, str_to_date, parse_date, date_parse",
    "moment::date": "date",
    "moment + interval 1 day": "dateadd, timestampadd, adddate",
    "day + interval 1 month": "add_months",
    "datediff('day', day, moment)": "timestampdiff, days_between, age",
    "make_date(2025, 12, 31)": "datefromparts, date_from_parts, makedate",
    "last_day(day)": "eomonth",
    "epoch(moment)": "unix_timestamp, to_unixtime, to_unix_timestamp",
    "to_timestamp(whole)": "from_unixtime, timestamp_seconds",
    "moment at time zone 'UTC'": "convert_tz, from_utc_timestamp, to_utc_timestamp, convert_timezone",
    "coalesce(value, 0)": "isnull, nvl, zeroifnull, nz",
    "case when condition then value else 0 end": "iif, iff, nvl2",
    "strpos(text, part)": "charindex, locate, patindex, indexof",
    "substring(text, 1, 3)": "mid",
    "split_part(text, ',', 1)": "substring_index, strtok",
    "regexp_extract(text, '[0-9]+')": "regexp_substr",
    "repeat(text, 3)": "replicate, space",
    "upper(left(text, 1)) || lower(substring(text, 2))": "initcap",
    "cast(value as varchar)": "convert, str, to_varchar, to_string",
    "try_cast(text as bigint)": "to_number, to_int, toint, isnumeric, try_convert, safe_cast",
    "trunc(number)": "truncate",
    "stddev(number)": "stdev, std",
    "sum(number)": "total",
    "sum(number) filter (where condition)": "sumif, sum_if",
    "quantile_cont(number, 0.5)": "percentile, percentile_approx, approx_percentile, approx_quantile",
    "list(value order by value)": "collect_list, group_array",
    "list(distinct value order by value)": "collect_set",
    "string_agg(text, ',' order by text)": "wm_concat",
    "count(distinct value)": "approx_count_distinct, approx_distinct, uniq, countdistinct, count_distinct",
    "array_to_string(texts, ',')": "array_join",
    "length(texts)": "size, array_size",
    "unnest(texts)": "explode",
    "text::json ->> '$.name'": "get_json_object, json_query, json_extract_scalar",
}
"""By what to write: names of functions elsewhere. Its words are columns that a query may have."""

FUNCTION_HINTS: Final = {name: instead for instead, names in _INSTEAD.items() for name in names.split(", ")}

_TYPES: Final = {
    "timestamp": "datetime2, smalldatetime",
    "timestamptz": "datetimeoffset",
    "decimal(18, 2)": "money, smallmoney",
    "varchar": "ntext",
    "bigint": "unsigned",
}
"""By what to write: names of types elsewhere."""

TYPE_HINTS: Final = {name: instead for instead, names in _TYPES.items() for name in names.split(", ")}

CLOCKS: Final = re.compile(
    "now|today|random|rand|newid|uuid|gen_random_uuid|getdate|getutcdate|curdate|curtime|sysdate|sysdatetime|utc_timestamp|nextval"
    "|localtimestamp|clock_timestamp|statement_timestamp|get_current_time|get_current_timestamp"
)
"""Functions whose value changes while the data does not."""

_CHANGES: Final = "; a program changes rows by a session, and clients of a server by POST /tables/NAME"
STATEMENTS: Final = dict.fromkeys(("INSERT", "UPDATE", "DELETE", "MERGE"), _CHANGES) | dict.fromkeys(
    ("SHOW", "DESCRIBE", "DESC"), "; GET /views of a server has its tables, and their columns"
)
"""What does elsewhere what other statements do."""

_UNITS: Final = re.compile("microsecond|millisecond|second|minute|hour|day|week|month|quarter|year")

_WORDS: Final = {
    "top": "write ORDER BY ... LIMIT n at the end",
    "`": 'a name has double quotes: "name"',
    "minus": "write EXCEPT",
    "separator": "write string_agg(text, ',' ORDER BY text)",
    "group": "write GROUP BY",
    "order": "write ORDER BY",
    "partition": "write PARTITION BY",
    "div": "write a // b",
    "contains": "write contains(text, part)",
    "apply": "write JOIN LATERAL (...) ON true",
    "connect": "write WITH RECURSIVE",
}
_KEYWORDS: Final = ("select", "from", "where", "having", "limit", "join", "union", "distinct", "between", "create")


def of_function(name: str, known: Iterable[str]) -> str:
    """Return what to write instead of a function that is not there.

    >>> of_function("uper", ["upper"]), of_function("iif", [])
    ('; did you mean upper?', '; write case when condition then value else 0 end')
    """
    return f"; write {FUNCTION_HINTS[name]}" if name in FUNCTION_HINTS else did_you_mean(name, known)


def of_column(name: str, known: Iterable[str], *, quoted: bool, in_call: bool) -> str:
    """Return what to write instead of a name that is no column: another one, a text in other quotes, a unit without quotes.

    >>> of_column("Berlin", ["city"], quoted=True, in_call=False), of_column("month", ["moment"], quoted=False, in_call=True)
    ("; a text has single quotes: 'Berlin'", "; a unit is a text: 'month'")
    """
    if in_call and _UNITS.fullmatch(name.lower()):
        return f"; a unit is a text: '{name}'"
    text = re.sub("[\u2018\u2019\u201c\u201d]", "", name)
    in_quotes = f"; a text has single quotes: '{text}'" if quoted or text != name else ""
    return did_you_mean(name.lower(), known) or in_quotes


def of_words(tokens: Sequence[Token], end: int) -> str:
    """Return what to write instead of a word near the place where a parser has stopped, which ends at a character."""
    near = [token for token in tokens if token.start <= end][-6:]
    for token in reversed(near):
        word = token.text.lower()
        if word in _WORDS:
            return _WORDS[word]
        if token.token_type is TokenType.VAR and (meant := did_you_mean(word, _KEYWORDS)):
            return meant.removeprefix("; ").upper().replace("DID YOU MEAN", "did you mean")
    return ""
