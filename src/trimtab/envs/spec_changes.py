"""What repeated actions and shorter episodes do to the specification of any environment."""

import dataclasses

from trimtab.errors import SettingError
from trimtab.spaces import EnvSpec


def repeated(spec: EnvSpec, times: int) -> EnvSpec:
    """The specification with each action taken that many times."""
    limit = spec.max_episode_steps
    return dataclasses.replace(
        spec, max_episode_steps=None if limit is None else -(-limit // times)
    )


def limited(spec: EnvSpec, limit: int) -> EnvSpec:
    """The specification with episodes truncated after ``limit`` steps.

    What counts as solved is not known for shorter episodes.
    """
    before = spec.max_episode_steps
    if before is not None and limit >= before:
        raise SettingError(
            f"max_episode_steps = {limit} has no effect: {spec.id} ends its episodes after "
            f"{before} steps. Give a smaller number; an environment's own limit is an option "
            f"of it, where it has one (--env-option max_episode_steps={limit})."
        )
    return dataclasses.replace(spec, max_episode_steps=limit, solved_at=None)
