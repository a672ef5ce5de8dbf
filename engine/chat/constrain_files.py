"""The grammar of file blocks: see ``file_blocks``. No control token stands in it."""

from collections.abc import Iterator, Sequence

from engine.chat.reply_rule import literal, regex

_MARKDOWN = (".md", ".markdown", ".mdx", ".rst")
# Vocabularies have tokens of a fence and the newlines after it: without them a model that is about
# to end has to choose another token, which may be no fence.
_END = r"/\n{0,2}/"
_MOST_ORDERED = 5  # names: each once, in any order, takes a rule for each set of them


def file_rules(names: Sequence[str]) -> Iterator[str]:
    """Yield the rules of a symbol ``files``: one block or more, each of a name of its own.

    A Markdown file, which may hold fences, is fenced by four marks instead of three. A model that
    has closed a listing in it, or takes three marks for its end, may end its turn there: kept from
    that, it would begin listing after listing and never come to four. ``FileBlockParser`` reads
    such a file as whole. With more than a few names, a name may come again.
    """
    for i, name in enumerate(names):
        is_markdown = name.lower().endswith(_MARKDOWN)
        yield f"file_{i}: {literal(name + chr(10))} {'LONG_FENCE' if is_markdown else 'FENCE'}"
    yield _fence("FENCE", "```", "```")
    # The marks in brackets fit only where the reply ends: more text would still be the file's.
    yield _fence("LONG_FENCE", "````", r"(````|```\n{0,2})")
    if len(names) > _MOST_ORDERED:
        yield f"any_file: {' | '.join(f'file_{i}' for i in range(len(names)))}"
        yield rf'files: any_file ("\n\n" any_file)* {_END}'
        return
    for used in range(1 << len(names)):
        left = [i for i in range(len(names)) if not used >> i & 1]
        if not used:
            yield f"files: {' | '.join(f'file_{i} more_{1 << i}' for i in left)}"
        else:
            more = [rf'"\n\n" file_{i} more_{used | 1 << i}' for i in left]
            yield f"more_{used}: {' | '.join([*more, _END])}"


def _fence(symbol: str, marks: str, end: str) -> str:
    pattern = marks + r"[a-z]*\n((?s:.*)\n)?" + end
    earlier_end = rf"\n{marks}(?s:.)"
    too_short = r"\n`{1,2}[ \t]*\n"  # a line that was meant to be the end
    return f"{symbol}: {regex(pattern, (earlier_end, too_short))}"
