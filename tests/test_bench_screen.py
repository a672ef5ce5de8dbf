"""ds4-bench tui: what it measures, and loose limits on a busy machine."""

import json
from dataclasses import replace

import pytest

from ds4agent.bench import screen
from ds4agent.bench.cli import main
from ds4agent.bench.screen_child import history

WITHIN = screen.ScreenBench(20.0, 5.0, 0.1, 0.001, 2.0, 2.2, 1.1, 0.6, 0.65, 0.15)


def test_figures_above_their_budget_are_named():
    assert WITHIN.over_budget() == []
    slow = replace(WITHIN, echo_p95_ms=51.0, cpu_idle=0.03)
    assert slow.over_budget() == ["echo_p95_ms", "cpu_idle"]
    assert "over" not in screen.table(WITHIN)
    assert screen.table(slow).count("over") == 2


def test_only_what_is_drawn_counts_as_painted():
    assert screen.painted(b"\x1b[?1049h\x1b[2J\x1b]0;title\x07 \r\n\x1b[1;1H") == b""
    assert screen.painted(b"\x1b[31m ask \x1b[0m") == b"ask"
    assert not screen._is_painted(b"error before the screen")
    assert screen._is_painted(b"\x1b[?1049h\x1b[1;1Hready")


def test_the_history_has_every_kind_of_message():
    entries = history(5_000)
    assert len(entries) == 5_000
    roles = {entry.role for entry in entries}
    assert roles == {"user", "thinking", "call", "result", "assistant"}


@pytest.mark.slow
def test_the_whole_measurement_within_loose_limits(capsys):
    assert main(["tui", "--seconds", "2", "--starts", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(screen.BUDGETS) <= set(told)
    assert told["token_cost_ratio"] < 4  # with widgets that stay mounted it is far above
    assert told["cpu_streaming"] < 1.0
    assert told["cpu_idle"] < 0.2
    assert told["first_paint_s"] < 10
