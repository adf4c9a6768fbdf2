"""The recording HTTP target, a process of its own: `python -m bucketd.demo.target FILE`.

Prints its port, appends a line per delivery to FILE, ends on SIGTERM or when its standard input, a pipe, does. The time
of arrival is read before anything else is done with a request: as near to the begin of the call as a receiver can be.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import TextIO

import uvloop
from aiohttp import web

FLUSH_S = 0.1
WORK_S = 0.05  # before it answers, as a real endpoint would: so calls are under way when a runner dies


class Recorder:
    """Answers 200 to everything, and remembers it."""

    def __init__(self, sink: TextIO) -> None:
        self._sink = sink
        self._lines: list[str] = []

    async def receive(self, request: web.BaseRequest) -> web.Response:
        """Takes one delivery, or an array of them; recorded at once, answered after WORK_S."""
        arrived_s = time.time()
        try:
            body = json.loads(await request.read())
        except ValueError:
            return web.Response(status=400, text="expected JSON")
        for run in body if isinstance(body, list) else [body]:
            fields = (run["run_id"], run["attempt"], run["tenant"], run["schedule"], run["scheduled_at"])
            self._lines.append(json.dumps([arrived_s, *fields]))
        await asyncio.sleep(WORK_S)
        return web.Response()

    def flush(self) -> None:
        """Writes what came since the last flush, whole lines only."""
        lines, self._lines = self._lines, []
        if lines:
            self._sink.write("\n".join(lines) + "\n")
            self._sink.flush()


async def serve(path: Path) -> None:
    """Runs until standard input ends or SIGTERM comes; everything recorded is in the file then."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_reader(sys.stdin.fileno(), ended.set)  # nobody writes to it: readable means that the owner is gone
    with path.open("a", encoding="utf-8") as sink:
        recorder = Recorder(sink)
        runner = web.ServerRunner(web.Server(recorder.receive), handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        print(runner.addresses[0][1], flush=True)
        while not ended.is_set():
            await asyncio.sleep(FLUSH_S)
            recorder.flush()
        await runner.cleanup()
        recorder.flush()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
