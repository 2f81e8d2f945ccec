"""Makes the moving picture of the live page, ``docs/img/live.gif``: ``python docs/live_picture.py BROWSER``.

The browser is a Chromium or one of its kin. It shows the page of a run of two workers, and is asked for a screenshot each second.
Needs the extras ``docs`` and ``serve``, and Pillow.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

import timely
from timely.inspect import LivePage

PICTURE = Path(__file__).parent / "img" / "live.gif"
WIDTH, HEIGHT, SHOTS = 1100, 860, 7


def shorter(node: int, distance: int, least: int | None) -> tuple[int, list[tuple[int, int]]]:
    """Return the least distance of a node, and the records to send."""
    return (least, []) if least is not None and least <= distance else (distance, [(node, distance)])


def search(worker: timely.Worker, page: LivePage, end: threading.Event) -> None:
    """Search a graph whose edges come in epochs, until ``end``."""
    page.watch(worker)
    with worker.dataflow(int, name="distances") as scope:
        edges, links = scope.new_input()
        roots, start = scope.new_input()
        with scope.iterative("search") as loop:
            back, again = loop.feedback()
            reached = start.enter(loop).concat(again).state_machine(shorter)
            steps = links.enter(loop).join(reached)
            steps.map(lambda found: (found[1][0], found[1][1] + 1)).connect_loop(back)
        probe = reached.leave().probe()
    if worker.index == 0:
        roots.send((0, 0))
    roots.close()
    draws, epoch = random.Random(worker.index), 0
    while not end.is_set():
        for _ in range(300):
            edges.send((draws.randrange(4000), draws.randrange(4000)))
        epoch += 1
        edges.advance_to(epoch)
        worker.step_while(lambda before=epoch - 1: probe.less_than(before))
        time.sleep(0.05)
    edges.close()
    worker.run()


async def shots(url: str, debugger: str) -> list[Image.Image]:
    """Return screenshots of the page, one a second."""
    found = []
    async with aiohttp.ClientSession() as client, client.ws_connect(debugger, max_msg_size=0) as socket:

        async def call(number: int, method: str, **given: Any) -> Any:
            await socket.send_json({"id": number, "method": method, "params": given})
            while True:
                answer = json.loads((await socket.receive()).data)
                if answer.get("id") == number:
                    return answer["result"]

        await call(1, "Page.navigate", url=url)
        await asyncio.sleep(5)
        for number in range(SHOTS):
            await asyncio.sleep(1)
            taken = await call(number + 2, "Page.captureScreenshot", format="png")
            found.append(Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB"))
    return found


def main(browser: str) -> None:
    """Write the picture."""
    end = threading.Event()
    with LivePage() as page, tempfile.TemporaryDirectory() as profile:
        options = [f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}", "--remote-debugging-port=0", "--no-sandbox"]
        shown = subprocess.Popen([browser, "--headless", *options, "about:blank"], stderr=subprocess.PIPE, text=True)
        assert shown.stderr is not None
        port = next(found[1] for line in shown.stderr if (found := re.search(r"ws://127\.0\.0\.1:(\d+)/", line)))
        pool = ThreadPoolExecutor(1)
        run = pool.submit(timely.execute, lambda worker: search(worker, page, end), workers=2)
        try:
            pages = asyncio.run(_pages(port))
            images = asyncio.run(shots(page.url, pages[0]["webSocketDebuggerUrl"]))
        finally:
            end.set()
            run.result()
            shown.terminate()
            shown.wait()
    first, *others = [image.quantize(64, dither=Image.Dither.NONE) for image in images]
    first.save(PICTURE, save_all=True, append_images=others, duration=1000, loop=0, optimize=True)
    print(PICTURE, PICTURE.stat().st_size)


async def _pages(port: str) -> Any:
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/json") as answer:
        return [page for page in await answer.json() if page["type"] == "page"]


if __name__ == "__main__":
    main(sys.argv[1])
