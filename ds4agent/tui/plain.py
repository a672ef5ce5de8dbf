"""What the widgets need to show untrusted text; see ``ds4agent.readable``."""

from ds4agent.readable import TAB_CELLS, age, count, one_line, printable, short_count, visible

__all__ = ["TAB_CELLS", "age", "count", "one_line", "printable", "short_count", "visible"]
