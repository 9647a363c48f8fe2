"""Accelerate a graph of the real frontend, on the stand-in: accelerate.py STANDIN.

Run by test_accelerate_frontend.py in a process of its own. The graph is the frontend's, and
so are keys, handles and streams; the plan is one of the stand-in's, because planning takes a GPU.
Prints the parameters of both `execute`.
"""

import inspect
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import cudnn
import cudnn._pygraph
from support.cases import CASES
from support.operands import Operands
from support.standin import Standin

import cudnn_bindgen

CASE = CASES["parts"]

# As in dump.py: no handle of the frontend's own.
cudnn._pygraph._default_backend_handle = lambda *arguments, **keywords: None


class Built(cudnn.pygraph):
    """A graph that was planned."""

    def serialize(self, **options):
        return list(CASE.plan)

    def execute(self, *arguments, **options):
        raise AssertionError("the module executes this graph")


def main(directory):
    standin = Standin.load(directory)
    with standin.context():
        graph = Built(sm_version=90)
        tensors = {
            operand.uid: graph.tensor(
                dim=list(operand.dim),
                stride=list(operand.stride),
                data_type=cudnn.data_type.FLOAT,
                name=operand.original,
                uid=operand.uid,
            )
            for operand in CASE.operands
        }
        accelerated = cudnn_bindgen.accelerate(graph)
        accelerated.module.set_launch_policy("direct")
        stream = standin.stream()
        # A class from 1.29 on; an int before, whose stream takes a call of cuDNN to know.
        handle = cudnn.Handle(1, 0, stream) if hasattr(cudnn, "Handle") else cudnn.create_handle()
        operands = Operands(standin, CASE)
        for keys in (tensors, {uid: tensor.get_name() for uid, tensor in tensors.items()}):
            operands.fill()
            accelerated.execute({keys[uid]: one for uid, one in operands.by_uid.items()})
            operands.check()
        operands.fill()
        by_uid = operands.by_uid
        accelerated.execute([*by_uid.values()], 0, handle, tensor_uids=[*by_uid])
        operands.check()
        if hasattr(cudnn, "Handle"):
            assert int(standin.log("cudnnSetStream")[-1].split()[-1], 16) == stream
    found = [accelerated.execute, cudnn.pygraph.execute]
    print(json.dumps([[*inspect.signature(one).parameters] for one in found]))


if __name__ == "__main__":
    main(sys.argv[1])
