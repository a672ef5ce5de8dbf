"""The real server with a scripted model: ``python -m tests.fakes.scripted_server SCRIPT -- ARGS``.

SCRIPT is a JSON file with arguments of ``scripted_engine``: ``{"replies": [...], "ctx": 16384}``,
or ``{"deepseek_v4": {"answers": {...}, "ctx": 4096}}`` with those of ``ScriptedV4Engine.of``.
"""

import json
import sys
from pathlib import Path

from ds4agent.server.cli import main
from tests.fakes.scripted_model import scripted_engine
from tests.fakes.scripted_v4 import ScriptedV4Engine


def run(argv: list[str]) -> int:
    script = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    if "deepseek_v4" in script:
        options = script["deepseek_v4"]
        return main(argv[2:], open_engine=lambda *_: ScriptedV4Engine.of(**options))
    return main(argv[2:], open_engine=lambda progress, cancel: scripted_engine(**script))


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
