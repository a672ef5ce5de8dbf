"""The tasks are fair: each solution passes, each untouched folder fails. And the runner counts."""

import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ds4agent.errors import Ds4Error, UsageError
from ds4agent.evaluation.aider import named_files
from ds4agent.evaluation.counting_proxy import Counted, CountingProxy
from ds4agent.evaluation.run import Runner
from ds4agent.evaluation.task import read_tasks
from engine.sampling_options import SamplingOptions
from tests.agent.conftest import call
from tests.fakes.scripted_model import scripted_engine
from tools.sandbox.probe import open_sandbox

TASKS = Path(__file__).with_name("tasks")


def _sandbox(folder: Path):
    sandbox, report = open_sandbox(folder)
    if sandbox is None:
        pytest.skip(f"needs a sandbox mechanism: {report.reason}")
    return sandbox


@pytest.mark.parametrize("task", read_tasks(TASKS), ids=lambda task: task.name)
def test_solution_passes_and_untouched_folder_fails(task, tmp_path) -> None:
    untouched, solved = tmp_path / "untouched", tmp_path / "solved"
    for folder in (untouched, solved):
        folder.mkdir()
        task.lay_out(folder)
    task.solve(solved)
    assert not task.is_solved(untouched, _sandbox(untouched))[0]
    ok, output = task.is_solved(solved, _sandbox(solved))
    assert ok, output


def test_there_are_enough_tasks() -> None:
    tasks = read_tasks(TASKS)
    assert len(tasks) >= 25
    assert all(len(task.instruction) < 300 for task in tasks)
    assert [task.name for task in read_tasks(TASKS, "csv")] == ["09_json_from_csv"]


def test_runner_counts_what_a_task_took(tmp_path) -> None:
    (task,) = read_tasks(TASKS, "08_answer")
    replies = [call("write", path="answer.txt", content="37\n"), "It has 37 lines."]
    runner = Runner(
        lambda *_: scripted_engine(replies), _sandbox, tmp_path, SamplingOptions(temperature=0), 60
    )
    result = runner.run(task)
    assert result.is_solved and result.outcome == "done" and result.n_calls == 1
    assert result.generated_tokens > 50 and result.prefilled_tokens > 50
    again = runner.run(task)
    # The folder is the same anew, and the state of the system prompt was kept.
    assert 50 < again.prefilled_tokens < result.prefilled_tokens
    assert json.loads(json.dumps(result.row()))["name"] == task.name


def test_transcript_is_kept_when_asked_for(tmp_path) -> None:
    (task,) = read_tasks(TASKS, "02_create")
    kept = tmp_path / "kept"
    kept.mkdir()
    replies = [call("write", path="hello.py", content="print()\n"), "It is there."]
    runner = Runner(
        lambda *_: scripted_engine(replies),
        _sandbox,
        tmp_path,
        SamplingOptions(temperature=0),
        60,
        kept,
    )
    runner.run(task)
    text = (kept / "02_create_hello.txt").read_text()
    assert "[create hello.py]" in text and "It is there." in "".join(text.split("\n"))


@pytest.mark.parametrize(
    ("instruction", "names"),
    [
        ("Change the port in config.json to 9090.", ["config.json"]),
        ("Move f from a/b.py into c.py, 0.19 stays.", ["a/b.py", "c.py"]),
        ("Count the notes.", []),
    ],
)
def test_peer_is_given_the_files_that_a_task_names(instruction, names) -> None:
    assert named_files(instruction) == names


def test_tokens_of_a_peer_are_counted_from_its_servers_replies() -> None:
    timings = {"prompt_n": 12, "predicted_n": 5}
    reply = {"usage": {"prompt_tokens": 300}, "timings": timings}

    class Server(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps(reply if self.path == "/v1/chat/completions" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    proxy = CountingProxy(("127.0.0.1", server.server_port), 10)
    try:
        for _ in range(2):
            got = urllib.request.urlopen(f"{proxy.url}/chat/completions", b"{}", timeout=10)
            assert json.load(got) == reply
        assert proxy.take() == Counted(2, 600, 24, 10)
        urllib.request.urlopen(f"{proxy.url}/other", b"{}", timeout=10)
        assert proxy.take().n_uncounted == 1 and proxy.take() == Counted()
    finally:
        proxy.close()
        server.shutdown()
        server.server_close()


def test_runner_tells_why_a_task_failed(tmp_path) -> None:
    (task,) = read_tasks(TASKS, "02_create")
    runner = Runner(
        lambda *_: scripted_engine(["Done!"]),
        _sandbox,
        tmp_path,
        SamplingOptions(temperature=0),
        60,
    )
    result = runner.run(task)
    assert not result.is_solved and "Error" in result.told


def test_runner_ends_a_task_that_takes_too_long(tmp_path) -> None:
    (task,) = read_tasks(TASKS, "02_create")
    runner = Runner(
        lambda *_: scripted_engine(["".join(f"word {i} " for i in range(1200))], delay_s=0.01),
        _sandbox,
        tmp_path,
        SamplingOptions(temperature=0),
        1.0,
    )
    assert runner.run(task).outcome == "interrupted"


def test_runner_when_the_model_cannot_be_loaded_says_so(tmp_path) -> None:
    def broken(*_):
        raise Ds4Error("no such weights")

    (task,) = read_tasks(TASKS, "02_create")
    runner = Runner(broken, _sandbox, tmp_path, SamplingOptions(temperature=0), 60)
    with pytest.raises(Ds4Error, match="no such weights"):
        runner.run(task)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "instruction = 'a'",
        "instruction = 'a'\ncheck = 3",
        "instruction = 'a'\ncheck = 'b'\ncolour = 'red'",
        "instruction = 'a'\ncheck = 'b'\n[files]\n'../out' = ''",
        "instruction = 'a'\ncheck = 'b'\n[files]\n'/etc/x' = ''",
        "instruction = 'a'\ncheck = 'b'\n[files]\n'x' = 3",
    ],
)
def test_what_is_no_task_is_told(tmp_path, text) -> None:
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.toml"):
        read_tasks(tmp_path)


def test_no_tasks_is_told(tmp_path) -> None:
    with pytest.raises(UsageError, match="no tasks"):
        read_tasks(tmp_path / "nowhere")
