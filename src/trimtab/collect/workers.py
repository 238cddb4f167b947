"""A pool of worker processes that step the lanes: a ``HostEnv`` that outlives its environments.

W workers have about N/W lanes each. Observations, rewards and actions are in shared memory; an
order and its answer are one byte each. A worker that dies, or that gives no answer before its
deadline, is replaced, and its lanes begin new episodes on fresh seeds: the broken ones are dropped.
"""

import itertools
import os
import select
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, final

import cloudpickle
import numpy as np

from trimtab.collect.worker_entry import (
    ATTACH,
    CLOSE,
    LOAD,
    RESET,
    SAVE,
    STEP,
    SharedLanes,
)
from trimtab.collect.worker_process import WorkerFailedError, WorkerLostError, WorkerProcess
from trimtab.envs.gymnasium_spaces import tree_of
from trimtab.envs.lane_group import LaneBuffers, name_of
from trimtab.envs.seeding import restart_seed
from trimtab.envs.state import UnsavableError, joined_states, packed, states_of, unpacked
from trimtab.errors import CheckpointError, EnvironmentFaultError, SettingError
from trimtab.faults import Deadlines, FaultPolicy, LaneFault, RestartBudget
from trimtab.spaces import EnvSpec
from trimtab.types import Observation, Step

CLOSE_SECONDS = 2.0
_LOOK_SECONDS = 0.5  # how often deadlines are looked at while no worker answers


