"""How the next token is chosen, as data: read by settings and screens before NumPy is loaded."""

from dataclasses import dataclass

from engine.errors import EngineError

MAX_SEED = 2**63


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How to sample. The defaults suit chat with a small model."""

    temperature: float = 0.7  # 0 = always the most probable token
    top_k: int = 0  # keep the k most probable tokens; 0 = all
    top_p: float = 1.0  # keep the smallest set with this much probability; 1 = all
    min_p: float = 0.05  # keep tokens at least this probable relative to the best; 0 = all
    repeat_penalty: float = 1.0  # divides the odds of recent tokens; 1 = off, 1.1 is mild
    repeat_window: int = 64  # tokens that count as recent
    seed: int | None = None  # below 2^63; None = another result each time

    def __post_init__(self) -> None:
        limits = (
            ("temperature", self.temperature, 0 <= self.temperature < 100, "0 to 100"),
            ("top_k", self.top_k, self.top_k >= 0, "0 or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "0 to 1"),
            ("repeat_penalty", self.repeat_penalty, 0 < self.repeat_penalty < 100, "0 to 100"),
            ("repeat_window", self.repeat_window, self.repeat_window >= 0, "0 or more"),
            ("seed", self.seed, self.seed is None or 0 <= self.seed < MAX_SEED, "0 to 2^63 - 1"),
        )
        for name, value, is_valid, expected in limits:
            if not is_valid:
                raise EngineError(
                    f"the sampling option {name} is {value}, expected {expected}",
                    f"Set {name} to a value in that range.",
                )
