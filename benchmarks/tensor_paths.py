"""The ways to call one graph with tensors, as text for a timing loop, and a check of results."""

from __future__ import annotations

from contextlib import nullcontext

import graphs
import torch

FRONTEND = "frontend execute(list, tensor_uids=)"
EXECUTE = "execute(ints), workspace and stream given"
EXECUTE_OWN = "execute(ints), runtime's workspace"
DATA_PTR = "execute(t.data_ptr() ..., current_stream().cuda_stream)"
IN_PYTHON = "the same, each tensor checked in Python first"
RUN = "run(tensors)"
RUN_GIVEN = "run(tensors), workspace and stream given"
RUN_STREAM = "run(tensors, stream=torch's object)"
RUN_NUMBER = "run(tensors, stream=int)"
RUN_WORKSPACE = "run(tensors, workspace=tensor)"
RUN_UNCHECKED = "run(tensors, check=False)"
RUN_INTS = "run(ints), workspace and stream given"
RUN_LEFT_OUT = "run(inputs), outputs allocated"
OPERATOR = "torch operator, outputs allocated"
OPERATOR_INFERENCE = "the same in torch.inference_mode()"

RETURNING = (RUN_LEFT_OUT, OPERATOR, OPERATOR_INFERENCE)
"""Paths that make their outputs."""


def surroundings(path):
    """Return the context that a path is called in."""
    return torch.inference_mode() if path == OPERATOR_INFERENCE else nullcontext()


def in_python(tensors, expected, device):
    """Return the tensors' addresses after the checks that a careful caller writes in Python.

    Fewer than `run` makes: no overlap, one layout for each operand.
    """
    addresses = []
    for tensor, (argument, dtype, shape, stride, alignment) in zip(tensors, expected, strict=True):
        if tensor.device != device:
            raise ValueError(f"{argument}: expected {device}, got {tensor.device}")
        if tensor.dtype is not dtype:
            raise ValueError(f"{argument}: expected {dtype}, got {tensor.dtype}")
        if tensor.shape != shape:
            raise ValueError(f"{argument}: expected {shape}, got {tuple(tensor.shape)}")
        if tensor.stride() != stride:
            raise ValueError(f"{argument}: expected strides {stride}, got {tensor.stride()}")
        address = tensor.data_ptr()
        if address % alignment:
            raise ValueError(f"{argument}: expected a multiple of {alignment}, got {address:#x}")
        addresses.append(address)
    return addresses


