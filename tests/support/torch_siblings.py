"""Emitted operators above modules in plain Python, whose results PyTorch itself computes.

So the numbers of forward and backward passes can be checked without a GPU. What `run` really does
is not looked at here: test_torch_process.py calls the compiled module.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.bind.data import data_of
from cudnn_bindgen.codegen.render.files import Named, render_modules
from cudnn_bindgen.module_data import RUNTIME_ABI
from cudnn_bindgen.runtime.binding import Binding as Runtime

Compute = Callable[..., Any]
ON_GPU = (2, 0)
_numbers = itertools.count()


class Checks(Runtime):
    """What the runtime says of tensors without memory, wherever they are."""

    def check_described(self, described: Iterable[Any]) -> None:
        super().check_described(tuple((one[0], ON_GPU, *one[2:]) for one in described))


class Sibling(ModuleType):
    """Stands for a generated module; `calls` are the operands of each call of its `run`."""

    def __init__(self, name: str, binding: Binding, compute: Compute) -> None:
        super().__init__(name)
        self.binding, self.compute = binding, compute
        self._binding = Checks(name, RUNTIME_ABI, data_of(binding, "graph.json"))
        self.calls: list[tuple[torch.Tensor, ...]] = []
        self.keywords: list[dict[str, Any]] = []
        self.size = 0

    def workspace_size(self) -> int:
        return self.size

    def run(self, *operands: torch.Tensor, **keywords: Any) -> None:
        self.calls.append(operands)
        self.keywords.append(dict(keywords))
        for name in ("workspace", "stream"):
            keywords.pop(name, None)
        declared = [
            # No in-place operation that autograd sees: a kernel is none.
            _as_declared(argument, operand.data)
            for argument, operand in zip(self.binding.operands, operands, strict=True)
        ]
        inputs = [
            operand
            for argument, operand in zip(self.binding.operands, declared, strict=True)
            if argument.role == "input"
        ]
        with torch.no_grad():
            results = self.compute(*inputs, **keywords)
        results = results if isinstance(results, tuple) else (results,)
        for output, result in zip(declared[len(inputs) :], results, strict=True):
            output.copy_(result)


def _as_declared(argument: Argument, operand: torch.Tensor) -> torch.Tensor:
    """The operand's memory in the declared layout, whatever view of it was passed."""
    assert operand.numel() == torch.Size(argument.dim).numel(), argument.name
    long = sorted(step for step, n in zip(operand.stride(), operand.shape, strict=True) if n > 1)
    assert 0 not in long, f"{argument.name} is expanded"
    return operand.as_strided(argument.dim, argument.stride)


@contextmanager
def operators(
    directory: Path,
    forward: tuple[str, Binding, Compute],
    backwards: Sequence[tuple[str, Binding, Compute]] = (),
) -> Iterator[tuple[ModuleType, Mapping[str, Sibling], str]]:
    """Emit and import; yields the operators' module, the siblings by name, the namespace."""
    namespace = f"numerics_{next(_numbers)}"
    every = [forward, *backwards]
    named = [Named(name, binding, "graph.json") for name, binding, _ in every]
    for file, text in render_modules(named[0], named[1:], namespace).items():
        if file.endswith("_torch.py"):
            (directory / file).write_text(text)
    siblings = {name: Sibling(name, binding, compute) for name, binding, compute in every}
    sys.modules.update(siblings)
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(f"{forward[0]}_torch"), siblings, namespace
    finally:
        sys.path.remove(str(directory))
        for name in siblings:
            sys.modules.pop(name, None)
            sys.modules.pop(f"{name}_torch", None)
