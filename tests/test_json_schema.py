"""``--json-schema FILE``: the answer is forced, calls stay possible, bad files are told."""

import json
from pathlib import Path

import jsonschema
import pytest

from ds4agent.cli import main
from tests.fakes.scripted_model import scripted_engine

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "maximum": 9}},
    "required": ["ok"],
    "additionalProperties": False,
}
CALL = '<tool_call>\n{"name": "list", "arguments": {"path": "."}}\n</tool_call>'


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    return path


def run(folder: Path, schema: Path, *replies: str, n_params: int = 0) -> int:
    def open_engine(progress, cancel):
        return scripted_engine(replies, n_params=n_params)

    options = ["--chdir", str(folder), "--no-save", "--json-schema", str(schema)]
    return main([*options, "--output-format", "json", "-p", "go"], open_engine=open_engine)


@pytest.mark.parametrize("said", ["{}", "{ nope", '{"ok": "yes"}', '{"ok": true, "n": 12} Done.'])
def test_an_answer_of_another_form_is_forced(
    said: str, tmp_path: Path, schema_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, schema_file, said) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    jsonschema.validate(json.loads(result), SCHEMA)


@pytest.mark.parametrize("n_params", [0, 10**9])
def test_a_fitting_answer_stays_and_calls_may_come_first(
    n_params: int, tmp_path: Path, schema_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, schema_file, CALL, '{"ok": true, "n": 7}', n_params=n_params) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["result"] == '{"ok": true, "n": 7}'
    assert [(call["name"], call["ok"]) for call in result["tool_calls"]] == [("list", True)]


def test_an_answer_that_looks_like_a_call_is_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"type": "object"}', encoding="utf-8")
    said = '{"name": "list", "arguments": {"path": "."}}'
    assert run(tmp_path, file, said) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["result"] == said and not result["tool_calls"]


@pytest.mark.parametrize(
    "content, said",
    [
        ("[", "not valid JSON"),
        ("[1]", "is a list, expected an object"),
        ('{"type": "martian"}', "can't be enforced"),
        ("\xff", "not valid JSON"),
        (None, "cannot be read"),
    ],
)
def test_a_bad_file_gives_one_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "schema.json"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    assert run(tmp_path, file) == 2
    printed = capsys.readouterr()
    assert said in printed.err and printed.err.count("\n") == 1 and not printed.out
