"""ds4-bench on a tiny real model: the shape of the result and the errors."""

import importlib.util
import json
from pathlib import Path

import pytest

from ds4agent.bench import model as bench
from ds4agent.bench import report
from ds4agent.bench.cli import main
from ds4agent.bench.llama_cpp_peer import LlamaCppRunner
from ds4agent.errors import Ds4Error
from engine.engine import Engine

TINY = Path(__file__).parent / "fixtures" / "llama_logits" / "tiny-llama3.gguf"


def test_json_has_a_row_for_each_prompt_length(capsys):
    lengths = ["--contexts", "64,16", "--gen-tokens", "4", "--repeat", "2"]
    assert main(["model", "-m", str(TINY), "--device", "cpu", *lengths, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["context"] for row in report["rows"]] == [16, 64]
    assert all(row["prefill_tps"] > 0 and row["decode_tps"] > 0 for row in report["rows"])
    assert report["device"] == "cpu"
    assert report["load_s"] > 0
    assert report["peak_rss_bytes"] > TINY.stat().st_size
    assert {"date", "machine", "versions", "name", "quant"} <= report.keys()


def test_the_table_is_for_people(capsys):
    assert main(["model", "-m", str(TINY), "--contexts", "8", "--gen-tokens", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tiny random llama3 ")
    assert lines[1].split() == ["context", "prefill", "t/s", "decode", "t/s"]
    assert lines[2].split()[0] == "8"


def run_of(*seconds: tuple[float, float]) -> tuple[bench.Timing, ...]:
    """One run over the frontiers 40 and 100, with 10 decoded tokens at each."""
    sizes = ((40, 40), (100, 60))
    return tuple(
        bench.Timing(context, n, prefill, 10, decode)
        for (context, n), (prefill, decode) in zip(sizes, seconds, strict=True)
    )


def test_rates_are_medians_of_tokens_since_the_frontier_before():
    runs = [run_of((2, 1), (6, 5)), run_of((4, 4), (3, 2)), run_of((100, 2), (2, 1))]
    assert bench.rows_of(runs) == (bench.Row(40, 10.0, 5.0), bench.Row(100, 20.0, 5.0))


def test_state_is_restored_between_frontiers():
    with Engine.open(TINY, "cpu", 32) as engine:
        seen = []
        new_session = engine.new_session

        def spied():
            session = new_session()
            for name in ("sync", "extend"):
                spy(session, name)
            return session

        def spy(session, name):
            call = getattr(session, name)
            setattr(session, name, lambda *given: seen.append(call(*given)) or seen[-1])

        engine.new_session = spied
        bench.EngineRunner(engine).run(list(range(1, 21)), [8, 20], 3)
    # two frontiers, each with three decoded tokens that the next frontier does not start from
    assert [(each.reused, each.prefilled) for each in seen] == [
        (0, 8), (8, 1), (9, 1), (10, 1), (8, 12), (20, 1), (21, 1), (22, 1)
    ]  # fmt: skip


class TimedServer:
    """Answers with made-up timings in the form in which llama.cpp tells them."""

    def __init__(self):
        self.requests = []

    def handle_completions(self, request):
        self.requests.append(request)
        n_cached = len(self.requests[-2]["prompt"]) if request["cache_prompt"] else 0
        n_read, n_written = len(request["prompt"]) - n_cached, request["n_predict"]
        told = {"prompt_n": n_read, "prompt_ms": n_read * 2.0, "cache_n": n_cached}
        told |= {"predicted_n": n_written, "predicted_ms": (n_written - 1) * 5.0}
        return {"content": "", "timings": told}


def test_a_peer_runs_in_turn_and_the_json_holds_its_rows_and_the_ratio(monkeypatch):
    order = []
    server = TimedServer()
    peer = LlamaCppRunner(server)
    for kind, runner in (("ours", bench.EngineRunner), ("peer", LlamaCppRunner)):
        run = runner.run
        monkeypatch.setattr(
            runner, "run", lambda *args, run=run, kind=kind: order.append(kind) or run(*args)
        )
    result = bench.measure(
        TINY, "cpu", [32, 16], 4, repeat=2, peer="llama.cpp", open_peer=lambda ctx: peer
    )
    # a warm-up each, then in turn
    assert order == ["ours", "ours", "peer", "peer", "ours", "peer"]
    assert [request["cache_prompt"] for request in server.requests[1:]] == [False, True] * 2
    told = json.loads(json.dumps(report.model_json(result, 2)))
    assert [row["context"] for row in told["peer_rows"]] == [16, 32]
    for row in told["rows"] + told["peer_rows"]:
        assert row.keys() == {"context", "prefill_tps", "decode_tps"}
    for row in told["peer_rows"]:
        assert row["prefill_tps"] == pytest.approx(500) and row["decode_tps"] == pytest.approx(200)
    for kind in ("prefill", "decode"):
        rates = [row[f"{kind}_tps"] for row in told["rows"]]
        expected = (rates[0] * rates[1]) ** 0.5 / {"prefill": 500, "decode": 200}[kind]
        assert told["ratio"][kind] == pytest.approx(expected)
    assert {"device", "versions", "date", "threads"} <= told.keys()
    lines = report.model_csv(result).splitlines()
    assert lines[0] == "device,program,context,prefill_tps,decode_tps"
    assert [line.split(",")[1] for line in lines[1:]] == ["ds4-agent"] * 2 + ["llama.cpp"] * 2


def test_a_peer_that_did_other_work_is_an_error():
    server = TimedServer()
    runner = LlamaCppRunner(server)
    answer = server.handle_completions({"prompt": [1] * 9, "n_predict": 5, "cache_prompt": False})
    server.handle_completions = lambda request: answer
    with pytest.raises(Ds4Error, match="read 9 and wrote 5 tokens, expected 8 and 5"):
        runner.run([1] * 8, [8], 4)


def test_compare_without_the_package_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["model", "-m", str(TINY), "--device", "cpu", "--compare", "llama.cpp"]) == 1
    assert "pip install xllamacpp" in capsys.readouterr().err


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="needs xllamacpp (pip install xllamacpp)"
)
def test_llama_cpp_itself_runs_beside(capsys):
    arguments = ["--contexts", "16,32", "--gen-tokens", "4", "--threads", "2", "--json"]
    command = ["model", "-m", str(TINY), "--device", "cpu", *arguments, "--compare", "llama.cpp"]
    assert main(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["context"] for row in told["peer_rows"]] == [16, 32]
    assert told["ratio"]["prefill"] > 0 and told["ratio"]["decode"] > 0
    assert "xllamacpp" in told["versions"]


def test_a_length_beyond_the_model_is_one_line(capsys):
    assert main(["model", "-m", str(TINY), "--contexts", "5000"]) == 1
    error = capsys.readouterr().err
    assert "ds4-bench:" in error and "512" in error


def test_a_missing_model_is_one_line(capsys):
    assert main(["model", "-m", "/nowhere/x.gguf"]) == 1
    assert "/nowhere/x.gguf" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["model", "--gen-tokens", "0"],
        ["model", "--repeat", "x"],
        ["model", "--contexts", "512,"],
        ["kernels", "--json", "--csv"],
        [],
    ],
)
def test_bad_usage_ends_with_code_2(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
