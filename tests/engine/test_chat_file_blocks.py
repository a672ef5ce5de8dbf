"""Files in a reply: each becomes a call, at every cut of the bytes; nothing else does."""

import json

import pytest

from engine.chat.chatml_parser import ChatmlParser
from engine.chat.constrain import reply_grammar
from engine.chat.file_blocks import FileBlockParser
from engine.chat.format import CallArguments, CallComplete, CallMalformed, Text, Thinking, ToolSpec
from engine.chat.reply_rule import ReplyRule
from engine.grammar import GrammarCompiler, GrammarError
from tests.fakes.scripted_model import byte_tokenizer

SPECS = (ToolSpec("read", "", {"type": "object", "properties": {"path": {"type": "string"}}}),)


def read(text: str, step: int = 1, *, stopped: bool = True, known=()):
    """Return (text, [(index, path, content)], malformed) of a reply that comes in pieces."""
    parser = FileBlockParser(ChatmlParser(SPECS), "write", known=known)
    data, events = text.encode(), []
    for at in range(0, len(data), step):
        events += parser.feed(data[at : at + step])
    events += parser.finish(stopped)
    said = "".join(event.text for event in events if isinstance(event, Text))
    calls = [
        (e.index, e.call.name, e.call.arguments) for e in events if isinstance(e, CallComplete)
    ]
    shown = "".join(e.text for e in events if isinstance(e, CallArguments) and e.index == 0)
    return said, calls, [e for e in events if isinstance(e, CallMalformed)], shown


def write(index: int, path: str, content: str):
    return index, "write", {"path": path, "content": content}


CASES = {
    "one": ("a.py\n```python\nx = 1\n```", "", [write(0, "a.py", "x = 1\n")]),
    "two": (
        "a.py\n```\n1\n```\n\nsrc/b.py\n```\n2\n```\n",
        "\n",
        [write(0, "a.py", "1\n"), write(1, "src/b.py", "2\n")],
    ),
    "decorated": ("**`a.py`**:\n\n```\n1\n```", "", [write(0, "a.py", "1\n")]),
    "heading": ("### File: a.py\n```\n1\n```", "", [write(0, "a.py", "1\n")]),
    "words around": ("Here it is:\n\na.py\n```\n1\n```\nDone.",
                     "Here it is:\n\nDone.", [write(0, "a.py", "1\n")]),
    "empty": ("a.txt\n```\n```", "", [write(0, "a.txt", "")]),
    "fence inside": (
        "README.md\n```\nRun:\n```sh\nmake\n```\nend\n```",
        "",
        [write(0, "README.md", "Run:\n```sh\nmake\n```\nend\n")],
    ),
    "long fence": ("n.md\n````\n```\nx\n```\n````", "", [write(0, "n.md", "```\nx\n```\n")]),
    "listing": ("```python\nx = 1\n```\n", "```python\nx = 1\n```\n", []),
    "name in a listing": ("```\nls\na.py\n```\n", "```\nls\na.py\n```\n", []),
    "name without a fence": ("See\na.py\nfor more", "See\na.py\nfor more", []),
    "sentence before a fence": ("Like this\n```\nx\n```", "Like this\n```\nx\n```", []),
    "word without extension": ("python\n```\nx\n```", "python\n```\nx\n```", []),
    "inline code": ("a.py\n```x``` is code", "a.py\n```x``` is code", []),
    "then a call": (
        "a.py\n```\n1\n```\n<tool_call>\n"
        '{"name": "read", "arguments": {"path": "b"}}\n</tool_call>',
        "",
        [write(0, "a.py", "1\n"), (1, "read", {"path": "b"})],
    ),
    "form feed": ("a.py\n```\nx\x0cy\u2028z\n```", "", [write(0, "a.py", "x\x0cy\u2028z\n")]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [1, 2, 7, 10_000])
def test_files_are_calls_at_every_cut(name, step) -> None:
    text, said, calls = CASES[name]
    got_said, got_calls, malformed, _ = read(text, step)
    assert (got_said, got_calls, malformed) == (said, calls, [])


def test_known_name_needs_no_extension() -> None:
    text = "Makefile\n```\nall:\n```"
    assert read(text)[1] == []
    assert read(text, known=["Makefile"])[1] == [write(0, "Makefile", "all:\n")]


def test_file_that_was_cut_off_is_never_written_and_one_that_lacks_its_fence_is() -> None:
    text = "a.py\n```\nx = 1\ny = 2"
    _, calls, malformed, _ = read(text, stopped=False)
    assert calls == [] and "a.py was cut off" in malformed[0].reason
    assert read(text)[1] == [write(0, "a.py", "x = 1\ny = 2\n")]


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("Run:\n```sh\nmake\n```", "Run:\n```sh\nmake\n```\n"),
        ("Run:\n```sh\nmake\n```\n\n", "Run:\n```sh\nmake\n```\n\n"),
        ("Text.\n```", "Text.\n"),
        ("Text.\n```\n\n", "Text.\n"),
        ("```\nx\n```\n\n```", "```\nx\n```\n\n"),
        ("Run:\n```sh", "Run:\n```sh\n"),  # no bare marks: nobody's end
    ],
)
def test_end_of_the_turn_ends_a_file_and_marks_too_few_for_it_are_no_part_of_it(
    said, content
) -> None:
    text = f"n.md\n````\n{said}"
    assert read(text)[1] == [write(0, "n.md", content)]
    assert read(f"{text}\n````")[1] == [write(0, "n.md", f"{said}\n")]


