"""Finding models: search order, choice of the default, and what is told when nothing is there."""

import argparse
import io
import struct
from pathlib import Path

import pytest

from ds4agent import doctor, models, models_cli, paths
from ds4agent.config import Config
from ds4agent.errors import ConfigError, DownloadError, Ds4Error, UsageError
from ds4agent.known_models import BY_NAME, GIB, KNOWN_MODELS
from engine.errors import ModelFileError
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from tests.fakes.tiny_gguf import write_tiny_gguf

FIXTURES = Path(__file__).parent / "fixtures" / "llama_logits"
QWEN = BY_NAME["qwen2.5-coder-1.5b"]
SMALL_QWEN = BY_NAME["qwen2.5-coder-0.5b"]
SMOL = BY_NAME["smollm2-135m"]
FLASH = BY_NAME["v4-flash-q2"]


def put(path: Path, n_bytes: int = 0, architecture: str = "llama") -> Path:
    """Write a sparse file that starts like a GGUF whose first key is the architecture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key, value = b"general.architecture", architecture.encode()
    head = struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key)) + key
    head += struct.pack("<IQ", 8, len(value)) + value
    with path.open("wb") as file:
        file.write(head)
        file.truncate(max(n_bytes, len(head)))
    return path


def put_known(model, folder: Path | None = None) -> Path:
    folder = folder or paths.models_dir()
    return put(folder / model.file, model.n_bytes, model.architecture)


def hub_cache(home: Path) -> Path:
    return home / ".cache" / "huggingface" / "hub" / "models--a--b" / "snapshots" / "123"


@pytest.fixture(autouse=True)
def no_sources(monkeypatch):
    """Whatever a test gets wrong, it downloads nothing."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PIP_NO_INDEX", "1")


@pytest.fixture
def large_machine(monkeypatch):
    monkeypatch.setattr(models, "machine_memory_bytes", lambda: 32 * GIB)


def test_a_file_that_is_named_is_taken_as_it_is(tmp_path):
    path = put(tmp_path / "any.gguf")
    assert models.find_model(str(path), Config(model="nonsense")) == path


def test_the_setting_is_used_when_nothing_is_named(tmp_path):
    path = put(tmp_path / "any.gguf")
    assert models.find_model(None, Config(model=str(path))) == path


def test_a_known_name_resolves_to_its_file():
    path = put_known(QWEN)
    assert models.find_model("qwen2.5-coder-1.5b", Config()) == path


def test_a_file_name_resolves_in_the_known_places(isolated_home):
    path = put(hub_cache(isolated_home) / "sub" / "other-7b.gguf")
    assert models.find_model("other-7b", Config()) == path
    assert models.find_model("other-7b.gguf", Config()) == path


def test_earlier_places_win(isolated_home, large_machine):
    folders = [
        paths.models_dir(),
        isolated_home / ".ds4",
        isolated_home / "ds4",
        isolated_home / "ds4" / "gguf",
        hub_cache(isolated_home),
        isolated_home / ".lmstudio" / "models" / "maker" / "model",
    ]
    files = [put_known(QWEN, folder) for folder in folders]
    for path in files:
        assert models.find_model(QWEN.name, Config()) == path
        assert models.find_model(None, Config()) == path
        path.unlink()


def test_the_hub_cache_follows_its_own_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    path = put_known(QWEN, tmp_path / "hf" / "hub" / "models--x--y" / "snapshots" / "1")
    assert models.find_model(QWEN.name, Config()) == path


def test_the_working_folder_cannot_bring_a_model(tmp_path, monkeypatch):
    put(tmp_path / "ds4flash.gguf")
    put_known(QWEN, tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Ds4Error, match="no model found"):
        models.find_model(None, Config())


def test_nothing_found_lists_every_place_and_the_command():
    with pytest.raises(Ds4Error) as caught:
        models.find_model(None, Config())
    for place in models.places():
        assert str(place.folder) in str(caught.value)
    assert "ds4-agent models pull qwen2.5-coder" in caught.value.hint


