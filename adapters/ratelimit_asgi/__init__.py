"""Rate limits on HTTP and WebSocket in any ASGI application; dependencies and decorators for FastAPI and Starlette."""

__all__: list[str] = []