def test_arguments_are_shown_as_json_while_they_come() -> None:
    _, calls, _, shown = read('a.py\n```\nsay("hé")\n```')
    assert json.loads(shown + '"}') == calls[0][2]


def test_nothing_in_a_thought_is_a_file() -> None:
    parser = FileBlockParser(ChatmlParser(SPECS), "write")
    events = parser.feed(b"<think>\na.py\n```\nx\n```\n</think>\n\nNo.") + parser.finish(True)
    assert "".join(e.text for e in events if isinstance(e, Thinking)) == "\na.py\n```\nx\n```\n"
    assert not any(isinstance(event, CallComplete) for event in events)


# --- the grammar --------------------------------------------------------------------------------


def accepts(rule: ReplyRule, text: str) -> bool:
    """Tell whether a whole text fits; the vocabulary has a token for each byte."""
    tokenizer = byte_tokenizer()
    state = GrammarCompiler(tokenizer, [258]).start(reply_grammar("chatml", tokenizer, rule))
    for token in [*tokenizer.encode(text), 258]:
        if not state.allowed()[token]:
            return False
        state.accept(token)
    return True


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a.py\n```\nx\n```", True),
        ("a.py\n```python\nx\n\n  y\n```\n\nREADME.md\n````\n```\nrun\n```\n````", True),
        ("a.py\n```\n```", True),
        ("a.py\n```\nx\n```\n\na.py\n```\ny\n```", False),  # twice
        ("b.py\n```\nx\n```", False),
        ("README.md\n```\nx\n```", False),
        ("README.md\n````\nx\n```sh\nmake\n```", True),  # the turn ends where a listing does
        ("README.md\n````\nx\n```\n", True),
        ("README.md\n````\nx\n", False),
        ("README.md\n````\nx\n```\ny\n```\nz\n````\n\na.py\n```\ny\n```", True),
        ("Sure!\n\na.py\n```\nx\n```", False),
        ("a.py\n```\nx\n``` and more", False),
        ('<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>', False),
    ],
)
def test_reply_that_must_be_files(text, fits) -> None:
    assert accepts(ReplyRule(files=("a.py", "README.md"), must_call=True), text) is fits


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a.py\n```\nx\n```", True),
        ('<tool_call>\n{"name": "read", "arguments": {"path": "b"}}\n</tool_call>', True),
        ("It says b.\n", True),
        ("<tool_response>\nb", False),
        ("```\nb\n```", False),
        ("1 b", False),
        ('{"name": "read"}', False),
    ],
)
def test_reply_after_a_result_begins_as_a_file_a_call_or_words(text, fits) -> None:
    assert accepts(ReplyRule(SPECS, files=("a.py",), begins_as_words=True), text) is fits


def test_many_names_and_formats_without_files() -> None:
    names = tuple(f"{i}.py" for i in range(30))
    rule = ReplyRule(files=names, must_call=True)
    assert accepts(rule, "7.py\n```\nx\n```\n\n29.py\n```\ny\n```")
    with pytest.raises(GrammarError, match="no file blocks"):
        reply_grammar("deepseek_v4", byte_tokenizer(), rule)