def test_a_known_model_of_the_wrong_size_is_told_and_not_used():
    path = put(paths.models_dir() / QWEN.file, QWEN.n_bytes - 1, "qwen2")
    with pytest.raises(Ds4Error, match="1,117,320,767 bytes, expected 1,117,320,768"):
        models.find_model(QWEN.name, Config())
    assert [m.path for m in models.found_models() if not m.problem] == []
    assert path.exists()


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError) as caught:
        models.find_model("qwen-coder-1.5b", Config())
    assert "qwen2.5-coder-1.5b" in caught.value.hint


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ConfigError, match="is a folder"):
        models.find_model(str(tmp_path), Config())


def test_the_larger_known_model_is_chosen(large_machine):
    put_known(SMOL)
    put_known(SMALL_QWEN)
    path = put_known(QWEN)
    assert models.find_model(None, Config()) == path


def test_a_model_that_does_not_fit_is_not_chosen(monkeypatch):
    put_known(QWEN)
    small = put_known(SMALL_QWEN)
    monkeypatch.setattr(models, "machine_memory_bytes", lambda: 3 * GIB)
    assert models.find_model(None, Config()) == small


def test_a_persons_own_file_is_chosen_before_the_model_for_tests(isolated_home, large_machine):
    put_known(SMOL)
    own = put(hub_cache(isolated_home) / "own.gguf", architecture="qwen3")
    assert models.find_model(None, Config()) == own


def test_files_that_cannot_run_are_never_chosen(isolated_home, large_machine):
    cache = hub_cache(isolated_home)
    put(cache / "embedder.gguf", architecture="nomic-bert")
    put(cache / "mmproj-f16.gguf")
    put(cache / "big-00001-of-00002.gguf")
    (cache / "text.gguf").write_text("no model", encoding="utf-8")
    with pytest.raises(Ds4Error, match="no model found"):
        models.find_model(None, Config())


def test_a_link_and_its_target_count_once(isolated_home):
    path = put_known(QWEN)
    link = isolated_home / ".ds4" / "ds4flash.gguf"
    link.parent.mkdir()
    link.symlink_to(path)
    assert [m.path for m in models.found_models()] == [path]


def test_a_link_with_a_name_of_its_own_is_known_by_its_target(isolated_home, tmp_path):
    path = put_known(QWEN, tmp_path / "elsewhere")
    link = isolated_home / ".ds4" / "ds4flash.gguf"
    link.parent.mkdir()
    link.symlink_to(path)
    assert models.find_model(QWEN.name, Config()) == link


def test_the_supported_architectures_are_the_engines(tmp_path):
    tiny = FIXTURES / "tiny-qwen2.gguf"
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny.read_bytes().replace(b"qwen2", b"other"))
    with pytest.raises(ModelFileError) as caught:
        plan_for(GgufFile.open(other))
    named = str(caught.value).partition("supported are ")[2].split(", ")
    assert set(named) == models.SUPPORTED_ARCHITECTURES


def test_v4_flash_is_the_default_only_where_present_fitting_and_fast_enough(monkeypatch):
    here = frozenset({FLASH.name})
    assert models.default_model(128 * GIB, here) is QWEN  # its family is too slow here yet
    monkeypatch.setattr(models, "DEFAULT_ARCHITECTURES", frozenset({"deepseek4", "qwen2"}))
    assert models.default_model(128 * GIB, here) is FLASH
    assert models.default_model(64 * GIB, here) is QWEN
    assert models.default_model(128 * GIB) is QWEN
    assert models.default_model(3 * GIB) is SMALL_QWEN


def test_known_models_state_a_hash_only_with_an_exact_size():
    for model in KNOWN_MODELS:
        assert len(model.sha256) in (0, 64)
        assert bool(model.sha256) == bool(model.packaged)
        assert bool(model.sha256) == bool(model.licence)


def run_cli(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    models_cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["models", *arguments])
    return args.run(args)


