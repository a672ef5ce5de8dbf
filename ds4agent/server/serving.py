"""Listening, and ending in order: what runs is given up, what is in memory is saved."""

import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from ds4agent.errors import Ds4Error
from ds4agent.server.api.request import ServedModel
from ds4agent.server.app import Frontend, new_model_name
from ds4agent.server.metrics import Metrics
from ds4agent.server.settings import ServerSettings
from ds4agent.server.worker import EngineWorker, OpenEngine

_BACKLOG = 1024
_GRACE_S = 5.0  # for the last events of the answers that were given up
INTERRUPTED = 130


class _Server(uvicorn.Server):
    """Tells the worker to end before connections are waited for; a second signal ends at once."""

    def __init__(self, config: uvicorn.Config, worker: EngineWorker) -> None:
        super().__init__(config)
        self._worker = worker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._worker.stop()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # In a signal handler: whatever lock is held now is held by this very thread.
        if self.should_exit:
            os._exit(INTERRUPTED)
        self.should_exit = True


def serve(open_engine: OpenEngine, settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Load the model and answer until a signal comes.

    Args:
        open_engine: Loads the model.
        settings: What does not change.
        say: Called with a line once requests are taken.

    Raises:
        Ds4Error: the address can't be listened at.
        Exception: whatever keeps the model from being loaded.
    """
    if not settings.api_key and settings.host not in ("127.0.0.1", "localhost", "::1"):
        raise Ds4Error(
            f"--host {settings.host} is open to other machines, and no API key is set",
            "Set DS4_SERVER_API_KEY, or listen at 127.0.0.1.",
        )
    listener = _listen(settings.host, settings.port)
    metrics = Metrics()
    worker = EngineWorker(open_engine, settings, metrics)
    worker.start()
    worker.wait_until_ready()
    info, chat = worker.engine.info, worker.engine.chat
    model = ServedModel.of_format(
        settings.model_name or new_model_name(info.name),
        info.ctx,
        chat.name,
        chat.can_think,
        int(time.time()),
    )
    frontend = Frontend(worker, model, settings, metrics)
    config = uvicorn.Config(
        frontend.app(),
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=int(_GRACE_S),
        server_header=False,
    )
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    where = f"http://{host}:{listener.getsockname()[1]}"
    say(f"{model.name} at {where} (context {info.ctx}, {info.device})")
    _Server(config, worker).run(sockets=[listener])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    worker.stop()
    worker.join()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or error
        raise Ds4Error(
            f"can't listen at {host}:{port}: {reason}", "Choose another --port or --host."
        ) from error
    return listener
