"""The program that ``ds4-bench tui`` watches: the real screen over a worker that follows a script.

``python -m ds4agent.bench.screen_child PLAN MARKS``: PLAN is a JSON object of ``Plan``'s fields,
MARKS the number of an open file descriptor. One JSON line is written to it at the beginning and
at the end of each part: its name, the processor time of this process and the tokens so far.
"""

import dataclasses
import json
import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from ds4agent.events import (
    Closed,
    Event,
    GenerationProgress,
    HistoryEntry,
    Phase,
    PhaseChanged,
    Ready,
    TextDelta,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.events import Outcome as TurnOutcome
from ds4agent.requests import Command, Mode, Quit

_PROGRESS_S = 0.1  # the real worker tells its progress this often
_TEXT = """\
the loop reads a line from the file and splits it at the first colon, so that a value may hold
colons of its own; an empty line ends the header and everything behind it is the body.

- the first field is the **name** of the entry and never empty
- the second one is a `number` of bytes, written in decimal
- the last one says where the body begins

```python
def read_header(stream):
    fields = {}
    for line in stream:
        name, colon, value = line.partition(":")
        if not colon:
            break
        fields[name.strip()] = value.strip()
    return fields
```

that is why the test writes two headers behind each other: a reader that stops one byte too late
takes the first letter of the second one with it, and nobody sees it until a value is compared.

"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the worker does. Times in seconds; a part of no length is left out."""

    n_messages: int  # of the history that is opened first
    tokens_per_s: float = 40.0
    warm_up_s: float = 2.0  # streams, not measured
    stream_s: float = 0.0  # streams, nobody types
    typing_s: float = 0.0  # streams, and keys are pressed
    idle_s: float = 0.0  # the turn is over


def history(n_messages: int) -> tuple[HistoryEntry, ...]:
    """Return so many messages as a saved conversation has them: text, thoughts, calls, results."""
    entries: list[HistoryEntry] = []
    for number in range(n_messages):
        match number % 5:
            case 0:
                entry = HistoryEntry("user", f"question {number}: what does the reader do?")
            case 1:
                entry = HistoryEntry("thinking", "i should look at the file first " * 4)
            case 2:
                entry = HistoryEntry("call", '{"path": "a.py"}', "read", {"path": "a.py"})
            case 3:
                entry = HistoryEntry("result", "import os\n" * 30, "read", ok=True, title="read")
            case _:
                entry = HistoryEntry("assistant", _TEXT)
        entries.append(entry)
    return tuple(entries)


class ScriptedWorker:
    """Plays a plan in a thread of its own, as the real worker does."""

    def __init__(self, plan: Plan, marks: int) -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self._plan = plan
        self._marks = marks
        self._n_tokens = 0
        self._pieces = _pieces(_TEXT)
        self._thread = threading.Thread(target=self._play, name="scripted-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, command: Command) -> None:
        if isinstance(command, Quit):
            self.events.put(Closed())

    def interrupt(self) -> None:
        """Nothing of a plan can be interrupted."""

    def join(self, timeout: float | None = None) -> bool:
        return True

    def _play(self) -> None:
        plan = self._plan
        opened = Ready(
            model="scripted",
            quant="",
            device="cpu",
            sandbox="bubblewrap",
            mode=Mode.ASK,
            context_tokens=1200,
            context_size=131_072,
            cwd="/project",
            history=history(plan.n_messages),
        )
        self._tell(opened, TurnStarted("go on"), PhaseChanged(Phase.GENERATING))
        self._stream("warm up", plan.warm_up_s)
        self._stream("stream", plan.stream_s)
        self._stream("typing", plan.typing_s)
        self._tell(TurnEnded(TurnOutcome.DONE, Usage()), PhaseChanged(Phase.IDLE))
        time.sleep(1.0)  # the last repaint
        self._mark("idle begins")
        time.sleep(plan.idle_s)
        self._mark("idle ends")
        self._tell(Closed())

    def _stream(self, name: str, seconds: float) -> None:
        plan = self._plan
        self._mark(f"{name} begins")
        began = told = time.monotonic()
        for number in range(round(seconds * plan.tokens_per_s)):
            time.sleep(max(0.0, began + number / plan.tokens_per_s - time.monotonic()))
            self._tell(TextDelta(self._pieces[self._n_tokens % len(self._pieces)]))
            self._n_tokens += 1
            if time.monotonic() - told >= _PROGRESS_S:
                told = time.monotonic()
                self._tell(GenerationProgress(self._n_tokens, plan.tokens_per_s, 1200))
        self._mark(f"{name} ends")

    def _tell(self, *told: Event) -> None:
        for event in told:
            self.events.put(event)

    def _mark(self, name: str) -> None:
        mark: dict[str, Any] = {
            "name": name,
            "cpu_s": time.process_time(),
            "at_s": time.monotonic(),
            "tokens": self._n_tokens,
        }
        os.write(self._marks, (json.dumps(mark) + "\n").encode())


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces of about the length of a token."""
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def main(argv: list[str]) -> int:
    """Run the screen to the end of the plan."""
    from ds4agent.tui.app import run_tui

    fields = {field.name for field in dataclasses.fields(Plan)}
    plan = Plan(**{name: value for name, value in json.loads(argv[0]).items() if name in fields})
    return run_tui(ScriptedWorker(plan, int(argv[1])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
