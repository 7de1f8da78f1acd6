"""A body that never reaches the application: compressed, too large, or not readable in just one way."""

from __future__ import annotations

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602


class RefusalError(Exception):
    """Nothing was counted; the client is answered `status`, with a JSON-RPC error of `code` and this text.

    `request_id` is that of the call which is to blame, if it is one call.
    """

    def __init__(
        self,
        status: int,
        code: int,
        reason: str,
        headers: dict[str, str] | None = None,
        request_id: str | int | None = None,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.request_id = request_id
