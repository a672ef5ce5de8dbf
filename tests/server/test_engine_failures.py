"""A device that has no memory left in the middle of a request: the client gets an error in the
shape of its interface, and the server goes on."""

import json
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from ds4agent.server.api.request import Api
from engine.engine import Engine
from engine.errors import RewindError
from tests.fakes.engine_desk import EngineDesk, refused
from tests.fakes.scripted_model import ScriptedCache, ScriptedModel, scripted_engine
from tests.fakes.server_process import ServerProcess
from tests.server.api.events import DONE, read_events

ANSWERS = {"hello": "Good day to you.", "late": "Some"}
FAILURES = {"heavy": 0, "late": 4}
BODIES: dict[str, Any] = {
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/responses": lambda text: {"input": text},
    "/v1/messages": lambda text: {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": text}],
    },
    "/v1/completions": lambda text: {"prompt": text, "max_tokens": 100},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    script = {"replies": [], "answers": ANSWERS, "failures": FAILURES}
    with ServerProcess(tmp_path_factory.mktemp("failures"), script) as running:
        yield running


def answer(server: ServerProcess, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
    try:
        return 200, server.read(path, body)
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def error_of(path: str, events: list) -> dict[str, Any]:
    """Return the error object that ends a stream."""
    if path == "/v1/responses":
        name, data = events[-1]
        if len(events) == 1:  # nothing had begun that could have failed
            assert name == "error"
            return data
        assert name == "response.failed"
        return data["response"]["error"]
    if path == "/v1/messages":
        name, data = events[-1]
        assert name == "error" and data["type"] == "error"
        return data["error"]
    assert events[-1] == (None, DONE)
    return events[-2][1]["error"]


@pytest.mark.parametrize("text", FAILURES)
@pytest.mark.parametrize("path", BODIES)
def test_no_memory_in_a_request(server: ServerProcess, path: str, text: str) -> None:
    body = BODIES[path](text)
    status, written = answer(server, path, body)
    refusal = json.loads(written)
    assert status == 500 and "no memory left" in refusal["error"]["message"]
    assert (refusal.get("type") == "error") is (path == "/v1/messages")

    status, written = answer(server, path, {**body, "stream": True})
    assert status == 200  # the stream had begun
    error = error_of(path, read_events([written]))
    assert "no memory left" in error["message"]
    assert (b'"S' in written) is (text == "late")  # of "Some", in whatever cut

    status, written = answer(server, path, BODIES[path]("hello"))
    assert status == 200 and b"Good day to you." in written


class UncuttableCache(ScriptedCache):
    """After a failure in the middle of a token it can't be brought back to the one before."""

    def truncate(self, n_tokens: int) -> None:
        if n_tokens < len(self.ids):
            raise RewindError("pooled")


def engine() -> Engine:
    return scripted_engine([], answers=ANSWERS, failures=FAILURES)


def said(answer: Any) -> str:
    return answer.body["choices"][0]["message"]["content"]


@pytest.mark.parametrize("text", FAILURES)
def test_a_state_that_may_be_broken_is_not_used_again(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedModel, "new_cache", lambda self, ctx: UncuttableCache())
    with EngineDesk(engine(), live_sessions=1) as desk:
        refused(desk, Api.CHAT, BODIES["/v1/chat/completions"](text))
        answer = desk.chat([{"role": "user", "content": "hello"}])
        assert said(answer) == "Good day to you." and answer.usage.cached == 0


def test_fewer_conversations_are_kept_once_memory_ran_out() -> None:
    with EngineDesk(engine(), live_sessions=3) as desk:
        a, b, c = (
            [{"role": "system", "content": name * 900}, {"role": "user", "content": text}]
            for name, text in (("A", "hello"), ("B", "heavy"), ("C", "hello"))
        )
        desk.chat(a)
        error = refused(desk, Api.CHAT, {"messages": b})
        assert (error.status, error.code) == (500, "out_of_memory")
        assert desk.chat(a).n_read == 0  # the other conversation is still there
        desk.chat(c)
        assert desk.chat(a).n_read > 0  # and had to make room


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a kernel failed")])
def test_a_copy_that_fails_costs_the_checkpoint_only(
    error: Exception, tmp_path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: ScriptedCache) -> None:
        raise error

    with EngineDesk(engine(), tmp_path / "kv", live_sessions=1) as desk:
        monkeypatch.setattr(ScriptedCache, "arrays", fail)
        for name in "ABC":
            system = {"role": "system", "content": name * 900}
            assert said(desk.chat([system, {"role": "user", "content": "hello"}])).startswith(
                "Good"
            )
        monkeypatch.undo()
        assert [r.getMessage().split(":")[0] for r in caplog.records] == [
            "checkpoints are not saved"
        ]