@final
class WorkerPool:
    """``num_envs`` lanes of the environments that ``make_env`` makes, over worker processes.

    ``make_env`` is called in the workers, once for each lane; it is sent there by cloudpickle.
    """

    def __init__(
        self,
        make_env: Callable[[], Any],
        num_envs: int,
        num_workers: int,
        policy: FaultPolicy = FaultPolicy(),  # noqa: B008 (frozen)
        deadlines: Deadlines = Deadlines(),  # noqa: B008 (frozen)
    ):
        if not 1 <= num_workers <= num_envs:
            raise SettingError(
                f"num_workers = {num_workers} is not valid: expected a whole number from 1 to the "
                f"number of lanes, num_envs = {num_envs}."
            )
        self.num_envs, self.num_workers = num_envs, num_workers
        self.lanes = lanes_of_workers(num_envs, num_workers)
        self._name, self._deadlines = name_of(make_env), deadlines
        self._assignments = [
            cloudpickle.dumps((make_env, number, lanes, policy))
            for number, lanes in enumerate(self.lanes)
        ]
        self._budget = RestartBudget(policy.max_restarts)
        self._faults: list[LaneFault] = []
        self._restarts = np.zeros(num_envs, np.int64)
        self._steps = np.zeros(num_workers, np.int64)
        self._memory = anonymous_file()
        self._workers: list[WorkerProcess] = []
        try:
            for number in range(num_workers):
                self._workers.append(self._started(number))
            self.spec = self._same_specs([self._spec_from(worker) for worker in self._workers])
            self._shared = SharedLanes(self._memory, self.spec, num_envs, num_workers)
            for worker in self._workers:
                worker.order(ATTACH, (num_envs, num_workers))
        except BaseException:
            self.close(seconds=0)
            raise
        self.buffers = self._shared.buffers
        self.rows = [self.buffers.rows(lanes) for lanes in self.lanes]  # of each worker
        self._first_seeds = np.zeros(num_envs, np.int64)
        self._step = self.view(self.buffers)
        self._idle = False

    @property
    def idle(self) -> np.ndarray | None:
        return self.buffers.idle if self._idle else None

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Begin an episode in every lane."""
        self.buffers.seed[:] = self._first_seeds[:] = seeds
        self._restarts[:] = 0
        for worker in self._workers:
            worker.order(RESET)
        for number in range(self.num_workers):
            self.finish(number, self._deadlines.start)
        self._idle = False
        return self._step.obs

    def step(self, actions: np.ndarray) -> Step:
        """Step every lane. The arrays are the caller's until the next call."""
        self.buffers.action[:] = actions
        for worker in self._workers:
            worker.order(STEP)
        self._steps += 1
        restarted = [self.finish(number) for number in range(self.num_workers)]
        self._idle = any(restarted)
        return self._step

    def save_state(self) -> dict[str, np.ndarray]:
        """As ``SavableEnv`` says."""
        for worker in self._workers:
            worker.order(SAVE)
        parts, restarts = [], []
        try:
            for worker in self._workers:
                worker.answer(self._deadlines.start)
                answer = worker.message()
                if isinstance(answer, str):
                    parts.append(UnsavableError(answer))
                    continue
                parts.append(answer[0])
                restarts += answer[1]
        except (WorkerLostError, WorkerFailedError) as error:  # the next step will mend it
            raise UnsavableError(f"a worker {error}") from None
        for part in parts:
            if isinstance(part, UnsavableError):
                raise part
        own = {"restarts": np.asarray(restarts, np.int64), "lane_restarts": self._restarts.copy()}
        own["first_seeds"] = self._first_seeds.copy()
        return {**packed(joined_states(parts)), **self.buffers.save(), **own}

    def load_state(self, saved: Mapping[str, np.ndarray]) -> Observation:
        """As ``SavableEnv`` says; the number of workers may be another."""
        states, restarts = unpacked(saved), saved["restarts"].tolist()
        for worker, lanes in zip(self._workers, self.lanes, strict=True):
            part = states_of(states, lanes), restarts[lanes.start : lanes.stop]
            worker.order(LOAD, part)
        for worker in self._workers:
            try:
                worker.answer(self._deadlines.start)
            except (WorkerLostError, WorkerFailedError) as error:
                raise CheckpointError(f"{self._name}: a worker could not go on: {error}") from None
        self.buffers.load(saved)
        self._restarts[:], self._first_seeds[:] = saved["lane_restarts"], saved["first_seeds"]
        return self._step.obs

    def take_faults(self) -> list[LaneFault]:
        """The faults that were mended since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the workers; those whose environments take longer than that to close are killed."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.order(CLOSE)
        for worker in workers:
            worker.close(seconds)
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    # -------------------------------------------------------------------- one worker's steps

    def begin(self, number: int, actions: np.ndarray) -> None:
        """Let a worker step its lanes."""
        self.rows[number].action[:] = actions
        self._steps[number] += 1
        self._workers[number].order(STEP)

    def ready(self, numbers: Collection[int]) -> list[int]:
        """Waits for one of these workers; those that ``finish`` then need not wait for."""
        while True:
            poll = select.poll()
            for number in numbers:
                poll.register(self._workers[number].answers, select.POLLIN)
            answered = {descriptor for descriptor, _ in poll.poll(1000 * _LOOK_SECONDS)}
            found = [
                number
                for number in numbers
                if self._workers[number].answers in answered
                or self._workers[number].overdue(self._deadlines.step)
            ]
            if found:
                return found

    def finish(self, number: int, seconds: float | None = None) -> bool:
        """Wait until a worker has done its order; whether any of its lanes were restarted."""
        try:
            faults = self._workers[number].answer(seconds or self._deadlines.step)
        except WorkerLostError as lost:
            self._replace(number, self._fault_of(number, lost))
            return True
        except WorkerFailedError as failed:
            raise self._ended_by(failed) from None
        for fault in faults:
            self._restarts[fault.lane] += 1
        self._faults += faults
        return bool(faults)

    def _replace(self, number: int, fault: LaneFault) -> None:
        """A new worker in place of a lost one, with all of its lanes idle."""
        found: LaneFault | None = fault
        while found is not None:
            self._workers[number].end()
            self._budget.spend(found, int(self._steps[number]))
            self._faults.append(found)
            found = self._restart(number)

    def _restart(self, number: int) -> LaneFault | None:
        """Start a worker anew, on fresh seeds; what was wrong, if that went wrong too."""
        lanes, buffers = self.lanes[number], self.rows[number]
        self._shared.at[number, 0] = 0
        self._restarts[lanes.start : lanes.stop] += 1
        for row, lane in enumerate(lanes):
            buffers.seed[row] = restart_seed(
                int(self._first_seeds[lane]), int(self._restarts[lane])
            )
        worker = self._workers[number] = self._started(number)
        try:
            worker.answer(self._deadlines.start)
            self._same_specs([self.spec, worker.message()])
            worker.order(ATTACH, (self.num_envs, self.num_workers))
            worker.order(RESET)
            self._faults += worker.answer(self._deadlines.start)
        except WorkerLostError as lost:
            return self._fault_of(number, lost)
        except WorkerFailedError as failed:
            if failed.meant:
                raise self._ended_by(failed) from None
            message = f"while its worker was started anew: {failed}"
            return LaneFault("raised", self._name, lanes.start, 1, 0, message, failed.text)
        buffers.idle[:] = True
        buffers.reward[:] = 0.0
        buffers.terminated[:] = buffers.truncated[:] = False
        for obs, next_obs in zip(buffers.obs, buffers.next_obs, strict=True):
            next_obs[:] = obs
        return None

    def _started(self, number: int) -> WorkerProcess:
        return WorkerProcess(number, self._assignments[number], self._memory)

    def _spec_from(self, worker: WorkerProcess) -> EnvSpec:
        """What a worker's environments are like, once they are made for the first time."""
        lanes = self.lanes[worker.number]
        who = f"{self._name}: worker {worker.number} (lanes {lanes.start} to {lanes.stop - 1})"
        try:
            worker.answer(self._deadlines.start)
            return worker.message()
        except WorkerLostError as lost:
            advice = (
                "Its constructor hangs, or needs a longer start_deadline."
                if lost.hung
                else "It ended while its environments were made."
            )
            raise EnvironmentFaultError(f"{who} {lost}. {advice}") from None
        except WorkerFailedError as failed:
            if failed.meant:
                raise EnvironmentFaultError(failed.text) from None
            raise EnvironmentFaultError(
                f"{who} could not make its environments: {failed}\n\n{failed.text.rstrip()}"
            ) from None

    def _same_specs(self, specs: Sequence[EnvSpec]) -> EnvSpec:
        for spec in specs:
            if spec != specs[0]:
                raise EnvironmentFaultError(
                    f"{self._name}: its environments differ. One is {specs[0]}, another {spec}. "
                    "All lanes must have the same spaces."
                )
        return specs[0]

    def _fault_of(self, number: int, lost: WorkerLostError) -> LaneFault:
        """The fault of the lane that a lost worker was stepping."""
        lane = self.lanes[number].start + int(self._shared.at[number, 0])
        episode, step = int(self.buffers.episode[lane]), int(self.buffers.step[lane])
        message = f"its worker process {lost}"
        kind = "hung" if lost.hung else "died"
        return LaneFault(kind, self.spec.id, lane, episode, step, message)

    def _ended_by(self, failed: WorkerFailedError) -> EnvironmentFaultError:
        return EnvironmentFaultError(
            failed.text if failed.meant else f"{self._name}: a worker failed.\n\n{failed.text}"
        )

    def view(self, buffers: LaneBuffers) -> Step:
        """The buffers, or some rows of them, as a collector sees them."""
        space = self.spec.observation
        return Step(
            tree_of(space, buffers.obs),
            buffers.reward,  # pyright: ignore[reportArgumentType]  (numpy, as HostEnv says)
            buffers.terminated,  # pyright: ignore[reportArgumentType]
            buffers.truncated,  # pyright: ignore[reportArgumentType]
            tree_of(space, buffers.next_obs),
        )


def lanes_of_workers(num_envs: int, num_workers: int) -> list[range]:
    """Each worker's lanes: neighbours, and as many for each as can be."""
    edges = [num_envs * number // num_workers for number in range(num_workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(edges)]


def anonymous_file() -> int:
    """An open file without a name: its memory is gone with the last process that has it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("trimtab-lanes")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
