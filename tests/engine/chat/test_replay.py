"""Exact replay: the sampled bytes come back, and their tokens; the file form; limits."""

import random

import pytest

from engine.chat.chatml import ChatmlFormat
from engine.chat.chatml_layout import ChatmlLayout
from engine.chat.conversation import Call, Conversation, Message, render_whole
from engine.chat.deepseek_v4_dialect import DEEPSEEK_V4
from engine.chat.deepseek_v4_turns import DeepseekV4Layout
from engine.chat.dsml_parser import DsmlParser
from engine.chat.dsml_tags import MARK
from engine.chat.format import CallComplete, ToolSpec
from engine.chat.replay import CallReplay, new_call_id, read_ktm, write_ktm
from engine.chat.segments import encode, split_marks
from engine.tokenizer import Tokenizer
from tests.engine.chat.streams import run

# The section of a small file of antirez/ds4, revision 8d57664.
ONE = bytes.fromhex(
    "4b544d0101000000090000002e00000063616c6c5f303030313cefbd9c44534d4cefbd9c746f6f6c5f63616c"
    "6c733e783c2fefbd9c44534d4cefbd9c746f6f6c5f63616c6c733e"
)
BLOCK = "<｜DSML｜tool_calls>x</｜DSML｜tool_calls>".encode()


def test_ids_can_not_be_guessed() -> None:
    ids = {new_call_id("toolu_") for _ in range(1000)}
    assert len(ids) == 1000 and all(len(i) == 6 + 32 for i in ids)


def test_all_ids_of_a_turn_must_be_of_one_block() -> None:
    replay = CallReplay()
    replay.remember(["a", "b"], b"one")
    replay.remember(["c"], b"two")
    assert replay.block(["a"]) == replay.block(["b", "a"]) == b"one"
    assert replay.block(["a", "c"]) is None
    assert replay.block(["a", "x"]) is None
    assert replay.block([]) is None


def test_a_history_from_elsewhere_renders_to_the_sampled_tokens(v4_tokenizer: Tokenizer) -> None:
    """Odd spacing, swapped attributes, an unusual JSON spelling: all of it comes back."""
    block = (
        '\n<｜DSML｜tool_calls>  \n\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter string="false" name="n" >1e3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke></｜DSML｜tool_calls>"
    )
    # What is sampled: the mark is its token, everything else is text.
    sampled = encode(split_marks(block, (MARK,)), v4_tokenizer)
    raw = b"".join(v4_tokenizer.token_bytes(i) for i in sampled)
    events, _ = run(lambda: DsmlParser((ToolSpec("f", "", {}),), False), [raw])
    (call,) = [event.call for event in events if isinstance(event, CallComplete)]
    replay = CallReplay()
    call_id = new_call_id()
    replay.remember([call_id], call.raw.encode())
    restored = CallReplay()
    assert restored.load(write_ktm(replay.entries(b"prompt" + raw))) == 1
    again = restored.block([call_id])
    assert again is not None and again == raw
    assert encode(split_marks(again.decode(), (MARK,)), v4_tokenizer) == sampled


