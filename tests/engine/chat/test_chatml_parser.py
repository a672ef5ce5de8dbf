"""Reading ChatML replies: every wrapping of a call, text that is none, and damage."""

import time

import pytest

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    StreamParser,
    Text,
    Thinking,
    ToolSpec,
)
from tests.engine.chat.streams import joined, mutations, run, run_all_splits

READ = '{"name": "read", "arguments": {"path": "a.py"}}'
CALLS = {
    "tagged": f"<tool_call>\n{READ}\n</tool_call>",
    "tagged_in_one_line": f"<tool_call>{READ}</tool_call>",
    "fenced": f"```json\n{READ}\n```",
    "fenced_without_language": f"```\n{READ}\n```",
    "tagged_inside_a_fence": f"```xml\n<tool_call>\n{READ}\n</tool_call>\n```",
    "bare": READ,
    "bare_and_indented": f"  {READ}",
    "parameters": '{"name": "read", "parameters": {"path": "a.py"}}',
    "arguments_first": '{"arguments": {"path": "a.py"}, "name": "read"}',
    "arguments_as_text": '{"name": "read", "arguments": "{\\"path\\": \\"a.py\\"}"}',
    "trailing_commas": '{"name": "read", "arguments": {"path": "a.py",},}',
    "doubled_braces": f"<tool_call>\n{{{READ}}}\n</tool_call>",
    "doubled_braces_bare": f"{{{READ}}}",
    "last_brace_missing": '<tool_call>{"name": "read", "arguments": {"path": "a.py"}</tool_call>',
    "last_brace_missing_at_the_end": '{"name": "read", "arguments": {"path": "a.py"}',
    "spread_over_lines": '{\n  "name": "read",\n  "arguments": {\n    "path": "a.py"\n  }\n}',
    "tag_not_closed": f"<tool_call>\n{READ}\n",
}
TEXTS = {
    "plain": "Done. See `a.py`.",
    "ordinary_object": '{"a": 1, "b": {"name": "read", "arguments": {"path": "x"}}}\nbye',
    "call_inside_an_object": '{\n "steps": [\n  {"name": "ls", "arguments": {}}\n ]\n}\n',
    "unknown_name": '{"name": "demo", "version": "1.0"}\n',
    "known_name_without_arguments": '{"name": "read"}\n',
    "ordinary_fence": '```json\n{"a": [1, 2]}\n```\nok',
    "call_in_code": f"```python\n{READ}\n```\n",
    "call_in_code_with_tag": f"```md\n<tool_call>{READ}</tool_call>\n```\n",
    "call_later_in_a_fence": f"```json\n// this\n{READ}\n```\n",
    "call_in_a_line": f"write {READ} please",
    "inline_code": f"```{READ}```",
    "mention_of_the_tag": "Use `<tool_call>` tags, or <tool_call></tool_call>.",
    "code_with_braces": "{ int x; }\n{% if a %}\n{{ name }}\n",
    "fence_with_title": '```js title="a title that is longer than thirty characters"\nx\n```\n',
    "long_key": '{"' + "k" * 200 + '": 1}\n',
    "unclosed_object": '{"a": "no end',
    "half_marks": "a <tool_cal",
    "half_fence": "x\n``",
    "open_brace": "{",
    "empty": "",
    "spaces": " \n\n ",
    "line_break_in_text_object": '{"a": "one\ntwo"}\n',
    "emoji": "ok 🎉 naïve 你好\n",
}
BROKEN = {
    "unknown_tool": ('<tool_call>{"name": "zap", "arguments": {}}</tool_call>', "no tool 'zap'"),
    "quote_in_text": (
        '<tool_call>{"name": "read", "arguments": {"path": "a"b"}}</tool_call>',
        "the JSON is broken",
    ),
    "quote_in_bare_text": ('{"name": "read", "arguments": {"path": "a"b"}}', "a quote inside"),
    "no_object": ("<tool_call>ls()</tool_call>", "the JSON is broken"),
    "arguments_no_object": ('{"name": "read", "arguments": [1]}', "not a JSON object"),
    "same_key_twice": (
        '{"name": "read", "arguments": {"path": "a", "path": "b"}}',
        "same key twice",
    ),
    "cut_off_in_a_value": ('<tool_call>{"name": "read", "arguments": {"path": "a', "cut off"),
    "cut_off_bare": ('{"name": "read", "arguments": {"path": "a', "cut off"),
    "cut_off_after_the_tag": ("<tool_call>\n", "cut off"),
    "half_a_surrogate": ('{"name": "read", "arguments": {"path": "\\ud800"}}', "surrogate"),
}


