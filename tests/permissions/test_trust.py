"""The file of trusted folders."""

import os
import subprocess
from pathlib import Path

import pytest

from ds4agent import paths
from ds4agent.errors import ConfigError
from ds4agent.permissions.trust import TrustFile


def test_what_was_said_is_remembered_for_this_folder_alone(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert TrustFile(one).read() is None
    TrustFile(one).remember(True)
    TrustFile(two).remember(False)
    assert TrustFile(one).read() is True
    assert TrustFile(two).read() is False
    assert TrustFile(one / "inner").read() is None
    TrustFile(one).remember(False)
    assert TrustFile(one).read() is False


def test_it_lies_beside_the_settings_and_comments_survive(tmp_path: Path) -> None:
    path = paths.trust_file()
    assert path.parent == paths.config_file().parent
    path.parent.mkdir(parents=True)
    path.write_text("# mine\n", encoding="utf-8")
    TrustFile(tmp_path).remember(True)
    assert path.read_text(encoding="utf-8").startswith("# mine\n")
    assert path.stat().st_mode & 0o077 == 0


def test_a_link_to_a_folder_is_the_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    TrustFile(tmp_path / "link").remember(True)
    assert TrustFile(tmp_path / "real").read() is True


def test_a_name_that_is_no_utf8_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    TrustFile(folder).remember(True)
    assert TrustFile(folder).read() is True


@pytest.mark.parametrize("text", ["not toml", '"{folder}" = "yes"\n'])
def test_a_broken_file_is_told_and_trusts_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trusted.toml"
    path.write_text(text.replace("{folder}", str(tmp_path)), encoding="utf-8")
    with pytest.raises(ConfigError, match="trusted.toml"):
        TrustFile(tmp_path, path).read()


def test_full_or_read_only_disk_keeps_what_was_said(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "trusted.toml"
    first = TrustFile(tmp_path / "first", path)
    first.remember(True)
    before = path.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ConfigError, match="Read-only file system"):
        TrustFile(tmp_path / "second", path).remember(True)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with (small_disk / "ballast").open("wb", buffering=0) as file:
        while os.statvfs(small_disk).f_bavail:
            file.write(bytes(4096))
    with pytest.raises(ConfigError, match="No space left on device") as caught:
        TrustFile(tmp_path / "second", path).remember(True)
    assert "\n" not in str(caught.value) and caught.value.hint
    assert path.read_bytes() == before and first.read() is True
    assert not [entry for entry in small_disk.iterdir() if ".tmp." in entry.name]
    (small_disk / "ballast").unlink()
    TrustFile(tmp_path / "second", path).remember(False)
    assert first.read() is True
