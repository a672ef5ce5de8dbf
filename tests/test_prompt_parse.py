"""``prompt parse``: recorded replies as JSON lines."""

import argparse
import io
import json
import lzma
import sys
from pathlib import Path

import pytest

from ds4agent.prompt_parse import add_action, event_lines

FIXTURE = Path(__file__).parent / "fixtures" / "prompt" / "dsml.json.xz"
CASES = {case["name"]: case for case in json.loads(lzma.decompress(FIXTURE.read_bytes()))["cases"]}
CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "a"}}\n</tool_call>'


@pytest.mark.parametrize(
    "name", ["plain_text", "thinking_then_text", "one_call_thinking_with_text", "parallel_calls"]
)
def test_the_last_line_is_the_recorded_reply(name: str) -> None:
    given = CASES[name]["input"]
    raw = given["raw"].encode()
    last = event_lines(raw, "deepseek_v4", given["thinking"], given["finish"])[-1]
    expected = CASES[name]["expect"]
    assert last["content"] == expected["content"]
    assert last["reasoning_content"] == expected["reasoning_content"]
    assert last["finish_reason"] == expected["finish_reason"]
    assert last["tool_calls"] == [
        {"name": call["name"], "arguments": call["arguments"]} for call in expected["tool_calls"]
    ]


def test_events_come_in_order() -> None:
    lines = event_lines(CASES["one_call"]["input"]["raw"].encode(), "deepseek_v4", False, "stop")
    kinds = list(dict.fromkeys(line["type"] for line in lines))
    assert kinds == ["call_started", "call_arguments", "call_complete", "reply"]


def test_a_block_that_was_cut_off_is_malformed() -> None:
    raw = CASES["trunc_in_param_close"]["input"]["raw"].encode()
    line = event_lines(raw, "deepseek_v4", False, "length")[-2]
    assert line["type"] == "call_malformed" and "cut off" in line["reason"]


def test_the_command_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    parser = argparse.ArgumentParser()
    add_action(parser.add_subparsers())
    args = parser.parse_args(["parse", "--family", "chatml"])
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"«ok»\n{CALL}".encode())))
    monkeypatch.setattr(sys, "stdout", out)
    assert args.run(args) == 0
    out.flush()
    lines = [json.loads(line) for line in out.buffer.getvalue().decode().splitlines()]
    assert lines[0] == {"type": "text", "content": "«ok»\n"}
    assert lines[-1]["tool_calls"] == [{"name": "ls", "arguments": '{"path": "a"}'}]
