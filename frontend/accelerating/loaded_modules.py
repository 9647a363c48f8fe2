"""Modules in this process, each with the plan that it launches.

A module is compiled from a graph's structure alone, and has room for one plan. Graphs of one
structure with several plans (tactics, devices) each need a copy of it, which has to be another file
to the loader.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass
class _Copy:
    module: ModuleType
    plan: str = ""  # digest of the one that is loaded


_lock = threading.Lock()
_copies: dict[str, list[_Copy]] = {}


def find_module(name: str, plan: bytes) -> ModuleType | None:
    """Return the module that has this plan loaded."""
    with _lock:
        return _find(name, hashlib.sha256(plan).hexdigest())


def load_module(name: str, path: Path, plan: bytes) -> ModuleType:
    """Return the module in the file `path` with `plan` (a plan file's bytes) loaded.

    Raises
    ------
    ImportError
        The file is none of that name.
    BindingError
        The plan cannot be created here; no module is touched then.
    """
    digest = hashlib.sha256(plan).hexdigest()
    with _lock:
        found = _find(name, digest)
        if found is not None:
            return found
        copies = _copies.setdefault(name, [])
        spare = next((copy for copy in copies if not copy.plan), None)
        if spare is None:
            spare = _Copy(_import_copy(name, path) if copies else _import(name, path))
            copies.append(spare)
        spare.module.load_plan(plan)
        spare.plan = digest
        return spare.module


def _find(name: str, digest: str) -> ModuleType | None:
    copies = _copies.get(name, ())
    return next((copy.module for copy in copies if copy.plan == digest), None)


def _import_copy(name: str, path: Path) -> ModuleType:
    with tempfile.TemporaryDirectory(prefix="cudnn-bindgen-") as scratch:
        return _import(name, Path(shutil.copy(path, scratch)))


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path}: expected an extension module", name=name, path=str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
