"""Dump graphs before and after lowering, with the real frontend and for several versions of cuDNN.

Run by test_lowering_frontend.py in a process of its own, as dump.py is. Prints, as JSON,
{graph: {version: [dump before, dump after]}}. Lowering ends where a descriptor is created, which
the stand-in has none of; then the frontend has written all that it writes.
"""

import ctypes
import json
import sys

import cudnn
import every_attention  # noqa: F401  (adds its graphs)
import every_tag

library = ctypes.CDLL("libcudnn.so.9")


def lowered(build):
    """Return the dumps of a graph before and after lowering; none if it is refused."""
    refusals = (RuntimeError, TypeError, ValueError, cudnn.cudnnGraphNotSupportedError)
    try:
        graph = build()
        graph.validate()
    except refusals:
        return None
    before = str(graph)
    try:
        graph.build_operation_graph()
    except refusals as error:
        if "Descriptor Failed" not in str(error):
            return None
    return [before, str(graph)]


if __name__ == "__main__":
    found = {}
    for version in sys.argv[1:]:
        library.standin_set_version(ctypes.c_size_t(int(version)))
        for name, build in every_tag.BUILDERS.items():
            dumps = lowered(build)
            if dumps:
                found.setdefault(name, {})[version] = dumps
    print(json.dumps(found))
