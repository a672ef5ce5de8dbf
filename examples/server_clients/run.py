"""Real clients at ds4-server: Codex CLI, opencode and Claude Code do a task in two turns.

Turn 1 makes the client's own tool read a file, turn 2 asks for it again. Printed is what each turn
cost: requests, tokens of the prompts, how many of them had to be read, seconds.

    npm install @openai/codex opencode-ai @anthropic-ai/claude-code
    python examples/server_clients/run.py node_modules/.bin codex opencode claude

The clients may read files of a temporary folder and nothing else.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

WORD = "tangerine"
FIRST = "Read the file notes.txt with a tool and tell me the secret word in it."
SECOND = "Which word was it? Answer with the word only."


def codex(url: str, model: str, ctx: int, home: Path, binary: Path) -> tuple[list[str], list[str]]:
    """Return the commands of the two turns; writes the client's settings."""
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        f"""\
model = "{model}"
model_provider = "ds4"
model_context_window = {ctx}
approval_policy = "never"
sandbox_mode = "read-only"
[model_providers.ds4]
name = "ds4"
base_url = "{url}/v1"
wire_api = "responses"
stream_idle_timeout_ms = 1000000
request_max_retries = 0
""",
        encoding="utf-8",
    )
    start = [str(binary), "exec", "--skip-git-repo-check"]
    return [*start, FIRST], [*start, "resume", "--last", SECOND]


def opencode(
    url: str, model: str, ctx: int, home: Path, binary: Path
) -> tuple[list[str], list[str]]:
    """See ``codex``."""
    (home / "opencode.json").write_text(
        json.dumps(
            {
                "provider": {
                    "ds4": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": f"{url}/v1", "apiKey": "any"},
                        "models": {model: {"limit": {"context": ctx, "output": 2048}}},
                    }
                },
                "permission": {"bash": "deny", "edit": "deny", "webfetch": "deny"},
                "autoupdate": False,
                "share": "disabled",
            }
        ),
        encoding="utf-8",
    )
    start = [str(binary), "run", "--model", f"ds4/{model}"]
    return [*start, FIRST], [*start, "--continue", SECOND]


def claude(url: str, model: str, ctx: int, home: Path, binary: Path) -> tuple[list[str], list[str]]:
    """See ``codex``."""
    start = [str(binary), "-p", "--model", model, "--tools", "Read", "--allowedTools", "Read"]
    return [*start, "--", FIRST], [*start, "--continue", "--", SECOND]


CLIENTS: dict[str, Callable[..., tuple[list[str], list[str]]]] = {
    "codex": codex,
    "opencode": opencode,
    "claude": claude,
}


def environment(url: str, model: str, home: Path, work: Path) -> dict[str, str]:
    """Return the variables of a client: a home of its own, and where the model is."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC", "OPENAI"))},
        "HOME": str(home),
        "PWD": str(work),  # opencode believes it rather than the folder it runs in
        "CODEX_HOME": str(home / ".codex"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "OPENCODE_CONFIG": str(home / "opencode.json"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "any",
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "CLAUDE_CODE_SUBAGENT_MODEL": model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "2048",
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1000000",
        "API_TIMEOUT_MS": "1000000",
    }


def counters(url: str) -> dict[str, float]:
    """Return what the server has counted."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    values = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in values}


def context_length(url: str) -> int:
    """Return the context of the server's model in tokens."""
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        return json.load(answer)["data"][0]["context_length"]


def grown(before: dict[str, float], after: dict[str, float], start: str) -> int:
    """Return by how much the counters have grown whose names begin so."""
    return int(sum(v - before.get(k, 0) for k, v in after.items() if k.startswith(start)))


def run_client(name: str, url: str, model: str, binary: Path, timeout_s: int) -> None:
    """Run both turns and print what they cost."""
    with tempfile.TemporaryDirectory() as settings, tempfile.TemporaryDirectory() as folder:
        home, work = Path(settings), Path(folder)
        (work / "notes.txt").write_text(f"The secret word is {WORD}.\n", encoding="utf-8")
        turns = CLIENTS[name](url, model, context_length(url), home, binary)
        for number, command in enumerate(turns, 1):
            before, started = counters(url), time.monotonic()
            try:
                done = subprocess.run(
                    command,
                    cwd=work,
                    env=environment(url, model, home, work),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=timeout_s,
                )
                said, code = done.stdout.decode("utf-8", "replace"), str(done.returncode)
            except subprocess.TimeoutExpired as error:
                said, code = (error.stdout or b"").decode("utf-8", "replace"), "timeout"
            seconds, after = time.monotonic() - started, counters(url)
            counted = {
                label: grown(before, after, f"ds4_{counter}_total")
                for label, counter in (
                    ("requests", "answers"),
                    ("prompt tokens", "prompt_tokens"),
                    ("read", "prefill_tokens"),
                    ("sampled", "completion_tokens"),
                )
            }
            calls = grown(before, after, 'ds4_answers_total{finish="tool_calls"')
            cost = ", ".join(f"{label} {count}" for label, count in counted.items())
            found = "found" if WORD in said else "missing"
            print(
                f"{name} turn {number}: exit {code}, word {found}, calls {calls}, {cost}, ", end=""
            )
            print(f"{seconds:.0f} s", flush=True)
            lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in said.splitlines()]
            for line in lines[-12:]:
                print("    " + line[:150])


def main() -> None:
    """Start a server and run the clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the clients' programs")
    parser.add_argument("clients", nargs="+", choices=CLIENTS)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--ctx", default="32768")
    parser.add_argument("--url", help="of a server that runs already; its model is 'local'")
    parser.add_argument("--timeout-s", type=int, default=1800)
    args = parser.parse_args()
    if args.url:
        for name in args.clients:
            run_client(name, args.url, "local", (args.folder / name).absolute(), args.timeout_s)
        return
    with tempfile.TemporaryDirectory() as kv:
        server = subprocess.Popen(
            [sys.executable, "-m", "ds4agent.server", "-m", args.model, "--ctx", args.ctx]
            + ["--port", "0", "--kv-disk-dir", kv, "--model-name", "local"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url = server.stdout.readline().split(" at ")[1].split(" ")[0]
            for name in args.clients:
                binary = (args.folder / name).absolute()
                run_client(name, url, "local", binary, args.timeout_s)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
