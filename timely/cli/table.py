"""The circles as text: the counts, and a table of the largest circles with what their packages are for.

Pure functions from findings to lines. The invariant: no line is longer than the width asked for, unless the name of a
package alone is. A caller may print the lines as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from timely.cli.circles import Circle, Findings

LISTED = 7
"""Packages of a circle that are listed; of a larger circle, the most required ones."""


def summary(findings: Findings) -> str:
    """Return one sentence with the counts.

    >>> summary(Findings(packages=1200, requirements=3000, circles=2, within=5, largest=()))
    '2 circles of packages that require each other: 5 of 1,200 packages, 3,000 requirements looked at.'
    """
    return (
        f"{findings.circles:,} circles of packages that require each other: {findings.within:,} of"
        f" {findings.packages:,} packages, {findings.requirements:,} requirements looked at."
    )


def table(circles: tuple[Circle, ...], width: int = 100) -> Iterator[str]:
    """Yield the lines of a table of ``circles``, at most ``width`` characters wide.

    >>> from timely.cli.circles import assemble
    >>> for line in table(assemble([("egg", "hen", "lays eggs"), ("egg", "egg", "to hatch")], [])):
    ...     print(line)
    packages  component
           2  egg
                egg  to hatch
                hen  lays eggs
    """
    yield "packages  component"
    for circle in circles:
        yield f"{len(circle.packages):8,}  {circle.name}"
        listed = circle.packages[:LISTED]
        column = max(len(package.name) for package in listed)
        for package in listed:
            yield _clip(f"{'':12}{package.name:{column}}  {package.description}", width)
        if len(listed) < len(circle.packages):
            yield f"{'':12}and {len(circle.packages) - len(listed):,} more"


def _clip(line: str, width: int) -> str:
    return line.rstrip() if len(line) <= width else line[: width - 1].rstrip() + "…"
