"""A frontend without cuDNN: graphs of tests/data that "execute" by adding up their inputs.

Classes, signatures and life cycle are those of nvidia-cudnn-frontend 1.32; programs under test
find it on their path, tests in this process put it in sys.modules.
"""

import json
from pathlib import Path

import ubjson

__version__ = "1.32.0"


class Handle:
    def __init__(self, stream=0):
        self.stream = stream


def get_stream(handle):
    return handle.stream


class Tensor:
    def __init__(self, uid, name=""):
        self.uid = uid
        self.name = name


class Buffer:
    """A tensor on a device, with numbers that its address stands for."""

    def __init__(self, shape, stride, address=256, value=0, dtype="torch.float16"):
        self.shape = tuple(shape)
        self._stride = tuple(stride)
        self._address = address
        self.dtype = dtype
        self.device = "cuda:0"
        self.value = value

    def stride(self):
        return self._stride

    def data_ptr(self):
        return self._address


class pygraph:  # noqa: N801 - the frontend's name
    def __init__(self, stem, handle=None, refuses="", engine=None):
        self._stem = Path(stem)
        self._handle = handle
        self._refuses = refuses
        self._is_built = False
        self.selected_engine = engine
        self.serialized = 0
        self.plan = 0

    def __repr__(self):
        return self._stem.with_suffix(".json").read_text()

    def validate(self):
        pass

    def build(self, heuristics=None, ctx=None):
        self.build_plans()

    def build_plans(self, *args, ctx=None, **kwargs):
        self._is_built = True

    def build_plan_at_index(self, index):
        self.plan = index
        self._is_built = True
        return self

    def select_plan(self, index):
        self.plan = index
        self._is_built = False
        return self

    def deserialize(self, *args, **kwargs):
        self._is_built = True

    def serialize(self, *, as_bytes=False, include_kernels=True):
        self.serialized += 1
        if not self._is_built:
            raise SystemExit("older frontends end the process here")
        if self._refuses:
            raise RuntimeError(self._refuses)
        data = self._stem.with_suffix(".plan").read_bytes()
        if self.plan:  # another engine
            graph = ubjson.loadb(data)
            plan = json.loads(graph["cudnn_backend_data"])
            plan["engine"]["engineId"] += 100 * self.plan
            data = ubjson.dumpb(graph | {"cudnn_backend_data": json.dumps(plan)})
        return data if as_bytes else list(data)

    def find_tensor(self, name):
        return {"x": Tensor(1, "x"), "y": Tensor(3, "y")}[name]

    def execute(
        self,
        tensor_dict,
        workspace=None,
        handle=None,
        override_uids=None,
        override_shapes=None,
        override_strides=None,
        tensor_uids=None,
    ):
        """Execute the selected plan."""
        if not self._is_built:
            self.build()
        buffers = list(tensor_dict.values() if tensor_uids is None else tensor_dict)
        if not buffers:
            raise ValueError("no buffers")
        total = sum(getattr(buffer, "value", 1) for buffer in buffers[:-1])
        for shape in override_shapes or ():
            total += sum(shape)
        if hasattr(buffers[-1], "value"):
            buffers[-1].value = total

    def execute_plan_at_index(
        self, tensor_dict, workspace=None, index=0, handle=None, *args, tensor_uids=None, **kwargs
    ):
        pygraph.execute.__get__(self)(tensor_dict, workspace, handle)
