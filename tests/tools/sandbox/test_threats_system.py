"""What a hostile command may try on the system: threats 9 to 23, each on the real mechanism."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import Bash, alive, python, refused, refused_python
from tools.base import ToolResult
from tools.sandbox.mechanism import Mechanism
from tools.sandbox.probe import open_sandbox
from tools.toolbox import Toolbox

pytestmark = pytest.mark.sandbox


# --- 9, 10: network and sockets -------------------------------------------------------------------


def test_09_tcp_and_udp_to_the_host_are_refused(bash: Bash) -> None:
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.setblocking(False)
    refused_python(
        bash,
        f"""
        import socket
        socket.create_connection(('127.0.0.1', {tcp.getsockname()[1]}), 2)
        """,
    )
    python(
        bash,
        f"""
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(b'x', ('127.0.0.1', {udp.getsockname()[1]}))
        """,
    )
    with pytest.raises(BlockingIOError):
        udp.recv(10)
    tcp.close()
    udp.close()


@pytest.mark.parametrize(
    "call",
    [
        "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
        "socket.getaddrinfo('localhost.invalid', 80)",
        "socket.create_connection(('192.0.2.1', 80), 2)",
    ],
)
def test_09_other_ways_to_the_network_are_refused(bash: Bash, call: str) -> None:
    refused_python(bash, f"import socket\n{call}")


def test_10_unix_sockets_are_refused(bash: Bash, root: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "sock"))
    server.listen()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0ds4-test-{os.getpid()}")
    abstract.listen()
    for address in (str(root / "sock"), f"\\0ds4-test-{os.getpid()}"):
        refused_python(bash, f"import socket\nsocket.socket(socket.AF_UNIX).connect('{address}')")
    server.close()
    abstract.close()


def test_10_datagram_pair_is_no_way_to_a_unix_socket(bash: Bash, root: Path) -> None:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(root / "sock"))
    server.setblocking(False)
    refused_python(
        bash,
        """
        import socket
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        a.sendto(b'x', 'sock')
        """,
    )
    with pytest.raises(BlockingIOError):
        server.recv(10)
    server.close()


def test_10_stream_pair_works_but_cannot_connect(bash: Bash, root: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "sock"))
    server.listen()
    assert python(bash, "import socket; a, b = socket.socketpair(); a.send(b'x'); b.recv(1)").ok
    refused_python(bash, "import socket\na, b = socket.socketpair()\na.connect('sock')")
    server.close()


# --- 11 to 13: leaks ------------------------------------------------------------------------------


def test_11_environment_is_not_inherited(
    root: Path, sandbox: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("API_TOKEN", "SSH_AUTH_SOCK", "LD_PRELOAD_X", "BASH_ENV", "PYTHONPATH"):
        monkeypatch.setenv(name, "SECRET")
    result = Toolbox.from_folder(root).run("bash", {"command": "env; cat /proc/*/environ"})
    assert "SECRET" not in result.text
    names = {line.partition("=")[0] for line in result.text.splitlines() if "=" in line}
    assert {"HOME", "PATH"} <= names


def test_12_proc_shows_only_the_sandbox(bash: Bash, mechanism: Mechanism) -> None:
    os.environ["DS4_LEAK_MARK"] = "LEAKED"
    try:
        result = bash(
            "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls /proc/1/root/home "
            "/proc/1/root/root; ls /proc/1/cwd/; ls -l /proc/*/fd"
        )
    finally:
        del os.environ["DS4_LEAK_MARK"]
    own = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b"\n").decode()
    assert "LEAKED" not in result.text and own not in result.text
    shown = bash("ls /proc | grep -c '^[0-9]'").text
    if mechanism.key == "landlock":
        assert "cannot open directory '/proc'" in shown
    else:
        assert int(shown) < 8
    assert not bash(f"ls /proc/1/root{Path(__file__).parent}").ok


def test_13_open_descriptors_are_closed(bash: Bash, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    os.set_inheritable(folder, True)
    program = """
        import os
        for fd in range(64):
            try:
                os.fstat(fd)
                print(fd, end=' ')
            except OSError:
                pass
        """
    shown = python(bash, program).text
    os.close(folder)
    assert shown.split() == ["0", "1", "2"]
    assert not bash(f"ls /proc/self/fd/{folder}/../ /dev/fd/{folder}/").ok


# --- 14, 15: privilege and other processes --------------------------------------------------------


def test_14_privileged_steps_are_refused(bash: Bash, repository: Path) -> None:
    commands = [
        "umount .git",
        "umount -l /proc/sys",
        "mount -o remount,rw /",
        "mount -o remount,rw,bind .git",
        "mount -t tmpfs none /tmp",
        "echo x > /proc/sys/kernel/hostname",
        "echo 0 > /proc/sys/vm/swappiness",
        "echo h > /proc/sysrq-trigger",
        "unshare -U true",
        "unshare -m true",
        "unshare -r true",
        "hostname planted",
        "chroot / true",
        "chown 12345 .",
        "date -s 2000-01-01",
        "dmesg",
    ]
    refused(bash, *commands)


def test_14_no_capabilities_and_no_new_ones(bash: Bash) -> None:
    program = """
        import ctypes
        libc = ctypes.CDLL(None)
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc.capget(header, sets)
        bounding = [libc.prctl(23, capability, 0, 0, 0) for capability in range(40)]
        print(sum(sets), sum(bounding), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0))
        """
    has, may_get, *rest = python(bash, program).text.split()
    assert has == "0" and rest == ["1", "2"]  # no new privileges; seccomp with a filter
    if os.geteuid() == 0:
        assert may_get == "0"


def test_14_calls_of_another_processor_end_the_program(bash: Bash, root: Path, place: str) -> None:
    if os.uname().machine != "x86_64" or not shutil.which("gcc"):
        pytest.skip("needs gcc on x86-64")
    (root / "a.c").write_text(
        'int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return 0; }',
        encoding="utf-8",
    )
    result = bash(f"gcc -o {place}/a a.c && {place}/a; echo code $?")
    assert "code 159" in result.text  # 128 + SIGSYS


def test_15_ptrace_and_signals_do_not_cross(bash: Bash) -> None:
    for pid in (os.getpid(), os.getppid()):
        refused(bash, f"kill -0 {pid}")
    refused_python(
        bash,
        """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(0, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), 'ptrace')
        """,
    )
    python(bash, "import os, signal\nos.kill(-1, signal.SIGKILL)")  # reaches the sandbox only
    assert bash("echo alive").text == "alive"


# --- 16 to 18: survivors, terminal, exhaustion ----------------------------------------------------


@pytest.fixture
def mark() -> Iterator[str]:
    yield f"86{os.getpid()}{time.monotonic_ns() % 10**6}"


@pytest.mark.parametrize(
    "command",
    ["sleep {m} &", "setsid sleep {m} & disown", "(setsid sleep {m} >/dev/null 2>&1 &) ; true",
     "nohup sh -c 'trap \"\" TERM HUP INT; sleep {m}' & sleep 0.1"],
)  # fmt: skip
def test_16_no_process_survives_and_none_delays_the_return(
    bash: Bash, mark: str, command: str
) -> None:
    started = time.monotonic()
    result = bash(f"echo started; {command.format(m=mark)}")
    assert "started" in result.text and result.exit_code == 0
    assert time.monotonic() - started < 5
    assert alive(mark) == []


def test_16_timeout_kills_the_whole_tree(bash: Bash, mark: str) -> None:
    started = time.monotonic()
    result = bash(f"trap '' TERM INT; (setsid sleep {mark} &) ; echo before; sleep {mark}",
                  timeout_s=1)  # fmt: skip
    assert 1 <= time.monotonic() - started < 3
    assert "before" in result.text and "Stopped after 1 s" in result.text
    assert result.exit_code is None and not result.ok
    assert alive(mark) == []


def test_16_cancel_kills_within_a_second(root: Path, sandbox: None, mark: str) -> None:
    box = Toolbox.from_folder(root)
    cancel = threading.Event()
    begun = threading.Event()
    cancelled_at = 0.0

    def stop() -> None:
        nonlocal cancelled_at
        begun.wait(20)
        cancelled_at = time.monotonic()
        cancel.set()

    thread = threading.Thread(target=stop)
    thread.start()
    command = f"sleep {mark} & echo begun; sleep {mark}"
    result = box.run("bash", {"command": command}, cancel, lambda text: begun.set())
    assert time.monotonic() - cancelled_at < 1
    thread.join()
    assert not result.ok and "interrupted by the user" in result.text
    assert alive(mark) == []


def test_16_stop_while_the_sandbox_starts_leaves_nothing_behind(
    root: Path, sandbox: None, mark: str, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No patience, and a stop at each tenth of a millisecond: one in a hundred comes when the
    # mechanism has made its first process and has not told of it yet.
    monkeypatch.setattr("tools.sandbox.running._POLL_S", 0.0)
    confined, _ = open_sandbox(root)
    for i in range(0, 200, 1 if mechanism.key == "bwrap" else 4):  # it starts in 15 to 30 ms
        result = confined.run(f"sleep {mark}", i * 1e-4, threading.Event(), lambda data: None)
        assert result.stopped_because == "timeout"
    # The mechanism itself, stopped halfway, would name the command too.
    assert alive(mark) == []


def test_17_there_is_no_terminal(bash: Bash) -> None:
    refused(bash, "exec 3<>/dev/tty")
    assert bash("tty").text.startswith("not a tty")
    assert bash("cat").ok  # stdin is empty, so nothing waits
    refused_python(
        bash,
        """
        import fcntl, os, pty
        main, other = pty.openpty()
        fcntl.ioctl(other, 0x5412, b'x')
        """,
    )


def test_17_escape_sequences_are_stripped_live_and_in_the_result(root: Path, sandbox: None) -> None:
    live: list[str] = []
    result = Toolbox.from_folder(root).run(
        "bash",
        {"command": r"printf '\033]0;title\007\033[31mred\033[0m\033[2J ok\n'"},
        None,
        live.append,
    )
    assert result.text == "red ok" and "".join(live) == "red ok\n"


def test_18_endless_output_is_stopped_and_bounded(bash: Bash) -> None:
    result = bash("yes", timeout_s=30)
    assert "Stopped" in result.text and "bytes of output left out" in result.text
    assert len(result.text.encode()) < 34_000


def test_18_time_is_bounded_while_output_flows(bash: Bash) -> None:
    started = time.monotonic()
    result = bash("while :; do echo x; done", timeout_s=1)
    assert "Stopped after 1 s" in result.text and time.monotonic() - started < 3


def test_18_fork_loop_is_stopped(root: Path, sandbox: None) -> None:
    box = Toolbox.from_folder(root)
    assert box.sandbox is not None
    box.sandbox.limit(processes=100)
    result = box.run("bash", {"command": "while :; do sleep 60 & done", "timeout_s": 60})
    assert "processes" in result.text and not result.ok


def test_18_memory_is_bounded(root: Path, sandbox: None) -> None:
    box = Toolbox.from_folder(root)
    assert box.sandbox is not None
    box.sandbox.limit(memory_bytes=200 << 20)
    program = "x = bytearray(400 << 20); import time; time.sleep(60)"
    result = box.run("bash", {"command": f"{sys.executable} -c '{program}'", "timeout_s": 60})
    assert "MiB of memory" in result.text and not result.ok


def test_18_huge_file_is_stopped(root: Path, sandbox: None, place: str) -> None:
    box = Toolbox.from_folder(root)
    assert box.sandbox is not None
    box.sandbox.limit(file_bytes=1 << 20)
    result = box.run("bash", {"command": f"head -c 3000000 /dev/zero > {place}/big"})
    assert not result.ok and (root / place / "big").stat().st_size <= 1 << 20


# --- 19 to 23 -------------------------------------------------------------------------------------


def test_19_device_files_are_refused(bash: Bash) -> None:
    refused(
        bash,
        "mknod disk b 8 0",
        "mknod mem c 1 1",
        "cat /dev/mem",
        "cat /dev/kmsg",
        "cat /dev/sda /dev/vda /dev/nvme0n1",
    )


def test_20_io_uring_is_refused(bash: Bash) -> None:
    refused_python(
        bash,
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        parameters = ctypes.create_string_buffer(256)
        if libc.syscall(425, 8, parameters) < 0:
            raise OSError(ctypes.get_errno(), 'io_uring_setup')
        """,
    )


