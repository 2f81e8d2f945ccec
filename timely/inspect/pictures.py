"""``Picture``: a dataflow as SVG, as Mermaid, or as a self-contained HTML page.

Operators are boxes, nested scopes boxes around theirs, streams lines from top to bottom. Feedback has its own colour; dashed
lines may lead to other workers. In a running dataflow boxes show what is held and unread. The same snapshot gives the
same picture, to the byte.
"""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path as File
from typing import Any, Final

import attrs

from timely.dataflow import ScopeBuilder
from timely.errors import ConfigurationError
from timely.inspect.layout import LINE, TITLE, Box, Path, feedback_wires, lay_out
from timely.inspect.snapshots import ENTRY, EXIT, OMITTED, Snapshot, snapshot

_STYLE: Final = """
.timely { font: 12px ui-sans-serif, system-ui, sans-serif; background: #fff }
.timely rect { stroke: #7b8794; fill: #fff }
.timely .scope > rect { fill: #3d6b99; fill-opacity: .07; stroke: #3d6b99; stroke-opacity: .5 }
.timely .source > rect { fill: #e6f4ea; stroke: #4f8a5b }
.timely .busy > rect { stroke: #b8560f; stroke-width: 2 }
.timely text { fill: #1f2933 }
.timely .scope > text { fill: #3d6b99; font-weight: 600; paint-order: stroke; stroke: #eef3f7; stroke-width: 4px }
.timely .live { fill: #6b4a1f; font-size: 11px }
.timely path { fill: none; stroke: #52606d; stroke-width: 1.3 }
.timely path.exchanged { stroke-dasharray: 5 3 }
.timely path.back { stroke: #c2410c; stroke-width: 1.6 }
.timely marker path { fill: #52606d; stroke: none } .timely marker.back path { fill: #c2410c }
"""

_ARROWHEAD: Final = """<marker id="timely-{kind}" class="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" \
markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker>"""

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
{style}
</style></head><body><main class="picture"><h1>{title}</h1><div id="drawing"></div>
<div class="wide" tabindex="0" role="region" aria-label="operators"><table><caption>{caption}</caption>
<thead><tr><th scope="col">operator</th><th scope="col">built at</th><th scope="col">frontiers</th><th scope="col">held</th>\
<th scope="col">unread records</th><th scope="col">state</th></tr></thead>
<tbody>
{rows}
</tbody></table></div></main>
<script>
{script}
showPicture({drawings});
</script></body></html>
"""


def script_value(data: Any) -> str:
    """Return data as JSON that can stand in a script element: a "<" in a name would end it."""
    return json.dumps(data).replace("<", "\\u003c")


def asset(name: str) -> str:
    """Return the text of a file that pages are made of."""
    return files("timely.inspect").joinpath(name).read_text(encoding="utf-8")


@attrs.frozen
class Picture:
    """A picture of a scope; a notebook displays it."""

    shape: Snapshot

    def svg(self) -> str:
        """Return an SVG document.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     _ = scope.to_stream([1]).map(str)
        >>> drawn = scope.picture().svg()
        >>> drawn[:4], drawn.count('class="operator'), drawn.count('class="source'), drawn.count("<path class=")
        ('<svg', 1, 1, 1)
        """
        return _svg(self.shape, outline=False)

    def drawings(self, *, outline: bool = False) -> dict[str, str]:
        """Return SVG documents by what they show: all scopes, and each scope with those in it shut, the one to begin with first.

        Inner scopes stay shut where there are more than 1,000 boxes; nothing is drawn where the outermost scope has more.
        An ``outline`` has places for counts in its boxes and beside its streams, and is the same for the whole run.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     numbers, stream = scope.new_input()
        ...     with scope.region(name="part") as part:
        ...         _ = stream.enter(part).map(str).probe()
        >>> before = scope.picture().drawings(outline=True)
        >>> numbers.send(1)
        >>> list(before), before == scope.picture().drawings(outline=True)
        (['all scopes', '/df', '/df/part#1'], True)
        """
        shape = self.shape.within(DRAWN)
        if shape is None:
            return {}
        shapes, scopes = {"all scopes": shape}, _scopes(shape)
        if len(scopes) > 1:
            shapes |= {scope.path: attrs.evolve(scope, children=tuple(map(Snapshot.shut, scope.children))) for scope in scopes}
            if len(shape.operators()) > _MANY:
                shapes["all scopes"] = shapes.pop("all scopes")
        return {name: _svg(shape, outline) for name, shape in shapes.items()}

    def mermaid(self) -> str:
        """Return a Mermaid flowchart, for Markdown. Feedback is red and thick, exchange dotted.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     _ = scope.to_stream([1]).map(str)
        ...     before = scope.picture()
        >>> print(before.mermaid())
        flowchart TB
        subgraph n["df (time: int)"]
          n_0(["to_stream"])
          n_1["map"]
          n_0 --> n_1
        end
        """
        return "\n".join(["flowchart TB", *_Mermaid().lines(self.shape)])

    def html(self) -> str:
        """Return a self-contained page with the picture and a table of operators, the first 1,000 of them.

        >>> import timely
        >>> with timely.Worker().dataflow(name="df") as scope:
        ...     _ = scope.empty()
        >>> "<td>/df/empty#0</td>" in scope.picture().html()
        True
        """
        operators = self.shape.operators()
        rows = "\n".join(map(_row, operators[:DRAWN]))
        caption = "operators" if len(operators) <= DRAWN else f"the first {DRAWN:,} of {len(operators):,} operators"
        style, script = asset("page.css") + asset("drawing.css"), asset("preact.js") + asset("drawing.js")
        drawings = script_value(self.drawings())
        title = _escape(self.shape.path)
        return _PAGE.format(title=title, caption=caption, drawings=drawings, rows=rows, style=style, script=script)

    def save(self, where: str | File) -> None:
        """Write it as ``.svg``, ``.html`` or ``.mmd``, by the extension; ``ConfigurationError`` for another one."""
        file = File(where)
        ways = {".svg": self.svg, ".html": self.html, ".mmd": self.mermaid}
        if file.suffix not in ways:
            raise ConfigurationError(f"a picture cannot be saved as {file.name!r}: use the extension .svg, .html or .mmd")
        file.write_text(ways[file.suffix]() + "\n", encoding="utf-8")

    def _repr_html_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self.mermaid()


def picture(scope: ScopeBuilder[Any]) -> Picture:
    """Return a picture of a scope and everything in it; once the dataflow is built, with the counts that its worker knows.

    >>> import timely
    >>> with timely.Worker().dataflow(name="df") as scope:
    ...     numbers, stream = scope.new_input()
    >>> "holds 0" in picture(scope).svg()
    True
    """
    return Picture(snapshot(scope))


_MARGIN: Final = 8

DRAWN: Final = 1_000
"""Operators that are drawn or listed, at most: a browser is slow with more."""

_MANY: Final = 120
"""Operators of a drawing that is shown at first, at most, where there are scopes to be shut."""


def _scopes(shape: Snapshot) -> list[Snapshot]:
    """Return a scope and those in it."""
    return [shape, *(inner for child in shape.children if child.kind == "scope" for inner in _scopes(child))]


_UNWRITABLE: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow."""


