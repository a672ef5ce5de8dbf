"""The policy as data: what a scan finds, and the exact arguments it becomes."""

import os
import sys
from pathlib import Path

import pytest

from tools.errors import SandboxUnavailable
from tools.sandbox.linux_bwrap import bwrap_arguments
from tools.sandbox.policy import Limits, SandboxPolicy, base_policy, with_scan
from tools.sandbox.scan import scan_workspace, shared_files

POLICY = SandboxPolicy(
    root=Path("/w"),
    system=(Path("/usr"), Path("/etc")),
    links=(("usr/bin", Path("/bin")),),
    readable=(Path("/h/.cargo"),),
    hidden_files=(Path("/etc/shadow"), Path("/w/.env")),
    hidden_folders=(Path("/etc/ssl/private"),),
    environment=(("HOME", "/tmp/home"), ("PATH", "/usr/bin")),
    limits=Limits(memory_bytes=1 << 30, file_bytes=2048, temporary_bytes=4096),
    pinned=(Path("/w/sub"),),
    protected=(Path("/w/sub/.git"),),
    masks=(Path("/w/.git"),),
)
GOLDEN = """
--unshare-user --unshare-pid --unshare-net --unshare-ipc --unshare-uts --unshare-cgroup
--new-session --die-with-parent --cap-drop ALL --hostname sandbox --clearenv
--setenv HOME /tmp/home --setenv PATH /usr/bin
--ro-bind /usr /usr --ro-bind /etc /etc --symlink usr/bin /bin
--dev /dev --size 4096 --tmpfs /dev/shm --remount-ro /dev
--proc /proc --ro-bind /proc/sys /proc/sys
--size 4096 --tmpfs /tmp --size 4096 --tmpfs /var/tmp --dir /tmp/home --dir /run
--ro-bind /h/.cargo /h/.cargo
--bind /w /w --bind /w/sub /w/sub --ro-bind /w/sub/.git /w/sub/.git --ro-bind /w/.git /w/.git
--perms 0555 --tmpfs /etc/ssl/private --remount-ro /etc/ssl/private
--ro-bind /dev/null /etc/shadow --ro-bind /dev/null /w/.env
--remount-ro / --chdir /w --seccomp 7 --json-status-fd 8 -- /bin/bash -c
""".split()


def test_26_arguments_are_exactly_these() -> None:
    arguments = bwrap_arguments(POLICY, "/bin/bash", "echo hi", 7, 8)
    assert arguments[: len(GOLDEN)] == GOLDEN
    launch = (
        "ulimit -c 0; ulimit -f 2; echo 1000 2>/dev/null >/proc/self/oom_score_adj; "
        'exec "$0" -c "$1"'
    )
    assert arguments[len(GOLDEN) :] == [launch, "/bin/bash", "echo hi"]


def test_command_text_is_one_argument_whatever_it_holds() -> None:
    nasty = "--bind / / '\"; $(touch x)\n--"
    assert bwrap_arguments(POLICY, "/bin/sh", nasty, 7, 8)[-1] == nasty


def names(root: Path, paths: tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to(root)) for path in paths]


def test_scan_finds_protected_pinned_hidden_and_missing(root: Path) -> None:
    for path in ("a/b/.git/hooks/x", "a/AGENTS.md", ".vscode/t.json", "node_modules/p/.git/x",
                 ".github/workflows/ci.yml", "env/site-packages/x.pem", "env/pyvenv.cfg", "a/.env",
                 "a/k.pem", "a/id_rsa", "a/id_map.py"):  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    scan = scan_workspace(root)
    assert names(root, scan.protected) == [
        ".github/workflows", ".vscode", "a/AGENTS.md", "a/b/.git",
    ]  # fmt: skip
    assert names(root, scan.pinned) == [".github", "a", "a/b"]
    assert names(root, scan.masks) == [".git", ".ds4", ".idea"]
    assert names(root, scan.hidden_files) == ["a/.env", "a/id_rsa", "a/k.pem"]
    assert root / "AGENTS.md" in scan.absent_files


def test_scan_of_an_empty_folder_masks_all_folders(root: Path) -> None:
    assert names(root, scan_workspace(root).masks) == [
        ".git", ".ds4", ".vscode", ".idea", ".github/workflows",
    ]  # fmt: skip


def test_files_with_other_names_are_found_for_a_warning(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    (root / "sub").mkdir()
    os.link(tmp_path / "outside", root / "sub/shared")
    (root / "single").touch()
    (root / "link").symlink_to("single")
    assert shared_files(root) == [root / "sub/shared"]


def test_environment_holds_only_allowed_names(root: Path, tmp_path: Path) -> None:
    environ = {
        "PATH": f"{root}/bin:/usr/bin::relative:{tmp_path}/elsewhere",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "TERM": "xterm",
        "SECRET": "x",
        "LD_PRELOAD": "x",
        "HOME": "/real",
    }
    values = dict(base_policy(root, (tmp_path,), environ).environment)
    assert values == {
        "PATH": f"{root}/bin:/usr/bin",
        "LANG": "C.UTF-8",
        "LC_TIME": "C",
        "TERM": "xterm",
        "HOME": "/tmp/home",
        "TMPDIR": "/tmp",
    }


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/tmp", "/dev"])
def test_system_folder_as_workspace_is_refused(folder: str) -> None:
    with pytest.raises(SandboxUnavailable, match="system folders"):
        base_policy(Path(folder), (), {})


def test_home_is_never_readable_as_a_whole(root: Path, tmp_path: Path) -> None:
    home = Path(os.path.realpath(sys.prefix))
    policy = base_policy(root, (home,), {})
    assert not any(home.is_relative_to(path) for path in policy.readable)


def test_private_folder_named_by_the_environment_is_hidden(root: Path) -> None:
    (root / "state").mkdir()
    policy = base_policy(root, (), {"DS4_HOME": str(root / "state")})
    assert root / "state" in policy.hidden_folders


def test_too_many_places_are_refused_not_skipped(root: Path) -> None:
    for n in range(700):
        (root / f"{n}.pem").touch()
    with pytest.raises(SandboxUnavailable, match="more than 600"):
        with_scan(base_policy(root, (), {}), scan_workspace(root))
