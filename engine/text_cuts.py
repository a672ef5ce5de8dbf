"""Where a long text may be cut so that its parts encode to the ids of the whole.

Byte-level BPE never merges across the pieces of the pre-tokenizer, so a cut between two pieces
changes nothing, as long as neither side is cut into pieces differently for lack of the other. That
holds after a lone line break between two visible ASCII characters, with every set of patterns in
``engine.pretokenizer``: a line break is the last character of its match in all of them, nothing
that matches what follows may begin with it, and the patterns that look ahead (``\\s+(?!\\S)``) only
see a difference in a run of white space longer than one.
"""

import re
from collections.abc import Iterator

_SAFE = re.compile(r"(?<=[!-~]\n)(?=[!-~])")


def safe_parts(text: str, n_characters: int) -> Iterator[str]:
    """Yield a text in parts of at least ``n_characters``, longer where no cut is safe."""
    start = 0
    while (found := _SAFE.search(text, start + n_characters)) is not None:
        yield text[start : found.start()]
        start = found.start()
    yield text[start:]
