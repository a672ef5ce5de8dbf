"""Run a command as the agent would: python examples/sandboxed_command.py FOLDER 'COMMAND'"""

import sys
import threading
from pathlib import Path

from tools.toolbox import Toolbox


def main(folder: Path, command: str) -> int:
    toolbox = Toolbox.from_folder(folder)
    print(f"sandbox: {toolbox.sandbox_name}")
    if "bash" not in toolbox.tools:
        return 1
    result = toolbox.run(
        "bash",
        {"command": command},
        cancel=threading.Event(),
        on_output=lambda text: print(text, end="", flush=True),
    )
    print(f"exit code {result.exit_code}")
    return result.exit_code or 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2]))
