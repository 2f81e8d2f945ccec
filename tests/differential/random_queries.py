"""Random queries of the SQL that views have. What ties is ordered and what is compared is exact, so each result is specified."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """A column that a query may read: how it is written, and what its values are."""

    text: str
    kind: str


TABLES = {
    "orders": [("id", "int"), ("customer", "text"), ("amount", "int")],
    "lines": [("order_id", "int"), ("price", "double"), ("n", "int"), ("day", "date"), ("fee", "decimal")],
    "edges": [("src", "int"), ("dst", "int"), ("w", "int")],
}
LITERALS = {
    "int": ["0", "1", "2", "3", "5"],
    "double": ["0.5::double", "2.25::double", "-1.0::double"],
    "decimal": ["1.25", "0.50", "3.00"],
    "text": ["'ada'", "'bob'", "'a'", "''"],
    "date": ["date '2024-01-20'", "date '2024-02-10'"],
    "bool": ["true", "false"],
}


class Queries:
    """A source of random queries."""

    def __init__(self, seed: object) -> None:
        self._random = random.Random(str(seed))
        self._number = 0
        self._unstable = False

    def query(self) -> str:
        """Return a query."""
        self._number, self._unstable = 0, False
        if self._chance(0.15):
            text, columns = self._query(2, [])
            return f"with c({', '.join(f'c{i}' for i in range(len(columns)))}) as ({text}) " + self._over_cte(columns)
        return self._query(3, [])[0]

    def _over_cte(self, kinds: Sequence[str]) -> str:
        items = [Item(f"x.c{index}", kind) for index, kind in enumerate(kinds)]
        return f"select {', '.join(item.text for item in items)} from c x where {self._condition(items, [], 1)}" + (
            self._pick(["union", "union all", "except", "intersect all"]).join([" ", " select * from c"])
            if self._chance(0.5)
            else ""
        )

    # -- choices ---------------------------------------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, options: Sequence[str]) -> str:
        return self._random.choice(options)

    def _alias(self) -> str:
        self._number += 1
        return f"t{self._number}"

    # -- queries ---------------------------------------------------------------------------------------------------

    def _query(self, depth: int, outer: list[Item], kinds: Sequence[str] | None = None) -> tuple[str, list[str]]:
        """Return a query and the kinds of its columns, of ``kinds`` where these are given."""
        if depth > 0 and self._chance(0.12):
            one, chosen = self._select(depth - 1, outer, kinds)
            other, _ = self._select(depth - 1, outer, chosen)
            operator = self._pick(["union", "union all", "except", "except all", "intersect", "intersect all"])
            return f"({one}) {operator} ({other})", chosen
        return self._select(depth, outer, kinds)

    def _select(self, depth: int, outer: list[Item], kinds: Sequence[str] | None) -> tuple[str, list[str]]:
        source, items = self._source(depth, outer)
        text = f" from {source}"
        if self._chance(0.5):
            text += f" where {self._condition(items, outer, depth)}"
        wanted = (
            list(kinds)
            if kinds
            else self._random.choices(["int", "int", "text", "double", "date", "decimal", "bool"], k=self._random.randint(1, 3))
        )
        if self._chance(0.35):
            return self._grouped(text, items, outer, wanted, depth)
        values = [self._value(kind, items, outer, depth) for kind in wanted]
        if depth == 3 and self._chance(0.35):
            wanted.append("int")
            values.append(self._window(items))
        outputs = ", ".join(f"{value} as o{index}" for index, value in enumerate(values))
        order = ", ".join(
            f"o{index}{self._pick(['', ' desc', ' nulls first', ' desc nulls last'])}" for index in range(len(values))
        )
        distinct = ""
        if self._chance(0.15):
            distinct = "distinct "
        elif self._chance(0.07):
            distinct = f"distinct on (o{self._random.randrange(len(values))}) "
            return f"select {distinct}{outputs}{text} order by {order}", wanted
        text = f"select {distinct}{outputs}{text}"
        if self._chance(0.2):
            text += f" order by {order} limit {self._random.randint(1, 4)}" + self._pick(["", " offset 1"])
        return text, wanted

    def _grouped(self, text: str, items: list[Item], outer: list[Item], wanted: list[str], depth: int) -> tuple[str, list[str]]:
        keys = [self._random.choice(items) for _ in range(self._random.choice([0, 1, 1, 2]))]
        keys = list(dict.fromkeys(keys))
        if keys:
            names = ", ".join(key.text for key in keys)
            form = self._random.random()
            if form < 0.12:
                text += f" group by rollup ({names})"
            elif form < 0.2:
                text += f" group by cube ({names})"
            elif form < 0.28:
                text += f" group by grouping sets (({names}), ({keys[0].text}), ())"
            else:
                text += f" group by {names}"
        values = []
        for kind in wanted:
            of_kind = [key.text for key in keys if key.kind == kind]
            values.append(self._pick(of_kind) if of_kind and self._chance(0.5) else self._aggregate(kind, items))
        if self._chance(0.3):
            text += f" having {self._aggregate('int', items)} {self._comparison()} {self._pick(LITERALS['int'])}"
        elif keys and depth > 0 and self._chance(0.15):
            text += f" having {self._membership(keys, outer, depth)}"
        if depth == 3 and self._chance(0.3):
            wanted = [*wanted, "int"]
            values.append(
                self._pick(["rank() over (order by {})", "sum({}) over ()", "max({}) over ()"]).format(
                    self._aggregate("int", items)
                )
            )
        return "select " + ", ".join(f"{value} as o{index}" for index, value in enumerate(values)) + text, wanted

    # -- FROM ------------------------------------------------------------------------------------------------------

    def _item(self, depth: int, outer: list[Item]) -> tuple[str, list[Item]]:
        alias = self._alias()
        if depth > 0 and self._chance(0.2):
            text, kinds = self._query(depth - 1, outer if self._chance(0.5) else [])
            return f"({text}) {alias}", [Item(f"{alias}.o{index}", kind) for index, kind in enumerate(kinds)]
        table = self._pick(list(TABLES))
        return f"{table} {alias}", [Item(f"{alias}.{name}", kind) for name, kind in TABLES[table]]

    def _source(self, depth: int, outer: list[Item]) -> tuple[str, list[Item]]:
        if self._chance(0.08):
            return self._using()
        if self._chance(0.05):
            return self._asof()
        text, items = self._item(depth, outer)
        if self._chance(0.06):
            alias, kind = self._alias(), self._random.choice(items).kind
            of_kind = [item.text for item in items if item.kind == kind]
            text += f" cross join unnest([{', '.join(self._random.choices(of_kind, k=2))}]) {alias}(e)"
            items = [*items, Item(f"{alias}.e", kind)]
        for _ in range(self._random.choice([0, 0, 0, 1, 1, 2])):
            if depth > 0 and self._chance(0.12):
                alias = self._alias()
                inner, kinds = self._query(depth - 1, items)
                text += self._pick([f" cross join lateral ({inner}) {alias}", f" left join lateral ({inner}) {alias} on true"])
                items = [*items, *(Item(f"{alias}.o{index}", kind) for index, kind in enumerate(kinds))]
                continue
            other, more = self._item(depth, outer)
            how = self._pick(["join", "join", "left join", "right join", "full join", "semi join", "anti join"])
            if "lateral" in text and how in ("right join", "full join"):
                how = "join"
            text += f" {how} {other} on {self._on(items, more, how)}"
            if how not in ("semi join", "anti join"):
                items = [*items, *more]
        return text, items

    def _using(self) -> tuple[str, list[Item]]:
        """Return joins of tables on a column k that they share; the other columns have names of their own."""
        text, items = "", [Item("k", "int")]
        for number in range(self._random.choice([2, 3])):
            alias, table = self._alias(), self._pick(list(TABLES))
            (key, _), *others = self._random.sample([c for c in TABLES[table] if c[1] == "int"], 2)
            named = [Item(f"{alias}{name}", kind) for name, kind in others]
            columns = ", ".join(f"{name} as {item.text}" for (name, _), item in zip(others, named))
            item = f"(select {key} as k, {columns} from {table}) {alias}"
            how = self._pick(["join", "left join", "right join", "full join"])
            natural = self._chance(0.3)
            text += item if not number else f" natural {how} {item}" if natural else f" {how} {item} using (k)"
            items += named
        return text, items

    def _asof(self) -> tuple[str, list[Item]]:
        one, other = self._alias(), self._alias()
        left, comparison = self._pick(["", "left "]), self._pick([">=", ">", "<=", "<"])
        equal = self._pick(["", f"{one}.id = {other}.order_id and "])
        lines = (
            f"(select order_id, n, max(fee) as fee from lines where {'true' if equal else 'order_id = 3'} group by order_id, n)"
        )
        text = f"orders {one} asof {left}join {lines} {other} on {equal}{one}.amount {comparison} {other}.n"
        columns = [("id", "int"), ("customer", "text"), ("amount", "int")]
        more = [("order_id", "int"), ("n", "int"), ("fee", "decimal")]
        items = [Item(f"{one}.{name}", kind) for name, kind in columns]
        return text, [*items, *(Item(f"{other}.{name}", kind) for name, kind in more)]

    def _on(self, items: list[Item], more: list[Item], how: str) -> str:
        pairs = [(one, other) for one in items for other in more if one.kind == other.kind]
        if not pairs:
            return "true" if how in ("join", "left join") else f"{more[0].text} is not null"
        one, other = self._random.choice(pairs)
        text = f"{one.text} = {other.text}"
        if self._chance(0.3):
            one, other = self._random.choice(pairs)
            text += f" and {one.text} {self._comparison()} {other.text}"
        return text

    # -- conditions ------------------------------------------------------------------------------------------------

    def _comparison(self) -> str:
        return self._pick(["=", "<>", "<", "<=", ">", ">="])

    def _condition(self, items: list[Item], outer: list[Item], depth: int) -> str:
        form = self._random.random()
        if form < 0.2:
            return f"({self._condition(items, outer, depth)} {self._pick(['and', 'or'])} {self._condition(items, outer, depth)})"
        if form < 0.27:
            return f"not ({self._condition(items, outer, depth)})"
        if form < 0.45 and depth > 0:
            return self._membership(items, outer, depth)
        if form < 0.52:
            return f"{self._random.choice(items).text} is {self._pick(['', 'not '])}null"
        item = self._random.choice(items)
        visible = [other for other in (*items, *outer) if other.kind == item.kind]
        if outer and self._chance(0.6):
            visible = [other for other in outer if other.kind == item.kind] or visible
        other = self._random.choice(visible).text if self._chance(0.6) else self._pick(LITERALS[item.kind])
        if form < 0.6:
            return f"{item.text} is not distinct from {other}"
        return f"{item.text} {self._comparison()} {other}"

    def _membership(self, items: list[Item], outer: list[Item], depth: int) -> str:
        visible = [*items, *outer] if self._chance(0.7) else []
        if self._chance(0.4):
            return f"{self._pick(['', 'not '])}exists ({self._query(depth - 1, visible)[0]})"
        item = self._random.choice(items)
        if self._chance(0.15):
            more = self._random.choice(items)
            inner = self._query(depth - 1, [], [item.kind, more.kind])[0]
            return f"({item.text}, {more.text}) {self._pick(['', 'not '])}in ({inner})"
        inner = self._query(depth - 1, visible, [item.kind])[0]
        return f"{item.text} {self._pick(['in', 'in', 'not in', 'not in', '= any', '<> all'])} ({inner})"

    # -- values ----------------------------------------------------------------------------------------------------

    def _value(self, kind: str, items: list[Item], outer: list[Item], depth: int) -> str:
        form = self._random.random()
        of_kind = [item.text for item in (*items, *outer) if item.kind == kind]
        if kind == "bool":
            return f"({self._condition(items, outer, min(depth, 1))})"
        if form < 0.12 and depth > 0:
            return self._scalar(kind, items, depth)
        if form < 0.3:
            one, other = (self._value(kind, items, outer, 0) for _ in range(2))
            if kind in ("int", "double", "decimal"):
                return f"({one} {self._pick(['+', '-'])} {other})"
            return f"coalesce({one}, {other})"
        if form < 0.38:
            condition = self._condition(items, outer, 0)
            return (
                f"case when {condition} then {self._value(kind, items, outer, 0)} else {self._value(kind, items, outer, 0)} end"
            )
        return self._pick(of_kind) if of_kind and form < 0.95 else self._pick(LITERALS[kind])

    def _scalar(self, kind: str, items: list[Item], depth: int) -> str:
        alias = self._alias()
        table = self._pick(list(TABLES))
        inner = [Item(f"{alias}.{name}", column) for name, column in TABLES[table]]
        where = f" where {self._condition(inner, items, depth - 1)}" if self._chance(0.8) else ""
        return f"(select {self._aggregate(kind, inner)} from {table} {alias}{where})"

    def _aggregate(self, kind: str, items: list[Item]) -> str:
        of_kind = [item.text for item in items if item.kind == kind]
        numbers = [item.text for item in items if item.kind in ("int", "decimal", "double")]
        where = ""
        if self._chance(0.1):
            where = f" filter (where {self._condition(items, [], 0)})"
        if kind == "int" and (not of_kind or self._chance(0.4)):
            return (
                self._pick(
                    [
                        "count(*)",
                        f"count({self._random.choice(items).text})",
                        f"count(distinct {self._random.choice(items).text})",
                    ]
                )
                + where
            )
        if kind == "double" and numbers and self._chance(0.4):
            return f"median({self._pick([*(item.text for item in items if item.kind == 'int'), *of_kind] or ['1'])}){where}"
        if kind == "text" and of_kind and self._chance(0.3):
            name = self._pick(of_kind)
            return f"string_agg({name}, '-' order by {name}){where}"
        if not of_kind:
            return f"min({self._pick(LITERALS[kind])}){where}"
        name = self._pick(of_kind)
        if kind in ("int", "decimal", "double") and self._chance(0.5):
            return f"sum({self._pick(['', 'distinct '])}{name}){where}"
        if self._chance(0.2):
            return f"quantile_disc({name}, {self._pick(['0.25', '0.5', '1.0'])}){where}"
        return f"{self._pick(['min', 'max'])}({name}){where}"

    def _window(self, items: list[Item]) -> str:
        numbers = [item.text for item in items if item.kind == "int"] or ["length('a')"]
        partition = f"partition by {self._random.choice(items).text} " if self._chance(0.5) else ""
        order = f"order by {self._random.choice(items).text}{self._pick(['', ' desc', ' nulls first'])}"
        everything = "order by " + ", ".join(f"{item.text}{self._pick(['', ' desc', ' nulls first'])}" for item in items)
        call = self._pick(["sum", "count", "min", "max", "count(distinct)"])
        aggregate = f"count(distinct {self._pick(numbers)})" if "distinct" in call else f"{call}({self._pick(numbers)})"
        form = self._random.random()
        if form < 0.25:
            return f"{self._pick(['rank()', 'dense_rank()'])} over ({partition}{order})"
        if form < 0.5:
            frame = self._pick(
                [
                    "",
                    "groups between 1 preceding and current row",
                    "range between unbounded preceding and current row",
                    "range between current row and unbounded following exclude current row",
                    "groups between 2 following and 3 following",
                    "groups between unbounded preceding and 1 preceding exclude ties",
                    "rows between unbounded preceding and unbounded following exclude group",
                ]
            )
            return f"{aggregate} over ({partition}{order} {frame})"
        if form < 0.6:
            low, high = (
                self._pick(["1 preceding", "2 preceding", "current row", "unbounded preceding"]),
                self._pick(["1 following", "current row", "2 following"]),
            )
            number = self._pick(numbers)
            return f"{aggregate} over ({partition}order by {number}{self._pick(['', ' desc'])} range between {low} and {high})"
        if form < 0.8:
            low, high = (
                self._pick(["2 preceding", "1 preceding", "current row"]),
                self._pick(["1 following", "current row", "3 following"]),
            )
            exclude = self._pick(["", " exclude current row"])
            return f"{aggregate} over ({partition}{everything} rows between {low} and {high}{exclude})"
        number = self._pick(numbers)
        call = self._pick(
            [
                "row_number()",
                "ntile(3)",
                f"lag({number})",
                f"lead({number}, 2, 0)",
                f"first_value({number})",
                f"last_value({number})",
                f"nth_value({number}, 2)",
                f"lag({number} ignore nulls)",
                f"first_value({number} ignore nulls)",
            ]
        )
        return f"{call} over ({partition}{everything})"
