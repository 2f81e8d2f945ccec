"""A picture has every operator and every stream in it, once; boxes of one scope stand apart, and inside it.

White box: whether boxes overlap is a question to the layout; of the picture only the text of the SVG is public.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timely
from timely.errors import ConfigurationError
from timely.inspect import Snapshot, picture, snapshot
from timely.inspect.layout import Box, lay_out


def grow(scope: Any, streams: list[Any], chance: random.Random, depth: int) -> list[Any]:
    """Build something at random onto ``streams`` of ``scope``."""
    for _ in range(chance.randrange(1, 6)):
        stream = chance.choice(streams)
        kind = chance.randrange(5 if depth else 3)
        if kind == 0:
            streams.append(stream.map(lambda x: x))
        elif kind == 1:
            streams.append(stream.concat(chance.choice(streams)))
        elif kind == 2:
            streams.extend(stream.branch(lambda x: False))
        elif kind == 3:
            with scope.region() as inner:
                streams.append(grow(inner, [stream.enter(inner)], chance, depth - 1)[-1].leave())
        else:
            with scope.iterative() as loop:
                handle, again = loop.feedback()
                inside = grow(loop, [stream.enter(loop), again], chance, depth - 1)
                inside[-1].connect_loop(handle)
                streams.append(chance.choice(inside).leave())
    return streams


def build(seed: int) -> Any:
    with timely.Worker().dataflow(name="df") as scope:
        grow(scope, [scope.to_stream([1]), scope.new_input()[1]], random.Random(seed), 2)
    return scope


def shapes(shape: Snapshot) -> list[Snapshot]:
    return [shape, *(inner for child in shape.children for inner in shapes(child))]


def check(box: Box) -> None:
    for child in box.boxes:
        assert child.x >= 0 and child.x + child.width <= box.width + 1e-6
        assert child.y >= 0 and child.y + child.height <= box.height + 1e-6
        check(child)
    for one, other in itertools.combinations(box.boxes, 2):
        assert (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )


def crossed(box: Box) -> list[str]:
    """The boxes that a line runs through."""
    collected = []
    for path in box.paths:
        for (x, y), (to_x, to_y) in itertools.pairwise(path.points):
            left, right, top, bottom = min(x, to_x), max(x, to_x), min(y, to_y), max(y, to_y)
            for child in box.boxes:
                beside = right <= child.x + 1e-6 or left >= child.x + child.width - 1e-6
                if not beside and bottom > child.y + 1e-6 and top < child.y + child.height - 1e-6:
                    collected.append(f"{path.wire} through {child.shape.path}")
    return collected + [each for child in box.boxes for each in crossed(child)]


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_boxes_stand_apart_and_within_their_scope(seed: int) -> None:
    shape = snapshot(build(seed))
    box = lay_out(shape, lambda s: [s.name, "holds something"])
    check(box)
    assert crossed(box) == []
    assert sorted(id(child.shape) for child in box.boxes) == sorted(map(id, shape.children))


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_every_operator_and_every_stream_is_drawn_once(seed: int) -> None:
    scope = build(seed)
    everything = shapes(snapshot(scope))
    drawn = picture(scope)
    root = ElementTree.fromstring(drawn.svg())
    groups = [g.get("class", "").split()[0] for g in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sorted(groups) == sorted(shape.kind for shape in everything)
    titles = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(title.splitlines()[0] for title in titles) == sorted(shape.path for shape in everything)
    wires = sum(len(shape.wires) for shape in everything)
    assert drawn.svg().count("marker-end") == wires
    assert sum(line.count("-->") + line.count("-.->") for line in drawn.mermaid().splitlines()) == wires
    assert drawn.svg() == picture(scope).svg()


@pytest.mark.parametrize("from_where", ["the first", "anywhere"])
def test_what_is_drawn_of_a_long_chain_is_in_proportion_to_its_streams(from_where: str) -> None:
    chance = random.Random(1)
    with timely.Worker().dataflow(name="df") as scope:
        streams = [scope.to_stream([1])]
        for _ in range(300):
            other = streams[0] if from_where == "the first" else chance.choice(streams)
            streams.append(streams[-1].map(lambda x: x).concat(other))
    box = lay_out(snapshot(scope), lambda s: [s.name])
    check(box)
    assert crossed(box) == []
    assert sum(len(path.points) for path in box.paths) < 10 * len(box.paths)  # and not one for each layer that is passed
    if from_where == "the first":
        assert box.width < 400  # they share a lane


def test_what_is_held_and_what_waits_is_written_in() -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        stream.unary(timely.Pipeline, "<never> reads", lambda capability, info: lambda input, output: None)
        before = scope.picture()
    numbers.send_batch([1, 2, 3])
    numbers.advance_to(4)
    for _ in range(3):
        worker.step()
    assert "unread" not in before.svg()
    drawn = scope.picture()
    assert "holds 4" in drawn.svg()
    assert "3 unread at 0" in drawn.svg()
    assert "&lt;never&gt; reads" in drawn.svg()
    assert "<never>" not in drawn.html()
    assert "test_what_is_held_and_what_waits_is_written_in" in drawn.html()
    assert drawn._repr_html_() == drawn.svg()


@pytest.mark.parametrize("somebody_asks", [False, True])
def test_frontiers_in_a_loop_are_known_also_where_nobody_in_it_asks_for_them(somebody_asks: bool) -> None:
    worker = timely.Worker()
    with worker.dataflow(name="df") as scope:
        numbers, stream = scope.new_input()
        with scope.iterative("outer") as outer, outer.iterative("inner") as inner:
            handle, again = inner.feedback()
            now = stream.enter(outer).enter(inner).concat(again).map(lambda x: x)
            now.connect_loop(handle)
            if somebody_asks:
                now.probe()
    numbers.advance_to(4)
    for _ in range(3):
        worker.step()
    for seen in (snapshot(scope), snapshot(inner)):
        frontiers = {operator.name: operator.frontiers for operator in seen.operators()}
        assert frontiers["map"] == (("((4, 0), 0)",),)


def test_a_loop_is_the_only_thing_that_leads_back_up() -> None:
    with timely.Worker().dataflow(name="df") as scope, scope.iterative("loop") as loop:
        handle, again = loop.feedback()
        again.map(lambda x: x).connect_loop(handle)
    drawn = scope.picture().svg()
    assert drawn.count('<path class="back') == 1


def test_mermaid_styles_the_links_that_lead_back_and_no_others() -> None:
    with timely.Worker().dataflow(name="df") as scope:
        stream = scope.to_stream([1]).map(lambda x: x)
        for _ in range(2):
            with scope.iterative("loop") as loop:
                handle, again = loop.feedback()
                both = stream.enter(loop).concat(again).exchange(lambda x: x)
                both.map(lambda x: x).connect_loop(handle)
                stream = both.leave()
    lines = scope.picture().mermaid().splitlines()
    links = [line.strip() for line in lines if "-->" in line or "-.->" in line]
    [style] = [line.split() for line in lines if line.startswith("linkStyle")]
    styled = [links[int(number)] for number in style[1].split(",")]
    assert styled == ["n_2_0 --> n_2_1", "n_3_0 --> n_3_1"]  # each from the feedback to the concatenate
    assert "linkStyle" not in picture(build(0)).mermaid() or "feedback" in picture(build(0)).mermaid()


def test_the_page_of_a_picture_needs_no_other_file(tmp_path: Path) -> None:
    page = picture(build(1)).html()
    assert "showPicture({" in page and "--accent" in page
    assert "src=" not in page and "@import" not in page and "https:" not in page


def test_a_picture_is_saved_as_its_name_says(tmp_path: Path) -> None:
    drawn = picture(build(1))
    for ending, start in [(".svg", "<svg"), (".html", "<!doctype html>"), (".mmd", "flowchart")]:
        drawn.save(tmp_path / f"picture{ending}")
        assert (tmp_path / f"picture{ending}").read_text().startswith(start)
    with pytest.raises(ConfigurationError, match=r"use the extension \.svg"):
        drawn.save(tmp_path / "picture.gif")


@pytest.mark.parametrize("name", ['a<b>&"c"\'', "two\nlines", "bell\x07", "lone\ud800", "x" * 500, "#quot;", "naïve 漢字"])
def test_whatever_a_name_is_the_picture_is_one(name: str, tmp_path: Path) -> None:
    with timely.Worker().dataflow(name="df") as scope:
        scope.to_stream([1]).unary(timely.Pipeline, name, lambda capability, info: lambda input, output: None)
    drawn = scope.picture()
    texts = [element.text for element in ElementTree.fromstring(drawn.svg()).iter() if element.tag.endswith("}text")]
    assert len(texts) == 3 + (drawn.svg().count('class="live"'))
    if name.isprintable():
        assert name in texts
    drawn.save(tmp_path / "df.html")
    lines = drawn.mermaid().splitlines()
    assert len(lines) == 6
    assert lines[3].count('"') == 2
