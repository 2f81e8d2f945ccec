"""``Endpoints``: what the server answers to each request.

Reads and epochs run on threads, queries in processes, so that no client waits for another one's. Answers are made a piece at a
time, when the client has taken the one before. A client that follows changes reads them from what its view remembers, at its own
pace: one that is too slow costs nothing, and learns that it has to start over. ``/health`` waits for nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from weakref import WeakMethod

from aiohttp import web

from timely.differential.tables.names.statements import NAME, ConnectorDefinition, parse_script
from timely.differential.tables.values.kinds import Column
from timely.differential.why_derivations import Provenance
from timely.errors import (
    CompactedError,
    ConfigurationError,
    DifferenceError,
    DiskFullError,
    IdempotencyError,
    OutputError,
    SchemaError,
    SqlError,
    TimelyError,
    ViewError,
    brief,
)
from timely.server.connections import Connections, connection_limit
from timely.server.contents import Row, RowCondition
from timely.server.live_query import Query
from timely.server.row_encoding import (
    arrow_pieces,
    changes_event,
    columns_object,
    conditions_of,
    event,
    event_head,
    json_pieces,
    pieces,
    row_object,
    rows_of,
)
from timely.server.served_relations import Answer
from timely.server.views import Views

if TYPE_CHECKING:
    from multidict import MultiMapping

T = TypeVar("T")

HEARTBEAT: Final = 15.0
"""Seconds after which a client that follows is sent a comment, so that one that is gone is noticed."""

_OWN: Final = ("none", "same-origin")
"""What a browser says of a request (``Sec-Fetch-Site``) that its user or this server's page has made."""

_ARROW: Final = "application/vnd.apache.arrow.stream"

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; "
    "script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer: its page loads its own script and what this server has, and no other page loads anything of it."""

_PAGE: Final = {
    "page.html": ("timely.server", "page/page.html", "text/html"),
    "page.css": ("timely.inspect", "page.css", "text/css"),
    "preact.js": ("timely.inspect", "preact.js", "text/javascript"),
    "chart.js": ("timely.server", "page/chart.js", "text/javascript"),
    "uplot.js": ("timely.server", "page/uplot.js", "text/javascript"),
    "uplot.css": ("timely.server", "page/uplot.css", "text/css"),
}
"""The files of the page: where they are, and of what type."""

_STATUS: Final[tuple[tuple[type[TimelyError], int], ...]] = (
    (OutputError, 404),
    (IdempotencyError, 422),
    (DiskFullError, 507),
    (DifferenceError, 409),
    (CompactedError, 410),
    (SqlError, 400),
    (SchemaError, 400),
    (ConfigurationError, 400),
    (ViewError, 503),
)


class _Batch(NamedTuple):
    """Events for one client in pieces, if there are any, and the time that it has seen then; ``over`` ends the stream."""

    content: Iterator[bytes] | None
    time: int
    over: bool = False


class _Subject(NamedTuple):
    """What a client asks for: rows that fulfil conditions, which are on these columns."""

    name: str
    columns: tuple[Column, ...]
    where: list[RowCondition]

    def check(self, columns: tuple[Column, ...]) -> None:
        """Raise ``ViewError`` where the rows have other columns: the view was replaced meanwhile."""
        if columns is not self.columns:
            raise ViewError(f"{self.name} has other columns now: read it anew")


class _Content(NamedTuple):
    """The content of an answer, in pieces."""

    kind: str
    time: int
    content: Iterator[bytes]


