"""Pulling a model: sources in turn, hash, parts of packages, interruption, the lock."""

import dataclasses
import fcntl
import hashlib
import http.server
import json
import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4agent import packaged, paths
from ds4agent.errors import DownloadError
from ds4agent.known_models import HubFile, KnownModel, PackagedFile
from ds4agent.pull import pull
from ds4agent.verify import remembered_sha256, verified_sha256

PARTS = [bytes([n]) * (1000 + n) for n in range(1, 13)]  # twelve: name order is not number order
BODY = b"".join(PARTS)
MODEL = KnownModel(
    name="tiny",
    title="a tiny model",
    file="tiny.gguf",
    architecture="llama",
    n_bytes=len(BODY),
    sha256=hashlib.sha256(BODY).hexdigest(),
    licence="MIT",
    min_memory_bytes=0,
    hub=HubFile("maker/tiny", "tiny.gguf"),
    packaged=PackagedFile("tiny-part{n}", "1.0", "tiny_part{n}/data/part{n:02d}.bin", len(PARTS)),
)


class Handler(http.server.BaseHTTPRequestHandler):
    body = BODY

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        if self.path != "/maker/tiny/resolve/main/tiny.gguf" or not self.body:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)


@pytest.fixture
def hub(monkeypatch) -> Iterator[type[Handler]]:
    """A hub that serves ``hub.body``; empty bytes make it answer 404."""
    handler = type("HubHandler", (Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        yield handler
        server.shutdown()


@pytest.fixture
def wheels(tmp_path, monkeypatch) -> Path:
    """A folder that the package client looks into instead of the network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def write_wheel(folder: Path, number: int, data: bytes) -> None:
    name, info = f"tiny_part{number}", f"tiny_part{number}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/data/part{number:02d}.bin", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")


def write_wheels(folder: Path, n_parts: int = len(PARTS)) -> None:
    for number, data in enumerate(PARTS[:n_parts], start=1):
        write_wheel(folder, number, data)


@pytest.fixture
def direct_client(wheels, monkeypatch) -> Path:
    """Twelve real pip processes take seconds: most tests take the wheel from the folder."""

    def take(client, source, number, folder):
        name = source.package.format(n=number).replace("-", "_")
        wheel = wheels / f"{name}-1.0-py3-none-any.whl"
        if not wheel.exists():
            raise DownloadError(f"cannot fetch the package {name}: not there", "Try again.")
        return wheel

    monkeypatch.setattr(packaged, "_download", take)
    return wheels


def run(**options) -> tuple[Path, list[str]]:
    said: list[str] = []
    return pull(MODEL, said.append, lambda done, total: None, **options), said


def folder_names() -> set[str]:
    names = {path.name for path in paths.models_dir().iterdir()}
    return {name for name in names if not name.endswith(".lock")}


DONE = {"tiny.gguf", ".tiny.gguf.sha256.json"}


def test_the_hub_delivers_a_verified_file_and_nothing_else_stays(hub):
    path, _ = run()
    assert path.read_bytes() == BODY
    assert folder_names() == DONE
    assert remembered_sha256(path) == MODEL.sha256
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_pull_fetches_nothing(hub):
    run()
    hub.body = b""
    path, _ = run()
    assert path.read_bytes() == BODY


def test_a_wrong_hash_is_refused_and_removed(hub):
    hub.body = b"x" * len(BODY)
    with pytest.raises(DownloadError, match="expected " + MODEL.sha256):
        run()
    assert folder_names() == set()


def test_a_damaged_file_is_put_aside_and_fetched_again(hub):
    path, _ = run()
    path.write_bytes(b"y" * len(BODY))
    _, said = run()
    assert path.read_bytes() == BODY
    assert path.with_name("tiny.gguf.corrupt").read_bytes() == b"y" * len(BODY)
    assert "damaged" in " ".join(said)


def test_without_the_hub_the_packages_are_assembled_in_numeric_order(hub, direct_client):
    hub.body = b""
    write_wheels(direct_client)
    path, said = run()
    assert path.read_bytes() == BODY
    assert folder_names() == DONE
    assert len([line for line in said if "trying the package index" in line]) == 1


def test_the_ordinary_client_really_downloads_a_wheel(wheels, tmp_path):
    write_wheel(wheels, 3, b"data")
    source = MODEL.packaged
    wheel = packaged._download(packaged._client(), source, 3, tmp_path)
    assert zipfile.ZipFile(wheel).read("tiny_part3/data/part03.bin") == b"data"
    with pytest.raises(DownloadError, match="tiny-part4"):
        packaged._download(packaged._client(), source, 4, tmp_path / "none")


def test_an_interrupted_assembly_goes_on_with_the_next_part(hub, direct_client):
    hub.body = b""
    write_wheels(direct_client, 5)
    with pytest.raises(DownloadError, match="tiny_part6"):
        run()
    for number in range(1, 6):
        write_wheel(direct_client, number, b"must not be read again")
    partial = paths.models_dir() / ".tiny.gguf.index"
    with partial.open("ab") as file:
        file.write(b"half a part")  # as a kill in the middle of appending leaves it
    for number, data in enumerate(PARTS[5:], start=6):
        write_wheel(direct_client, number, data)
    path, _ = run()
    assert path.read_bytes() == BODY


def test_packages_that_changed_are_refused_by_their_hash(hub, direct_client):
    hub.body = b""
    write_wheels(direct_client)
    write_wheel(direct_client, 7, b"z" * len(PARTS[6]))
    with pytest.raises(DownloadError, match="expected " + MODEL.sha256):
        run()
    assert folder_names() == set()


@pytest.mark.parametrize(("extra", "told"), [(b"zz", "more than"), (b"", "make 12,071 bytes")])
def test_packages_of_another_size_are_refused(hub, direct_client, extra, told):
    hub.body = b""
    write_wheels(direct_client)
    write_wheel(direct_client, 12, PARTS[11] + extra if extra else PARTS[11][:-7])
    with pytest.raises(DownloadError, match=told):
        run()


def test_a_wheel_without_its_part_is_told(hub, direct_client):
    hub.body = b""
    (direct_client / "tiny_part1-1.0-py3-none-any.whl").write_bytes(b"no archive")
    with pytest.raises(DownloadError, match="does not hold tiny_part1/data/part01.bin"):
        run()


def test_when_no_source_delivers_both_reasons_are_told(hub, direct_client):
    hub.body = b""
    with pytest.raises(DownloadError, match="404.*tiny_part1"):
        run()


def test_a_second_pull_at_the_same_time_is_refused(hub):
    folder = paths.make_private(paths.models_dir())
    with (folder / ".tiny.gguf.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another pull of tiny is running"):
            run()
    run()


def test_too_small_a_disk_is_told_before_anything_is_fetched(hub, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(DownloadError, match="needs .* of disk"):
        run()
    assert folder_names() == set()


UNKNOWN = dataclasses.replace(MODEL, sha256="", packaged=None)


def test_a_model_without_a_known_hash_needs_a_word_of_consent(hub):
    hub.body = b"GGUF and more"
    with pytest.raises(DownloadError) as caught:
        pull(UNKNOWN, print, lambda done, total: None)
    assert "--no-verify" in caught.value.hint
    path = pull(UNKNOWN, print, lambda done, total: None, verify=False)
    assert path.read_bytes() == hub.body
    assert remembered_sha256(path) == ""


def test_even_without_a_hash_a_page_is_no_model(hub):
    hub.body = b"<html>welcome</html>"
    with pytest.raises(DownloadError, match="expected b'GGUF'"):
        pull(UNKNOWN, print, lambda done, total: None, verify=False)
    assert folder_names() == set()


def test_the_hash_is_remembered_until_the_file_changes(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    assert verified_sha256(path) == hashlib.sha256(b"one").hexdigest()
    note = path.with_name(".file.sha256.json")
    saved = json.loads(note.read_text(encoding="utf-8"))
    note.write_text(json.dumps({**saved, "sha256": "remembered"}), encoding="utf-8")
    assert verified_sha256(path) == "remembered"
    path.write_bytes(b"other")
    assert verified_sha256(path) == hashlib.sha256(b"other").hexdigest()


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"bytes": "x"}', "\x00"])
def test_a_broken_note_only_costs_the_hashing(tmp_path, note):
    path = tmp_path / "file"
    path.write_bytes(b"one")
    path.with_name(".file.sha256.json").write_text(note, encoding="utf-8")
    assert verified_sha256(path) == hashlib.sha256(b"one").hexdigest()
