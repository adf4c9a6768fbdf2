"""Real Postgres and Redis as child processes, for `bucketd up`, the demo and the tests.

A server lives as long as the process that started it: it is stopped with `Server.stop()`, and also when that process
dies in any other way (guard.py). Data stays in the given directory; the next start goes on with it, after a crash too.
"""

from bucketd.embedded.postgres import start_postgres
from bucketd.embedded.redis import KEPT, start_redis
from bucketd.embedded.server import EmbeddedError, Server

__all__ = ["KEPT", "EmbeddedError", "Server", "start_postgres", "start_redis"]