def test_21_our_configuration_is_out_of_reach(bash: Bash, root: Path, isolated_home: Path) -> None:
    config = isolated_home / ".config/ds4-agent/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("x = 1\n", encoding="utf-8")
    refused(bash, f"echo 'sandbox = \"off\"' > {config}")
    refused(bash, "mkdir -p .ds4 && echo 'sandbox = \"off\"' > .ds4/config.toml")
    assert config.read_text(encoding="utf-8") == "x = 1\n"
    assert not (root / ".ds4").exists()


def test_21_no_argument_of_a_call_turns_the_sandbox_off(bash: Bash, tmp_path: Path) -> None:
    result = bash(f"echo x > {tmp_path}/planted", sandbox="off", unsafe=True)
    assert "ignored unknown arguments: sandbox, unsafe" in result.text
    assert not (tmp_path / "planted").exists()


def test_22_broken_workspace_files_never_widen_the_policy(bash: Bash, root: Path) -> None:
    (root / ".ds4").mkdir()
    (root / ".ds4/config.toml").write_text("x = 1\n", encoding="utf-8")
    refused(bash, "echo broken [ > .ds4/config.toml")
    (root / "sub").mkdir()
    (root / "sub/.git").write_bytes(b"gitdir: \xff\xfe/\0broken")
    (root / "sub/.gitmodules").symlink_to("loop")
    (root / "sub/loop").symlink_to("loop")
    assert bash("echo still works").text == "still works"
    refused(bash, "echo x > /etc/planted")