SAMPLED = {
    "v4": '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter string="false" '
    'name="n">1e3</｜DSML｜parameter>\n</｜DSML｜invoke>  </｜DSML｜tool_calls>',
    "chatml": '<tool_call>{"arguments":{"n":1e3},   "name":"f"}</tool_call>',
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_whole_history_from_elsewhere_is_the_sampled_prompt(
    name: str, v4_tokenizer: Tokenizer, chatml_tokenizer: Tokenizer
) -> None:
    """A client that knows ids and JSON only gets the prompt of the one who sampled."""
    block, call_ids = SAMPLED[name], [new_call_id()]
    if name == "v4":
        layout, tokenizer, marks = DeepseekV4Layout(DEEPSEEK_V4), v4_tokenizer, (MARK,)
        end = [tokenizer.control_id("<｜end▁of▁sentence｜>")]
    else:
        tokenizer, marks = chatml_tokenizer, ("<tool_call>", "</tool_call>")
        layout = ChatmlLayout(ChatmlFormat(tokenizer))
        end = [tokenizer.control_id("<|im_end|>"), *tokenizer.encode("\n")]
    asked = Conversation((Message("user", "go"),))
    live = encode(render_whole(asked, layout), tokenizer)
    live += encode(["Now.", *split_marks(block, marks)], tokenizer) + end

    def history(arguments: str, call_id: str) -> Conversation:
        reply = Message("assistant", "Now.", calls=(Call(call_id, "f", arguments),))
        return Conversation((*asked.messages, reply, Message("tool", "1", call_id=call_id)))

    replay = CallReplay()
    replay.remember(call_ids, block.encode())
    for arguments in ('{"n": 1000.0}', '{"n": 2}'):
        restored = replay.restore(history(arguments, call_ids[0]))
        prompt = encode(render_whole(restored, layout), tokenizer)
        assert prompt[: len(live)] == live
    unknown = history('{"n": 1000.0}', "call_1")
    assert replay.restore(unknown) == unknown
    assert encode(render_whole(unknown, layout), tokenizer)[: len(live)] != live


def test_marks_in_arguments_of_an_unknown_call_stay_text(v4_tokenizer: Tokenizer) -> None:
    said = Message("assistant", calls=(Call("call_0", "f", SAMPLED["v4"]),))
    safe = Message("assistant", calls=(Call("call_0", "f", "x"),))
    layout, mark = DeepseekV4Layout(DEEPSEEK_V4), v4_tokenizer.control_id(MARK)
    counts = {
        encode(
            render_whole(CallReplay().restore(Conversation((message,))), layout), v4_tokenizer
        ).count(mark)
        for message in (said, safe)
    }
    assert len(counts) == 1


def test_a_block_that_is_no_text_is_left_out() -> None:
    replay = CallReplay()
    replay.remember(["a"], b"\xff")
    said = Conversation((Message("assistant", calls=(Call("a", "f", "{}"),)),))
    assert replay.restore(said) == said


def test_file_form_is_that_of_the_other_program() -> None:
    assert len(ONE) == 71
    assert write_ktm([("call_0001", BLOCK)]) == ONE
    assert read_ktm(ONE) == read_ktm(ONE + b"more") == [("call_0001", BLOCK)]
    assert write_ktm([]) == b""


def test_entries_are_those_of_the_text_in_its_order() -> None:
    replay = CallReplay()
    replay.remember(["a1", "a2"], b"<a>")
    replay.remember(["b1"], b"<b>")
    replay.remember(["c1"], b"<c>")
    expected = [("b1", b"<b>"), ("a2", b"<a>"), ("a1", b"<a>")]
    assert replay.entries(b"..<b>..<a>..<b>") == expected
    assert replay.entries(b"") == []


def test_only_what_is_asked_for_is_loaded_and_what_is_known_stays() -> None:
    data = write_ktm([("a", b"1"), ("b", b"2"), ("c", b"3")])
    replay = CallReplay()
    replay.remember(["a"], b"mine")
    assert replay.load(data, only={"a", "b"}) == 1
    assert (replay.block(["a"]), replay.block(["b"]), replay.block(["c"])) == (b"mine", b"2", None)


def test_the_least_recently_used_goes_first() -> None:
    replay = CallReplay(max_ids=3)
    for name in "abc":
        replay.remember([name], name.encode())
    replay.block(["a"])
    replay.remember(["d"], b"d")
    assert [replay.block([name]) is not None for name in "abcd"] == [True, False, True, True]


def test_bytes_are_limited_and_counted_once_for_each_block() -> None:
    replay = CallReplay(max_bytes=10)
    replay.remember(["a", "b"], b"x" * 6)
    assert replay.n_bytes == 6
    replay.remember(["c"], b"y" * 5)
    assert replay.n_bytes == 5 and len(replay) == 1
    replay.remember(["d"], b"z" * 11)
    assert replay.block(["d"]) is None and len(replay) == 1


def test_damaged_sections_are_read_up_to_the_damage() -> None:
    chooser = random.Random(4)
    entries = [(f"call_{n}", bytes([n + 1]) * 20) for n in range(5)]
    whole = write_ktm(entries)
    for length in range(len(whole)):
        found = read_ktm(whole[:length])
        assert found == entries[: len(found)]
    for _ in range(2000):
        data = bytearray(whole)
        data[chooser.randrange(len(data))] = chooser.randrange(256)
        assert len(read_ktm(bytes(data))) <= 5
    assert read_ktm(b"KTM\x02" + whole[4:]) == []
    assert read_ktm(whole[:4] + b"\xff\xff\xff\x7f" + whole[8:]) == []
