"""Small plan files for several devices, and bundles that our own writer never writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from cudnn_bindgen.codegen.bind.bundle import write_bundle
from support.documents import Document, add_graph, plan_document, to_ubjson

INDEX = "bundle.json"


def plan(
    sm: int = 90,
    sm_count: int = 132,
    cudnn: int = 91900,
    structure: Document | None = None,
    **fields: Any,
) -> bytes:
    """A plan of ``y = a + b``, or of `structure`."""
    backend = {
        "cudnnVersion": cudnn,
        "GPUProfile": {"deviceVer": 10 * sm, "multiProcessorCount": sm_count},
        "engine": {"engineId": sm},
    }
    text = {"cudnn_backend_data": json.dumps(backend)}
    return to_ubjson(plan_document(structure or add_graph(), **(text | fields)))


def file_name(sm: int = 90, sm_count: int = 132, cudnn: str = "9.19.0") -> str:
    """Name of the file that such a plan becomes."""
    return f"sm{sm}-{sm_count}-cudnn-{cudnn}.plan"


def device(sm: int = 90, sm_count: int = 132, cudnn: str = "9.19.0") -> str:
    """How a message names what such a plan is for."""
    return f"SM {sm} with {sm_count} multiprocessors under cuDNN {cudnn}"


def bundle(*plans: bytes) -> bytes:
    """What ``cudnn-bindgen bundle`` makes of them."""
    return write_bundle([(f"{number}.plan", content) for number, content in enumerate(plans)])


def two() -> bytes:
    """A bundle for two versions of cuDNN."""
    return bundle(plan(), plan(cudnn=92700))


def unzip(data: bytes) -> dict[str, bytes]:
    """Return all files."""
    with ZipFile(BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_zip(files: Mapping[str, bytes], compression: int = ZIP_DEFLATED) -> bytes:
    """Return an archive of whatever there is."""
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(ZipInfo(name), content, compression)
    return buffer.getvalue()


def with_index(data: bytes, **fields: Any) -> bytes:
    """Return a bundle with other fields in its ``bundle.json``, and everything else as it is."""
    files = unzip(data)
    index = json.loads(files[INDEX]) | fields
    return make_zip(files | {INDEX: json.dumps(index).encode()})


def with_entry(data: bytes, number: int, **fields: Any) -> bytes:
    """Return a bundle that says something else of one plan."""
    plans = json.loads(unzip(data)[INDEX])["plans"]
    plans[number] |= fields
    return with_index(data, plans=plans)


def with_file(data: bytes, name: str, content: bytes) -> bytes:
    """Return a bundle with another plan in a file, and its right digest."""
    files = unzip(data) | {name: content}
    index = json.loads(files[INDEX])
    for entry in index["plans"]:
        if entry["name"] == name:
            entry["sha256"] = hashlib.sha256(content).hexdigest()
    return make_zip(files | {INDEX: json.dumps(index).encode()})
