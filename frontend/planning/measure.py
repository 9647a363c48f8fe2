"""Candidates on the GPU: each executed beside the first, then timed in rounds.

Nothing here decides which one is taken: that is autotune.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import TypeAlias

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.text import shorten
from cudnn_bindgen.frontend.planning.agreement import Difference, compare, has_values
from cudnn_bindgen.frontend.planning.cuda import CUDA_ERRORS, Capture, Cuda
from cudnn_bindgen.frontend.planning.operands import POISON, bytes_needed, make_operands
from cudnn_bindgen.frontend.planning.torch_types import Tensor, Torch, storage
from cudnn_bindgen.frontend.planning.wanted import Wanted

# Execute a plan, by its index, on addresses by uid, with the address of a workspace. Raises
# PlanError for what cuDNN refuses.
Execute: TypeAlias = Callable[[int, Mapping[int, int], int], None]

# Of random values. Always the same, so that two runs of the tool see the same operands.
SEED = 0

# Replays of each candidate that are timed: enough for a median and the middle half.
ROUNDS = 9

# Executions in one CUDA graph: at least so many, if they do not take longer than so many
# microseconds, so that the beginning and the end of a graph weigh little.
_EXECUTIONS = 16
_LONGEST = 20_000.0

# Sets of operands that take turns, at most; beyond, the host would take long to capture them.
_MOST_SETS = 128

# Of free memory, what further sets of operands may take.
_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds of one execution: the median, and the width of the middle half."""

    median: float
    spread: float


