"""What only Landlock needs: its rules as data, and what namespaces would keep apart."""

import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import Bash, python, refused_python
from tools.sandbox.landlock import Landlock
from tools.sandbox.landlock_rules import READ, WRITE, Right, landlock_rules, shared_memory_is_free
from tools.sandbox.policy import base_policy, with_scan
from tools.sandbox.scan import scan_workspace

FILE_READ = Right.EXECUTE | Right.READ_FILE
FILE_WRITE = FILE_READ | Right.WRITE_FILE | Right.TRUNCATE


only_landlock = pytest.mark.parametrize("mechanism", [Landlock()], indirect=True, ids=["landlock"])


def rules_of(root: Path) -> dict[str, Right]:
    policy = with_scan(base_policy(root, (), {}), scan_workspace(root))
    return {
        os.path.relpath(rule.path, root): rule.rights
        for rule in landlock_rules(policy)
        if Path(rule.path).is_relative_to(root)
    }


def test_26_rules_are_exactly_these(root: Path) -> None:
    for path in (".git/config", "a/b/.git/x", "a/b/c.txt", "a/d/e.txt", "f/g.txt", ".env", "h.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "link").symlink_to("/etc")
    assert rules_of(root) == {
        ".": Right.READ_DIR,
        ".git": READ,
        "a": READ,  # reading is for all of it; writing entry by entry
        "a/b": Right.READ_DIR,
        "a/b/c.txt": FILE_WRITE,
        "a/d": WRITE,
        "f": WRITE,
        "h.txt": FILE_WRITE,
    }


def test_no_rule_allows_what_is_hidden(root: Path) -> None:
    policy = with_scan(base_policy(root, (), {}), scan_workspace(root))
    rules = {rule.path: rule.rights for rule in landlock_rules(policy)}
    for path in (*policy.hidden_files, *policy.hidden_folders):
        for above in (path, *path.parents):
            assert not rules.get(str(above), Right(0)) & Right.READ_FILE, path
    assert not {"/", "/home", "/root", "/proc", "/dev", "/tmp", "/run", "/var"} & set(rules)


def test_no_rule_allows_devices_or_sockets() -> None:
    forbidden = Right.MAKE_CHAR | Right.MAKE_BLOCK | Right.MAKE_SOCK | Right.IOCTL_DEV
    assert not WRITE & forbidden


@only_landlock
@pytest.mark.sandbox
def test_14_set_user_id_bit_cannot_be_set(bash: Bash) -> None:
    assert bash("cp /bin/true $TMPDIR/t && chmod 755 $TMPDIR/t").ok
    for call in ("chmod(p, 0o4755)", "fchmod(os.open(p, 0), 0o2755)"):
        refused_python(bash, f"import os\np = os.environ['TMPDIR'] + '/t'\nopen(p, 'w')\nos.{call}")


@only_landlock
@pytest.mark.sandbox
def test_15_limits_of_other_processes_cannot_be_set(bash: Bash) -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    refused_python(
        bash, f"import resource\nresource.prlimit({os.getpid()}, resource.RLIMIT_CPU, (9, 9))"
    )
    assert resource.getrlimit(resource.RLIMIT_CPU) == before
    assert python(bash, "import resource; resource.setrlimit(resource.RLIMIT_CPU, (9, 9))").ok


@only_landlock
@pytest.mark.sandbox
def test_15_shared_memory_and_queues_of_the_person_are_out_of_reach(bash: Bash) -> None:
    for number in (29, 64, 68, 240) if os.uname().machine == "x86_64" else (194, 190, 186, 180):
        refused_python(
            bash,
            f"""
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syscall({number}, 0, 0, 0, 0) < 0 and ctypes.get_errno() == 1:
                raise OSError(1, 'refused')
            """,
        )


@only_landlock
@pytest.mark.sandbox
def test_15_supervisor_cannot_be_signalled(bash: Bash) -> None:
    program = "import os, signal\nos.kill(os.getppid(), 0)\n"
    result = bash(f"{sys.executable} -c '{program}' && exec {sys.executable} -c '{program}'")
    assert result.text.count("PermissionError") == 1  # its shell, but not the supervisor


@pytest.mark.parametrize("number", [signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT])
@only_landlock
@pytest.mark.sandbox
def test_signals_have_their_usual_effect_in_a_command(bash: Bash, number: int) -> None:
    assert bash(f"sh -c 'kill -{int(number)} $$'").exit_code == 128 + number


@only_landlock
@pytest.mark.sandbox
def test_shared_memory_of_a_command_does_not_outlive_it(bash: Bash) -> None:
    name = f"ds4-test-{os.getpid()}"
    made = bash(f"echo x > /dev/shm/{name} && echo made")
    assert not Path("/dev/shm", name).exists()
    if shared_memory_is_free(os.geteuid()):
        assert made.text == "made"
    else:
        assert "Permission denied" in made.text


@only_landlock
@pytest.mark.sandbox
def test_shared_memory_of_other_programs_is_not_given(bash: Bash) -> None:
    mine = Path("/dev/shm", f"ds4-test-{os.getpid()}")
    mine.write_text("SECRET", encoding="utf-8")
    try:
        assert "SECRET" not in bash(f"cat {mine}").text
    finally:
        mine.unlink()
