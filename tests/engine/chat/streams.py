"""Running a parser over a recorded reply, cut in every possible way."""

import random
from collections.abc import Callable

from engine.chat.format import CallArguments, ParserEvent, StreamParser, Text, Thinking

Make = Callable[[], StreamParser]


def joined(events: list[ParserEvent]) -> list[ParserEvent]:
    """Join neighbouring pieces of the same kind: what must not depend on the cuts."""
    result: list[ParserEvent] = []
    for event in events:
        last = result[-1] if result else None
        if type(event) is type(last) and isinstance(event, Text | Thinking):
            result[-1] = type(event)(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            result[-1] = CallArguments(event.index, last.text + event.text)
        else:
            result.append(event)
    return result


def run(
    make: Make, pieces: list[bytes], *, stopped: bool = False
) -> tuple[list[ParserEvent], bool]:
    """Return the joined events, and whether the parser asked to stop before the end."""
    parser = make()
    events = [event for piece in pieces for event in parser.feed(piece)]
    was_finished = parser.finished
    events += parser.finish(stopped)
    assert parser.finish() == []
    return joined(events), was_finished


def run_all_splits(
    make: Make, raw: bytes, *, stopped: bool = False
) -> tuple[list[ParserEvent], bool]:
    """Run the reply whole, in single bytes, and cut at each byte; all must agree."""
    whole = run(make, [raw], stopped=stopped)
    assert run(make, [raw[i : i + 1] for i in range(len(raw))], stopped=stopped) == whole
    for cut in range(1, len(raw)):
        assert run(make, [raw[:cut], raw[cut:]], stopped=stopped) == whole, cut
    return whole


def mutations(seeds: list[bytes], n: int, seed: int = 23) -> list[bytes]:
    """Return damaged replies: bytes changed, removed and doubled, parts of two replies joined."""
    chooser = random.Random(seed)
    result = []
    for _ in range(n):
        raw = bytearray(chooser.choice(seeds))
        for _ in range(chooser.randrange(1, 4)):
            if not raw:
                break
            at = chooser.randrange(len(raw))
            match chooser.randrange(4):
                case 0:
                    raw[at] = chooser.choice(b'<>{}[]"\\`\n :,/|\xef\xff\x00a')
                case 1:
                    del raw[at : at + chooser.randrange(1, 12)]
                case 2:
                    raw[at:at] = raw[at : at + chooser.randrange(1, 12)]
                case 3:
                    other = chooser.choice(seeds)
                    raw[at:] = other[chooser.randrange(len(other) + 1) :]
        result.append(bytes(raw))
    return result


def random_cuts(raw: bytes, chooser: random.Random) -> list[bytes]:
    """Cut a reply into 1 to 8 pieces, some of them perhaps empty."""
    cuts = sorted(chooser.randrange(len(raw) + 1) for _ in range(chooser.randrange(8)))
    return [raw[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
