"""Views kept by SQL: the 99 queries of TPC-DS, loaded and changed as ``benchmarks.views`` does with those of TPC-H."""

from __future__ import annotations

import warnings
from typing import Final

from benchmarks.environments import Unavailable
from benchmarks.report import Row
from benchmarks.views import Found, data, measured, rows_of, summary
from timely.errors import SqlError, TimelyWarning

KEYS: Final = {
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
    "item": ("i_item_sk",),
}
"""The tables that change, and their keys: of a query the first that it reads."""


def run(quick: bool = False) -> list[Row]:
    """Return the rows of the report."""
    try:
        tables, queries = data("tpcds", 0.01 if quick else 0.1)
    except Unavailable as reason:
        return [Row("TPC-DS", None, note=str(reason))]
    warnings.simplefilter("ignore", TimelyWarning)  # of orders that have no effect
    results: dict[int, Found] = {}
    rows: list[Row] = []
    for number, query in enumerate(queries, 1):
        try:
            results[number] = measured(number, query, tables, {1: 10, 1_000: 2}, KEYS)
        except (SqlError, AssertionError) as reason:  # refused, or a sum of doubles in another order and then rounded
            rows.append(Row(f"Q{number}: not compared", None, note=str(reason).split("\n")[0][:200]))
        else:
            rows += rows_of(number, results[number])
    return [*summary(list(results.values())), *rows]
