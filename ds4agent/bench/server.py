"""The server beside llama.cpp's, over HTTP: the same model file, the same requests, one run.

    python -m ds4agent.bench.server MODEL.gguf --peer-python PATH

The peer is ``server_peer`` in a Python that has the package xllamacpp. The requests of both are
sent in turns, so that whatever else the machine does meets both. Measured is what a client sees:

* tokens a second of whole answers to short prompts;
* the time to the first token of a long prompt, cold and when the same prompt comes again;
* the same for the next turn of that conversation.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PATH = "/v1/chat/completions"
_THREADS = 2


class Target:
    """A server that is measured."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = ""
        while " at http" not in line:
            line = self._process.stdout.readline()
            if not line:
                raise RuntimeError(f"{name} did not start")
        self._url = line.split(" at ")[1].split()[0]

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait()

    def answer(self, messages: list[dict[str, str]], n_tokens: int) -> tuple[int, float, str]:
        """Ask for a whole answer; returns its tokens, seconds and text."""
        started = time.perf_counter()
        with self._send(messages, n_tokens, stream=False) as reply:
            body = json.load(reply)
        seconds = time.perf_counter() - started
        text = body["choices"][0]["message"]["content"]
        return body["usage"]["completion_tokens"], seconds, text

    def first_token_s(self, messages: list[dict[str, str]]) -> float:
        """Return the seconds until the first text of a streamed answer."""
        started = time.perf_counter()
        with self._send(messages, 4, stream=True) as reply:
            for event in _events(reply):
                if event["choices"] and event["choices"][0]["delta"].get("content"):
                    seconds = time.perf_counter() - started
                    reply.read()
                    return seconds
        raise RuntimeError(f"{self.name} sent no text")

    def _send(self, messages: list[dict[str, str]], n_tokens: int, *, stream: bool) -> Any:
        body = {
            "messages": messages,
            "max_tokens": n_tokens,
            "temperature": 0,
            "stream": stream,
            "cache_prompt": True,
        }
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + _PATH, json.dumps(body).encode(), headers)
        return urllib.request.urlopen(request, timeout=600)


def _events(reply: Any) -> Iterator[dict[str, Any]]:
    for line in reply:
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])


def _question(number: int) -> list[dict[str, str]]:
    text = f"Request {number}: list the whole numbers from 1 to 200, separated by commas."
    return [{"role": "user", "content": text}]


def _document(n_words: int, number: int) -> list[dict[str, str]]:
    words = " ".join(f"item{(i * 7919 + number) % 997}" for i in range(n_words))
    return [
        {"role": "system", "content": f"Document {number}: {words}"},
        {"role": "user", "content": "What is the first item? Answer briefly."},
    ]


def measure(targets: list[Target], rounds: int, n_tokens: int, n_words: int) -> None:
    """Run the requests and print what they took."""
    rates: dict[str, list[float]] = {t.name: [] for t in targets}
    times: dict[str, dict[str, list[float]]] = {
        t.name: {"cold": [], "again": [], "next turn": []} for t in targets
    }
    for target in targets:
        target.answer(_question(0), 8)  # what is loaded and built at the first use
    for number in range(1, rounds + 1):
        for target in targets if number % 2 else targets[::-1]:
            count, seconds, _ = target.answer(_question(number), n_tokens)
            rates[target.name].append(count / seconds)
            messages = _document(n_words, number)
            taken = times[target.name]
            taken["cold"].append(target.first_token_s(messages))
            taken["again"].append(target.first_token_s(messages))
            _, _, text = target.answer(messages, 16)
            following = {"role": "user", "content": "And the second?"}
            turn = [*messages, {"role": "assistant", "content": text}, following]
            taken["next turn"].append(target.first_token_s(turn))
    write = sys.stdout.write
    for target in targets:
        write(f"{target.name:12} answers {statistics.median(rates[target.name]):7.1f} tokens/s")
        for label, seconds in times[target.name].items():
            write(f" | {label} {statistics.median(seconds) * 1e3:8.1f} ms")
        taken = times[target.name]
        gain = statistics.median(taken["cold"]) / statistics.median(taken["again"])
        write(f" | again {gain:.1f}x sooner\n")
    if len(targets) == 2:
        ours, theirs = (statistics.median(rates[t.name]) for t in targets)
        write(f"answers: {ours / theirs:.2f}x of {targets[1].name}\n")


def main() -> None:
    """Start the servers and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--peer-python", help="a Python with xllamacpp")
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--words", type=int, default=400)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        common = ["--ctx", str(args.ctx), "--port", "0", "--kv-disk-dir", folder]
        command = [sys.executable, "-m", "ds4agent.server", "-m", str(args.model), *common]
        targets = [Target("ds4-server", command)]
        try:
            if args.peer_python:
                peer = str(Path(__file__).with_name("server_peer.py"))
                rest = [str(args.model), str(args.ctx), str(_THREADS)]
                targets.append(Target("llama.cpp", [args.peer_python, "-P", peer, *rest]))
            measure(targets, args.rounds, args.tokens, args.words)
        finally:
            for target in targets:
                target.close()


if __name__ == "__main__":
    main()
