"""Sending an answer: as events while it is made, or whole; and noticing that nobody reads it."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.gathered import joined
from ds4agent.server.api.output import KEEP_ALIVE, Piece, Reply
from ds4agent.server.guard import TRANSPORT
from ds4agent.server.job import Began, Ended, Failed, Job, Pieces
from ds4agent.server.outbox import Unread

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answer(Response):
    """The response to a request whose job is queued."""

    def __init__(
        self,
        job: Job,
        reply: Reply,
        keep_alive_s: float,
        stall_s: float,
        done: Callable[[int], None],
    ) -> None:
        """Prepare.

        Args:
            job: Queued.
            reply: Writes it in the shape of its interface.
            keep_alive_s: Longest silence before a comment is sent.
            stall_s: How long the reader may take nothing.
            done: Called once with the status.
        """
        super().__init__()
        self._job = job
        self._reply = reply
        self._keep_alive_s = keep_alive_s
        self._stall_s = stall_s
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; ends early when the client is gone."""
        outbox = self._job.outbox
        reader = asyncio.create_task(self._watch(receive))
        writer = asyncio.create_task(self._write(scope, receive, send))
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if writer.done():
                writer.result()
        except Unread:
            transport = scope.get(TRANSPORT)
            if transport is not None:
                transport.abort()  # closing it would wait for the reader
        except OSError:
            pass  # the client is gone
        finally:
            outbox.close()
            for task in (reader, writer):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Unread, OSError):
                    await task

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._job.request.stream:
            await self._stream(scope, receive, send)
        else:
            await self._whole(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            for item in await self._job.outbox.take():
                match item:
                    case Pieces(pieces):
                        for piece in pieces:
                            self._reply.piece(piece)
                    case Ended(finish, usage, stop_sequence):
                        try:
                            body = self._reply.whole(finish, usage, stop_sequence)
                        except ApiError as error:
                            await self._refuse(error, scope, receive, send)
                            return
                        self._done(200)
                        await self._send_json(JSONResponse(body), scope, receive, send)
                        return
                    case Failed(error):
                        await self._refuse(error, scope, receive, send)
                        return

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        outbox = self._job.outbox
        # What can only be continued in memory may be lost meanwhile, which is a status of its own.
        items = await outbox.take() if self._job.prompt is None else []
        if items and isinstance(items[0], Failed):
            await self._refuse(items[0].error, scope, receive, send)
            return
        self._done(200)
        await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS}, send)
        last_sent = time.monotonic()
        is_over = False
        while not is_over:
            events = self._events(items)
            is_over = any(isinstance(item, Ended | Failed) for item in items)
            if not events and time.monotonic() - last_sent >= self._keep_alive_s:
                events = [KEEP_ALIVE]
            if events:
                await self._send(
                    {"type": "http.response.body", "body": b"".join(events), "more_body": True},
                    send,
                )
                last_sent = time.monotonic()
            if not is_over:
                items = await outbox.take(self._keep_alive_s)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False}, send)

    def _events(self, items: list[Any]) -> list[bytes]:
        """Return the events of all items that were there; a reader that is slow gets fewer."""
        events: list[bytes] = []
        said: list[Piece] = []
        for item in items:
            if isinstance(item, Pieces):
                said += item.pieces
                continue
            events += self._say(said)
            said = []
            match item:
                case Began(usage):
                    events += self._reply.start(usage)
                case Ended(finish, usage, stop_sequence):
                    events += self._reply.finish(finish, usage, stop_sequence)
                case Failed(error):
                    events += self._reply.error(error)
                case _:
                    raise TypeError(f"{type(item).__name__} is no item of an answer")
        return events + self._say(said)

    def _say(self, pieces: list[Piece]) -> list[bytes]:
        return [event for piece in joined(pieces) for event in self._reply.piece(piece)]

    async def _refuse(self, error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        self._done(error.status)
        body = error.body(self._job.request.api)
        await self._send_json(JSONResponse(body, error.status), scope, receive, send)

    async def _send_json(
        self, response: Response, scope: Scope, receive: Receive, send: Send
    ) -> None:
        async def bounded(message: dict) -> None:
            await self._send(message, send)

        await response(scope, receive, bounded)

    async def _send(self, message: dict, send: Send) -> None:
        """Send, unless the reader has taken nothing for too long."""
        try:
            async with asyncio.timeout(self._stall_s):
                await send(message)
        except TimeoutError as error:
            raise Unread from error
