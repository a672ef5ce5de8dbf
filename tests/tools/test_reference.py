"""The table of the tools in the README is made from their schemas."""

from pathlib import Path

import pytest

from tools.reference import tool_table
from tools.toolbox import Toolbox

README = Path(__file__).parents[2] / "tools" / "README.md"


@pytest.mark.sandbox
def test_readme_has_the_table_of_the_schemas(root: Path, sandbox: None) -> None:
    box = Toolbox.from_folder(root)
    table = tool_table(box.tools.values())
    box.close()
    assert table in README.read_text(encoding="utf-8"), f"put this into tools/README.md:\n{table}"
