"""File access stays in the workspace, whatever the path says."""

import os
import socket
import stat
from pathlib import Path

import pytest

from tools.errors import PathRefused, ToolError
from tools.toolbox import Toolbox
from tools.workspace import FileMissing, Workspace


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def workspace(root: Path, request: pytest.FixtureRequest) -> Workspace:
    return Workspace(root, use_openat2=request.param)


def read(workspace: Workspace, path: str) -> bytes:
    return workspace.read_bytes(path, 1 << 20)


def test_relative_and_absolute_paths_inside_are_read(workspace: Workspace, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/a.txt").write_text("x", encoding="utf-8")
    for path in ("sub/a.txt", "./sub//a.txt", "sub/../sub/a.txt", str(root / "sub/a.txt")):
        assert read(workspace, path) == b"x"


@pytest.mark.parametrize("path", ["../x", "sub/../../x", "/etc/passwd", "/", "..", "", "a\0b"])
def test_path_outside_is_refused_for_read_and_write(workspace: Workspace, path: str) -> None:
    with pytest.raises(PathRefused):
        read(workspace, path)
    with pytest.raises(PathRefused):
        workspace.write_bytes(path, b"x")


def test_tilde_is_an_ordinary_character(workspace: Workspace) -> None:
    with pytest.raises(FileMissing):
        read(workspace, "~/.bashrc")


def test_link_out_is_refused_for_read(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s", encoding="utf-8")
    (root / "absolute").symlink_to(secret)
    (root / "relative").symlink_to("../secret")
    (root / "folder").symlink_to(tmp_path)
    for path in ("absolute", "relative", "folder/secret"):
        with pytest.raises(PathRefused, match="link"):
            read(workspace, path)


def test_link_out_is_refused_for_write_and_target_is_unchanged(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s", encoding="utf-8")
    (root / "file").symlink_to(secret)
    (root / "folder").symlink_to(tmp_path)
    for path in ("file", "folder/secret", "folder/new/deep"):
        with pytest.raises(PathRefused):
            workspace.write_bytes(path, b"changed")
    assert secret.read_text(encoding="utf-8") == "s"
    assert not (tmp_path / "new").exists()


def test_magic_link_of_proc_is_refused(workspace: Workspace, root: Path) -> None:
    (root / "cwd").symlink_to("/proc/self/cwd")
    with pytest.raises(PathRefused):
        read(workspace, "cwd/pyproject.toml")


def test_link_to_hidden_file_is_refused(workspace: Workspace, root: Path) -> None:
    (root / ".env").write_text("SECRET", encoding="utf-8")
    (root / "notes").symlink_to(".env")
    with pytest.raises(PathRefused):
        read(workspace, "notes")


def test_hard_link_is_replaced_and_the_outside_file_kept(
    workspace: Workspace, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("old", encoding="utf-8")
    os.link(outside, root / "inside")
    workspace.write_bytes("inside", b"new")
    assert outside.read_bytes() == b"old"
    assert (root / "inside").read_bytes() == b"new"


def test_fifo_socket_and_device_are_refused_at_once(workspace: Workspace, root: Path) -> None:
    os.mkfifo(root / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "sock"))
    names = ["fifo", "sock"]
    try:
        os.mknod(root / "null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        names.append("null")
    except PermissionError:
        pass  # only root makes devices
    for name in names:
        with pytest.raises(PathRefused, match="not a regular file"):
            read(workspace, name)
        with pytest.raises(PathRefused, match="not a regular file"):
            workspace.write_bytes(name, b"x")
    server.close()


@pytest.mark.parametrize("name", [".env", ".env.local", "key.pem", "id_rsa", "id_ed25519"])
def test_hidden_file_is_refused(workspace: Workspace, root: Path, name: str) -> None:
    (root / name).write_text("s", encoding="utf-8")
    with pytest.raises(PathRefused, match="hidden"):
        read(workspace, name)
    with pytest.raises(PathRefused, match="hidden"):
        workspace.write_bytes(name, b"x")


@pytest.mark.parametrize("name", ["id_map.py", "environment.py", "pem.txt", "valid_name"])
def test_names_like_hidden_ones_are_readable(workspace: Workspace, root: Path, name: str) -> None:
    (root / name).write_text("s", encoding="utf-8")
    assert read(workspace, name) == b"s"


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "sub/.git/config",
        ".GIT/config",
        ".ds4/config.toml",
        ".vscode/tasks.json",
        ".idea/x",
        ".github/workflows/ci.yml",
        ".envrc",
        "sub/.mcp.json",
        "AGENTS.md",
        "agents.md",
        ".bashrc",
        ".gitattributes",
    ],
)
def test_protected_path_is_refused_for_write(workspace: Workspace, root: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        workspace.write_bytes(path, b"x")
    assert list(root.iterdir()) == []


def test_write_keeps_the_mode_and_leaves_no_temporary_file(
    workspace: Workspace, root: Path
) -> None:
    script = root / "run.sh"
    script.write_text("old", encoding="utf-8")
    script.chmod(0o751)
    workspace.write_bytes("run.sh", b"new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert [path.name for path in root.iterdir()] == ["run.sh"]


def test_write_creates_missing_folders(workspace: Workspace, root: Path) -> None:
    workspace.write_bytes("a/b/c.txt", b"x")
    assert (root / "a/b/c.txt").read_bytes() == b"x"


def test_missing_file_names_near_ones(workspace: Workspace, root: Path) -> None:
    (root / "settings.py").write_text("", encoding="utf-8")
    with pytest.raises(FileMissing) as caught:
        read(workspace, "setings.py")
    assert "settings.py" in caught.value.hint


def test_path_through_a_file_is_refused(workspace: Workspace, root: Path) -> None:
    (root / "f").write_text("", encoding="utf-8")
    with pytest.raises(ToolError):
        read(workspace, "f/g")
    with pytest.raises(ToolError):
        workspace.write_bytes("f/g", b"x")


def test_failed_write_leaves_the_old_content(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("old", encoding="utf-8")

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="disk is full"):
        workspace.write_bytes("f", b"new")
    assert (root / "f").read_text(encoding="utf-8") == "old"
    assert [path.name for path in root.iterdir()] == ["f"]


def test_folder_without_permission_gives_one_line(toolbox: Toolbox, root: Path) -> None:
    (root / "locked").mkdir()
    (root / "locked/f").write_text("s", encoding="utf-8")
    (root / "locked").chmod(0)
    root.chmod(0o755)
    answers, answers_in = os.pipe()
    child = os.fork()  # permissions do not bind root, so the check runs as somebody else
    if child == 0:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        texts = [toolbox.run("read", {"path": "locked/f"}).text]
        texts.append(toolbox.run("list", {"path": "locked"}).text)
        os.write(answers_in, "\n".join(texts).encode("utf-8"))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(answers_in)
    lines = os.read(answers, 4096).decode("utf-8").splitlines()
    os.close(answers)
    (root / "locked").chmod(0o700)
    assert len(lines) == 2
    assert all("permission denied" in line for line in lines)
