"""ds4-bench logits: every position, read together or one by one."""

import json
from pathlib import Path

import numpy as np
import pytest

from ds4agent.bench.cli import main
from engine.engine import Engine

V4 = Path(__file__).parent / "fixtures" / "v4_tiny"
TINY = Path(__file__).parent / "fixtures" / "llama_logits" / "tiny-llama3.gguf"
IDS = [5, 17, 3, 99, 42, 7]


def run(tmp_path: Path, ids: object, *more: str, model: Path = TINY) -> int:
    (tmp_path / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
    files = ["--tokens", str(tmp_path / "ids.json"), "--out", str(tmp_path / "out.npy")]
    return main(["logits", "-m", str(model), "--device", "cpu", *files, *more])


@pytest.mark.parametrize("n_prefill", [0, 1, 4, 6])
def test_logits_are_those_of_a_session_at_every_position(tmp_path, n_prefill):
    assert run(tmp_path, IDS, "--prefill", str(n_prefill)) == 0
    logits = np.load(tmp_path / "out.npy")
    assert logits.dtype == np.float32
    with Engine.open(TINY, "cpu", 32) as engine:
        session = engine.new_session()
        if n_prefill:
            session.sync(IDS[:n_prefill])
            # the same calls of the network, so the same bits
            assert np.array_equal(logits[n_prefill - 1], session.logits)
        for n in range(n_prefill, len(IDS)):
            session.extend([IDS[n]])
            assert np.array_equal(logits[n], session.logits)
        assert logits.shape == (len(IDS), engine.info.n_vocab)


def test_all_tokens_are_read_in_one_call_by_default(tmp_path, monkeypatch):
    asked = []
    logits_of = Engine.logits_of
    monkeypatch.setattr(
        Engine,
        "logits_of",
        lambda self, ids, n, **more: asked.append(n) or logits_of(self, ids, n, **more),
    )
    assert run(tmp_path, IDS) == 0
    assert asked == [len(IDS)]


@pytest.mark.parametrize("ids", [[], {"a": 1}, [1, "2"], [1.5], [-1], [True]])
def test_what_is_not_a_list_of_ids_is_one_line(tmp_path, capsys, ids):
    assert run(tmp_path, ids) == 1
    assert "is not a list of token ids" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ids", "more", "expected"),
    [
        ([10**6], [], "token id 1000000 is outside"),
        (IDS, ["--prefill", "7"], "--prefill 7, but there are 6 tokens"),
    ],
)
def test_what_the_model_can_not_read_is_one_line(tmp_path, capsys, ids, more, expected):
    assert run(tmp_path, ids, *more) == 1
    assert expected in capsys.readouterr().err


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    arguments = ["logits", "-m", str(TINY), "--tokens", str(tmp_path / "no"), "--out", "x.npy"]
    assert main(arguments) == 1
    assert "can't read token ids" in capsys.readouterr().err


def test_without_cache_rounding_is_the_network_that_transformers_computes(tmp_path):
    case = json.loads((V4 / "tokens.json").read_text(encoding="utf-8"))["short"]
    # Experts of few positions round activations to 8 bits; the rest of the error goes away.
    oracle = np.load(V4 / "hf.npz")["short.prefill"]
    options = ["--prefill", str(len(case["tokens"]))]
    files = V4 / "tiny-v4-q.gguf"
    errors = []
    for more in ([], ["--no-cache-rounding"]):
        assert run(tmp_path, case["tokens"], *options, *more, model=files) == 0
        errors.append(np.abs(np.load(tmp_path / "out.npy") - oracle).mean())
    assert errors[1] < errors[0] / 2


def test_a_model_without_cache_rounding_can_not_turn_it_off(tmp_path, capsys):
    assert run(tmp_path, IDS, "--no-cache-rounding") == 1
    assert "has no rounding of cached rows to turn off" in capsys.readouterr().err
