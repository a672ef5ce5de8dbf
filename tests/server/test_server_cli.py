"""What the options of ``ds4-server`` come to."""

from typing import Any

import pytest

from ds4agent import models
from ds4agent.errors import Ds4Error
from ds4agent.server.cli import main


@pytest.mark.parametrize(
    ("options", "n_sessions", "n_copies"),
    [([], 2, 1), (["--live-sessions", "5"], 5, 1), (["--no-kv-disk"], 2, 0)],
)
def test_the_memory_has_to_hold_every_conversation(
    options: list[str],
    n_sessions: int,
    n_copies: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[tuple[Any, ...]] = []

    def engine_opener(model: str, config: Any, *held: int) -> None:
        asked.append(held)
        raise Ds4Error("no model", "Get one.")

    monkeypatch.setattr(models, "engine_opener", engine_opener)
    assert main(options) == 1
    assert asked == [(n_sessions, n_copies)]
    assert capsys.readouterr().err == "ds4-server: no model. Get one.\n"
