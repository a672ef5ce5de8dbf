"""The schema of the event stream describes what the program really writes."""

import io
import json

import jsonschema
import pytest

from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.worker import AgentWorker
from ds4agent.cli import main
from ds4agent.event_schema import event_schema
from ds4agent.headless import run_headless
from ds4agent.requests import Mode, Start
from tests.fakes.scripted_model import scripted_engine

CALL = '<tool_call>\n{"name": "list", "arguments": {"path": "."}}\n</tool_call>'


def test_every_line_of_a_run_fits_exactly_one_event(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    engine = scripted_engine([CALL, "There is a.txt."])
    settings = AgentSettings(cwd=tmp_path, mode=Mode.AUTO, headless=True)
    worker = AgentWorker(lambda *_: engine, settings, Start())
    out = io.StringIO()
    assert run_headless(worker, "list the files", "stream-json", out, io.StringIO()) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {"ready", "tool_finished", "turn_ended", "result"} <= {line["type"] for line in lines}
    validator = jsonschema.Draft202012Validator(event_schema())
    for line in lines:
        validator.validate(line)


@pytest.mark.parametrize(
    "change", [{"type": "nothing"}, {"outcome": "maybe"}, {"usage": {}}, {"tool_calls": [{}]}]
)
def test_what_is_no_event_does_not_fit(change) -> None:
    line = {
        "type": "result", "outcome": "done", "result": "", "session_id": "", "model": "",
        "usage": {"reused_tokens": 0, "prefilled_tokens": 0, "generated_tokens": 0,
                  "context_tokens": 0, "context_size": 0},
        "tool_calls": [], "duration_s": 0.0,
    }  # fmt: skip
    validator = jsonschema.Draft202012Validator(event_schema())
    validator.validate(line)
    assert not validator.is_valid(line | change)


def test_schema_is_printed(capsys) -> None:
    assert main(["config", "events"]) == 0
    assert json.loads(capsys.readouterr().out) == event_schema()
