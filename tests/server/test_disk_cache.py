"""The clients' conversations on a disk that is full, that others use as well, that has other
models' files: an answer never suffers, and every file is whole."""

import dataclasses
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from sessions import checkpoint
from sessions.prefix_lookup import Match, load
from tests.fakes.engine_desk import EngineDesk
from tests.fakes.scripted_model import scripted_engine
from tests.fakes.server_process import ServerProcess

CHAT = "/v1/chat/completions"


def system(name: str) -> dict[str, Any]:
    """A beginning of some thousand tokens, as an agent's is: enough for a checkpoint."""
    return {"role": "system", "content": f"You are {name}. " + "All of this is known. " * 120}


def asked(name: str) -> list[dict[str, Any]]:
    return [system(name), {"role": "user", "content": "one"}]


def engine(**options: Any) -> Engine:
    return scripted_engine(["First.", "Second."], **options)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def check_files(folder: Path, least: int = 0) -> None:
    """Every file must be a whole checkpoint with its facts, and nothing else may be there."""
    paths = sorted(folder.glob("*.kv"))
    assert len(paths) >= least
    for path in paths:
        with checkpoint.opened(path) as opened:
            n_text, n_tokens = len(opened.text()), opened.header.tokens
        # Every byte, by its checksum.
        load(Match(path, path.stem, n_text, n_tokens, is_session=False))
    facts = sorted(p.name.removesuffix(".meta") for p in folder.glob("*.meta"))
    assert facts == [path.name for path in paths]
    assert {p.suffix for p in folder.iterdir() if p.name != ".lock"} <= {".kv", ".meta"}


def test_a_full_disk_costs_checkpoints_and_nothing_else(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = small_disk / "kv"
    filler = small_disk / "filler"
    with EngineDesk(engine(), folder, live_sessions=1) as desk:
        desk.chat(asked("A"))
        desk.chat(asked("B"))  # A has to go to the disk
        desk.worker.disk.flush()
        n_before = len(list(folder.glob("*.kv")))
        assert n_before >= 2 and not warnings_of(caplog)
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(4096))
        for name in "CDE":
            answer = desk.chat(asked(name))
            assert answer.body["choices"][0]["message"]["content"] == "First."
            messages = [*asked(name), answer.body["choices"][0]["message"]]
            following = desk.chat([*messages, {"role": "user", "content": "two"}])
            assert following.body["choices"][0]["message"]["content"] == "Second."
            assert following.n_read < 100  # the conversation is in memory
        desk.worker.disk.flush()
        (warning,) = warnings_of(caplog)
        assert "No space left on device" in warning and "Make room" in warning
        assert len(list(folder.glob("*.kv"))) == n_before
        check_files(folder)
        filler.unlink()
        desk.chat(asked("F"))
        desk.worker.disk.flush()
        assert len(list(folder.glob("*.kv"))) > n_before
    check_files(folder)
    with EngineDesk(engine(), folder) as desk:
        assert desk.chat(asked("F")).n_read < 100
    assert len(warnings_of(caplog)) == 1


def test_a_trace_on_a_full_disk_has_whole_lines_only(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = small_disk / "trace"
    with EngineDesk(engine(), trace=path) as desk:
        for _ in range(400):
            desk.chat(asked("A"))
            if warnings_of(caplog):
                break
        assert len(warnings_of(caplog)) == 1 and "No space left" in warnings_of(caplog)[0]
        n_bytes = path.stat().st_size
        desk.chat(asked("A"))
        assert path.stat().st_size == n_bytes and len(warnings_of(caplog)) == 1
    lines = path.read_bytes().splitlines()
    assert len(lines) > 5 and all(json.loads(line)["finish"] == "stop" for line in lines)


def test_what_another_model_or_a_longer_context_left_is_written_over(tmp_path: Path) -> None:
    """The name of a file is that of its text, and other weights read the same text."""
    folder = tmp_path / "kv"

    def other_weights() -> Engine:
        model = engine()
        model.info = dataclasses.replace(model.info, fingerprint="a0" * 32)
        return model

    for make in (engine, lambda: engine(ctx=8192), other_weights):
        with EngineDesk(make(), folder) as desk:
            assert desk.chat(asked("A")).usage.cached == 0
        check_files(folder, least=1)
        with EngineDesk(make(), folder) as desk:
            assert desk.chat(asked("A")).n_read < 100


@pytest.fixture
def two_servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    """On one folder, each with room for one conversation; the folder holds few of them."""
    script = {"replies": ["First.", "Second."]}
    options = ("--kv-disk-dir", str(tmp_path / "kv"), "--kv-disk-space-mb", "1")
    options = (*options, "--live-sessions", "1")
    with ServerProcess(tmp_path / "a", script, options) as a:
        with ServerProcess(tmp_path / "b", script, options) as b:
            yield [a, b]


def test_two_servers_share_a_folder(two_servers: list[ServerProcess], tmp_path: Path) -> None:
    """Both write, read and make room at the same time, also for the same texts."""
    problems: list[str] = []

    def talk(server: ServerProcess) -> None:
        for n in range(24):
            messages = asked(f"client {n % 8}")
            first = server.post(CHAT, {"messages": messages})["choices"][0]["message"]
            messages += [first, {"role": "user", "content": "two"}]
            second = server.post(CHAT, {"messages": messages})["choices"][0]["message"]
            if (first["content"], second["content"]) != ("First.", "Second."):
                problems.append(f"{n}: {first} {second}")

    talkers = [threading.Thread(target=talk, args=(server,)) for server in two_servers]
    for talker in talkers:
        talker.start()
    for talker in talkers:
        talker.join(60)
    assert not problems
    # What one has written serves the other.
    first, second = two_servers
    first.post(CHAT, {"messages": asked("the last")})
    assert first.stop() == 0
    usage = second.post(CHAT, {"messages": asked("the last")})["usage"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 100
    assert second.stop() == 0
    check_files(tmp_path / "kv", least=2)
    n_bytes = sum(path.stat().st_size for path in (tmp_path / "kv").glob("*.kv"))
    assert n_bytes < 2 << 20
    for name in "ab":
        assert (tmp_path / name / "server.log").read_text(encoding="utf-8") == ""
