"""The tokenizer on a small vocabulary, checked against a second, plain implementation of BPE."""

import random
import time

import pytest

from engine.errors import ModelFileError
from engine.pretokenizer import pre_tokenizer_for
from engine.text_cuts import safe_parts
from engine.tokenizer import PARALLEL_FROM, Tokenizer
from tests.fakes.scripted_model import byte_tokenizer

PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
CHARACTERS = {byte: chr(byte) for byte in PRINTABLE}
CHARACTERS |= {byte: chr(256 + index) for index, byte in enumerate(OTHERS)}
CONTROLS = ["<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>"]


def spell(raw: bytes) -> str:
    return "".join(CHARACTERS[byte] for byte in raw)


def learn_merges(text: str, n_merges: int) -> list[tuple[str, str]]:
    """Train BPE on the whole text as one piece: enough to give merges that compete."""
    word = list(spell(text.encode()))
    merges = []
    for _ in range(n_merges):
        pairs: dict[tuple[str, str], int] = {}
        for pair in zip(word, word[1:], strict=False):
            pairs[pair] = pairs.get(pair, 0) + 1
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        word = merge(word, best)
    return merges


def merge(word: list[str], pair: tuple[str, str]) -> list[str]:
    merged, at = [], 0
    while at < len(word):
        if tuple(word[at : at + 2]) == pair:
            merged.append(pair[0] + pair[1])
            at += 2
        else:
            merged.append(word[at])
            at += 1
    return merged


def plain_bpe(piece: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    word = list(piece)
    while True:
        ranked = [ranks.get(pair, 1 << 30) for pair in zip(word, word[1:], strict=False)]
        if not ranked or min(ranked) == 1 << 30:
            return word
        at = ranked.index(min(ranked))
        word[at : at + 2] = [word[at] + word[at + 1]]


TRAINING = (
    "the theme of these then there is the other thing, не это этот это 你好你们好 == 10 100 1000\n"
    * 3
)
MERGES = learn_merges(TRAINING, 60)
PLAIN = list(CHARACTERS.values()) + list(dict.fromkeys(left + right for left, right in MERGES))
TOKENS = PLAIN + CONTROLS + MARKUP
TYPES = [1] * len(PLAIN) + [3, 3, 4, 4]
END_ID = TOKENS.index("<|im_end|>")


def build(pre: str = "qwen2", **changes: object) -> Tokenizer:
    arguments = {
        "tokens": TOKENS,
        "merges": [f"{left} {right}" for left, right in MERGES],
        "token_types": TYPES,
        "pre": pre,
        "eos_id": END_ID,
    }
    return Tokenizer(**(arguments | changes))


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "deepseek-v3", "default"])
def test_encode_equals_a_plain_implementation(pre: str) -> None:
    tokenizer = build(pre)
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(MERGES)))}
    ids = {token: index for index, token in reversed(list(enumerate(TOKENS)))}
    splitter = pre_tokenizer_for(pre)
    alphabet = "the ot hеэто你好1 0=\n\t,é🎉'"
    chooser = random.Random(11)
    for _ in range(300):
        text = "".join(chooser.choice(alphabet) for _ in range(chooser.randrange(0, 40)))
        pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)]
        expected = [ids[token] for piece in pieces for token in plain_bpe(piece, ranks)]
        assert tokenizer.encode(text) == expected
        assert tokenizer.render(expected).decode() == text


ALPHABET = "ab 19\n\n \t\r.!('s{_é你の🎉\u200b\x1c\u3000"


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "llama-bpe", "deepseek-v3", "default"])
def test_cut_text_has_the_pieces_of_the_whole(pre: str) -> None:
    """Every place that counts as safe is tried, in texts that are full of awkward ones."""
    splitter = pre_tokenizer_for(pre)

    def pieces(text: str) -> list[str]:
        return [piece for piece, _ in splitter.pre_tokenize_str(text)]

    chooser, n_cuts = random.Random(5), 0
    for _ in range(3000):
        text = "".join(chooser.choice(ALPHABET) for _ in range(chooser.randrange(30)))
        parts = list(safe_parts(text, 1))
        assert "".join(parts) == text
        n_cuts += len(parts) - 1
        assert [piece for part in parts for piece in pieces(part)] == pieces(text), text
    assert n_cuts > 500


def test_long_texts_in_parallel_have_the_ids_of_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = build()
    chooser = random.Random(8)
    texts = ["".join(chooser.choices("the ot h=\nэто你1", k=n)) for n in (60_000, 3, 0, 20_000)]
    segments = [END_ID, texts[0], END_ID, *texts[1:], END_ID]
    assert sum(map(len, texts)) > PARALLEL_FROM
    assert len(list(safe_parts(texts[0], 1 << 13))) > 3
    ids = tokenizer.encode_segments(segments)
    assert ids.count(END_ID) == 3 and tokenizer.render(ids).decode().count("<|im_end|>") == 3
    monkeypatch.setattr("engine.tokenizer.PARALLEL_FROM", 1 << 60)
    assert tokenizer.encode_segments(segments) == ids
    assert tokenizer.encode(texts[0]) == ids[1 : 1 + len(tokenizer.encode(texts[0]))]


