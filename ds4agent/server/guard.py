"""Who may ask: checked before anything of a request is read.

Without a key only this machine's own programs are served, and web pages are not among them: a page
could otherwise ask a server on loopback in its visitor's name, by a name that its owner lets point
to 127.0.0.1, or by a form.
"""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.request import Api

TRANSPORT = "ds4.transport"  # in the scope: the connection itself, where the server shows it
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_OPEN_PATHS = ("/health",)
_CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST, OPTIONS",
    "access-control-allow-headers": "*",
}


def api_of(path: str) -> Api:
    """Return the interface whose error shape a path has."""
    names = {"/v1/messages": Api.MESSAGES, "/v1/responses": Api.RESPONSES}
    return next((api for start, api in names.items() if path.startswith(start)), Api.CHAT)


def refusal(error: ApiError, path: str) -> Response:
    """Return the response of an error, in the shape of the path's interface."""
    return JSONResponse(error.body(api_of(path)), error.status)


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, host: str, api_key: str, cors: bool) -> None:
        """Wrap.

        Args:
            app: What answers.
            host: Address that the server listens at.
            api_key: "" asks for none.
            cors: Pages of other sites may ask.
        """
        self._app = app
        self._hosts = _LOCAL | {host}
        self._key = api_key.encode()
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check, and hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)
        sending = self._with_cors(send) if self._cors else send
        if scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, sending)
            return
        error = self._problem(Headers(scope=scope), scope["path"])
        if error is not None:
            await refusal(error, scope["path"])(scope, receive, sending)
            return
        await self._app(scope, receive, sending)

    def _problem(self, headers: Headers, path: str) -> ApiError | None:
        if path in _OPEN_PATHS:
            return None
        if self._key:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
            if not hmac.compare_digest(given.encode("utf-8", "replace"), self._key):
                return ApiError("The API key is missing or wrong.", 401, code="invalid_api_key")
        elif _host_of("//" + headers.get("host", "")) not in self._hosts:
            return ApiError("The Host of the request is not this server's.", 403)
        origin = headers.get("origin")
        if origin is not None and not self._cors and _host_of(origin) not in self._hosts:
            return ApiError("Pages of other sites may not ask; see --cors.", 403)
        return None

    def _with_cors(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_CORS)
            await send(message)

        return sending


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
