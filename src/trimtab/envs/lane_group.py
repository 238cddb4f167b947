"""Some lanes of Gymnasium environments, stepped one after another in one process.

In-process collection is one group of all lanes; each worker process has a group of its share. So
what an environment returns is checked in one place, and a broken lane is mended in one place.
Nothing here imports JAX.
"""

import contextlib
import dataclasses
import importlib
import math
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, final

import numpy as np

from trimtab.envs.gymnasium_spaces import BadValueError, Border, spec_of
from trimtab.envs.seeding import restart_seed
from trimtab.envs.state import LaneStates, load_states, save_states
from trimtab.errors import EnvironmentFaultError
from trimtab.faults import FaultPolicy, LaneFault, RestartBudget
from trimtab.spaces import EnvSpec, leaf_spaces, zeros


@dataclasses.dataclass(frozen=True)
class GymnasiumMaker:
    """Makes a registered Gymnasium environment; it can be sent to a process."""

    id: str
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    imports: tuple[str, ...] = ()  # modules that register environments

    def __call__(self) -> Any:
        import gymnasium

        for module in self.imports:
            importlib.import_module(module)
        # Its checker looks at the first steps alone, and warns of what is an error here.
        return gymnasium.make(self.id, disable_env_checker=True, **self.options)


def name_of(make_env: Any) -> str:
    """What to call an environment that is not made yet."""
    named = getattr(make_env, "func", make_env)  # a functools.partial's function
    return getattr(named, "id", None) or getattr(named, "__qualname__", type(named).__name__)


