"""Python runs this when it starts a program of ``cudnn-bindgen record``; see docs/recording.md."""

import importlib
import os
import sys


def _run_the_next() -> None:
    """Run the sitecustomize that this one hides, if there is one."""
    here = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120 - before site has finished
    # The program sees the path that it would have without us.
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != here]
    sys.modules.pop("sitecustomize", None)
    sys.path_importer_cache.pop(here, None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        # There is none: Python takes the module that it has begun to import.
        if error.name != "sitecustomize":
            raise


def _start() -> None:
    folder = os.environ.get("CUDNN_BINDGEN_RECORD")
    run = os.environ.get("CUDNN_BINDGEN_RECORD_RUN")
    if not folder or not run:
        return
    try:
        from cudnn_bindgen.frontend.recording.process import start_here
    except ImportError as error:
        sys.stderr.write(f"cudnn-bindgen record: {sys.executable} has no cudnn-bindgen: {error}\n")
        return
    start_here(folder, run)


_this = sys.modules[__name__]
_run_the_next()
sys.modules.setdefault("sitecustomize", _this)
_start()