_PLACE: Final = "\u2007" * 22
"""The room for what the live page writes into a box."""


def _lines(shape: Snapshot, outline: bool = False) -> list[str]:
    """Return the text of a box."""
    if shape.kind == "scope":
        return [f"{shape.name} (time: {shape.times})"]
    lines = [shape.name, *([f"{shape.inside} operator{'' if shape.inside == 1 else 's'}"] if shape.kind == "shut" else [])]
    if outline:
        return [*lines, _PLACE]
    if shape.held:
        lines.append(f"holds {_few([time for time, _ in shape.held])}")
    if shape.waiting:
        lines.append(f"{sum(count for _, count in shape.waiting)} unread at {_few([time for time, _ in shape.waiting])}")
    return [*lines, *shape.described]


def _few(times: list[str]) -> str:
    rest = "more" if times[-1].startswith(OMITTED) else f"{len(times) - 2} more"
    return ", ".join(times[:2]) + (f" and {rest}" if len(times) > 2 else "")


def _frontiers(shape: Snapshot) -> str:
    return "; ".join("complete" if not f else ", ".join(f) for f in shape.frontiers if f is not None)


def _escape(text: str) -> str:
    return html.escape(_UNWRITABLE.sub("\ufffd", text), quote=True)


# -- SVG ---------------------------------------------------------------------------------------------------------------


def _svg(shape: Snapshot, outline: bool) -> str:
    box = lay_out(shape, partial(_lines, outline=outline))
    width, height = box.width + 2 * _MARGIN, box.height + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="timely" width="{width:.0f}" height="{height:.0f}"'
            f' viewBox="{-_MARGIN} {-_MARGIN} {width:.0f} {height:.0f}" role="img" aria-label="{_escape(shape.path)}">',
            f"<style>{_STYLE}</style>",
            *(_ARROWHEAD.format(kind=kind) for kind in ("ahead", "back")),
            *_draw(box, outline),
            "</svg>",
        ]
    )


