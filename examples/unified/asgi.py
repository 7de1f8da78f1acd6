"""One ASGI application for all protocols: `uvicorn --app-dir examples/unified --no-proxy-headers asgi:application`."""

import os
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings")
django_app = get_asgi_application()

# Only now: these read Django's settings.
from consumers import Assistant  # noqa: E402
from login import Login  # noqa: E402
from tools import mcp_app  # noqa: E402

from ratelimit_channels import WebsocketHandshakeLimit  # noqa: E402


async def http_app(scope: Any, receive: Any, send: Any) -> None:
    """MCP under `/mcp`, Django everywhere else."""
    app = mcp_app if scope["path"] == "/mcp" else django_app
    await app(scope, receive, send)


application = Login(
    ProtocolTypeRouter(
        {
            "http": http_app,
            "websocket": WebsocketHandshakeLimit(URLRouter([path("ws", Assistant.as_asgi())])),
            "lifespan": mcp_app,
        }
    )
)
