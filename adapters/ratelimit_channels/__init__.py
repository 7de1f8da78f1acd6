"""Rate limits in Channels: in consumers (`if await check_ws_rate_limit(self, "AI_QUERY"): return`, or `@ws_ratelimit`), at the
handshake, on open connections and on messages."""

from ratelimit_channels.check import check_ws_rate_limit, check_ws_rate_limit_sync
from ratelimit_channels.connections import WebsocketConnectionLimit, WebsocketMessageLimit
from ratelimit_channels.decorator import ws_ratelimit
from ratelimit_channels.frame import WS_CLOSE_RATE_LIMITED
from ratelimit_channels.handshake import WebsocketHandshakeLimit

__all__ = [
    "WS_CLOSE_RATE_LIMITED",
    "WebsocketConnectionLimit",
    "WebsocketHandshakeLimit",
    "WebsocketMessageLimit",
    "check_ws_rate_limit",
    "check_ws_rate_limit_sync",
    "ws_ratelimit",
]
