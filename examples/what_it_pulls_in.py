"""What does a package pull in? A page whose chart moves while packages of Debian are installed and removed.

Four views of SQL, one of them a loop over 282,432 requirements, follow the table `installed`. Open the address that it prints,
and press "chart". A click on a row says which requirements it comes from. Write a query of your own: it moves too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from timely.cli.debian import packages, requirements
from timely.server import Views, ViewServer

SCRIPT = """
create view needed as
with recursive reached(package) as (
    select package from installed
    union
    select requirements.requires from reached join requirements on reached.package = requirements.package
)
select package, section, installed_kib / 1024 as mib, description from reached join packages using (package);

create view sections as select section, round(sum(mib), 1) as mib from needed group by section;

create view largest as select package, mib, description from needed order by mib desc limit 10;

create view totals as select count(*) as packages, round(sum(mib), 1) as mib from needed;
"""

STEPS = "gimp vlc libreoffice -vlc blender -libreoffice jupyter -gimp supertuxkart -blender -jupyter"


def debian() -> Views:
    """Return the views, where nothing is installed yet."""
    views = Views()
    described, required = packages().to_pydict(), requirements("depends").select(["package", "requires"]).to_pydict()
    views.table("packages", "package string, section string, installed_kib long, description string", zip(*described.values()))
    views.table("requirements", "package string, requires string", zip(*required.values()))
    views.table("installed", "package string")
    views.apply_script(SCRIPT)
    return views


def steps(views: Views) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Install or remove one package after another; yield each, and the rows of `sections` then."""
    for step in STEPS.split():
        views.commit({"installed": {(step.removeprefix("-"),): -1 if step.startswith("-") else 1}})
        yield step, sorted(row for row, _ in views.read("sections").rows)


def main() -> None:
    """Serve the views while the table changes, and print what has become of them."""
    views, watched = debian(), sys.stdout.isatty()
    with ViewServer(views) as server:
        if watched:
            print(f"open {server.url}#v=sections")
        for step, sections in steps(views):
            [((count, mib), _)] = views.read("totals").rows
            print(f"{step:15} {count:5,} packages {mib:9,.1f} MiB in {len(sections)} sections", flush=True)
            time.sleep(3 if watched else 0)
        if watched:
            input("press Enter to end")


if __name__ == "__main__":
    main()
