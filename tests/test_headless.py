"""The program without a screen, as another program sees it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEADLINE_S = 30.0


def call(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


class Program:
    """``ds4-agent`` over a scripted model, in a folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir()
        (self.folder / "notes.txt").write_text("alpha\n", encoding="utf-8")
        self._script = tmp_path / "script.json"

    def command(self, replies: list[str], *arguments: str, **script: object) -> list[str]:
        self._script.write_text(json.dumps({"replies": replies, **script}), encoding="utf-8")
        launcher = [sys.executable, "-m", "tests.fakes.scripted_agent", str(self._script), "--"]
        return [*launcher, "--chdir", str(self.folder), *arguments]

    def run(
        self, replies: list[str], *arguments: str, stdin: str | None = None, **script: object
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(replies, *arguments, **script),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            **({"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}),
        )

    def start(self, replies: list[str], *arguments: str, **script: object) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(replies, *arguments, **script),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_text_gives_the_answer_on_stdout_and_the_rest_on_stderr(program) -> None:
    done = program.run([call("read", path="notes.txt"), "It says alpha."], "-p", "what?")
    assert done.returncode == 0
    assert done.stdout == "It says alpha.\n"
    assert "[ok]" in done.stderr and "notes.txt" in done.stderr


def test_json_gives_one_object_with_all_counts(program) -> None:
    done = program.run(
        ["Let me look.\n" + call("read", path="notes.txt"), "It says alpha."],
        *("-p", "what?", "--output-format", "json"),
    )
    (result,) = objects(done.stdout)
    assert done.returncode == 0
    assert result["type"] == "result" and result["outcome"] == "done"
    assert result["result"] == "It says alpha."
    assert result["model"] == "scripted"
    assert result["tool_calls"] == [
        {"name": "read", "arguments": {"path": "notes.txt"}, "ok": True}
    ]
    usage = result["usage"]
    assert set(usage) == {
        "reused_tokens",
        "prefilled_tokens",
        "generated_tokens",
        "context_tokens",
        "context_size",
    }
    parts = usage["reused_tokens"] + usage["prefilled_tokens"] + usage["generated_tokens"]
    assert parts == usage["context_tokens"]
    assert len(result["session_id"]) == 40
    assert result["duration_s"] > 0 and "error" not in result


def test_stream_json_gives_an_object_for_each_event_and_the_result_last(program) -> None:
    done = program.run(["Hello."], "-p", "hi", "--output-format", "stream-json")
    lines = objects(done.stdout)
    types = [line["type"] for line in lines]
    assert types[-1] == "result" and types[-2] == "closed"
    for name in ("phase_changed", "ready", "turn_started", "text_delta", "turn_ended", "saved"):
        assert name in types
    texts = [line["text"] for line in lines if line["type"] == "text_delta"]
    assert "".join(texts) == lines[-1]["result"] == "Hello."


def test_resume_by_another_process_computes_only_the_new_tokens(program) -> None:
    replies = [call("read", path="notes.txt"), "It says alpha.", "Again alpha."]
    first = objects(program.run(replies, "-p", "what?", "--output-format", "json").stdout)[-1]
    for option in (("--resume", first["session_id"][:8]), ("--continue",)):
        second = objects(
            program.run(replies, "-p", "and?", "--output-format", "json", *option).stdout
        )[-1]
        assert second["session_id"] == first["session_id"]
        assert second["usage"]["reused_tokens"] == first["usage"]["context_tokens"]
        assert second["usage"]["prefilled_tokens"] < 40
        first = second
        replies.append("Still alpha.")


def test_no_save_leaves_nothing_behind(program, isolated_home) -> None:
    done = program.run(["Hi."], "-p", "hi", "--no-save", "--output-format", "json")
    assert objects(done.stdout)[0]["session_id"] == ""
    assert not list(isolated_home.rglob("*.kv"))


def test_prompt_from_a_pipe_alone_or_after_a_text(program) -> None:
    for arguments, piped, expected in (
        ((), "from the pipe", "from the pipe"),
        (("-p",), "from the pipe", "from the pipe"),
        (("review this",), "diff", "review this\n\ndiff"),
    ):
        done = program.run(
            ["Ok."], *arguments, "--output-format", "stream-json", "--no-save", stdin=piped
        )
        started = [line for line in objects(done.stdout) if line["type"] == "turn_started"]
        assert started[0]["text"] == expected


def test_prompt_option_does_not_wait_for_a_pipe_that_nobody_closes(program) -> None:
    process = subprocess.Popen(
        program.command(["Ok."], "-p", "hi", "--no-save"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.read() == "Ok.\n"
        assert process.wait(DEADLINE_S) == 0


def test_call_that_needs_an_approval_is_refused_with_exit_3(program) -> None:
    done = program.run([call("write", path="a.txt", content="x"), "never"], "-p", "write")
    assert done.returncode == 3
    assert "--approval" in done.stderr
    assert not (program.folder / "a.txt").exists()


def test_call_with_approval_auto_is_run(program) -> None:
    done = program.run(
        [call("write", path="a.txt", content="x"), "Written."], "-p", "w", "--approval", "auto"
    )
    assert done.returncode == 0
    assert (program.folder / "a.txt").read_text(encoding="utf-8") == "x"


def test_limit_and_unknown_session_exit_with_1(program) -> None:
    done = program.run(["abcdefghij" * 5], "-p", "hi", "-n", "10", "--output-format", "json")
    assert done.returncode == 1
    result = objects(done.stdout)[0]
    assert result["outcome"] == "limit" and "10 tokens" in result["error"]
    done = program.run(["Hi."], "-p", "hi", "--resume", "abcdef", "--output-format", "json")
    assert done.returncode == 1
    assert "abcdef" in objects(done.stdout)[0]["error"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_interrupts_saves_and_exits_with_130(program, number: signal.Signals) -> None:
    words = " ".join(str(n) for n in range(2000))
    process = program.start(
        [words, "Fine."], "-p", "count", "--output-format", "stream-json", delay_s=0.005
    )
    with process:
        for line in process.stdout:
            if json.loads(line)["type"] == "text_delta":
                break
        process.send_signal(number)
        rest = objects(process.stdout.read())
        assert process.wait(DEADLINE_S) == 130
    result = rest[-1]
    assert result["outcome"] == "interrupted"
    assert len(result["session_id"]) == 40
    again = program.run([words, "Fine."], "-p", "more", "--continue", "--output-format", "json")
    assert objects(again.stdout)[0]["result"] == "Fine."
    reused = objects(again.stdout)[0]["usage"]["reused_tokens"]
    assert reused == [line for line in rest if line["type"] == "saved"][-1]["tokens"]


def test_reader_that_goes_away_ends_the_program_quietly_and_saves(program, isolated_home) -> None:
    words = " ".join(str(n) for n in range(3000))
    process = program.start([words], "-p", "count", delay_s=0.002)
    with process:
        assert process.stdout.read(5) == "0 1 2"
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(DEADLINE_S) == 1
    assert "Traceback" not in errors and "BrokenPipe" not in errors
    deadline = time.monotonic() + 5
    while not list(isolated_home.rglob("*.kv")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [path for path in isolated_home.rglob("*.kv") if len(path.stem) == 40]


def test_no_prompt_and_no_terminal_is_a_usage_error(program) -> None:
    done = program.run(["Hi."])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(program, closed: str, isolated_home) -> None:
    command = program.command(["Hi."], "-p", "hi")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("" if ">&-" in closed.split() else "Hi.\n")
    assert [path for path in isolated_home.rglob("*.kv") if len(path.stem) == 40]


def test_full_disk_behind_the_output_is_one_line_and_saves(program, isolated_home) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            program.command(["Hi."], "-p", "hi"),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
        )
    assert done.returncode == 1
    assert done.stderr == "ds4-agent: cannot write the output: No space left on device\n"
    assert [path for path in isolated_home.rglob("*.kv") if len(path.stem) == 40]


def test_result_is_the_last_answer_alone(program) -> None:
    done = program.run(["I will look.", "It says alpha."], "-p", "what?", "--output-format", "json")
    assert objects(done.stdout)[0]["result"] == "It says alpha."
    text = program.run(["I will look.", "It says alpha."], "-p", "what?", "--no-save")
    assert text.stdout == "I will look.\nIt says alpha.\n"
