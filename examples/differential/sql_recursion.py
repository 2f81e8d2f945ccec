"""Who may read which folder, in SQL: teams in teams, folders in folders, grants and denials, while rows come and go.

Queries read themselves and each other, one by ``not exists``. What followed from a row goes with the row.
"""

from __future__ import annotations

from typing import Any

import timely
from timely import differential as dd

QUERY = """
with mutually recursive
  part_of (name text, team text) as (
    select name, team from member union select p.name, m.team from part_of p join member m on m.name = p.team),
  denied (name text, folder text) as (
    select name, folder from part_of join rule using (team) where access = 'deny'
    union select name, i.folder from denied d join inside i on i.parent = d.folder),
  reads (name text, folder text) as (
    (select name, folder from part_of join rule using (team) where access = 'read'
     union select name, i.folder from reads r join inside i on i.parent = r.folder)
    except select * from denied)
select folder from reads where name = 'ada'
"""
SCHEMAS = ["name string, team string", "folder string, parent string", "team string, folder string, access string"]
EPOCHS: list[Any] = [
    (
        [(("ada", "data"), 1), (("data", "staff"), 1)],
        [(("plans", "home"), 1), (("pay", "plans"), 1)],
        [(("staff", "home", "read"), 1), (("data", "pay", "deny"), 1)],
    ),
    ([], [], [(("data", "pay", "deny"), -1)]),
    ([], [(("plans", "home"), -1)], []),
    ([(("data", "staff"), -1)], [], []),
]
EXPECTED = [[(("home",), 1), (("plans",), 1)], [(("pay",), 1)], [(("pay",), -1), (("plans",), -1)], [(("home",), -1)]]


def build(*rows: dd.Collection[int, Any]) -> dd.Collection[int, Any]:
    member, inside, rule = map(dd.table, rows, SCHEMAS)
    return dd.sql(rows[0].scope, QUERY, member=member, inside=inside, rule=rule).collection


def main() -> None:
    with timely.Worker() as worker:
        with worker.dataflow(int) as scope:
            sessions, rows = zip(*(dd.new_collection(scope) for _ in SCHEMAS))
            folders = build(*rows).output()
        for epoch, changes in enumerate(EPOCHS):
            for session, updates in zip(sessions, changes):
                for row, diff in updates:
                    session.update(row, diff)
                session.advance_to(epoch + 1)
            folders.wait(epoch)
            assert sorted((row, diff) for row, _, diff in folders.changes(since=epoch)) == EXPECTED[epoch]
            print(f"epoch {epoch}: ada reads", sorted(folder for (folder,) in folders.at(epoch)))


if __name__ == "__main__":
    main()
