"""What the screen costs, measured from outside: the real program in a pseudo terminal.

This process is the terminal. It presses keys and waits until their characters are drawn, reads
what is painted, and takes the processor time that the program says it used.
"""

import contextlib
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ds4agent.bench.screen_child import Plan
from ds4agent.errors import Ds4Error

BUDGETS = {
    "echo_p95_ms": 50.0,
    "cpu_streaming": 0.25,
    "cpu_idle": 0.02,
    "token_cost_ratio": 1.5,
    "first_paint_s": 0.7,
    "help_s": 0.25,
}
_SIZE = (80, 24)  # columns, rows
_FEW, _MANY = 10, 5_000  # messages
_DEADLINE_S = 60.0  # for anything that is waited for
_ECHO_DEADLINE_S = 2.0
# Each is typed once and appears nowhere else, so that it is seen only when it is drawn.
_KEYS = "".join(map(chr, [*range(0x3B1, 0x3C2), *range(0x3C3, 0x3CA), *range(0x410, 0x450)]))
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_].*?\x1b\\|.)"
)


@dataclass(frozen=True, slots=True)
class ScreenBench:
    """Figures of one run. Shares are of one core."""

    echo_p95_ms: float  # key to drawn character, while tokens stream below a long history
    echo_median_ms: float
    cpu_streaming: float
    cpu_idle: float
    token_ms_few: float  # processor time of a streamed token under 10 messages
    token_ms_many: float  # under 5,000
    token_cost_ratio: float
    first_paint_s: float  # from the start of the process, median
    usable_s: float  # until the first key is drawn, median
    help_s: float  # ds4-agent --help, median

    def over_budget(self) -> list[str]:
        """Return the names of the figures that are above their budget."""
        return [name for name, budget in BUDGETS.items() if getattr(self, name) > budget]


class PseudoTerminal:
    """A program behind a pseudo terminal whose output is read, not drawn."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], keep: Sequence[int] = ()
    ) -> None:
        self._terminal, inner = pty.openpty()
        columns, rows = _SIZE
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        modes = termios.tcgetattr(inner)
        modes[3] &= ~termios.ECHO  # what comes back was drawn by the program
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        self.began_s = time.monotonic()
        self._program = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(keep),
        )
        os.close(inner)
        self.output = b""

    def __enter__(self) -> "PseudoTerminal":
        return self

    def __exit__(self, *_: object) -> None:
        if self._program.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        os.close(self._terminal)

    def type(self, text: str) -> None:
        """Press the keys of a text."""
        os.write(self._terminal, text.encode())

    def read(self, seconds: float) -> bool:
        """Take what is drawn within a time; False when the program has closed the terminal."""
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, seconds))
        if not ready:
            return True
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # Linux says so at the end
            return False
        self.output += piece
        return bool(piece)

    def until(self, is_there: Callable[[bytes], bool], deadline_s: float) -> float:
        """Read until the output fulfils a condition; return ``time.monotonic()`` of that moment.

        Raises:
            Ds4Error: it did not come in time, or the program ended.
        """
        limit = time.monotonic() + deadline_s
        while not is_there(self.output):
            if time.monotonic() > limit or not self.read(limit - time.monotonic()):
                shown = painted(self.output)[-300:].decode("utf-8", "replace")
                raise Ds4Error("the screen did not show what was waited for", f"Last: {shown}")
        return time.monotonic()


def painted(output: bytes) -> bytes:
    """Return what a program drew: its output without control sequences and blanks at the ends."""
    return re.sub(rb"[\x00-\x1f\x7f]", b"", _SEQUENCE.sub(b"", output)).strip()


def _is_painted(output: bytes) -> bool:
    """True once the alternate screen holds a character."""
    _, entered, drawn = output.partition(b"\x1b[?1049h")
    return bool(entered and painted(drawn))


def measure(
    progress: Callable[[str], None], *, seconds: float = 8.0, starts: int = 5
) -> ScreenBench:
    """Run the screen with a short and with a long history, start it anew, and ask for help.

    Args:
        progress: gets a line of text before each part.
        seconds: length of each measured part.
        starts: how often the program is started for a median.
    """
    progress(f"streaming under {_MANY:,} messages, typing, idle")
    many, echoes = _run(
        Plan(_MANY, stream_s=seconds, typing_s=seconds, idle_s=seconds / 2), seconds
    )
    progress(f"streaming under {_FEW} messages")
    few, _ = _run(Plan(_FEW, stream_s=seconds), 0.0)
    progress("starting")
    paints, usable = zip(*(_start() for _ in range(starts)), strict=True)
    helps = [_help_s() for _ in range(starts)]
    token_few, token_many = (_token_s(marks) for marks in (few, many))
    return ScreenBench(
        echo_p95_ms=1e3 * _p95(echoes),
        echo_median_ms=1e3 * statistics.median(echoes),
        cpu_streaming=_share(many, "stream"),
        cpu_idle=_share(many, "idle"),
        token_ms_few=1e3 * token_few,
        token_ms_many=1e3 * token_many,
        token_cost_ratio=token_many / token_few,
        first_paint_s=statistics.median(paints),
        usable_s=statistics.median(usable),
        help_s=statistics.median(helps),
    )


def table(result: ScreenBench) -> str:
    """Return the figures for people, each beside its budget."""
    units = {"ms": "ms", "s": "s"}
    lines = [f"{'figure':<18} {'measured':>10} {'budget':>8}"]
    for name, value in asdict(result).items():
        budget = BUDGETS.get(name)
        unit = units.get(name.rpartition("_")[2], "")
        told = "" if budget is None else f"{budget:g}"
        mark = "  over" if name in result.over_budget() else ""
        lines.append(f"{name:<18} {value:>10.3f} {told:>8} {unit}{mark}".rstrip())
    return "\n".join(lines)


Marks = dict[str, dict[str, float]]


def _run(plan: Plan, typing_s: float) -> tuple[Marks, list[float]]:
    """Play a plan; return its marks and the seconds between each key and its character."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "ds4agent.bench.screen_child", json.dumps(asdict(plan))]
    marks: Marks = {}
    told = b""
    echoes: list[float] = []
    keys = iter(_KEYS)
    chance = random.Random(1)
    try:
        with PseudoTerminal([*command, str(writing)], _environment(), [writing]) as terminal:
            os.close(writing)
            os.set_blocking(reading, False)
            limit = time.monotonic() + _DEADLINE_S
            while "idle ends" not in marks and time.monotonic() < limit:
                if not terminal.read(0.02):
                    break
                with contextlib.suppress(BlockingIOError):
                    told += os.read(reading, 65536)
                *lines, told = told.split(b"\n")
                marks |= {mark["name"]: mark for mark in map(json.loads, lines)}
                if typing_s and "typing begins" in marks and "typing ends" not in marks:
                    key = next(keys, "")
                    if key:
                        echoes.append(_echo_s(terminal, key))
                        # Keys fall anywhere between two repaints, a quick typist's pace.
                        _rest(terminal, chance.uniform(0.02, 0.12))
            if "idle ends" not in marks:
                shown = painted(terminal.output)[-300:].decode("utf-8", "replace")
                raise Ds4Error("the screen ended before its script", f"Last: {shown}")
    finally:
        os.close(reading)
    return marks, echoes


