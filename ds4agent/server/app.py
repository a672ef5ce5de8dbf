"""The paths of the server."""

import asyncio
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ds4agent.server.api.body import MAX_BYTES
from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.models import describe_model, list_models
from ds4agent.server.api.replies import new_reply_id, reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.guard import Guard, refusal
from ds4agent.server.http_answer import Answer
from ds4agent.server.metrics import Metrics
from ds4agent.server.outbox import Outbox
from ds4agent.server.reception import Reception
from ds4agent.server.settings import ServerSettings
from ds4agent.server.worker import EngineWorker

_READERS = 2  # threads that read requests: more would only compete with the engine
_BODY_TIMEOUT_S = 10.0  # between two pieces of a body
_PATHS = {
    "/v1/chat/completions": Api.CHAT,
    "/v1/responses": Api.RESPONSES,
    "/v1/messages": Api.MESSAGES,
    "/v1/completions": Api.COMPLETIONS,
}


class Frontend:
    """The handlers of one server."""

    def __init__(
        self,
        worker: EngineWorker,
        model: ServedModel,
        settings: ServerSettings,
        metrics: Metrics,
    ) -> None:
        self._worker = worker
        self._model = model
        self._settings = settings
        self._metrics = metrics
        self._memory = ResponseMemory()
        self._reception = Reception(worker, model, self._memory)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="ds4-reader")

    def app(self) -> ASGIApp:
        """Return the ASGI application."""
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.one_model),
            Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
        ]
        for path, api in _PATHS.items():
            routes.append(Route(path, partial(self.answer, api), methods=["POST"]))
        starlette = Starlette(routes=routes, exception_handlers={HTTPException: _http_error})
        settings = self._settings
        return Guard(starlette, settings.host, settings.api_key, settings.cors)

    async def answer(self, api: Api, request: Request) -> Response:
        """Answer a request of one of the interfaces."""
        outbox = Outbox(asyncio.get_running_loop())
        try:
            body = await _body(request)
            job = await self._in_thread(self._reception.job, api, body, outbox)
            created = int(time.time())
            reply = reply_to(job.request, new_reply_id(api), created, memory=self._memory)
            self._worker.submit(job)
        except ApiError as error:
            self._metrics.request(api, error.status)
            return JSONResponse(error.body(api), error.status)
        except ClientDisconnect:
            return Response(status_code=499)
        settings = self._settings
        done = partial(self._metrics.request, api)
        return Answer(job, reply, settings.keep_alive_s, settings.stall_s, done)

    async def count_tokens(self, request: Request) -> Response:
        """Count the tokens of a request to Messages."""
        try:
            body = await _body(request)
            return JSONResponse(await self._in_thread(self._reception.count_tokens, body))
        except ApiError as error:
            return JSONResponse(error.body(Api.MESSAGES), error.status)
        except ClientDisconnect:
            return Response(status_code=499)

    async def health(self, request: Request) -> Response:
        """Tell that the server runs, and how much it has to do."""
        busy, waiting = self._worker.busy, self._worker.n_waiting
        return JSONResponse({"status": "ok", "busy": busy, "queued": waiting})

    async def metrics(self, request: Request) -> Response:
        """Return the counters for Prometheus."""
        self._metrics.queue.set(self._worker.n_waiting)
        self._metrics.busy.set(self._worker.busy)
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """List the one model."""
        return JSONResponse(list_models(self._model))

    async def one_model(self, request: Request) -> Response:
        """Describe the model under its name."""
        try:
            return JSONResponse(describe_model(self._model, request.path_params["name"]))
        except ApiError as error:
            return refusal(error, request.url.path)

    async def _in_thread(self, function, *arguments):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, partial(function, *arguments))


async def _body(request: Request) -> bytes:
    """Read a body.

    Raises:
        ApiError: it is too long, or comes too slowly.
        ClientDisconnect: the client is gone.
    """
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > MAX_BYTES:
        raise ApiError(f"The body has {announced} bytes, expected at most {MAX_BYTES}.", 413)
    pieces, n_bytes = [], 0
    stream = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                piece = await anext(stream)
        except StopAsyncIteration:
            return b"".join(pieces)
        except TimeoutError as error:
            raise ApiError("The body did not arrive in time.", 408) from error
        n_bytes += len(piece)
        if n_bytes > MAX_BYTES:
            raise ApiError(f"The body has more than {MAX_BYTES} bytes.", 413)
        pieces.append(piece)


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = {
        404: "There is nothing at this path.",
        405: f"This path takes no {request.method}.",
    }.get(error.status_code, str(error.detail))
    response = refusal(ApiError(message, error.status_code, code=_code(error)), request.url.path)
    response.headers.update(error.headers or {})
    return response


def _code(error: HTTPException) -> str:
    return {404: "unknown_endpoint", 405: "method_not_allowed"}.get(error.status_code, "")


def new_model_name(name: str) -> str:
    """Return the id of a model from the name in its file: lower case, without spaces."""
    return "-".join(name.lower().split()) or f"model-{secrets.token_hex(4)}"
