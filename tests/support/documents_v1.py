"""Small graph documents of structure v1, shaped as frontend 1.6 to 1.26 write them."""

from __future__ import annotations

from typing import Any

from support.documents import Document, document, node, scalar, tensor

BY_NAME, BY_UID = 11800, 12600


def old_tensor(name: str, uid: int | None = None, **fields: Any) -> Document:
    """A tensor that the caller binds; without a uid as long as nobody assigned one."""
    return tensor(uid or 0, name, uid_assigned=uid is not None, **fields)


def old_scalar(name: str, value: Any, **fields: Any) -> Document:
    """A scalar with a value whose index is that of the frontend's version."""
    return scalar(0, name, value, uid_assigned=False, **fields)


def old_document(
    nodes: list[Document], tensors: list[Document], version: int = BY_UID, **fields: Any
) -> Document:
    """A structure file; `tensors` are keyed as that version of the frontend keys them."""
    keyed = {
        str(item["uid"]) if item["uid_assigned"] and version >= 11900 else item["name"]: item
        for item in tensors
    }
    raw = document(nodes, [], json_version="1.0", cudnn_frontend_version=version)
    return raw | {"tensors": keyed} | fields


def old_add(version: int = BY_UID, **fields: Any) -> Document:
    """``y = a + b``, without uids."""
    return old_document(
        [node("POINTWISE", {"IN_0": "a", "IN_1": "b"}, {"OUT_0": "y"}, mode="ADD", axis=None)],
        [old_tensor("a"), old_tensor("b"), old_tensor("y")],
        version,
        **fields,
    )