def _echo_s(terminal: PseudoTerminal, key: str) -> float:
    terminal.output = b""
    pressed = time.monotonic()
    terminal.type(key)
    wanted = key.encode()
    return terminal.until(lambda output: wanted in output, _ECHO_DEADLINE_S) - pressed


def _rest(terminal: PseudoTerminal, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        terminal.read(left)


def _start() -> tuple[float, float]:
    """Start the program as a person does; return the seconds to its first paint and first echo."""
    with tempfile.TemporaryDirectory() as home:
        environment = _environment() | {"DS4_HOME": home, "HOME": home}
        model = Path(home) / "none.gguf"
        model.write_bytes(b"GGUF")  # its loading fails behind the first paint
        command = [sys.executable, "-m", "ds4agent", "-m", str(model), "--chdir", home]
        with PseudoTerminal(command, environment) as terminal:
            paint = terminal.until(_is_painted, _DEADLINE_S)
            terminal.output = b""
            terminal.type(_KEYS[0])
            echo = terminal.until(lambda output: _KEYS[0].encode() in output, _DEADLINE_S)
            return paint - terminal.began_s, echo - terminal.began_s


def _help_s() -> float:
    began = time.monotonic()
    command = [sys.executable, "-m", "ds4agent", "--help"]
    subprocess.run(command, check=True, capture_output=True, env=_environment())
    return time.monotonic() - began


def _environment() -> dict[str, str]:
    left_out = ("SSH_CONNECTION", "SSH_TTY", "NO_COLOR", "TMUX")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return kept | {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


def _share(marks: Marks, name: str) -> float:
    begins, ends = marks[f"{name} begins"], marks[f"{name} ends"]
    return (ends["cpu_s"] - begins["cpu_s"]) / (ends["at_s"] - begins["at_s"])


def _token_s(marks: Marks) -> float:
    begins, ends = marks["stream begins"], marks["stream ends"]
    return (ends["cpu_s"] - begins["cpu_s"]) / (ends["tokens"] - begins["tokens"])


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]
