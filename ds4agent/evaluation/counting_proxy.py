"""A relay on loopback between a peer and llama.cpp's server, which counts the tokens of each reply.

llama.cpp adds to each reply what it did for it: ``timings.prompt_n`` tokens that it had to read
(those of its prompt cache are not among them) and ``timings.predicted_n`` tokens that it wrote.
"""

import http.client
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_DROPPED = frozenset({"connection", "content-length", "host", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class Counted:
    """What the requests since the last ``take`` cost."""

    n_requests: int = 0
    prompt_tokens: int = 0  # whole prompts, whether cached or not
    prefilled_tokens: int = 0  # of them, those that had to be read
    generated_tokens: int = 0
    n_uncounted: int = 0  # requests whose reply has no timings: then the counts are too low

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.n_requests + other.n_requests,
            self.prompt_tokens + other.prompt_tokens,
            self.prefilled_tokens + other.prefilled_tokens,
            self.generated_tokens + other.generated_tokens,
            self.n_uncounted + other.n_uncounted,
        )


def count_reply(body: bytes) -> Counted:
    """Read the counts out of one reply of llama.cpp's server."""
    try:
        reply = json.loads(body)
        timings, usage = reply["timings"], reply["usage"]
        return Counted(1, usage["prompt_tokens"], timings["prompt_n"], timings["predicted_n"])
    except (ValueError, KeyError, TypeError):
        return Counted(1, n_uncounted=1)


class CountingProxy:
    """Listens on a port of its own from construction to ``close``."""

    def __init__(self, server: tuple[str, int], timeout_s: float) -> None:
        """Begin to relay to ``server``, (host, port); ``timeout_s`` bounds one reply."""
        self._server = server
        self._timeout_s = timeout_s
        self._counted = Counted()
        self._lock = threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy._relay(self)

            def do_POST(self) -> None:
                proxy._relay(self)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where a client of the OpenAI protocol sends its requests."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def take(self) -> Counted:
        """Return the counts since the last call."""
        with self._lock:
            counted, self._counted = self._counted, Counted()
        return counted

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _relay(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _DROPPED}
        host, port = self._server
        upstream = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            upstream.request(request.command, request.path, body, headers)
            reply = upstream.getresponse()
            content = reply.read()
            if request.command == "POST":
                with self._lock:
                    self._counted += count_reply(content)
            request.send_response(reply.status)
            request.send_header("Content-Type", reply.getheader("Content-Type", "text/plain"))
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)
        except OSError:
            request.close_connection = True  # one side is gone: there is nobody to tell
        finally:
            upstream.close()
