"""NVIDIA's frontend: the one place that imports it, and only when a plan is made."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, TypeAlias

from cudnn_bindgen.codegen.errors import PlanError
from cudnn_bindgen.codegen.read.dialects.document import ContextDocument
from cudnn_bindgen.codegen.text import did_you_mean, shorten

_OLDEST = (1, 23)
_INSTALL = "pip install 'cudnn-bindgen[plan]' brings it, with a cuDNN to plan with"
_ANY_GPU = "--for GPU plans for one that is not here; cudnn-bindgen doctor says what is missing"

# A graph of the frontend, whose types are not stated.
Graph: TypeAlias = Any
Module: TypeAlias = Any


NO_DEVICE: Mapping[str, object] = MappingProxyType({})


class RefusedError(PlanError):
    """The frontend, or cuDNN below it, does not take what it was asked for."""


def load_frontend() -> Module:
    """Import the frontend.

    Raises
    ------
    PlanError
        It is not installed, too old, or does not find cuDNN.
    """
    try:
        frontend = importlib.import_module("cudnn")
    except ImportError as error:
        raise PlanError(f"cannot import nvidia-cudnn-frontend: {error}", hint=_INSTALL) from None
    except (OSError, RuntimeError) as error:
        raise PlanError(f"nvidia-cudnn-frontend does not load: {error}", hint=_INSTALL) from None
    version = str(getattr(frontend, "__version__", "0"))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _OLDEST or not hasattr(frontend, "pygraph"):
        raise PlanError(
            f"expected nvidia-cudnn-frontend 1.23 or newer, got {shorten(version)}", hint=_INSTALL
        )
    return frontend


def frontend_version() -> str:
    """Return the version that `load_frontend` would find, if possible without loading it.

    Raises
    ------
    PlanError
        As `load_frontend` does.
    """
    loaded = sys.modules.get("cudnn")
    if loaded is None:
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version("nvidia-cudnn-frontend")
        loaded = load_frontend()
    return str(getattr(loaded, "__version__", "0"))


@contextmanager
def refusals(frontend: Module, what: str, path: str = "", hint: str = "") -> Iterator[None]:
    """Turn what the frontend raises into a RefusedError that says so."""
    try:
        yield
    except PlanError:
        raise
    # ValueError and TypeError are what its Python part raises, RuntimeError what its C++ part does;
    # cudnnGraphNotSupportedError is the reason of cuDNN; ImportError a package of its own that is
    # missing (cuda.bindings, from 1.29 on); AssertionError is how PyTorch says that it has no CUDA.
    except (
        frontend.cudnnGraphNotSupportedError,
        *(ArithmeticError, AttributeError, LookupError),
        *(AssertionError, ImportError, RuntimeError, TypeError, ValueError),
    ) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if "incompatible function arguments" in said:  # and then all that it would take
            said = f"{said.partition('(')[0]} has no such argument; a newer frontend may have it"
        raise RefusedError(
            f"{what}: frontend {frontend.__version__} says: {said}", path=path, hint=hint
        ) from error


def backend_version(frontend: Module) -> int | None:
    """Return which cuDNN the frontend calls: 91900 is 9.19.0; None if it does not tell."""
    if not hasattr(frontend, "backend_version"):
        return None
    with refusals(frontend, "cannot tell the version of cuDNN"):
        return int(frontend.backend_version())


@contextmanager
def device_of(frontend: Module, properties: str | None) -> Iterator[Mapping[str, object]]:
    """Yield what a graph is told of its device: a handle to the current one, or properties."""
    if properties is not None:
        with refusals(frontend, "cuDNN does not take the device properties"):
            described = frontend.create_device_properties(properties)
        yield {"device_property": described}
        return
    with refusals(frontend, "expected a GPU that cuDNN can use, got none", hint=_ANY_GPU):
        handle = frontend.create_handle()
    try:
        yield {"handle": handle}
    finally:
        frontend.destroy_handle(handle)


def new_graph(
    frontend: Module, context: ContextDocument, device: Mapping[str, object] = NO_DEVICE
) -> Graph:
    """Return an empty graph with the settings of a file, for a device as `device_of` says it."""
    options: dict[str, object] = dict(device)
    for name in ("io_data_type", "intermediate_data_type", "compute_data_type"):
        text = getattr(context, name)
        if text is not None:
            options[name] = find_member(frontend, "data_type", text, f"$.context.{name}")
    if context.sm_count is not None and context.sm_count != -1:
        options["sm_count"] = context.sm_count
    for name in ("is_dynamic_shape_enabled", "is_override_shape_enabled"):
        if getattr(context, name):
            options[name] = True
    with refusals(frontend, "cannot make a graph", "$.context"):
        return frontend.pygraph(**options)


def find_member(frontend: Module, enum: str, name: str, path: str) -> Any:
    """Return a member of one of the frontend's enums."""
    members: dict[str, Any] = getattr(getattr(frontend, enum, None), "__members__", {})
    if name not in members:
        raise RefusedError(
            f"expected a {enum} of frontend {frontend.__version__}, got {shorten(name)}"
            + did_you_mean(name.upper(), {member.upper(): member for member in members}),
            path=path,
        )
    return members[name]


def dump(frontend: Module, graph: Graph) -> bytes:
    """Return the JSON text of a graph that has been validated."""
    with refusals(frontend, "cannot dump the rebuilt graph"):
        text = repr(graph)
        if '"json_version"' not in text:
            # Where the frontend has kernels of its own it puts lowering off; a key makes it lower.
            graph.key()
            text = repr(graph)
    return text.encode()
