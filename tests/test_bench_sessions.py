"""ds4-bench sessions: random states in real shapes, and what is told about them."""

import json

import numpy as np
import pytest

from ds4agent.bench import session_states
from ds4agent.bench.cli import _lengths, main
from sessions.dsv4_payload import DeepseekV4Payload
from sessions.grids import FP4, FP8, pack


@pytest.mark.parametrize(("n", "n_bytes"), [(1, 12_811_664), (130, 25_757_588), (512, 31_042_956)])
def test_states_have_the_published_sizes(n, n_bytes) -> None:
    assert DeepseekV4Payload().n_bytes(session_states.flash_state(n)) == n_bytes


def test_rows_lie_on_the_grids_of_the_cache() -> None:
    arrays = session_states.flash_state(300).arrays
    assert pack(arrays["layers.2.indexer.compressed"], FP4).strays.size == 0
    assert pack(arrays["layers.2.compressed"][:, :448], FP8).strays.size == 0
    assert pack(arrays["layers.2.compressed"][:, 448:], FP8).strays.size > 0


def test_a_turn_brings_only_new_compressed_rows() -> None:
    before, after = session_states.flash_state(300), session_states.flash_state(340)
    delta = session_states.delta_between(before, after)
    assert len(delta.arrays["layers.2.compressed"]) == 10
    assert len(delta.arrays["layers.3.compressed"]) == 0
    assert len(delta.arrays["layers.2.window"]) == 128
    assert len(delta.tokens) == 40 and delta.n_tokens == 340


def test_json_has_a_row_for_each_length(tmp_path, capsys) -> None:
    arguments = ["sessions", "--tokens", "10,200", "--repeat", "1", "--folder", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["tokens"] for row in report["rows"]] == [10, 200]
    for row in report["rows"]:
        assert row["append_bytes"] <= 25 << 20  # of a turn of 500 tokens
        assert 0 < row["export_ratio"] < 0.6  # short ones are mostly float32 frontiers
        assert min(row["save_rate"], row["load_rate"], row["write_rate"], row["read_rate"]) > 0
    assert not list(tmp_path.glob("ds4-bench-*"))


def test_lengths_are_read_as_people_write_them(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["sessions", "--tokens", "2x"])
    assert "'2x' is not a whole number" in capsys.readouterr().err
    assert _lengths("2k,100K,7") == [2000, 100_000, 7]


def test_values_are_rounded_to_the_nearest_number_of_a_grid() -> None:
    values = np.array([[0.3, 1.3, 6.0, -2.4, *[0.0] * 28]])
    assert session_states.rounded(values, 4)[0, :4].tolist() == [0.5, 1.5, 6.0, -2.0]


@pytest.mark.slow
def test_targets_in_bytes_hold_at_every_length(tmp_path, capsys) -> None:
    arguments = ["sessions", "--tokens", "2k,12k,32k", "--repeat", "1", "--folder", str(tmp_path)]
    assert main([*arguments, "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert row["append_bytes"] <= 25 << 20
        assert row["export_ratio"] <= 0.35
