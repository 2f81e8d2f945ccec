"""What the demo shows, from components that are known: circles put together, table, picture."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ET

import pytest

from timely.cli.circles import Circle, Findings, assemble
from timely.cli.picture import SHOWN, Panel, arrange, picture, ring
from timely.cli.table import LISTED, summary, table

SVG = "{http://www.w3.org/2000/svg}"


def wheel(size: int, name: str = "package") -> Circle:
    """A circle in which each package requires the next, and all the first."""
    names = [f"{name}-{place:04}" for place in range(size)]
    edges = [(one, other, "depends") for one, other in itertools.pairwise([*names, names[0]])]
    spokes = [(other, names[0], "suggests") for other in names]
    (circle,) = assemble([(names[0], package, f"does {package}") for package in names], [*edges, *spokes])
    return circle


def test_circles_come_largest_first_then_by_name() -> None:
    members = [
        (name, package, "") for name, packages in {"b": "bc", "x": "xyz", "a": "ad"}.items() for package in packages
    ]
    assert [circle.name for circle in assemble(members, [])] == ["x", "a", "b"]


def test_packages_come_most_required_first_then_by_name() -> None:
    members = [("a", package, None) for package in "dcba"]
    requirements = [("a", "c", "depends"), ("b", "c", "depends"), ("c", "d", "depends")]
    (circle,) = assemble(members, requirements)
    assert [(each.name, each.requirers) for each in circle.packages] == [("c", 2), ("d", 1), ("a", 0), ("b", 0)]


@pytest.mark.parametrize("kinds", list(itertools.permutations(("depends", "recommends", "suggests"))))
def test_a_pair_has_the_strictest_of_its_kinds(kinds: tuple[str, ...]) -> None:
    (circle,) = assemble([("a", "a", ""), ("a", "b", "")], [("a", "b", kind) for kind in kinds])
    assert [requirement.kind for requirement in circle.requirements] == ["depends"]
    assert circle.packages[0].requirers == 1


def test_a_package_that_requires_itself_is_no_news() -> None:
    (circle,) = assemble([("a", "a", ""), ("a", "b", "")], [("a", "a", "depends")])
    assert circle.requirements == ()


def test_the_order_of_rows_makes_no_difference() -> None:
    members = [("a", f"p{i}", "text") for i in range(30)]
    requirements = [(f"p{i}", f"p{i * 7 % 30}", "depends") for i in range(30)]
    expected = assemble(members, requirements)
    random.Random(1).shuffle(members)
    random.Random(2).shuffle(requirements)
    assert assemble(members, requirements) == expected
    assert picture(assemble(members, requirements)) == picture(expected)


# -- the table ---------------------------------------------------------------------------------------------------------


def test_a_large_circle_is_listed_in_part() -> None:
    lines = list(table((wheel(1234),)))
    assert lines[1] == "   1,234  package-0000"
    assert len(lines) == 2 + LISTED + 1
    assert lines[-1].strip() == f"and {1234 - LISTED:,} more"


def test_a_small_circle_is_listed_whole() -> None:
    lines = list(table((wheel(LISTED),)))
    assert len(lines) == 2 + LISTED
    assert "does package-0003" in "\n".join(lines)


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    (circle,) = assemble([("a", "a", "x" * 300), ("a", "b", "y" * (width - 15)), ("a", "c", "")], [])
    lines = list(table((circle,), width))
    assert max(map(len, lines)) == width
    assert lines[2].endswith("…")
    assert lines[3].endswith("yy")
    assert lines[4].endswith("c")


def test_the_counts_are_told_in_words() -> None:
    found = Findings(packages=64047, requirements=282432, circles=58, within=150, largest=())
    assert summary(found).startswith("58 circles of packages that require each other: 150 of 64,047 packages")


# -- the picture -------------------------------------------------------------------------------------------------------


def labels(circle: Circle) -> list[tuple[float, float, float]]:
    """The labels of a panel as (left, right, height)."""
    found = []
    for line in Panel.of(circle).draw():
        if 'class="left"' in line or 'class="right"' in line:
            text = ET.fromstring(line)
            x, y, width = float(text.attrib["x"]), float(text.attrib["y"]), 7.5 * len(text.text or "")
            found.append((x - width, x, y) if text.attrib["class"] == "left" else (x, x + width, y))
    return found


@pytest.mark.parametrize("size", [2, 3, 5, 12, SHOWN, SHOWN + 1, 500])
def test_labels_never_overlap(size: int) -> None:
    found = labels(wheel(size))
    assert len(found) == min(size, SHOWN)
    for (left, right, y), (other_left, other_right, other_y) in itertools.combinations(found, 2):
        assert abs(y - other_y) >= 14 or right < other_left or other_right < left


@pytest.mark.parametrize("size", [2, 3, SHOWN, 500])
def test_the_picture_is_xml_with_a_dot_for_each_package_and_an_arrow_for_each_requirement(size: int) -> None:
    circle = wheel(size)
    root = ET.fromstring(picture([circle, circle]))
    panel = Panel.of(circle)
    assert len(root.findall(f".//{SVG}circle")) == 2 * min(size, SHOWN) == 2 * len(panel.packages)
    drawn = [path for path in root.iter(f"{SVG}path") if "class" in path.attrib]
    assert len(drawn) == 2 * len(panel.requirements)


def test_a_panel_says_how_much_it_shows() -> None:
    assert "500 packages, of which the 24 that most others of them require" in picture([wheel(500)])
    assert ">24 packages<" in picture([wheel(24)])


def test_only_the_kinds_that_are_drawn_are_explained() -> None:
    (circle,) = assemble([("a", "a", ""), ("a", "b", "")], [("a", "b", "recommends"), ("b", "a", "recommends")])
    texts = [text.text for text in ET.fromstring(picture([circle])).iter(f"{SVG}text")]
    assert "recommends" in texts
    assert "depends" not in texts


def test_names_and_descriptions_are_escaped() -> None:
    (circle,) = assemble([("a<b", "a<b", "R&D"), ("a<b", "c", '"quoted"')], [])
    texts = {element.text for element in ET.fromstring(picture([circle])).iter()}
    assert {"a<b", "a<b: R&D", 'c: "quoted"'} <= texts


def test_no_circles_make_an_empty_picture() -> None:
    assert ET.fromstring(picture([])).findall(f".//{SVG}circle") == []


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8, 25])
def test_the_ring_has_as_many_different_places(count: int) -> None:
    places = ring(count)
    assert len(set(places)) == count
    assert all(abs(x * x + y * y - 170**2) < 1e-6 for x, y in places)


def test_packages_that_require_each_other_stand_near_each_other() -> None:
    names = [f"p{i}" for i in range(12)]
    scattered = wheel(12)
    shuffled = [package.name for package in scattered.packages]
    random.Random(3).shuffle(shuffled)
    arranged = arrange(shuffled, scattered.requirements)
    unmoved = dict(zip(shuffled, ring(len(names))))

    def total(where: dict[str, tuple[float, float]]) -> float:
        return sum(abs(complex(*where[r.package]) - complex(*where[r.requires])) for r in scattered.requirements)

    assert total(arranged) < total(unmoved)
    assert sorted(arranged.values()) == sorted(unmoved.values())
