"""What targets call: reports about long runs, as a small ASGI application of its own.

    uvicorn --factory bucketd.api:create_app

serves it with the settings of the environment; any other ASGI server with lifespan will do. `App(settings)` can be mounted in an
application that opens and closes it.
"""

from bucketd.api.app import App, create_app

__all__ = ["App", "create_app"]
