"""Downloads against a server of the test's own: resuming, and every way a transfer goes wrong."""

import http.server
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from ds4agent import download
from ds4agent.download import fetch
from ds4agent.errors import DownloadError

N_BYTES = 3_000_000
BODY = os.urandom(N_BYTES)


class Server(http.server.ThreadingHTTPServer):
    """Serves BODY at /file; ``mode`` makes it misbehave. ``ranges`` records what was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.mode = ""
        self.ranges: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/file"

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up on a bad answer is what some tests are about."""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        server = self.server
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
            return
        if self.path != "/file":
            self.send_error(404)
            return
        asked = self.headers.get("Range", "")
        server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        if server.mode == "busy":
            server.mode = ""
            self.send_error(503)
            return
        if start >= len(server.body):
            self.send_error(416)
            return
        body = server.body[start:]
        if asked and server.mode != "no ranges":
            self.send_response(206)
            first = start + 1 if server.mode == "wrong range" else start
            end = f"{len(server.body) - 1}/{len(server.body)}"
            self.send_header("Content-Range", f"bytes {first}-{end}")
        else:
            body = server.body
            self.send_response(200)
        if server.mode != "no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if server.mode == "cut once":
            server.mode = ""
            body = body[:1_000_000]
        elif server.mode == "always cut":
            body = b""
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def run(url, partial, n_bytes=N_BYTES) -> list[tuple[int, int]]:
    reports: list[tuple[int, int]] = []
    fetch(url, partial, n_bytes, lambda *report: reports.append(report), retry_wait_s=0)
    return reports


def test_a_file_arrives_whole_with_progress_to_the_end(server, tmp_path):
    reports = run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert reports[-1] == (len(BODY), len(BODY))


def test_a_partial_file_is_continued(server, tmp_path):
    (tmp_path / "part").write_bytes(BODY[:1_234_567])
    run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert server.ranges == ["bytes=1234567-"]


def test_a_broken_transfer_is_continued_at_once(server, tmp_path):
    server.mode = "cut once"
    run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert server.ranges == ["", "bytes=1000000-"]


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.mode = "busy"
    run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_server_without_ranges_makes_it_start_again(server, tmp_path):
    server.mode = "no ranges"
    (tmp_path / "part").write_bytes(b"x" * 1000)
    run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_complete_partial_file_asks_nothing(server, tmp_path):
    (tmp_path / "part").write_bytes(BODY)
    run(server.url, tmp_path / "part")
    assert server.ranges == []


def test_a_partial_file_that_is_too_long_starts_again(server, tmp_path):
    (tmp_path / "part").write_bytes(BODY + b"x")
    run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY


def test_a_file_that_shrank_on_the_server_starts_again(server, tmp_path):
    (tmp_path / "part").write_bytes(BODY + b"x")
    run(server.url, tmp_path / "part", n_bytes=None)
    assert (tmp_path / "part").read_bytes() == BODY


def test_redirects_are_followed(server, tmp_path):
    run(server.url.replace("/file", "/moved"), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY


def test_redirects_keep_the_range(server, tmp_path):
    (tmp_path / "part").write_bytes(BODY[:5])
    run(server.url.replace("/file", "/moved"), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY
    assert server.ranges == ["bytes=5-"]


def test_a_transfer_that_always_breaks_gives_up_and_keeps_what_came(server, tmp_path):
    server.mode = "always cut"
    (tmp_path / "part").write_bytes(BODY[:100])
    with pytest.raises(DownloadError, match="broke off at 100 bytes"):
        run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY[:100]


def test_a_missing_file_is_told_at_once(server, tmp_path):
    with pytest.raises(DownloadError, match="404"):
        run(server.url + "-not", tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_another_size_than_expected_is_refused(server, tmp_path):
    with pytest.raises(DownloadError, match="3,000,000 bytes, expected 5"):
        run(server.url, tmp_path / "part", n_bytes=5)
    assert not (tmp_path / "part").exists()


def test_a_wrong_range_is_refused_and_nothing_appended(server, tmp_path):
    server.mode = "wrong range"
    (tmp_path / "part").write_bytes(BODY[:100])
    with pytest.raises(DownloadError, match="from byte 100"):
        run(server.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == BODY[:100]


def test_a_page_without_a_size_is_refused(server, tmp_path):
    server.mode = "no length"
    with pytest.raises(DownloadError, match="does not say its size"):
        run(server.url, tmp_path / "part")


def test_an_unreachable_server_fails_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DownloadError, match="cannot reach 127.0.0.1"):
        run(f"http://127.0.0.1:{port}/file", tmp_path / "part")


def test_a_silent_server_is_given_up_after_the_read_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "READ_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, never answers
        with pytest.raises(DownloadError, match="timed out"):
            run(f"http://127.0.0.1:{listener.getsockname()[1]}/file", tmp_path / "part")
