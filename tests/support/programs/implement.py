"""Rebuild attention as a file names it and as the frontend chooses, for several versions of cuDNN.

Usage: implement.py FILE VERSION..., run by test_lowering_frontend.py as lower.py is. Prints,
as JSON, {version: [error as named, error as chosen]}; an error is empty if there is none.
"""

import ctypes
import json
import sys
from pathlib import Path

import cudnn
import dump  # noqa: F401  (makes graphs without a handle)

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.frontend.planning.frontend import RefusedError
from cudnn_bindgen.frontend.planning.implementation import leave_open
from cudnn_bindgen.frontend.planning.make_plan import read_input
from cudnn_bindgen.frontend.planning.rebuild import rebuild

library = ctypes.CDLL("libcudnn.so.9")
pygraph = cudnn.pygraph
cudnn.pygraph = lambda **options: pygraph(sm_version=90, **options)


def error_of(structure):
    try:
        rebuild(structure, {}, cudnn)
    except PlanError as error:
        assert isinstance(error, RefusedError)
        return error.problem
    return ""


if __name__ == "__main__":
    structure = read_input(Path(sys.argv[1]).read_bytes())
    found = {}
    for version in sys.argv[2:]:
        library.standin_set_version(ctypes.c_size_t(int(version)))
        found[version] = [error_of(structure), error_of(leave_open(structure))]
    print(json.dumps(found))