class Paths:
    """Every way to call a graph, on several sets of operands; all of it on the current stream."""

    def __init__(self, module, graph, sets, workspaces, operator=None):
        self.module, self.sets, self.operator = module, sets, operator
        self.workspaces = workspaces
        self.operands = [o for o in module.OPERANDS if o.role != "scalar"]
        self.scalars = [o for o in module.OPERANDS if o.role == "scalar" and o.uid in sets[0]]
        self.inputs = [o for o in self.operands if o.role == "input"]
        self.outputs = [o for o in self.operands if o.role == "output"]
        self.stream = torch.cuda.current_stream()
        uids = tuple(sorted(sets[0]))
        first = [sets[0][operand.uid] for operand in self.operands]
        self.names = {
            "torch": torch,
            "execute": module.execute,
            "run": module.run,
            "operator": operator,
            "graph_execute": graph.execute,
            "in_python": in_python,
            "expected": [
                (o.argument, t.dtype, t.shape, t.stride(), o.alignment)
                for o, t in zip(self.operands, first, strict=True)
            ],
            "device": first[0].device,
            "handle": graphs.frontend_handle(),
            "stream": self.stream,
            "uids": uids,
        }
        for number, (tensors, workspace) in enumerate(zip(sets, workspaces, strict=True)):
            self.names[f"w{number}"] = workspace
            self.names[f"all{number}"] = tuple(tensors[uid] for uid in uids)
            for operand in self.operands:
                self.names[self._name(number, operand)] = tensors[operand.uid]

    @staticmethod
    def _name(number, operand):
        return f"t{number}_{operand.argument}"

    def texts(self, number):
        """Return path → the text of a call on the set of this number."""
        tensors, workspace = self.sets[number], self.workspaces[number]
        named = ", ".join(self._name(number, operand) for operand in self.operands)
        inputs = ", ".join(self._name(number, operand) for operand in self.inputs)
        asked = ", ".join(f"{self._name(number, o)}.data_ptr()" for o in self.operands)
        addresses = ", ".join(repr(tensors[operand.uid].data_ptr()) for operand in self.operands)
        values = "".join(f", {o.argument}={tensors[o.uid].item()!r}" for o in self.scalars)
        raw = self.stream.cuda_stream
        # As users write it: the stream is looked up anew for each call.
        current = "stream=torch.cuda.current_stream().cuda_stream"
        given = f"workspace=w{number}, stream={raw}"
        address = f"workspace_ptr={workspace.data_ptr()}"
        checked = f"*in_python(({named},), expected, device)"
        texts = {
            FRONTEND: f"graph_execute(all{number}, w{number}, handle=handle, tensor_uids=uids)",
            EXECUTE: f"execute({addresses}{values}, {address}, stream={raw})",
            EXECUTE_OWN: f"execute({addresses}{values}, stream={raw})",
            DATA_PTR: f"execute({asked}{values}, {current})",
            IN_PYTHON: f"execute({checked}{values}, {current})",
            RUN_GIVEN: f"run({named}{values}, {given})",
            RUN: f"run({named}{values})",
            RUN_NUMBER: f"run({named}{values}, stream={raw})",
            RUN_STREAM: f"run({named}{values}, stream=stream)",
            RUN_WORKSPACE: f"run({named}{values}, workspace=w{number})",
            RUN_UNCHECKED: f"run({named}{values}, check=False)",
            RUN_INTS: f"run({addresses}{values}, {given})",
            RUN_LEFT_OUT: f"run({inputs}{values})",
        }
        if self.operator is not None:
            texts |= dict.fromkeys((OPERATOR, OPERATOR_INFERENCE), f"operator({inputs}{values})")
        return texts

    def check(self, policies):
        """Compare each path's outputs with the frontend's, byte for byte, under each policy."""
        texts = self.texts(0)
        tensors = self.sets[0]
        expected, written = self._reference(texts.pop(FRONTEND))
        for policy in policies:
            self.module.set_launch_policy(policy)
            for path, text in texts.items():
                for _ in range(3):  # a record is made and used within these
                    graphs.poison(self.module.OPERANDS, tensors)
                    with surroundings(path):
                        returned = self._call(text)
                    if path in RETURNING:
                        # Nobody poisoned these: only what is written can be compared.
                        whole = returned if isinstance(returned, tuple) else (returned,)
                        for operand, tensor in zip(self.outputs, whole, strict=True):
                            mask = written[operand.uid]
                            found = graphs.storage(tensor)[: len(mask)]
                            same = torch.equal(found[mask], expected[operand.uid][mask])
                            assert same, f"{path}, {policy}: {operand.argument} differs"
                        continue
                    for uid, bits in expected.items():
                        same = torch.equal(graphs.storage(tensors[uid]), bits)
                        assert same, f"{path}, {policy}: uid {uid} differs from the frontend's"

    def _reference(self, text):
        """Return all bytes after the frontend's call, and which of the outputs' it wrote."""
        tensors, results = self.sets[0], []
        for fill in (0, 0xFF):
            for operand in self.outputs:
                graphs.storage(tensors[operand.uid]).fill_(fill)
            self._call(text)
            results.append({o.uid: graphs.storage(tensors[o.uid]).clone() for o in self.operands})
        written = {o.uid: results[0][o.uid] == results[1][o.uid] for o in self.outputs}
        for operand in self.outputs:
            assert written[operand.uid].any(), f"{operand.argument}: the frontend wrote nothing"
        return results[1], written

    def _call(self, text):
        torch.cuda.synchronize()
        result = eval(text, self.names)
        torch.cuda.synchronize()
        return result
