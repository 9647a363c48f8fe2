"""Record the real cuDNN frontend, without a GPU, and print what came of it as JSON.

Usage: record.py FOLDER. Run by test_recording_frontend.py in a process of its own, as dump.py
is. Plans take a GPU, so a build is validate() here: what recording does after one is the same.
"""

import inspect
import json
import sys
from pathlib import Path

import cudnn
import dump

import cudnn_bindgen
from cudnn_bindgen.frontend.recording.describe import describe
from cudnn_bindgen.frontend.recording.recorder import Recorder

METHODS = (
    *("execute", "execute_plan_at_index", "build", "build_plans", "build_plan_at_index"),
    "deserialize",
)


def messages(graph):
    """What the frontend says to calls that are wrong."""
    found = []
    for call in (
        lambda: graph.execute(),
        lambda: graph.execute({}, 1, 2, 3, 4, 5, 6, 7),
        lambda: graph.execute({}, nothing=1),
        lambda: graph.execute({1: 256}),
        lambda: graph.execute([256], tensor_uids=[1]),
        lambda: graph.execute_plan_at_index({1: 256}, 0, 99),
        lambda: graph.build_plan_at_index(99),
        lambda: graph.build_plans(nothing=1),
        lambda: graph.deserialize(b"no plan"),
    ):
        try:
            found.append(repr(call()))
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def lowered(build):
    graph = build()
    graph.validate()
    return graph


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    present = [name for name in METHODS if name in cudnn.pygraph.__dict__]
    before = {name: cudnn.pygraph.__dict__[name] for name in present}
    build = dump.BUILDERS["matmul_bias_relu"]
    alone = messages(lowered(build))
    with cudnn_bindgen.record(folder / "calls"):
        recorded = messages(lowered(build))
        replaced = [n for n in present if cudnn.pygraph.__dict__[n] is not before[n]]
        signatures = [
            n
            for n in present
            if inspect.signature(getattr(cudnn.pygraph, n)) != inspect.signature(before[n])
        ]
    recorder = Recorder(folder / "graphs", cudnn)
    graphs = {}
    for name, build in dump.BUILDERS.items():
        for _ in range(2):  # the second is the first, again
            graph = lowered(build)
            recorder.built(graph)
            description = describe(graph)
            graphs[name] = {
                "text": str(graph),
                "key": description.key,
                "reasons": description.reasons,
            }
    recorder.stop()
    print(
        json.dumps(
            {
                "present": present,
                "replaced": replaced,
                "signatures": signatures,
                "is_put_back": all(cudnn.pygraph.__dict__[n] is before[n] for n in present),
                "alone": alone,
                "recorded": recorded,
                "graphs": graphs,
            }
        )
    )