def _draw(box: Box, outline: bool) -> Iterator[str]:
    shape = box.shape
    busy = " busy" if not outline and (shape.held or shape.waiting) else ""
    yield f'<g class="{shape.kind}{busy}" transform="translate({box.x:.1f} {box.y:.1f})" data-path="{_escape(shape.path)}">'
    parts = [("", shape.path), ("built at ", shape.built_at), ("frontier ", "" if outline else _frontiers(shape))]
    yield f"<title>{_escape(chr(10).join(what + text for what, text in parts if text))}</title>"
    yield f'<rect width="{box.width:.1f}" height="{box.height:.1f}" rx="5"/>'
    if shape.kind != "scope":
        for number, line in enumerate(box.lines):
            live = ' class="live"' if number else ""
            y = (box.height - len(box.lines) * LINE) / 2 + (number + 0.75) * LINE
            text = "" if line is _PLACE else _escape(line)
            yield f'<text{live} x="{box.width / 2:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>'
    for number, path in enumerate(box.paths):
        yield _wire(path, "<title></title>" if outline else "")
        if outline:
            (x, y), place = path.points[-1], f'data-wire="{number}"'
            yield f'<text class="rate" {place} x="{x + 8:.1f}" y="{y - 9:.1f}"></text>'
    if shape.kind == "scope":
        yield f'<text x="10" y="{TITLE - 7:.0f}">{_escape(box.lines[0])}</text>'
    for child in box.boxes:
        yield from _draw(child, outline)
    yield "</g>"


def _wire(path: Path, inside: str) -> str:
    kinds = " ".join(filter(None, ["back" if path.back else "ahead", "exchanged" if path.wire.exchanged else ""]))
    (x, y), *rest = path.points
    parts = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        straight = path.aside or x == to_x
        bend = f"L{to_x:.1f},{to_y:.1f}" if straight else f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
        parts.append(bend)
        x, y = to_x, to_y
    end = f'marker-end="url(#timely-{"back" if path.back else "ahead"})"'
    return f'<path class="{kinds}" d="{" ".join(parts)}" {end}>{inside}</path>'


# -- Mermaid -----------------------------------------------------------------------------------------------------------


class _Mermaid:
    """Writes a flowchart. Mermaid styles its links by their number in the text, so they are counted."""

    def __init__(self) -> None:
        self._count = itertools.count()
        self._back: list[int] = []

    def lines(self, shape: Snapshot) -> Iterator[str]:
        yield from self._scope(shape, "n")
        if self._back:
            yield f"linkStyle {','.join(map(str, self._back))} stroke:#c2410c,stroke-width:2px"

    def _scope(self, shape: Snapshot, name: str) -> Iterator[str]:
        yield f'subgraph {name}["{_quoted(_lines(shape)[0])}"]'
        for port in range(shape.inputs):
            yield f"  {name}_in{port}(( ))"
        for child in shape.children:
            inner = f"{name}_{child.index}"
            if child.kind == "scope":
                yield from (f"  {line}" for line in self._scope(child, inner))
            else:
                text = "<br>".join(_quoted(line) for line in _lines(child))
                yield f'  {inner}(["{text}"])' if child.kind == "source" else f'  {inner}["{text}"]'
        for port in range(shape.outputs):
            yield f"  {name}_out{port}(( ))"
        back = feedback_wires(shape)
        for number, wire in enumerate(shape.wires):
            link = next(self._count)
            if number in back:
                self._back.append(link)
            arrow = "-.->" if wire.exchanged else "-->"
            yield f"  {_mermaid_end(shape, name, wire.source, 'out')} {arrow} {_mermaid_end(shape, name, wire.target, 'in')}"
        yield "end"


def _mermaid_end(shape: Snapshot, name: str, end: tuple[int, int], side: str) -> str:
    """Return Mermaid's name of an end of a wire; for a nested scope, of the port on its boundary."""
    node, port = end
    if node in (ENTRY, EXIT):
        return f"{name}_{'in' if node == ENTRY else 'out'}{port}"
    child = shape.children[node]
    return f"{name}_{node}_{side}{port}" if child.kind == "scope" else f"{name}_{node}"


def _quoted(text: str) -> str:
    text = " ".join(_UNWRITABLE.sub("\ufffd", text).splitlines()).replace("#", "#35;")
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


# -- the page's table --------------------------------------------------------------------------------------------------


def _row(operator: Snapshot) -> str:
    held = ", ".join(f"{count} at {time}" for time, count in operator.held)
    waiting = ", ".join(f"{count} at {time}" for time, count in operator.waiting)
    cells = (operator.path, operator.built_at, _frontiers(operator), held, waiting, "; ".join(operator.described))
    return f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in cells)}</tr>"
