"""Rate limits in Channels consumers, `if await check_ws_rate_limit(self, "AI_QUERY"): return`, and at the handshake."""

from ratelimit_channels.check import check_ws_rate_limit, check_ws_rate_limit_sync
from ratelimit_channels.frame import WS_CLOSE_RATE_LIMITED
from ratelimit_channels.handshake import WebsocketHandshakeLimit

__all__ = [
    "WS_CLOSE_RATE_LIMITED",
    "WebsocketHandshakeLimit",
    "check_ws_rate_limit",
    "check_ws_rate_limit_sync",
]