@pytest.fixture
def make(tools: tuple[ToolSpec, ...]):
    return lambda: ChatmlParser(tools)


def calls_of(events: list[ParserEvent]) -> list[tuple[str, dict]]:
    return [(e.call.name, e.call.arguments) for e in events if isinstance(e, CallComplete)]


@pytest.mark.parametrize("raw", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("before", ["", "I'll read it.\n"])
def test_call_is_read_at_every_split(make, raw: str, before: str) -> None:
    events, _ = run_all_splits(make, (before + raw).encode())
    said = "".join(event.text for event in events if isinstance(event, Text))
    kinds = [type(event) for event in events if not isinstance(event, Text)]
    assert said.strip() == before.strip()
    assert kinds == [CallStarted, CallArguments, CallComplete]
    assert calls_of(events) == [("read", {"path": "a.py"})]


@pytest.mark.parametrize("raw", TEXTS.values(), ids=TEXTS)
def test_text_comes_out_unchanged_at_every_split(make, raw: str) -> None:
    events, was_finished = run_all_splits(make, raw.encode())
    assert events == ([Text(raw)] if raw else [])
    assert not was_finished


@pytest.mark.parametrize("raw, said", BROKEN.values(), ids=BROKEN)
def test_broken_call_is_reported_at_every_split(make, raw: str, said: str) -> None:
    events, _ = run_all_splits(make, raw.encode())
    malformed = events[-1]
    assert isinstance(malformed, CallMalformed)
    assert said in malformed.reason
    assert "\n" not in malformed.reason
    assert '<tool_call>{"name": "read", "arguments": {"path": "..."}}' in malformed.reason
    # A bare call ends at the first sign of damage; in tags the whole tag is read.
    assert malformed.raw == (raw if raw.startswith("<") else raw[: len(malformed.raw)])
    assert not calls_of(events)


def test_example_of_an_error_is_of_the_tool_that_was_meant(make) -> None:
    events, _ = run(make, [b'<tool_call>{"name": "ls", "arguments": 3}</tool_call>'])
    assert '{"name": "ls", "arguments": {}}' in events[-1].reason


def test_first_call_ends_the_reply(make) -> None:
    raw = f"{CALLS['tagged']}\n<tool_response>\nfoo\n</tool_response>\n{CALLS['tagged']}"
    events, was_finished = run_all_splits(make, raw.encode())
    assert was_finished
    assert len(calls_of(events)) == 1
    assert events[-1].call.raw == CALLS["tagged"]


def test_name_alone_calls_a_tool_without_required_arguments(make) -> None:
    assert calls_of(run_all_splits(make, b'{"name": "ls"}')[0]) == [("ls", {})]


def test_text_object_is_followed_by_a_call(make) -> None:
    raw = f'{{"a": {{"b": "}}"}}}}\n{READ}'
    events, _ = run_all_splits(make, raw.encode())
    assert events[0] == Text('{"a": {"b": "}"}}\n')
    assert len(calls_of(events)) == 1


def test_line_breaks_in_arguments_are_kept(make) -> None:
    events, _ = run(make, [b'{"name": "read", "arguments": {"path": "a\nb\tc"}}'])
    assert calls_of(events) == [("read", {"path": "a\nb\tc"})]


@pytest.mark.parametrize("start", ["<think>", "\n<think>"])
def test_thinking_is_told_apart_and_never_calls(make, start: str) -> None:
    raw = f"{start}\nhm {CALLS['tagged']}\n{READ}\n</think>\n\nDone."
    events, was_finished = run_all_splits(make, raw.encode())
    assert events == [Thinking(f"\nhm {CALLS['tagged']}\n{READ}\n"), Text("Done.")]
    assert not was_finished


def test_in_thinking_follows_the_tags(make) -> None:
    parser: StreamParser = make()
    parser.feed(b"<think>a")
    assert parser.in_thinking
    parser.feed(b"</think>b")
    assert not parser.in_thinking
    assert run(make, [b"<think>never closed"])[0] == [Thinking("never closed")]


def test_call_after_thinking_is_read(make) -> None:
    events, _ = run_all_splits(make, f"<think>x</think>\n\n{CALLS['tagged']}".encode())
    assert calls_of(events) == [("read", {"path": "a.py"})]


def test_without_tools_everything_is_text() -> None:
    events, was_finished = run_all_splits(lambda: ChatmlParser(()), CALLS["tagged"].encode())
    assert events == [Text(CALLS["tagged"])]
    assert not was_finished


def test_events_come_as_early_as_they_can(make) -> None:
    parser: StreamParser = make()
    assert parser.feed(b'<tool_call>\n{"name": "read"') == [CallStarted(0, "read")]
    assert joined(parser.feed(b', "arguments": {"pa')) == [CallArguments(0, '{"pa')]
    assert parser.feed(b"Hello") == [CallArguments(0, "Hello")]
    other: StreamParser = make()
    assert other.feed(b"Hello ") == [Text("Hello ")]
    assert other.feed("é".encode()[:1]) == []
    assert other.feed("é".encode()[1:]) == [Text("é")]


def test_invalid_bytes_become_replacement_characters(make) -> None:
    events, _ = run_all_splits(make, b"a\xff\xfeb\xe2\x82")
    assert events == [Text("a\ufffd\ufffdb\ufffd")]


@pytest.mark.parametrize(
    "filler",
    ["x" * 1_000_000, 'line \\"q\\"\\n' * 80_000, "\n" * 1_000_000],
    ids=["x", "escapes", "n"],
)
def test_large_argument_takes_linear_time(make, filler: str) -> None:
    raw = f'<tool_call>{{"name": "read", "arguments": {{"path": "{filler}"}}}}</tool_call>'.encode()
    started = time.process_time()
    assert len(calls_of(run(make, [raw])[0])) == 1
    assert time.process_time() - started < 1  # 0.03 s measured
    started = time.process_time()
    pieces = [raw[i : i + 50] for i in range(0, len(raw), 50)]
    assert len(calls_of(run(make, pieces)[0])) == 1
    assert time.process_time() - started < 3  # 0.2 s measured; quadratic takes minutes


@pytest.mark.parametrize("unit", ["{", "\n{", "`", "\n```", "<tool_call", '\n{"name": ', "\n", " "])
def test_repeated_marks_take_linear_time(make, unit: str) -> None:
    raw = (unit * (100_000 // len(unit))).encode()
    started = time.process_time()
    run(make, [raw[i : i + 50] for i in range(0, len(raw), 50)])
    run(make, [raw])
    assert time.process_time() - started < 4  # below 0.7 s measured; quadratic takes minutes


def test_damaged_replies_never_raise_and_never_depend_on_cuts(make) -> None:
    seeds = [*CALLS.values(), *TEXTS.values(), *(raw for raw, _ in BROKEN.values())]
    for raw in mutations([seed.encode() for seed in seeds], 1200):
        middle = len(raw) // 2
        whole = run(make, [raw])
        assert run(make, [raw[:middle], raw[middle:]]) == whole, raw
        assert run(make, [raw[i : i + 1] for i in range(len(raw))]) == whole, raw
        for name, arguments in calls_of(whole[0]):
            assert name in ("read", "ls") and isinstance(arguments, dict)
