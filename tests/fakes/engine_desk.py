"""The engine's side of a server without HTTP, for tests: a request in, its whole answer out."""

import json
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.memory import ResponseMemory
from ds4agent.server.api.output import Finish, Usage
from ds4agent.server.api.replies import new_reply_id, reply_to
from ds4agent.server.api.request import Api, ServedModel
from ds4agent.server.job import Ended, Failed, Pieces
from ds4agent.server.metrics import Metrics
from ds4agent.server.reception import Reception
from ds4agent.server.settings import ServerSettings
from ds4agent.server.worker import EngineWorker
from engine.engine import Engine

PATIENCE_S = 60


class Basket:
    """An outbox that keeps everything."""

    def __init__(self) -> None:
        self.cancel = threading.Event()
        self.items: queue.Queue[Any] = queue.Queue()

    def put(self, item: Any, n_bytes: int = 64) -> None:
        self.items.put(item)


@dataclass
class Answer:
    """A whole answer: the object of its interface, and what it cost."""

    body: dict[str, Any]
    finish: Finish
    usage: Usage

    @property
    def n_read(self) -> int:
        """Tokens of the prompt that were evaluated."""
        return self.usage.prompt - self.usage.cached


class EngineDesk:
    """A worker and what reads its requests."""

    def __init__(self, engine: Engine, kv_folder: Path | None = None, **settings: Any) -> None:
        self.worker = EngineWorker(
            lambda progress, cancel: engine,
            ServerSettings(kv_folder=kv_folder, **settings),
            Metrics(),
        )
        self.worker.start()
        self.worker.wait_until_ready()
        chat = engine.chat
        model = ServedModel.of_format("model", engine.info.ctx, chat.name, chat.can_think)
        self.reception = Reception(self.worker, model, ResponseMemory())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        assert self.worker.join(PATIENCE_S)

    def submit(self, api: Api, body: dict[str, Any]) -> tuple[Basket, Any]:
        """Queue a request; returns its outbox and what writes its answer."""
        basket = Basket()
        job = self.reception.job(api, json.dumps(body).encode(), basket)
        self.worker.submit(job)
        return basket, reply_to(job.request, new_reply_id(api), 0)

    def ask(self, api: Api, body: dict[str, Any]) -> Answer:
        """Send a request and wait for its answer.

        Raises:
            ApiError: it was refused, before or after it was queued.
        """
        basket, reply = self.submit(api, body)
        while True:
            match basket.items.get(timeout=PATIENCE_S):
                case Pieces(pieces):
                    for piece in pieces:
                        reply.piece(piece)
                case Ended(finish, usage, stop):
                    self._wait_until_idle()
                    return Answer(reply.whole(finish, usage, stop), finish, usage)
                case Failed(error):
                    raise error

    def chat(self, messages: list[dict[str, Any]], **fields: Any) -> Answer:
        """Ask through Chat Completions."""
        return self.ask(Api.CHAT, {"messages": messages, **fields})

    def _wait_until_idle(self) -> None:
        """What is remembered of an answer is there once the next request is looked at."""
        while self.worker.busy:
            threading.Event().wait(0.002)


def refused(desk: EngineDesk, api: Api, body: dict[str, Any]) -> ApiError:
    """Send a request that is to be refused and return the error."""
    try:
        desk.ask(api, body)
    except ApiError as error:
        return error
    raise AssertionError("the request was answered")
