"""Which model gets which profile."""

from ds4agent.agent.profiles.full import FULL
from ds4agent.agent.profiles.profile import Profile
from ds4agent.agent.profiles.small import SMALL
from ds4agent.errors import ConfigError
from engine.state import ModelInfo

_SMALL_MODEL = 3_000_000_000  # parameters; below it, a prompt over 600 tokens does more harm
_SMALL_FORMATS = ("llama",)  # families whose chat format can hold file blocks
PROFILES = {profile.name: profile for profile in (FULL, SMALL)}
AUTO = "auto"


def choose(model: ModelInfo, wanted: str = AUTO) -> Profile:
    """Return the profile for a model.

    Args:
        model: its size and family decide; 0 parameters: unknown, and it counts as large.
        wanted: the name of a profile, or ``auto``.

    Raises:
        ConfigError: there is no such profile.
    """
    if wanted == AUTO:
        is_small = 0 < model.n_params < _SMALL_MODEL and model.family in _SMALL_FORMATS
        return SMALL if is_small else FULL
    if wanted not in PROFILES:
        names = ", ".join([AUTO, *PROFILES])
        raise ConfigError(f"there is no profile {wanted!r}", f"The profiles are: {names}.")
    return PROFILES[wanted]