class Endpoints:
    """The application of one server; ``problems`` returns what is wrong with its inputs."""

    def __init__(
        self,
        views: Views,
        *,
        host: str,
        names: Sequence[str] = (),
        writable: bool = False,
        connectors: bool = False,
        problems: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._views = views
        self._hosts = {"localhost", host.lower(), *(name.lower() for name in names)}
        self._writable = writable
        self._connectors = connectors
        self._problems = problems
        self._subscribers = 0
        self._held = 0  # bytes of bodies
        self._admissions: set[asyncio.Task[int]] = set()
        self._defining = asyncio.Lock()
        self._reads = ThreadPoolExecutor(4, "timely reads")
        self._epochs = ThreadPoolExecutor(4, "timely epochs")
        self._definitions = ThreadPoolExecutor(1, "timely definitions")
        self._queries = ThreadPoolExecutor(views.limits.queries + 1, "timely queries")
        self.connections = Connections(connection_limit(), views.limits.patience)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._closing = False

    def application(self) -> web.Application:
        """Return the application, which is to be run once, inside ``running``.

        It refers to these endpoints weakly: aiohttp keeps applications that have ended.
        """
        limits = self._views.limits
        body = limits.body if self._writable else min(limits.body, 8 * limits.query_length)
        routes = web.Application(client_max_size=body, middlewares=[web.middleware(_weak(self._guarded))])
        routes.router.add_get("/", _weak(self._page))
        routes.router.add_get("/page/{file}", _weak(self._page))
        routes.router.add_get("/health", _weak(self._health))
        routes.router.add_get("/views", _weak(self._overview))
        routes.router.add_get("/views/{name}", _weak(self._rows))
        routes.router.add_get("/views/{name}/changes", _weak(self._changes), allow_head=False)
        routes.router.add_get("/views/{name}/why", _weak(self._why))
        routes.router.add_get("/views/{name}/why_not", _weak(self._why))
        routes.router.add_get("/query", _weak(self._query), allow_head=False)
        routes.router.add_post("/query", _weak(self._query))
        routes.router.add_post("/script", _weak(self._script))
        routes.router.add_post("/tables/{name}", _weak(self._write))
        routes.on_response_prepare.append(_secured)
        return routes

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Follow the views in the event loop that runs now, until the block ends."""
        self._loop = asyncio.get_running_loop()
        stop_listening = self._views.listen(self._announce)
        yield
        stop_listening()
        self._epochs.shutdown(wait=False)
        for threads in (self._reads, self._definitions, self._queries):
            threads.shutdown(wait=False, cancel_futures=True)

    def close_streams(self) -> None:
        """End what clients follow; called in the event loop."""
        self._closing = True
        self._wake()

    def _announce(self) -> None:
        """Wake those who follow, from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _reading(self, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
        return _on(self._reads, function, *arguments)

    # -- who may ask -----------------------------------------------------------------------------------------------

    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            self._check_origin(request)
            with self.connections.answering(request, always=request.path == "/health"):
                answer: web.StreamResponse = await handler(request)
                return answer
        except ConnectionError:  # the client is gone
            return _error(400, "the connection is lost")
        except web.HTTPException as error:
            if error.status < 400:
                raise
            known = "; there are /, /views, /views/NAME, /query and /health" if request.match_info.http_exception is error else ""
            return _error(error.status, f"{error.text or error.reason}{known}")
        except TimelyError as error:
            return _error(next((status for kind, status in _STATUS if isinstance(error, kind)), 500), str(error))

    def _check_origin(self, request: web.Request) -> None:
        """Refuse pages of other sites, also those whose name now leads here (DNS rebinding); they could not name an address."""
        host = _name_in(f"//{request.host}")
        if not (host in self._hosts or _is_address(host)):
            raise web.HTTPForbidden(text=f"this server is not called {brief(host)}: --name tells it other names")
        origin = request.headers.get("Origin")
        site = request.headers.get("Sec-Fetch-Site", "none")
        linked = request.path == "/"  # the page has no data: links may lead to it
        if (origin is not None and urlsplit(origin).netloc != request.host) or (site not in _OWN and not linked):
            raise web.HTTPForbidden(text="pages of other sites may not read this server")

    # -- reading ---------------------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.StreamResponse:
        file = request.match_info.get("file", "page.html")
        if file not in _PAGE:
            raise web.HTTPNotFound(text=f"there is no file {brief(file)} of the page")
        package, path, kind = _PAGE[file]
        return web.Response(body=files(package).joinpath(path).read_bytes(), content_type=kind, charset="utf-8")

    async def _health(self, request: web.Request) -> web.StreamResponse:
        time, relations = self._views.overview()
        errors = [*self._problems(), *(f"{each.kind} {each.name}: {each.error}" for each in relations if each.error)]
        broken = self._views.broken
        status = "failed" if broken else "degraded" if errors else "ok"
        health = {
            "status": status,
            "time": time,
            "errors": [broken, *errors] if broken else errors,
            "sources": self._views.sources,
            "late": self._views.late,
            "queries": self._views.queries,
        }
        return web.json_response({**health, "subscribers": self._subscribers}, status=503 if broken else 200)

    async def _overview(self, request: web.Request) -> web.StreamResponse:
        time, relations = await self._reading(self._views.overview)
        return web.json_response(
            {
                "time": time,
                "writable": self._writable,
                "views": [{**each._asdict(), "columns": columns_object(each.columns)} for each in relations],
            }
        )

    async def _rows(self, request: web.Request) -> web.StreamResponse:
        limit = _number("limit", _only(request.query, "limit"), self._views.limits.rows)
        parameters = [each for each in request.query.items() if each[0] != "limit"]
        content = await self._reading(self._read, _view(request), parameters, limit, request.headers.get("Accept", ""))
        return await self._send_content(request, content)

    def _read(self, name: str, parameters: list[tuple[str, str]], limit: int, accept: str) -> _Content:
        subject = self._subject(name, parameters)
        answer = self._views.read(name, subject.where, limit)
        subject.check(answer.columns)
        return _content(name, answer, accept)

    async def _why(self, request: web.Request) -> web.StreamResponse:
        answering = self._dropped if request.path.endswith("/why_not") else self._explained
        subject, searches = await self._reading(self._subject, _view(request), list(request.query.items())), list[Query]()
        asked = partial(answering, searches, subject)
        try:
            if "text/event-stream" in request.headers.get("Accept", ""):
                first = _Batch(None, -1)
                return await self._follow(request, subject.name, first, self._reasons(asked, subject), self._queries)
            answer, _ = await _on(self._queries, asked)
            return web.json_response(answer)
        finally:
            for search in searches:  # where the client has gone, it is still under way
                search.close()

    def _reasons(
        self, asked: Callable[[], tuple[dict[str, Any], Provenance | None]], subject: _Subject
    ) -> Callable[[int], _Batch]:
        """Return what returns an event when an answer is another one than that before."""
        answer: dict[str, Any] = {}
        provenance: Provenance | None = None
        asked_of: object = None

        def following(time: int) -> _Batch:
            nonlocal answer, provenance, asked_of
            now, before, definitions = self._views.time, answer, self._views.catalog.definitions
            if self._views.describe(subject.name).columns is not subject.columns:
                return _dropped(f"{subject.name} is another one now: ask again", time)
            right = time == now or (provenance is not None and self._views.holds(subject.name, provenance))
            if right and definitions is asked_of:
                return _Batch(None, now)
            asked_of = definitions
            try:
                answer, provenance = asked()
            except (ConfigurationError, SqlError) as error:  # until there is one such row, or none
                answer, provenance = {"error": str(error)}, None
            return _Batch(None if answer == before else iter([event("why", {"time": now, **answer})]), now)

        return following

    @contextlib.contextmanager
    def _search(self, searches: list[Query]) -> Iterator[Query]:
        with contextlib.closing(self._views.prepare("")) as search:
            searches[:] = [search]
            yield search

    def _explained(self, searches: list[Query], subject: _Subject) -> tuple[dict[str, Any], Provenance | None]:
        name, definitions = subject.name, self._views.catalog.definitions
        with self._search(searches) as search:
            provenance = search.why(name, subject.where)
        if self._views.catalog.definitions is not definitions:
            raise ViewError(f"why of {name}: tables or views have changed meanwhile: ask again")
        inputs = {
            table: [[row_object(definitions[table].columns, row), count] for row, count in rows.items()]
            for table, rows in provenance.inputs.items()
        }
        lines = provenance.steps.lines()
        steps = [{"depth": depth, "operator": each.operator, "round": each.round, "text": each.line} for depth, each in lines]
        text = f"{provenance}\n\n{provenance.steps}"
        row = row_object(definitions[name].columns, provenance.row)
        return {"row": row, "inputs": inputs, "steps": steps, "text": text}, provenance

    def _dropped(self, searches: list[Query], subject: _Subject) -> tuple[dict[str, Any], Provenance | None]:
        name, columns, where = subject
        if any(each.comparison != "eq" for each in where) or len({each.place for each in where}) < len(where):
            raise ConfigurationError(f"why_not of {name} takes column=value, each column once, and no ranges")
        with self._search(searches) as search:
            absence = search.why_not(name, {columns[each.place].name: each.value for each in where})
        drops = [
            {
                "operator": drop.operator,
                "reason": drop.reason,
                "view": drop.view,
                "rows": [row_object(drop.columns, row) for row in drop.rows],
            }
            for drop in absence.drops
        ]
        return {"drops": drops, "text": str(absence)}, None

    def _subject(self, name: str, parameters: Sequence[tuple[str, str]] = ()) -> _Subject:
        columns = self._views.describe(name).columns
        return _Subject(name, columns, conditions_of(columns, parameters))

    async def _send_content(self, request: web.Request, content: _Content) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Timely-Time": str(content.time)})
        response.content_type = content.kind
        if content.kind == "application/json":
            response.charset = "utf-8"
        await response.prepare(request)
        if request.method != "HEAD":
            await self._send_pieces(request, response, content.content)
        await response.write_eof()
        return response

    async def _send_pieces(self, request: web.Request, response: web.StreamResponse, content: Iterator[bytes]) -> None:
        while piece := await self._reading(next, content, b""):
            await self.connections.send(request, response, piece)

    # -- following -------------------------------------------------------------------------------------------------

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        name, begin, last = _view(request), _only(request.query, "from"), _only(request.headers, "Last-Event-ID")
        parameters = [each for each in request.query.items() if each[0] != "from"]
        subject = await self._reading(self._subject, name, parameters)
        if last is not None:  # also where `from` is given: the client has gone on since
            first = await self._reading(self._resumed, subject, last)
        elif begin is not None:
            first = await self._reading(self._next, subject, _number("from", begin), True)
        else:
            first = await self._reading(self._first, subject)
        return await self._follow(request, name, first, partial(self._next, subject), self._reads)

    def _first(self, subject: _Subject, query: Query | None = None) -> _Batch:
        """Return all that a view holds."""
        name = subject.name
        answer = self._views.read(name, subject.where, self._views.limits.rows)
        subject.check(answer.columns)
        if answer.more:
            raise web.HTTPRequestEntityTooLarge(
                self._views.limits.rows,
                self._views.limits.rows + 1,
                text=f"{name} has more than {self._views.limits.rows} rows: give conditions, or raise --max-rows",
            )
        head = {"view": name, "time": answer.time}
        if query is not None and query.order:
            head |= {"shown": query.width, "order": [each._asdict() for each in query.order]}
        data = json_pieces(head, answer.columns, _flat(answer), {})
        return _Batch(pieces([event_head("snapshot", self._id(answer.time))], data, [b"\n\n"]), answer.time)

    def _resumed(self, subject: _Subject, last: str) -> _Batch:
        """Return what a client has missed that comes back, or that it has to start over, and all."""
        id, _, time = last.partition("-")
        if id == self._views.id and _is_number(time):
            try:
                batch = self._next(subject, int(time), True)
            except CompactedError:
                pass
            else:
                if not batch.over:
                    return batch
        first = self._first(subject)
        reason = "the changes since your last event are not remembered: the snapshot replaces what you have"
        return first._replace(content=pieces([event("reset", {"reason": reason})], first.content or ()))

    def _next(self, subject: _Subject, time: int, strict: bool = False) -> _Batch:
        """Return what came after ``time``; a client that is too slow is told so, or, if ``strict``, ``CompactedError``."""
        try:
            epochs = self._views.changes(subject.name, time)
            columns = self._views.describe(subject.name).columns
        except CompactedError as error:
            if strict:
                raise
            return _dropped(f"you read too slowly, or it has other columns now: {error}", time)
        if columns is not subject.columns:
            return _dropped(f"{subject.name} has other columns now: read it anew", time)
        events: list[Iterator[bytes]] = []
        rows = 0
        for epoch in epochs:
            changes = epoch.changes
            if subject.where:
                changes = [(row, diff) for row, diff in changes if all(condition.holds(row) for condition in subject.where)]
            rows += len(changes)
            if rows > self._views.limits.rows and not events:
                return _dropped(f"epoch {epoch.time} has more than {self._views.limits.rows} changes: read the view anew", time)
            if rows > self._views.limits.rows:
                break  # the rest comes next
            time = epoch.time
            if changes:
                events.append(changes_event(time, columns, changes, self._id(time)))
        return _Batch(pieces(*events) if events else None, time)

    def _id(self, time: int) -> str:
        return f"{self._views.id}-{time}"

    async def _follow(
        self,
        request: web.Request,
        name: str,
        batch: _Batch,
        following: Callable[[int], _Batch],
        threads: ThreadPoolExecutor,
    ) -> web.StreamResponse:
        """Send events until the client goes away, or the view is over."""
        if self._subscribers >= self._views.limits.subscribers:
            raise web.HTTPServiceUnavailable(text=f"{self._subscribers} clients follow already")
        self._subscribers += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            send = partial(self.connections.send, request, response)
            with contextlib.suppress(ConnectionError):
                last_error = None
                await send(b"retry: 1000\n\n")
                while not self._closing:
                    news = self._news
                    if batch.content is not None:
                        await self._send_pieces(request, response, batch.content)
                    if batch.over:
                        return response
                    time = batch.time
                    try:
                        batch = await _on(threads, following, time)
                        last_error = None
                    except ViewError as error:
                        if str(error) != last_error:
                            last_error = str(error)
                            await send(event("error", {"error": last_error}))
                        if threads is self._queries:
                            return response  # it does not come back
                        batch = _Batch(None, time)
                    except OutputError as error:
                        batch = _dropped(f"{name} was dropped: {error}", time)
                    if batch.content is None and batch.time == time:
                        try:
                            async with asyncio.timeout(HEARTBEAT):
                                await news.wait()
                        except TimeoutError:
                            await send(b":\n\n")
                await send(event("dropped", {"reason": "the server ends"}))
            return response
        finally:
            self._subscribers -= 1

    # -- queries ---------------------------------------------------------------------------------------------------

    async def _query(self, request: web.Request) -> web.StreamResponse:
        text, chosen = await self._sql(request, "order")
        accept = request.headers.get("Accept", "")
        once = _ARROW in accept or "application/json" in accept
        with contextlib.closing(self._views.prepare(text, once=once, ordered=chosen.get("order", False))) as query:
            if once:
                answer = await _on(self._queries, query.answer)
                return await self._send_content(request, await self._reading(_content, query.name, answer, accept))
            await _on(self._queries, query.start)
            subject = await self._reading(self._subject, query.name)
            first = await _on(self._queries, self._first, subject, query)  # which waits for the query
            return await self._follow(request, query.name, first, partial(self._next, subject), self._queries)

    async def _sql(self, request: web.Request, *options: str) -> tuple[str, dict[str, bool]]:
        """Return the SQL that a client has sent, and which of ``options`` it has chosen."""
        content: Any = await self._text(request)
        if content if request.method == "GET" else request.query:
            raise ConfigurationError("a GET has the query in its address, as ?sql=, and a POST in its body alone")
        if request.method == "GET":
            texts = {name: _only(request.query, name) or "" for name in request.query}
            content = {
                name: {"true": True, "false": False}.get(text, text) if name in options else text for name, text in texts.items()
            }
        elif request.content_type == "application/json":
            content = _parsed(content)
        else:
            content = {"sql": content}
        text = content.pop("sql", None) if isinstance(content, dict) else None
        if not isinstance(text, str) or not text.strip():
            raise ConfigurationError('send the query as text, or as JSON: {"sql": "select ..."}')
        for name, value in content.items():
            if name not in options or not isinstance(value, bool):
                known = "".join(f" and {option}, which is true or false" for option in options)
                raise ConfigurationError(f"{brief(name)}: {brief(value)}: the body has sql{known}")
        return text, content

    async def _text(self, request: web.Request) -> str:
        patience = self._views.limits.patience
        if "Content-Encoding" in request.headers:
            raise web.HTTPUnsupportedMediaType(text="send the body as it is, without a Content-Encoding")
        try:
            async with asyncio.timeout(patience):
                return await request.text()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body has not come within {patience:g} s") from None
        except (UnicodeError, LookupError) as error:
            raise ConfigurationError(f"the body is no text: {error}") from None

    # -- writing ---------------------------------------------------------------------------------------------------

    async def _write(self, request: web.Request) -> web.StreamResponse:
        self._check_writable()
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="send JSON, with the content type application/json")
        return web.json_response({"time": await self._admitted(request)})

    async def _write_body(self, request: web.Request) -> int:
        key, text = _only(request.headers, "Idempotency-Key"), await self._text(request)
        return await asyncio.wrap_future(await _on(self._epochs, self._written, _view(request), text, key))

    async def _admitted(self, request: web.Request) -> int:
        """Return the epoch of a write, whose body is held up to then, also where its client leaves."""
        limits = self._views.limits
        size = min(request.content_length or limits.body, limits.body)
        if self._held and self._held + size > limits.waiting:
            raise web.HTTPServiceUnavailable(text=f"{self._held} bytes wait to be written already: try again later")
        task = asyncio.create_task(self._write_body(request))

        def end(task: asyncio.Task[int]) -> None:
            self._held -= size
            self._admissions.discard(task)
            _retrieve(task)

        self._held += size
        self._admissions.add(task)
        task.add_done_callback(end)
        return await asyncio.shield(task)

    async def _script(self, request: web.Request) -> web.StreamResponse:
        """Answer when a script has happened: one at a time, and only if its client has waited up to its beginning."""
        self._check_writable()
        text, _ = await self._sql(request)
        if len(text) > self._views.limits.query_length:
            raise SqlError(f"the script has {len(text)} characters, and {self._views.limits.query_length} at most are read")
        await self._defining.acquire()
        defined = _on(self._definitions, self._defined, text)
        defined.add_done_callback(lambda _: self._defining.release())
        defined.add_done_callback(_retrieve)
        return web.json_response({"time": await asyncio.shield(defined)})

    def _defined(self, text: str) -> int:
        if not self._connectors and any(isinstance(each, ConnectorDefinition) for each in parse_script(text)):
            raise ConfigurationError(
                "sources and sinks reach what the server does, its environment too: the server's script defines them, or clients"
                " with --connectors"
            )
        self._views.rehearse(text)
        return self._views.run_script(text)

    def _check_writable(self) -> None:
        if not self._writable:
            raise web.HTTPForbidden(text="this server only reads: --writable lets clients change tables")

    def _written(self, name: str, text: str, key: str | None) -> Future[int]:
        content = _parsed(text)
        keys = content.keys() if isinstance(content, dict) else set()
        others = keys - {"insert", "delete", "upsert", "key"}
        if not keys or others or ("upsert" in keys) != ("key" in keys):
            raise ConfigurationError(
                'send {"insert": [rows], "delete": [rows]}, or {"upsert": [rows], "key": [columns]}; a row is an object'
            )
        known = self._views.describe(name).columns
        insert, delete, upsert = (rows_of(known, content.get(what, []), what) for what in ("insert", "delete", "upsert"))
        columns = content.get("key", ())
        return self._views.begin_write(name, insert=insert, delete=delete, upsert=upsert, key=columns, idempotency_key=key)


def _on(threads: ThreadPoolExecutor, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


def _retrieve(done: asyncio.Future[int]) -> None:
    if not done.cancelled():
        done.exception()  # which the client has been told, if it is there


async def _secured(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


def _weak(method: Callable[..., Awaitable[web.StreamResponse]]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Return a handler that calls ``method`` and does not keep its object alive."""
    reference = WeakMethod(method)

    async def call(*arguments: Any, **named: Any) -> web.StreamResponse:
        method = reference()
        assert method is not None, "the server has closed"
        return await method(*arguments, **named)

    return call


def _content(name: str, answer: Answer, accept: str) -> _Content:
    if _ARROW in accept:
        return _Content(_ARROW, answer.time, arrow_pieces(answer.time, answer.more, answer.columns, _flat(answer)))
    head, tail = {"view": name, "time": answer.time}, {"more": answer.more}
    return _Content("application/json", answer.time, json_pieces(head, answer.columns, _flat(answer), tail))


def _flat(answer: Answer) -> list[Row]:
    """Return each row as often as it is there: what is held for a slow client is one reference a row."""
    return [row for row, count in answer.rows for _ in range(count)]


def _dropped(reason: str, time: int) -> _Batch:
    return _Batch(iter([event("dropped", {"reason": reason})]), time, over=True)


def _only(options: MultiMapping[str], name: str) -> str | None:
    """Return what a request gives once, if it does."""
    values = options.getall(name, [])
    if len(values) > 1:
        raise ConfigurationError(f"{name} is there {len(values)} times: give it once")
    return values[0] if values else None


def _view(request: web.Request) -> str:
    """Return the name of a table or view; only who has begun a query reads that, since it may lag."""
    name = request.match_info["name"].lower()
    if not NAME.fullmatch(name):
        raise OutputError(f"there is no table or view {brief(name)}")
    return name


def _name_in(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _number(name: str, text: str | None, most: int | None = None) -> int:
    if text is None and most is not None:
        return most
    if text is None or not _is_number(text):
        raise ConfigurationError(f"{name}={text}: give a whole number")
    return int(text) if most is None else min(int(text), most)


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 19


def _parsed(text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    def once(parts: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(parts)
        if len(fields) < len(parts):
            raise ValueError(f"an object has one of {', '.join(fields)} twice")
        return fields

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the body is no JSON: {error}") from None


def _error(status: int, message: str) -> web.Response:
    place = re.search(r"at line ([0-9]+), column ([0-9]+)", message)
    where = {} if place is None else {"line": int(place[1]), "column": int(place[2])}
    return web.json_response({"error": message, **where}, status=status)
