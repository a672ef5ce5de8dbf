"""ds4-bench model --synthetic: the published shapes, and a run of a small network of that kind."""

import json

import pytest

from ds4agent.bench import synthetic
from ds4agent.bench.cli import main
from ds4agent.bench.synthetic import SyntheticFile

SMALL = {
    "embedding_length": 256,
    "vocab_size": 512,
    "attention.head_count": 8,
    "attention.q_lora_rank": 256,
    "attention.output_lora_rank": 64,
    "attention.indexer.head_count": 4,
    "attention.indexer.top_k": 4,
    "expert_count": 8,
    "expert_feed_forward_length": 256,
}
RUN = ["model", "--synthetic", "v4-flash-q2", "--device", "cpu", "--contexts", "16,40"]


def test_shapes_and_types_are_those_of_the_published_file():
    file = SyntheticFile("v4-flash-q2", 43)
    assert file.n_bytes / 2**30 == pytest.approx(80.8, abs=0.1)
    assert file.tensors["blk.5.ffn_gate_exps.weight"].shape == (256, 2048, 4096)
    # Bytes of one token: experts that are chosen, and all the rest but the embedding.
    read = sum(
        info.n_bytes * (6 / 256 if "_exps" in name else 1)
        for name, info in file.tensors.items()
        if name != "token_embd.weight" and "tid2eid" not in name
    )
    assert read / 1e9 == pytest.approx(9.56, abs=0.1)


def test_a_run_has_rows_like_that_of_a_file(monkeypatch, capsys):
    for key, value in SMALL.items():
        monkeypatch.setitem(synthetic._FLASH, key, value)
    assert main([*RUN, "--layers", "5", "--gen-tokens", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["name"] == "v4-flash-q2, 5 layers of random weights"
    assert [row["context"] for row in report["rows"]] == [16, 40]
    assert all(row["prefill_tps"] > 0 and row["decode_tps"] > 0 for row in report["rows"])


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--layers", "44"], "--layers 44, but v4-flash-q2 has 43"),
        (["-m", "x.gguf"], "--synthetic has no file for --model or --compare"),
    ],
)
def test_what_can_not_be_is_one_line(more, told, capsys):
    assert main([*RUN, *more]) == 1
    assert told in capsys.readouterr().err


def test_layers_of_a_file_can_not_be_left_out(capsys):
    assert main(["model", "-m", "x.gguf", "--layers", "2"]) == 1
    assert "--layers is for --synthetic models" in capsys.readouterr().err


def test_too_little_memory_asks_for_fewer_layers(monkeypatch, capsys):
    monkeypatch.setattr(synthetic, "available_bytes", lambda: 8 << 30)
    assert main(RUN) == 1
    assert "Give fewer --layers." in capsys.readouterr().err
