"""The server as a program: who may ask, clients that misbehave, signals, restarts."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.server_process import ServerProcess

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
SLOW = {"replies": ["word " * 400] * 3, "delay_s": 0.005}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("process"), SLOW) as running:
        yield running


def status_of(server: ServerProcess, path: str, body: Any, **headers: str) -> tuple[int, dict]:
    """Return the status and the body of an answer, refused or not."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        return 200, server.post(path, body, named)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def raw(server: ServerProcess, data: bytes) -> socket.socket:
    """Open a connection and send bytes."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.sendall(data)
    return connection


def request_bytes(body: dict[str, Any], path: str = CHAT) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def wait_until_idle(server: ServerProcess, within_s: float) -> None:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        health = json.loads(server.get("/health"))
        if not health["busy"] and not health["queued"]:
            return
        time.sleep(0.05)
    raise AssertionError(f"still busy after {within_s} s")


def test_pages_of_other_sites_are_refused(server: ServerProcess) -> None:
    assert status_of(server, CHAT, {**HELLO, "max_tokens": 1})[0] == 200
    assert status_of(server, CHAT, HELLO, Origin="https://evil.example")[0] == 403
    # A name of somebody's own that points to this machine.
    assert status_of(server, CHAT, HELLO, Host="evil.example:8000")[0] == 403
    assert status_of(server, CHAT, {}, Origin="http://localhost:3000")[0] == 400


def test_unknown_paths_and_methods(server: ServerProcess) -> None:
    assert status_of(server, "/v1/nothing", HELLO)[0] == 404
    assert status_of(server, "/health", HELLO)[0] == 405
    status, body = status_of(server, "/v1/messages/nothing", HELLO)
    assert status == 404 and body["type"] == "error"


def test_another_address_needs_a_key(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"replies": []}', encoding="utf-8")
    command = [sys.executable, "-m", "tests.fakes.scripted_server", str(script), "--"]
    command += ["--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "no API key" in done.stderr


def test_a_taken_port_is_told_in_one_line(server: ServerProcess, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"replies": []}', encoding="utf-8")
    command = [sys.executable, "-m", "tests.fakes.scripted_server", str(script), "--"]
    port = server.url.rpartition(":")[2]
    done = subprocess.run([*command, "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and port in done.stderr


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_goes_away_ends_its_answer(server: ServerProcess, is_stream: bool) -> None:
    """The answer takes 10 s; the engine is free long before."""
    wait_until_idle(server, 5)
    before = server.metric("ds4_completion_tokens_total")
    connection = raw(server, request_bytes({**HELLO, "stream": is_stream}))
    time.sleep(0.5)
    assert json.loads(server.get("/health"))["busy"]
    connection.close()
    wait_until_idle(server, 3)
    assert server.metric("ds4_completion_tokens_total") - before < 1000


def test_a_reader_that_stalls_does_not_hold_others_up(server: ServerProcess) -> None:
    wait_until_idle(server, 5)
    connection = raw(server, request_bytes({**HELLO, "stream": True, "max_tokens": 300}))
    started = time.monotonic()
    answer = server.post(CHAT, {**HELLO, "max_tokens": 5})  # behind it in the queue
    assert answer["choices"][0]["finish_reason"] == "length"
    assert time.monotonic() - started < 20
    connection.close()


def test_a_slow_body_and_half_a_request(server: ServerProcess) -> None:
    whole = request_bytes({**HELLO, "max_tokens": 1})
    half = raw(server, whole[: len(whole) // 2])
    assert server.post(CHAT, {**HELLO, "max_tokens": 1})
    half.close()
    slow = raw(server, b"")
    for start in range(0, len(whole), 40):
        slow.sendall(whole[start : start + 40])
    assert slow.recv(20).startswith(b"HTTP/1.1 200")
    slow.close()


def test_a_long_silence_is_filled_with_comments(tmp_path: Path) -> None:
    """Behind another answer in the queue, a stream has its headers at once."""
    with ServerProcess(tmp_path, SLOW, ("--keep-alive-s", "0.2")) as server:
        first = raw(server, request_bytes({**HELLO, "stream": True}))
        first.recv(1)
        second = raw(server, request_bytes({**HELLO, "stream": True}))
        second.settimeout(5)
        got = b""
        while got.count(b": prefill") < 2:
            got += second.recv(4096)
        assert got.startswith(b"HTTP/1.1 200")
        first.close()
        second.close()


def test_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Known. " * 200}
    messages = [system, *HELLO["messages"]]
    script = {"replies": ["Hi.", "Again.", "word " * 1000], "delay_s": 0.005}
    with ServerProcess(tmp_path, script) as server:
        first = server.post(CHAT, {"messages": messages})
        messages += [first["choices"][0]["message"], {"role": "user", "content": "again"}]
        assert server.stop() == 0
    assert list((tmp_path / "kv").glob("*.kv"))
    with ServerProcess(tmp_path, script) as server:
        second = server.post(CHAT, {"messages": messages})
        assert second["choices"][0]["message"]["content"] == "Again."
        usage = second["usage"]
        read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        assert read < 100 < usage["prompt_tokens"]
        # In the middle of an answer: it ends with an error, and the state is saved all the same.
        messages += [second["choices"][0]["message"], {"role": "user", "content": "long"}]
        running = raw(server, request_bytes({"messages": messages, "stream": True}))
        running.recv(300)
        time.sleep(0.3)
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 8
        text = b""
        while piece := running.recv(65536):
            text += piece
        assert b"shutting down" in text
        running.close()


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, {"replies": ["word " * 1000], "delay_s": 3.0})
    connection = raw(server, request_bytes({**HELLO, "stream": True}))
    connection.recv(10)
    time.sleep(0.3)
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(10) == 130
    connection.close()
    server.stop()


def test_the_environment_has_no_say_in_the_folder(server: ServerProcess) -> None:
    """The clients' conversations are not among the agent's own."""
    from ds4agent import paths
    from ds4agent.server.cli import default_folder

    assert default_folder() != paths.kvcache_dir()
    assert os.path.commonpath([default_folder(), paths.kvcache_dir()]) == str(paths.ds4_folder())
