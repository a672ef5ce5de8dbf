"""Exact replay: the sampled bytes come back, and their tokens; the file form; limits."""

import random

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
