"""ds4-bench on a tiny real model: the shape of the result and the errors."""

import json
from pathlib import Path

import pytest

from ds4agent.bench import model as bench
from ds4agent.bench.cli import main
from engine.engine import Engine

TINY = Path(__file__).parent / "fixtures" / "llama_logits" / "tiny-llama3.gguf"


def test_json_has_a_row_for_each_prompt_length(capsys):
    lengths = ["--prompt-tokens", "16", "64", "--gen-tokens", "4", "--repeat", "2"]
    assert main(["model", "-m", str(TINY), "--device", "cpu", *lengths, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["context"] for row in report["rows"]] == [16, 64]
    assert all(row["prefill_tps"] > 0 and row["decode_tps"] > 0 for row in report["rows"])
    assert report["device"] == "cpu"
    assert report["load_s"] > 0
    assert report["peak_rss_bytes"] > TINY.stat().st_size
    assert {"date", "machine", "versions", "name", "quant"} <= report.keys()


def test_the_table_is_for_people(capsys):
    assert main(["model", "-m", str(TINY), "--prompt-tokens", "8", "--gen-tokens", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny random llama3 ")
    assert lines[1].split() == ["context", "prefill", "t/s", "decode", "t/s"]
    assert lines[2].split()[0] == "8"


def test_rates_are_medians_of_tokens_over_seconds(monkeypatch):
    seconds = iter([(9.0, 9.0), (2.0, 1.0), (4.0, 4.0), (100.0, 2.0)])  # warm-up, then three runs
    monkeypatch.setattr(bench, "_run", lambda engine, prompt, gen_tokens: next(seconds))
    result = bench.measure(TINY, "cpu", [40], 10, repeat=3)
    assert result.rows == (bench.Row(context=40, prefill_tps=10.0, decode_tps=5.0),)


def test_every_run_decodes_the_asked_number_of_tokens():
    with Engine.open(TINY, "cpu", 32) as engine:
        sessions = []
        new_session = engine.new_session
        engine.new_session = lambda: sessions.append(new_session()) or sessions[-1]
        bench._run(engine, [1, 2, 3], 5)
    assert len(sessions[0].tokens) == 8


def test_a_length_beyond_the_model_is_one_line(capsys):
    assert main(["model", "-m", str(TINY), "--prompt-tokens", "5000"]) == 1
    error = capsys.readouterr().err
    assert "ds4-bench:" in error and "512" in error


def test_a_missing_model_is_one_line(capsys):
    assert main(["model", "-m", "/nowhere/x.gguf"]) == 1
    assert "/nowhere/x.gguf" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["model", "--gen-tokens", "0"], ["model", "--repeat", "x"], []]
)
def test_bad_usage_ends_with_code_2(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
