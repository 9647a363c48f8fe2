"""The name of a compiled module: a digest over everything that decides the binary."""

from __future__ import annotations

import hashlib

import msgspec

import cudnn_bindgen
from cudnn_bindgen.codegen.compile import describe_toolchain, runtime_digest
from cudnn_bindgen.codegen.render.module import RUNTIME_ABI


def module_name(text: str) -> str:
    """Return the name of the module that `text` (a .pyx) becomes on this machine.

    Two texts, compilers or runtimes never share a name, so a file of that name is the right one.
    The name is also that of the function that Python looks for in the file: a file which was
    renamed does not load.
    """
    parts = [
        text,
        cudnn_bindgen.__version__,
        str(RUNTIME_ABI),
        runtime_digest(),
        *describe_toolchain(),
    ]
    return f"graph_{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:40]}"