class LaneBuffers(NamedTuple):
    """What lanes are told and what they answer: arrays with the lanes as their first axis.

    Observations are lists of arrays, one for each leaf of the observation space.
    """

    obs: list[np.ndarray]
    next_obs: list[np.ndarray]
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    idle: np.ndarray  # the last step of this lane was no transition
    seed: np.ndarray  # of the lane's first episode
    episode: np.ndarray  # which one the lane is in, counted from 1
    step: np.ndarray  # and which step of that

    @staticmethod
    def of(spec: EnvSpec, num_envs: int, memory: Any = None) -> "LaneBuffers":
        """Arrays in ``memory``, which is all zeros, or in memory of their own."""
        if memory is None:
            memory = bytearray(LaneBuffers.size(spec, num_envs))
        offsets = iter(_offsets(spec, num_envs)[0])

        def array(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
            return np.ndarray((num_envs, *shape), dtype, memory, next(offsets))

        arrays = [array(*part) for part in _parts(spec)]
        leaves = len(list(leaf_spaces(spec.observation)))
        return LaneBuffers(arrays[:leaves], arrays[leaves : 2 * leaves], *arrays[2 * leaves :])

    @staticmethod
    def size(spec: EnvSpec, num_envs: int) -> int:
        """Bytes that the arrays take."""
        return _offsets(spec, num_envs)[1]

    def save(self) -> dict[str, np.ndarray]:
        """What the lanes need to go on, between two steps."""
        obs = {f"obs{number}": leaf.copy() for number, leaf in enumerate(self.obs)}
        counts = {name: getattr(self, name).copy() for name in ("seed", "episode", "step")}
        return {**obs, **counts}

    def load(self, saved: Mapping[str, np.ndarray]) -> None:
        """Restore what ``save`` kept."""
        for number, leaf in enumerate(self.obs):
            leaf[:] = saved[f"obs{number}"]
        for name in ("seed", "episode", "step"):
            getattr(self, name)[:] = saved[name]
        self.idle[:] = False

    def rows(self, lanes: range) -> "LaneBuffers":
        """The same arrays, seen by some of the lanes."""
        part = slice(lanes.start, lanes.stop)
        obs, next_obs, *others = self
        return LaneBuffers(
            [leaf[part] for leaf in obs],
            [leaf[part] for leaf in next_obs],
            *(array[part] for array in others),
        )


def _parts(spec: EnvSpec) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and dtype of one lane's part of each array."""
    leaves = [zeros(leaf) for _, leaf in leaf_spaces(spec.observation)]
    seen = [(leaf.shape, leaf.dtype) for leaf in leaves]
    action = zeros(spec.action)
    numbers = [np.float32, np.bool_, np.bool_, np.bool_, np.int64, np.int64, np.int64]
    return [*seen, *seen, (action.shape, action.dtype), *(((), dtype) for dtype in numbers)]


def _offsets(spec: EnvSpec, num_envs: int) -> tuple[list[int], int]:
    """Where each array begins, on a cache line of its own, and where the last one ends."""
    offsets, end = [], 0
    for shape, dtype in _parts(spec):
        offsets.append(end)
        length = num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize
        end += -(-length // 64) * 64
    return offsets, end


@final
class LaneGroup:
    """Lanes ``lanes`` of a run. Give it ``buffers`` before the first ``reset``.

    ``step`` begins a new episode in each lane whose episode ended, and emits no transition for
    that. A lane whose environment broke is mended, as the policy allows, and is idle in that step.
    """

    def __init__(self, make_env: Callable[[], Any], lanes: range, policy: FaultPolicy):
        self._make_env, self._lanes, self._policy = make_env, lanes, policy
        self._envs = [make_env() for _ in lanes]
        spaces = [(env.observation_space, env.action_space) for env in self._envs]
        self.spec = spec_of(self._envs[0])
        for lane, pair in zip(lanes, spaces, strict=True):
            if pair != spaces[0]:
                raise EnvironmentFaultError(
                    f"{self.spec.id}: lane {lane} has the spaces {pair}, and lane {lanes[0]} has "
                    f"{spaces[0]}. All lanes must have the same."
                )
        bounds = policy.observation_bounds == "enforce"
        self._border = Border(self.spec, *spaces[0], bounds)
        self._steps = 0  # of each lane
        self._restarts = [0] * len(lanes)
        self._budget = RestartBudget(policy.max_restarts)
        self._faults: list[LaneFault] = []
        self._at = np.zeros(1, np.int32)

    def attach(self, buffers: LaneBuffers, at: np.ndarray | None = None) -> None:
        """Read and write the rows of these lanes in ``buffers``.

        ``at`` holds one number: which of the lanes is being stepped, for whoever watches from
        outside.
        """
        self._buffers = buffers.rows(self._lanes)
        if at is not None:
            self._at = at

    def reset(self) -> None:
        """Begin an episode in every lane, with the seeds that are in the buffers."""
        self._restarts = [0] * len(self._lanes)
        for row, seed in enumerate(self._buffers.seed.tolist()):
            if fault := self._begin(row, seed):
                self._mend(row, fault)
        self._buffers.idle[:] = False

    def step(self) -> None:
        """Give every lane its action; then mend the broken, and begin anew what ended."""
        buffers, write = self._buffers, self._border.write
        next_obs, at = buffers.next_obs, self._at
        lanes = len(self._envs)
        rewards, terminated, truncated = [0.0] * lanes, [False] * lanes, [False] * lanes
        ended: list[int] = []
        broken: dict[int, LaneFault] = {}
        self._steps += 1
        np.add(buffers.step, 1, out=buffers.step)
        actions = self._border.actions(buffers.action)
        for row, env in enumerate(self._envs):
            at[0] = row
            try:
                answer = env.step(actions[row])
            except Exception as error:
                broken[row] = self._raised(row, "step()", error)
                continue
            try:
                obs, reward, task_ended, clock_ended, _ = answer
                write(next_obs, row, obs)
                rewards[row] = reward if type(reward) is float else _number(reward)
                if task_ended is not False or clock_ended is not False:
                    terminated[row] = _flag("terminated", task_ended)
                    # If both are set, the task ended.
                    truncated[row] = _flag("truncated", clock_ended) and not terminated[row]
                    if terminated[row] or truncated[row]:
                        ended.append(row)
            except (BadValueError, TypeError, ValueError, OverflowError) as error:
                broken[row] = self._bad(row, _what_is_wrong(answer, error))
        buffers.terminated[:], buffers.truncated[:] = terminated, truncated
        self._find_bad_numbers(rewards, broken)
        for obs_leaf, next_leaf in zip(buffers.obs, next_obs, strict=True):
            obs_leaf[:] = next_leaf
        for row in ended:
            if row not in broken and (fault := self._begin(row, None)):
                self._mend(row, fault)  # the step before the reset was a transition
        buffers.idle[:] = False
        for row, fault in broken.items():
            self._mend(row, fault)
            self._make_idle(row)

    def take_faults(self) -> list[LaneFault]:
        """The faults that were mended since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def save(self) -> tuple[LaneStates, list[int]]:
        """The environments' states and the lanes' restarts; raises UnsavableError if it cannot."""
        return save_states(self._envs), self._restarts

    def load(self, states: LaneStates, restarts: list[int]) -> None:
        """Go on from there, after a reset; the buffers are the caller's to restore."""
        load_states(self._envs, states)
        self._restarts = restarts

    def close(self) -> None:
        for env in self._envs:
            with contextlib.suppress(Exception):  # whoever closes wants no more of it
                env.close()

    # ---------------------------------------------------------------------------- episodes

    def _begin(self, row: int, seed: int | None) -> LaneFault | None:
        """Reset a lane's environment into its row of ``obs``; what was wrong, if anything."""
        self._buffers.episode[row] += 1
        self._buffers.step[row] = 0
        env, obs = self._envs[row], self._buffers.obs
        self._at[0] = row
        try:
            # Episodes after the first continue the lane's random stream, as Gymnasium's do.
            answer = env.reset(seed=seed) if seed is not None else env.reset()
        except Exception as error:
            return self._raised(row, "reset()", error)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            return self._bad(
                row, f"reset() returned {_kind(answer)}; expected an observation and an info."
            )
        try:
            self._border.write(obs, row, answer[0])
        except BadValueError as error:
            return self._bad(row, str(error))
        words = self._border.complaint(obs, row)
        return self._bad(row, words) if words else None

    def _find_bad_numbers(self, rewards: list[float], broken: dict[int, LaneFault]) -> None:
        """Add the lanes with numbers that are not finite or not in their space to ``broken``."""
        buffers = self._buffers
        with np.errstate(over="ignore", invalid="ignore"):
            buffers.reward[:] = rewards
            # One sum is quicker than a test of each; that of sound rewards may overflow too.
            sound = math.isfinite(buffers.reward.sum())
        if sound and self._border.in_space(buffers.next_obs):
            return
        for row, reward in enumerate(rewards):
            if row in broken:
                continue
            words = self._border.complaint(buffers.next_obs, row)
            if not np.isfinite(buffers.reward[row]):
                words = f"the reward is {reward}, which is not a finite float32."
            if words:
                broken[row] = self._bad(row, words)

    # ------------------------------------------------------------------------------ faults

    def _mend(self, row: int, fault: LaneFault) -> None:
        """Restart a lane until it begins an episode, or raise the error that ends the run."""
        found: LaneFault | None = fault
        while found is not None:
            if found.kind == "bad" and self._policy.on_bad_env == "raise":
                raise found.error()
            self._budget.spend(found, self._steps)
            self._faults.append(found)
            self._restarts[row] += 1
            found = self._restart(row, rebuild=found.kind == "raised")

    def _restart(self, row: int, rebuild: bool) -> LaneFault | None:
        """A new episode on a fresh seed; in a new environment, if the old one cannot be trusted."""
        if rebuild:
            with contextlib.suppress(Exception):  # it is broken already
                self._envs[row].close()
            try:
                self._envs[row] = self._make_env()
            except Exception as error:
                return self._raised(row, "its constructor", error)
        seed = restart_seed(int(self._buffers.seed[row]), self._restarts[row])
        return self._begin(row, seed)

    def _make_idle(self, row: int) -> None:
        """The lane's row is no transition."""
        buffers = self._buffers
        buffers.idle[row] = True
        buffers.reward[row] = 0.0
        buffers.terminated[row] = buffers.truncated[row] = False
        for obs, next_obs in zip(buffers.obs, buffers.next_obs, strict=True):
            next_obs[row] = obs[row]

    def _raised(self, row: int, where: str, error: Exception) -> LaneFault:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        trace = "".join(traceback.format_exception(error))
        return self._fault("raised", row, f"{where} raised {told}", trace)

    def _bad(self, row: int, words: str) -> LaneFault:
        return self._fault("bad", row, words)

    def _fault(
        self, kind: Literal["raised", "bad"], row: int, message: str, trace: str = ""
    ) -> LaneFault:
        episode, step = int(self._buffers.episode[row]), int(self._buffers.step[row])
        return LaneFault(kind, self.spec.id, self._lanes[row], episode, step, message, trace)


def _number(reward: Any) -> float:
    """A reward as a float."""
    if isinstance(reward, (float, int)):
        return float(reward)
    given = np.asarray(reward)
    if given.dtype.kind not in "fiub" or given.shape != ():
        raise BadValueError(f"the reward is {_kind(reward)}; expected one number.")
    return float(given)


def _flag(name: str, flag: Any) -> bool:
    if type(flag) is bool:
        return flag
    given = np.asarray(flag)
    if given.dtype.kind not in "iub" or given.shape != ():
        raise BadValueError(f"{name} is {_kind(flag)}; expected true or false.")
    return bool(given)


def _what_is_wrong(answer: Any, error: Exception) -> str:
    if isinstance(error, BadValueError):
        return str(error)
    if isinstance(answer, tuple) and len(answer) == 4:
        return (
            "step() returned a tuple of 4, as in Gym before 0.26; expected (observation, reward, "
            "terminated, truncated, info)."
        )
    if not (isinstance(answer, tuple) and len(answer) == 5):
        return (
            f"step() returned {_kind(answer)}; expected (observation, reward, terminated, "
            "truncated, info)."
        )
    return f"step() returned what cannot be read: {error}"


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    return f"{value!r} (a {type(value).__name__})"