class Bench:
    """One graph's operands on the GPU, and the outputs of the first candidate that ran."""

    def __init__(
        self,
        cuda: Cuda,
        execute: Execute,
        wanted: Sequence[Wanted],
        tolerances: Mapping[int, float],
        workspace: int,
    ) -> None:
        self.cuda = cuda
        self.execute = execute
        self.wanted = wanted
        self.tolerances = tolerances
        self.operand_bytes = bytes_needed(cuda.torch, wanted)
        self._is_in_place = any(item.is_read for item in wanted)
        self.outputs = [item for item in wanted if item.role == "output"]
        self._first: dict[int, Tensor] = {}
        self._needs = f"{2 * self.operand_bytes} bytes for operands and {workspace} for workspace"
        generator = cuda.torch.Generator(cuda.device).manual_seed(SEED)
        with self._guarded("making operands"), cuda.running():
            tensors = make_operands(cuda.torch, wanted, generator, cuda.device)
            self._sets = [tensors]
            # What plans change must be as before when the next one runs.
            self._before = {
                item.uid: storage(cuda.torch, tensors[item.uid]).clone()
                for item in wanted
                if item.role != "scalar" and (item.role != "output" or item.is_read)
            }
            self._workspace = cuda.torch.empty(
                max(workspace, 1), dtype=cuda.torch.uint8, device=cuda.device
            )

    def try_out(self, index: int) -> Difference | str:
        """Execute a plan on fresh outputs, and compare them with those of the first that ran.

        Returns why cuDNN does not run it, if so.

        Raises
        ------
        PlanError
            The GPU is of no use after it, memory is short, or there is nothing to compare with.
        """
        with self._guarded(f"executing plan {index}"), self.cuda.running():
            self._restore()
            try:
                self._run(index, 0)
            except PlanError as error:
                return error.problem
            return self._compare(index)

    def time(
        self, indices: Sequence[int], progress: Callable[[int, int], None]
    ) -> dict[int, Measured | str]:
        """Time plans that ran before, or say why one cannot be captured into a CUDA graph."""
        found: dict[int, Measured | str] = {}
        self._add_sets()
        captures: dict[int, Capture] = {}
        executions: dict[int, int] = {}
        steps, done = len(indices) * (1 + ROUNDS), 0
        with self._guarded("timing"), self.cuda.running():
            for index in indices:
                try:
                    executions[index] = self._executions(index)
                    captures[index] = self._captured(index, executions[index])
                except (PlanError, *CUDA_ERRORS) as error:
                    found[index] = shorten(" ".join(str(error).split()), 300)
                done += 1
                progress(done, steps)
            taken: dict[int, list[float]] = {index: [] for index in captures}
            # Each in turn, so that clocks that drift, or other work, meet all alike.
            for _ in range(ROUNDS):
                for index, capture in captures.items():
                    taken[index].append(self.cuda.time_replay(capture) / executions[index])
                    done += 1
                    progress(done, steps)
        return found | {index: summarize(times) for index, times in taken.items()}

    @property
    def sets(self) -> int:
        """How many sets of operands take turns."""
        return len(self._sets)

    def _run(self, index: int, number: int) -> None:
        tensors = self._sets[number]
        addresses = {uid: tensor.data_ptr() for uid, tensor in tensors.items()}
        self.execute(index, addresses, self._workspace.data_ptr())

    def _restore(self) -> None:
        torch, tensors = self.cuda.torch, self._sets[0]
        for uid, before in self._before.items():
            storage(torch, tensors[uid]).copy_(before)
        for item in self.outputs:
            if not item.is_read:
                storage(torch, tensors[item.uid]).fill_(POISON)
        self._workspace.fill_(POISON)

    def _compare(self, index: int) -> Difference:
        torch, tensors = self.cuda.torch, self._sets[0]
        found = {item.uid: storage(torch, tensors[item.uid]) for item in self.outputs}
        if not self._first:
            self._check_values(index, found)
            self._first = {uid: output.clone() for uid, output in found.items()}
        for item in self.wanted:
            before = self._before.get(item.uid)
            if before is None or item.is_read:
                continue
            if not torch.equal(storage(torch, tensors[item.uid]), before):
                return Difference(0.0, f"{item.name}: changed, though it is an input")
        worst = Difference(0.0)
        for item in self.outputs:
            one = compare(
                torch, item, self.tolerances[item.uid], self._first[item.uid], found[item.uid]
            )
            if not one.agrees:
                problem = one.problem or f"{one.error:.3g} times what is tolerated"
                return Difference(one.error, f"{item.name}: {problem}")
            worst = max(worst, one, key=lambda difference: difference.error)
        return worst

    def _check_values(self, index: int, found: Mapping[int, Tensor]) -> None:
        for item in self.outputs:
            if not has_values(self.cuda.torch, item, found[item.uid]):
                raise PlanError(
                    f"--autotune: expected numbers in {item.name} of plan {index}, got none: "
                    "nothing to compare other plans with",
                    hint="plan without --autotune",
                )

    def _captured(self, index: int, executions: int) -> Capture:
        """Return a CUDA graph of executions in turn over all sets, which gives the same results."""
        self._restore()
        capture = self.cuda.capture(
            [partial(self._run, index, number % self.sets) for number in range(executions)]
        )
        if self._is_in_place:  # and computes something else each time
            return capture
        self._restore()
        self.cuda.replay(capture)
        difference = self._compare(index)
        if not difference.agrees:
            raise PlanError(f"its CUDA graph computes something else: {difference.problem}")
        return capture

    def _executions(self, index: int) -> int:
        once = self.cuda.time(partial(self._run, index, 0))
        turns = -(-_EXECUTIONS // self.sets)
        affordable = int(_LONGEST / max(once * self.sets, 1.0))
        return self.sets * max(1, min(turns, affordable))

    def _add_sets(self) -> None:
        """Copy the operands until L2 has forgotten a set when its turn comes, if memory allows."""
        wanted = min(_MOST_SETS, 1 + -(-self.cuda.l2_bytes // max(self.operand_bytes, 1)))
        room = int(self.cuda.free_bytes() * _SHARE / max(self.operand_bytes, 1))
        torch = self.cuda.torch
        with self.cuda.running():
            self._restore()
            try:
                while len(self._sets) < min(wanted, 1 + room):
                    self._sets.append(
                        {uid: _copied(torch, tensor) for uid, tensor in self._sets[0].items()}
                    )
            except torch.cuda.OutOfMemoryError:
                # Another process took it: those that there are have to do.
                torch.cuda.empty_cache()

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Turn what PyTorch raises for CUDA into a PlanError: no other plan can be tried then."""
        try:
            yield
        except self.cuda.torch.cuda.OutOfMemoryError:
            raise PlanError(
                f"--autotune: expected {self._needs}, got {self.cuda.free_bytes()} bytes that are "
                "free on the GPU",
                hint="free memory, or set --max-workspace",
            ) from None
        except CUDA_ERRORS as error:
            said = " ".join(str(error).split())
            raise PlanError(
                f"--autotune: {what} leaves the GPU unusable: {said}",
                hint="plan without --autotune, or pass over the plan with other --heuristics",
            ) from error


def _copied(torch: Torch, tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor
    bytes_ = storage(torch, tensor).clone()
    return bytes_.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def summarize(times: Sequence[float]) -> Measured:
    """Return the median, and the width of the middle half."""
    low, _, high = quantiles(times, n=4)
    return Measured(median(times), high - low)