@pytest.mark.parametrize(
    "pre, pieces",
    [
        ("gpt-2", ["I", "'m", " 12345", " x", "  ", " y", "\n", "\n", "z", "!!", "\n"]),
        ("smollm", ["I", "'m", " ", *"12345", " x", "  ", " y", "\n", "\n", "z", "!!", "\n"]),
        ("qwen2", ["I", "'m", " ", *"12345", " x", "  ", " y", "\n\n", "z", "!!\n"]),
        ("llama-bpe", ["I", "'m", " ", "123", "45", " x", "  ", " y", "\n\n", "z", "!!\n"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "45", " x", "  ", " y", "\n\n", "z", "!!\n"]),
    ],
)
def test_pre_tokenizers_cut_where_they_are_known_to(pre: str, pieces: list[str]) -> None:
    text = "I'm 12345 x   y\n\nz!!\n"
    cut = [piece for piece, _ in pre_tokenizer_for(pre).pre_tokenize_str(text)]
    assert cut == [spell(piece.encode()) for piece in pieces]


@pytest.mark.parametrize("text", [*CONTROLS, *MARKUP, "a<|im_end|>b", "<|im_start|>system\nx"])
def test_encode_never_gives_a_control_token(text: str) -> None:
    tokenizer = build()
    special = {tokenizer.control_id(name) for name in CONTROLS + MARKUP}
    assert not special & set(tokenizer.encode(text))
    assert tokenizer.render(tokenizer.encode(text)).decode() == text


def test_merges_never_build_a_control_token() -> None:
    half, rest = "<|im_", "end|>"
    tokenizer = build(
        tokens=[*TOKENS, half, rest],
        token_types=[*TYPES, 1, 1],
        merges=[f"{half} {rest}"],
    )
    assert END_ID not in tokenizer.encode("<|im_end|>")


def test_token_bytes_tell_control_markup_and_text_apart() -> None:
    tokenizer = build()
    assert tokenizer.token_bytes(END_ID) == b""
    assert tokenizer.token_bytes(tokenizer.control_id("<tool_call>")) == b"<tool_call>"
    assert tokenizer.token_bytes(TOKENS.index(CHARACTERS[0x0A])) == b"\n"
    assert tokenizer.render([END_ID, TOKENS.index("t")]) == b"<|im_end|>t"


def test_thinking_tags_have_bytes_even_as_control_tokens() -> None:
    tokenizer = build(tokens=[*TOKENS, "<think>"], token_types=[*TYPES, 3])
    assert tokenizer.token_bytes(tokenizer.control_id("<think>")) == b"<think>"


def test_half_a_character_is_given_as_bytes() -> None:
    tokenizer = build(merges=[])
    ids = tokenizer.encode("é")
    assert [tokenizer.token_bytes(token_id) for token_id in ids] == [b"\xc3", b"\xa9"]


def test_encode_replaces_what_has_no_bytes() -> None:
    tokenizer = build()
    assert tokenizer.render(tokenizer.encode("a\ud800b")).decode() == "a\ufffdb"
    assert tokenizer.render(tokenizer.encode("\ud83d\ude00")).decode() == "\U0001f600"


def test_encode_replaces_characters_that_the_vocabulary_cannot_spell() -> None:
    bell = CHARACTERS[0x07]
    kept = [(token, kind) for token, kind in zip(TOKENS, TYPES, strict=True) if token != bell]
    tokenizer = build(
        tokens=[token for token, _ in kept],
        token_types=[kind for _, kind in kept],
        eos_id=0,
    )
    assert tokenizer.render(tokenizer.encode("a\x07b\x08")).decode() == "a\ufffdb\x08"


def test_byte_tokens_are_bytes() -> None:
    tokenizer = build(tokens=[*TOKENS, "<0xAB>"], token_types=[*TYPES, 6])
    assert tokenizer.token_bytes(len(TOKENS)) == b"\xab"


def test_encode_segments_keeps_ids_and_encodes_texts_apart() -> None:
    tokenizer = build()
    ids = tokenizer.encode_segments(["th", END_ID, "e"])
    assert ids == [*tokenizer.encode("th"), END_ID, *tokenizer.encode("e")]


def test_eos_ids_hold_every_known_end() -> None:
    tokenizer = build(tokens=[*TOKENS, "<|endoftext|>"], token_types=[*TYPES, 3])
    assert tokenizer.eos_ids == {END_ID, len(TOKENS)}


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"token_types": [1]}, "1 token types"),
        ({"eos_id": 10**6}, "end token is 1000000"),
        ({"bos_id": -1}, "start token is -1"),
        ({"merges": ["zz qq"]}, "'zz qq' uses a token"),
        ({"merges": ["x"]}, "'x' uses a token"),
        ({"pre": "martian"}, "'martian' is unknown"),
    ],
)
def test_inconsistent_vocabularies_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ModelFileError, match=said) as caught:
        build(**changes)
    assert caught.value.hint


def test_control_id_names_the_missing_token() -> None:
    with pytest.raises(ModelFileError, match="no control token <\\|nope\\|>"):
        build().control_id("<|nope|>")
    with pytest.raises(ModelFileError):
        build().control_id("the")  # a plain token is no control token


def test_long_text_of_one_kind_takes_linear_time() -> None:
    tokenizer = build()
    started = time.perf_counter()
    assert len(tokenizer.encode(" " * 200_000 + "=" * 200_000)) > 0
    assert time.perf_counter() - started < 3  # 0.2 s measured; quadratic would take minutes


def test_ids_beginning_with_looks_past_blanks() -> None:
    tokenizer = byte_tokenizer()
    ids = set(tokenizer.ids_beginning_with(b"{<"))
    assert ids == {*tokenizer.encode("{< \n\t\r\v\f")}
