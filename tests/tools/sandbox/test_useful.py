"""What ordinary work needs works inside, and results say what happened."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import Bash, python
from tools.sandbox.landlock_rules import shared_memory_is_free
from tools.sandbox.mechanism import Mechanism
from tools.toolbox import Toolbox

pytestmark = pytest.mark.sandbox


def needs(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"needs {program}")


def test_25_pipes_redirection_and_exit_codes(bash: Bash, root: Path, place: str) -> None:
    out = f"{place}/out.txt"
    assert bash(f"printf 'b\\na\\n' | sort | tee {out} && wc -l < {out}").text == "a\nb\n2"
    assert (root / out).read_text(encoding="utf-8") == "a\nb\n"
    result = bash("echo wrong >&2; exit 7")
    assert (result.ok, result.exit_code, result.text) == (False, 7, "wrong\nExit code 7.")
    assert bash("kill -9 $$").exit_code == 137


def test_25_files_made_inside_belong_to_the_person(bash: Bash, root: Path, place: str) -> None:
    made = "mkdir -p a/b && echo x > a/b/c && chmod +x a/b/c && mv a z && ls z/b"
    assert bash(f"cd {place} && {made}").ok
    assert (root / place / "z/b/c").stat().st_uid == root.stat().st_uid


def test_25_asyncio_with_own_loopback(bash: Bash, mechanism: Mechanism) -> None:
    if mechanism.key == "landlock":
        # No network namespace, so no loopback of its own; event loops and their pipes work.
        program = """
            import asyncio, sys
            async def main():
                process = await asyncio.create_subprocess_exec(
                    'cat', stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
                out, _ = await asyncio.gather(process.communicate(b'hello'), asyncio.sleep(0.01))
                print(out[0].decode())
            asyncio.run(main())
            """
        assert python(bash, program).text == "hello"
        return
    result = python(
        bash,
        """
        import asyncio
        async def main():
            async def echo(reader, writer):
                writer.write(await reader.readline())
                writer.close()
            server = await asyncio.start_server(echo, '127.0.0.1', 0)
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection('localhost', port)
            writer.write(b'hello\\n')
            print((await reader.readline()).decode().strip())
            writer.close()
            server.close()
        asyncio.run(main())
        """,
    )
    assert result.text == "hello"


def test_25_process_pool_and_threads(bash: Bash, root: Path, mechanism: Mechanism) -> None:
    if mechanism.key == "landlock" and not shared_memory_is_free(os.geteuid()):
        pytest.skip("needs a /dev/shm in which nothing is open to this user")
    (root / "pool.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
        "import multiprocessing, operator\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(2) as pool, ThreadPoolExecutor(2) as threads:\n"
        "        print(sum(pool.map(operator.neg, range(5))), *threads.map(operator.neg, [1]))\n"
        "    with multiprocessing.Pool(2) as pool:\n"
        "        print(pool.map(operator.neg, [1, 2]))\n",
        encoding="utf-8",
    )
    assert bash(f"{sys.executable} pool.py").text == "-10 -1\n[-1, -2]"


def test_25_pytest_runs(bash: Bash, root: Path) -> None:
    (root / "test_it.py").write_text(
        "def test_it(tmp_path):\n    assert 1 + 1 == 2\n", encoding="utf-8"
    )
    result = bash(f"{sys.executable} -m pytest -q -p no:cacheprovider test_it.py")
    assert result.ok and "1 passed" in result.text


def test_25_c_program_is_compiled_and_run(bash: Bash, root: Path, place: str) -> None:
    needs("gcc")
    (root / "a.c").write_text(
        '#include <stdio.h>\nint main(void){puts("ran");}\n', encoding="utf-8"
    )
    assert bash(f"gcc -o {place}/a a.c && {place}/a").text == "ran"


def test_25_make_builds_in_parallel(bash: Bash, root: Path, place: str) -> None:
    needs("gcc")
    needs("make")
    folder = root / place
    (folder / "a.c").write_text("int b(void); int main(void) { return b(); }\n", encoding="utf-8")
    (folder / "b.c").write_text("int b(void) { return 7; }\n", encoding="utf-8")
    (folder / "Makefile").write_text(
        "prog: a.o b.o\n\tcc -o prog a.o b.o\nclean:\n\trm -f *.o prog\n", encoding="utf-8"
    )
    result = bash(f"cd {place} && make -j2 >/dev/null && ./prog; echo $?; make -s clean; ls")
    assert result.text.splitlines() == ["7", "Makefile", "a.c", "b.c"]


def test_25_package_is_built_and_used_from_a_virtual_environment(
    bash: Bash, root: Path, place: str
) -> None:
    package = root / place / "src"
    package.mkdir()
    (package / "hello.py").write_text("def hello():\n    return 'hello'\n", encoding="utf-8")
    result = bash(
        f"cd {place} && {sys.executable} -m venv --without-pip env && "
        "cp src/hello.py env/lib/python3*/site-packages/ && "
        "env/bin/python -c 'import hello; print(hello.hello())' && "
        "tar czf src.tgz src && mkdir out && tar xzf src.tgz -C out && cat out/src/hello.py | wc -l"
    )
    assert result.text == "hello\n2"


def test_25_node_runs(bash: Bash) -> None:
    needs("node")
    result = bash('node -e \'require("fs").readdir(".", (e, l) => console.log("ran"))\'')
    assert result.text == "ran"


def test_25_git_reads_and_says_why_it_cannot_write(bash: Bash, root: Path) -> None:
    needs("git")
    commands = (["init"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit",
                "-m", "first"])  # fmt: skip
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    for command in commands:
        subprocess.run(["git", *command], cwd=root, check=True, capture_output=True)
    (root / "a.txt").write_text("b\n", encoding="utf-8")
    assert bash("git status --short").text == " M a.txt"
    assert "+b" in bash("git diff").text
    assert bash("git log --format=%s").text == "first"
    result = bash("git add a.txt")
    assert not result.ok
    assert "Read-only file system" in result.text or "Permission denied" in result.text


def test_25_new_nested_repository_is_reported(bash: Bash, root: Path, place: str) -> None:
    result = bash(f"cd {place} && mkdir sub && cd sub && git init -q")
    made = (root / place / "sub/.git").relative_to(root)
    assert result.exit_code == 0 and f"read-only from now on: {made}" in result.text
    assert bash(f"echo x > {made}/hooks/pre-commit").exit_code != 0


def test_25_temporary_files_and_large_output(bash: Bash) -> None:
    assert bash("f=$(mktemp) && head -c 10000000 /dev/zero > $f && wc -c < $f").text == "10000000"
    result = bash("seq 1 100000")
    lines = result.text.splitlines()
    assert lines[0] == "1" and lines[-1] == "100000"
    assert any("bytes of output left out" in line for line in lines)
    assert len(result.text.encode("utf-8")) < 33_000


def test_live_output_is_rate_limited_and_complete(root: Path, sandbox: None) -> None:
    live: list[str] = []
    result = Toolbox.from_folder(root).run(
        "bash", {"command": "for i in $(seq 500); do echo $i; done"}, None, live.append
    )
    assert result.ok
    assert "".join(live) == "".join(f"{n}\n" for n in range(1, 501))
    assert len(live) < 50


def test_timeout_is_clamped_and_told(bash: Bash) -> None:
    result = bash("echo ok", timeout_s=120000)
    assert "ok" in result.text and "timeout_s was changed from 120000 to 1800" in result.text


@pytest.mark.parametrize("command", ["", "  \n", "a\0b", "x" * 200_000])
def test_command_that_cannot_run_is_refused(bash: Bash, command: str) -> None:
    result = bash(command)
    assert not result.ok and result.exit_code is None


def test_binary_output_is_cleaned(bash: Bash) -> None:
    result = bash("head -c 2000 /dev/urandom; echo; echo end")
    assert result.text.endswith("end")
    assert not any(ord(character) < 32 and character not in "\n\t" for character in result.text)


def test_no_descriptor_is_lost(bash: Bash) -> None:
    bash("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        bash("sleep 5 & echo x", timeout_s=5)
    assert len(os.listdir("/proc/self/fd")) == before
