"""A Python plan → a plan file of kernels: the frontend builds it again, and it is traced."""

from __future__ import annotations

import msgspec

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.model.evidence import Candidate
from cudnn_bindgen.codegen.read.dialects.python_plan import Head, read_head, without_code
from cudnn_bindgen.frontend.planning.device_properties import DeviceProperties
from cudnn_bindgen.frontend.planning.evidence import Choice, add_evidence
from cudnn_bindgen.frontend.planning.frontend import device_of, load_frontend, refusals
from cudnn_bindgen.frontend.planning.gpus import find_gpus
from cudnn_bindgen.frontend.planning.options import PlanOptions
from cudnn_bindgen.frontend.planning.own_engines import trace_plan
from cudnn_bindgen.frontend.planning.trace import Trace

# What the frontend compares before it takes a kernel from a file.
_NAME, _SM, _COUNT, _L2, _DRIVER = (
    "device_name",
    "compute_capability",
    "sm_count",
    "l2_bytes",
    "cuda_driver",
)


def find_device(head: Head) -> str:
    """Return the properties of the device that a Python plan says it was made for, as JSON text.

    Raises
    ------
    PlanError
        It has no kernels, which alone tell, or the device is not in the table.
    """
    if not head.kernels:
        raise PlanError("expected --for, because a Python plan without kernels names no GPU")
    said = head.kernels[0].environment
    try:
        sm = said[_SM].replace(".", "")
        found = find_gpus((f"sm_{sm}:{int(said[_COUNT])}",))[0]
        device = msgspec.json.decode(found.properties, type=DeviceProperties)
        return msgspec.structs.replace(
            device,
            device_name=said[_NAME],
            l2_cache_size=int(said[_L2]),
            driver_ver=int(said[_DRIVER]),
        ).text
    except (KeyError, ValueError) as error:
        raise PlanError(f"expected kernels that name their GPU, got {error}") from None


def convert(data: bytes, trace: Trace, *, is_trusted: bool) -> bytes:
    """Return a plan file of kernels.

    `is_trusted`: the native code in the file may run, in this process. Otherwise the frontend
    compiles it anew.

    Raises
    ------
    PlanError
        The frontend does not build it, or it cannot be traced.
    """
    frontend = load_frontend()
    head = read_head(data)
    trace.offer(frontend)
    trace.prepare()
    with (
        device_of(frontend, trace.device.text) as device,
        refusals(frontend, "the frontend does not build the Python plan"),
        trace.listening(),
    ):
        graph = frontend.pygraph(**device)
        graph.deserialize(data if is_trusted else without_code(data))
        index = graph.get_execution_plan_count() - 1
    plan = trace_plan(graph, index, frontend, trace, takes_packed=True)
    choice = Choice("engine", index, (Candidate(index, "taken"),))
    options = PlanOptions(engine=head.plan.engine_id)
    return add_evidence(plan, choice, options, frontend, trace.device.text)