def test_list_marks_the_default_and_says_where(capsys, large_machine):
    path = put_known(QWEN)
    assert run_cli("list") == 0
    output = capsys.readouterr().out
    assert f"*   1.12 GB  {path}" in output
    assert "v4-flash-q2" in output


def test_list_names_the_places_when_nothing_is_there(capsys):
    assert run_cli("list") == 0
    assert str(paths.models_dir()) in capsys.readouterr().out


def test_pull_default_fetches_nothing_when_a_fitting_model_is_here(capsys, large_machine):
    put_known(QWEN)
    assert run_cli("pull", "default", "--yes") == 0
    assert "nothing to fetch" in capsys.readouterr().out


def test_pull_default_is_not_content_with_a_smaller_known_model(capsys, large_machine):
    put_known(SMALL_QWEN)
    with pytest.raises(DownloadError, match="no source delivers qwen2.5-coder-1.5b"):
        run_cli("pull", "default", "--yes")


def test_pull_says_the_size_and_wants_a_yes_when_nobody_can_answer(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", open("/dev/null", encoding="utf-8"))
    with pytest.raises(UsageError) as caught:
        run_cli("pull", "smollm2-135m")
    assert "98,362,432 bytes" in capsys.readouterr().out
    assert "--yes" in caught.value.hint


@pytest.fixture
def person(monkeypatch):
    """A terminal whose person types what the test says."""

    def types(text: str) -> None:
        answers = io.StringIO(text)
        answers.isatty = lambda: True
        monkeypatch.setattr("sys.stdin", answers)

    return types


@pytest.mark.parametrize("answer", ["\n", "n\n", "", "yes please\n"])
def test_pull_fetches_nothing_without_a_clear_yes(answer, person, capsys):
    person(answer)
    assert run_cli("pull", "smollm2-135m") == 1
    assert capsys.readouterr().out.endswith("[y/N] nothing was fetched\n")


def test_pull_goes_on_after_a_yes(person):
    person("y\n")
    with pytest.raises(DownloadError, match="no source delivers smollm2-135m"):
        run_cli("pull", "smollm2-135m")


def test_an_interrupted_pull_says_that_nothing_is_lost(monkeypatch, capsys):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(models_cli, "pull", interrupt)
    assert run_cli("pull", "smollm2-135m", "--yes") == 130
    assert "kept" in capsys.readouterr().out


def test_progress_stays_on_one_line_of_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    bar = models_cli._ProgressLine()
    for done in range(0, 1_000_001, 1000):
        bar.update(done, 1_000_000)
    bar.end()
    output = capsys.readouterr().out
    assert output.count("\n") == 1 and output.endswith("left\n")
    assert "100% of 1 MB" in output
    assert output.count("\r") < 20  # a repaint costs more than a chunk


def test_pull_of_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        run_cli("pull", "gpt-7", "--yes")
    assert "smollm2-135m" in caught.value.hint


def test_verify_tells_a_damaged_file(capsys):
    put_known(SMOL)
    assert run_cli("verify", "smollm2-135m") == 1
    assert "WRONG" in capsys.readouterr().out


def test_info_describes_a_file_and_says_whether_it_runs(capsys):
    assert run_cli("info", str(FIXTURES / "tiny-qwen3.gguf")) == 0
    output = capsys.readouterr().out
    assert "qwen3" in output and "F16 15" in output and "chatml" in output
    assert output.splitlines()[-1].split() == ["usable", "here:", "yes"]


def test_what_a_model_file_says_of_itself_never_steers_the_terminal(tmp_path, capsys) -> None:
    path = write_tiny_gguf(
        tmp_path / "odd\x1b[31m.gguf", metadata={"general.license": "\x1b]0;title\x07mine\nall"}
    )
    run_cli("info", str(path))
    doctor.run(argparse.Namespace(model=str(path), json=False))
    output = capsys.readouterr().out
    assert "mine all" in output and "\x1b" not in output and "\x07" not in output
