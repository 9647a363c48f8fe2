"""The name of a compiled module: a digest over everything that decides the binary."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

import cudnn_bindgen
from cudnn_bindgen.codegen.compile import describe_toolchain
from cudnn_bindgen.codegen.render import RUNTIME_ABI


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
        _runtime_digest(),
        *describe_toolchain(),
    ]
    return f"graph_{hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:40]}"


def _runtime_digest() -> str:
    # Modules contain the runtime's inline code. In a working copy it changes without a version.
    runtime = Path(cudnn_bindgen.__file__).parent / "runtime"
    digest = hashlib.sha256()
    for path in sorted([*runtime.glob("*.pxd"), *runtime.glob("*.hpp")]):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
