"""The tasks are fair: each solution passes, each untouched folder fails. And the runner counts."""

import json
from pathlib import Path

import pytest

from ds4agent.errors import Ds4Error, UsageError
from ds4agent.evaluation.run import Runner
from ds4agent.evaluation.task import read_tasks
from engine.sampler import SamplingOptions
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
    assert again.prefilled_tokens == result.prefilled_tokens  # the folder is the same anew
    assert json.loads(json.dumps(result.row()))["name"] == task.name


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
        lambda *_: scripted_engine(["words " * 2000], delay_s=0.01),
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
