"""`python -m bucketd.runner`: a runner until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

import uvloop

from bucketd.runner.loop import Runner
from bucketd.store.config import Settings
from bucketd.store.errors import BucketdError
from bucketd.store.log import event, to_stderr


async def serve(settings: Settings) -> None:
    """Runs a runner until a signal asks it to stop; a second signal changes nothing, the drain time-out bounds the stop."""
    runner = Runner(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runner.stop)
    await runner.run()


def main() -> int:
    """Exit code 0 after a graceful stop; at the start 2 for a bad setting, 4 when a store is unfit or cannot be reached."""
    try:
        settings = Settings.load()
        to_stderr(settings.log_level, settings.log_format)
        event("settings", **settings.shown())
        # The data path makes millions of tuples and no cycles: the default thresholds cost a tenth of the runner's time.
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except BucketdError as error:
        print(f"bucketd runner: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
