"""Many clients at once, half of them slow readers or gone in mid-stream."""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.server_process import ServerProcess

N_CLIENTS = 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    script = {"replies": ["some words of an answer " * 4]}
    with ServerProcess(tmp_path, script, ("--stall-s", "2")) as running:
        yield running


class Clients:
    """Connections to one server, each with a temper."""

    def __init__(self, server: ServerProcess, chance: random.Random) -> None:
        host, port = server.url.removeprefix("http://").split(":")
        self._address = (host, int(port))
        self._chance = chance
        self.n_complete = 0
        self.n_broken = 0  # of those that wanted their answer

    async def one(self, number: int) -> None:
        temper = ("patient", "whole", "leaves", "slow")[number % 4]
        body = {
            "messages": [{"role": "user", "content": f"hello {number % 20}"}],
            "stream": temper != "whole",
        }
        data = json.dumps(body).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection(*self._address, limit=2048)
        try:
            writer.write(head.encode() + data)
            await writer.drain()
            if temper == "leaves":
                await asyncio.sleep(self._chance.random() * 2)
                return
            if temper == "slow":
                for _ in range(self._chance.randrange(1, 30)):
                    if not await reader.read(512):
                        return
                    await asyncio.sleep(0.05)
                return
            answer = await reader.read(-1)
            ending = b"[DONE]" if temper == "patient" else b'"finish_reason":"stop"'
            is_whole = ending in answer
            self.n_complete += is_whole
            self.n_broken += not is_whole
        finally:
            writer.transport.abort()

    async def all(self, n: int) -> None:
        await asyncio.gather(*(self.one(number) for number in range(n)))


def open_files(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def threads(server: ServerProcess) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def settle(server: ServerProcess, n_files: int) -> None:
    """Wait until nothing runs and every connection is gone."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        health = json.loads(server.get("/health"))
        # The connection that asks is one, and one may just be closing.
        is_idle = not health["busy"] and not health["queued"]
        if is_idle and open_files(server) <= n_files + 2:
            return
        time.sleep(0.1)
    raise AssertionError(f"{health}, {open_files(server)} files are open, {n_files} were")


def run_rounds(server: ServerProcess, n_rounds: int) -> list[float]:
    """Return the memory after each round, MiB."""
    chance = random.Random(4)
    server.get("/health")
    n_files, memory = open_files(server), []
    for _ in range(n_rounds):
        clients = Clients(server, chance)
        asyncio.run(asyncio.wait_for(clients.all(N_CLIENTS), 120))
        assert clients.n_broken == 0
        assert clients.n_complete == N_CLIENTS // 2
        settle(server, n_files)
        memory.append(server.memory_mb())
    return memory


def check_ending(server: ServerProcess, log: Path) -> None:
    """End the server; no answer may still be waited for."""
    assert server.stop() == 0
    assert "running task" not in log.read_text(encoding="utf-8")


def test_two_hundred_clients(server: ServerProcess, tmp_path: Path) -> None:
    memory = run_rounds(server, 2)
    assert memory[-1] - memory[0] < 8
    assert threads(server) < 24
    check_ending(server, tmp_path / "server.log")


@pytest.mark.slow
def test_two_hundred_clients_for_many_rounds(server: ServerProcess, tmp_path: Path) -> None:
    memory = run_rounds(server, 60)
    assert memory[-1] - memory[5] < 16
    check_ending(server, tmp_path / "server.log")