def test_23_no_residue_of_masks_also_with_two_runs_at_once(root: Path, sandbox: None) -> None:
    boxes = [Toolbox.from_folder(root) for _ in range(4)]
    results: list[ToolResult] = []

    def work(box: Toolbox) -> None:
        for _ in range(4):
            results.append(box.run("bash", {"command": "mkdir .git; sleep 0.05; mkdir .ds4/x"}))

    threads = [threading.Thread(target=work, args=(box,)) for box in boxes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result.exit_code == 1 for result in results) and len(results) == 16
    assert list(root.iterdir()) == []


def test_23_residue_of_a_killed_program_is_gone_at_the_next_start(
    root: Path, sandbox: None, mechanism: Mechanism, mark: str
) -> None:
    program = (
        "import sys, threading; from pathlib import Path; from tools.toolbox import Toolbox\n"
        "from tools.sandbox import probe\n"
        f"probe.MECHANISMS = [m for m in probe.MECHANISMS if m.key == '{mechanism.key}']\n"
        "box = Toolbox.from_folder(Path(sys.argv[1]))\n"
        f"command = 'echo up; sleep {mark} & sleep {mark}'\n"
        "box.run('bash', {'command': command}, threading.Event(), "
        "lambda text: print(text, flush=True))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and "up" in child.stdout.readline()
    assert (root / ".git").is_dir() == mechanism.needs_masks
    child.kill()
    child.communicate()
    deadline = time.monotonic() + 10
    while list(root.iterdir()) and time.monotonic() < deadline:
        Toolbox.from_folder(root).close()  # the sandbox holds its lock until it has died too
    assert list(root.iterdir()) == []
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.01)  # a supervisor looks for its parent four times a second
    assert alive(mark) == []


def test_23_folder_the_person_fills_meanwhile_is_kept(
    root: Path, sandbox: None, mechanism: Mechanism
) -> None:
    if not mechanism.needs_masks:
        pytest.skip(f"needs a mechanism that makes folders; {mechanism.key} makes none")
    box = Toolbox.from_folder(root)

    def fill(text: str) -> None:
        (root / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")

    result = box.run("bash", {"command": "echo go; sleep 0.3; cat .git/HEAD"}, None, fill)
    assert (root / ".git/HEAD").exists()
    assert "ref:" in result.text


def test_other_owner_of_the_workspace_runs_the_command(sandbox: None) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give the workspace to somebody else")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        os.chown(folder, 65534, 65534)
        mine = Path(folder, "sub/mine")
        mine.parent.mkdir()
        os.chown(mine.parent, 65534, 65534)
        box = Toolbox.from_folder(Path(folder))
        command = "id -u && echo x > sub/mine && cat sub/mine"
        assert box.run("bash", {"command": command}).text == "65534\nx"
        assert mine.stat().st_uid == 65534
