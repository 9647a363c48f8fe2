"""Mutations of a decoded graph: its objects, lists, names, numbers and references."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from support.hostile_encoding import encode_json, nested
from support.hostile_values import (
    DATA_TYPES,
    DEPTHS,
    NAMES,
    NUMBERS,
    PORTS,
    TAGS,
    TWIN,
    VALUES,
    VERSIONS,
)

Container = Any  # a dict or a list
Place = tuple[Container, Any]

# Characters; a clone may hold the whole document already.
MOST_CLONED = 2_000_000


def _place(root: Any, rng: random.Random) -> Place:
    """Go down from `root` by chance; a dict or list of thousands costs no more than a small one."""
    container = root
    while True:
        is_object = isinstance(container, dict)
        key = rng.choice(list(container)) if is_object else rng.randrange(len(container))
        value = container[key]
        if not value or not isinstance(value, (dict, list)) or rng.random() < 0.2:
            return container, key
        container = value


def _place_of(kind: type | tuple[type, ...], root: Any, rng: random.Random) -> Place | None:
    for _ in range(20):
        container, key = _place(root, rng)
        if isinstance(container[key], kind):
            return container, key
    return None


def _rows(root: Any, field: str) -> list[Any]:
    """Return the objects of the list (or, in structure v1, of the object) `field`."""
    rows = root.get(field) if isinstance(root, dict) else None
    rows = list(rows.values()) if isinstance(rows, dict) else rows
    return [row for row in rows or [] if isinstance(row, dict)] if isinstance(rows, list) else []


def _uid(root: Any, rng: random.Random) -> Any:
    uids = [row["uid"] for row in _rows(root, "tensors") if "uid" in row]
    return rng.choice(uids) if uids and rng.random() < 0.8 else rng.choice(NUMBERS)


def _drop(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    del container[key]


def _double(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    if isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), copy.deepcopy(container[key]))
    elif rng.random() < 0.5:
        container[f"{key}{TWIN}{rng.randrange(9)}"] = copy.deepcopy(container[key])
    else:
        container[f"{key}{rng.choice((' ', '_', '0', '.'))}"] = copy.deepcopy(container[key])


def _swap(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    if rng.random() < 0.6:
        keys = list(container) if isinstance(container, dict) else range(len(container))
        other, place = container, rng.choice(list(keys))
    else:
        other, place = _place(root, rng)
    # Copies: an object inside itself has no encoding.
    first, second = copy.deepcopy(container[key]), copy.deepcopy(other[place])
    container[key], other[place] = second, first


def _retype(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    value = container[key]
    choices: list[Any] = [[value], {str(key): value}, str(value)[:300], None, bool(value)]
    if isinstance(value, (int, float)):
        # An integer beyond all floats has none of the sort.
        half = value + 0.5 if abs(value) < 2**200 or isinstance(value, float) else value
        choices += [half, -value, int(bool(value))]
        if abs(value) < 2**200:
            choices.append(float(value))
    if isinstance(value, str):
        choices += [value.lower(), value[:-1], f"{value} ", list(value[:50])]
    if isinstance(value, list):
        choices += [
            dict(enumerate(value)),
            value[::-1],
            [*value, *copy.deepcopy(value)],
            value[0] if value else 0,
        ]
    if isinstance(value, dict):
        choices += [list(value.values()), list(value), list(value.items())]
    container[key] = copy.deepcopy(rng.choice(choices))


def _number(root: Any, rng: random.Random) -> None:
    place = _place_of((int, float), root, rng)
    if place:
        place[0][place[1]] = rng.choice(NUMBERS)


def _text(root: Any, rng: random.Random) -> None:
    place = _place_of(str, root, rng)
    if place:
        place[0][place[1]] = rng.choice(rng.choice((NAMES, NAMES, DATA_TYPES, TAGS, PORTS)))


def _key(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    if isinstance(container, dict):
        container[rng.choice(rng.choice((NAMES, PORTS)))] = container.pop(key)


def _extra(root: Any, rng: random.Random) -> None:
    container, _ = _place(root, rng)
    if isinstance(container, dict):
        container[rng.choice(NAMES)] = rng.choice(VALUES)()


def _value(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    container[key] = rng.choice(VALUES)() if rng.random() < 0.7 else rng.choice(NUMBERS)


def _nest(root: Any, rng: random.Random) -> None:
    container, key = _place(root, rng)
    container[key] = nested(rng.choice(DEPTHS), rng.random() < 0.5)


def _embed(root: Any, rng: random.Random) -> None:
    """Put the whole document, or its text, inside itself."""
    container, key = _place(root, rng)
    inner = copy.deepcopy(root)
    container[key] = inner if rng.random() < 0.7 else encode_json(inner).decode("utf-8", "replace")


def _tensor(root: Any, rng: random.Random) -> None:
    """Change one field of a tensor to what some tensor could have."""
    rows = _rows(root, "tensors")
    if not rows:
        return
    row = rng.choice(rows)
    rank = len(row["dim"]) if isinstance(row.get("dim"), list) else 2
    scalar = {"index": rng.randrange(-1, 7), "value": rng.choice(("3E000000", "FF80", 1, 0.1, -5))}
    row.update(
        rng.choice(
            (
                {"uid": _uid(root, rng)},
                {"name": rng.choice(NAMES)},
                {"data_type": rng.choice((*DATA_TYPES, None))},
                {"dim": [rng.choice((0, 1, 2, 3, 2**31, 2**62)) for _ in range(rank)]},
                {"stride": [rng.choice((0, 1, -1, 2**31 - 1, 2**62)) for _ in range(rank)]},
                {"dim": [1] * rng.choice((1, 8, 9, 64)), "stride": [1] * rng.choice((1, 8, 64))},
                {"dim": [], "stride": []},
                {"is_virtual": rng.random() < 0.5},
                {"is_pass_by_value": rng.random() < 0.8},
                {"is_pass_by_value": True, "pass_by_value": scalar, "data_type": "FLOAT"},
                {"ragged_offset_uid": _uid(root, rng), "ragged_offset_multiplier": 2},
                {"alignment": rng.choice((1, 2, 16, 24, 1024, 2**20, 2**21, 0, -16))},
                {"reordering_type": rng.choice(("NONE", "F16x16", None, 3, "\n"))},
            )
        )
    )


def _node(root: Any, rng: random.Random) -> None:
    """Change a node's tag, a port's name, or what a port points at."""
    rows = _rows(root, "nodes")
    if not rows:
        return
    row = rng.choice(rows)
    side = row.get(rng.choice(("inputs", "outputs")))
    choice = rng.random()
    if choice < 0.2 or not isinstance(side, dict):
        row["tag"] = rng.choice((*TAGS, *NAMES))
    elif choice < 0.5:
        side[rng.choice((*PORTS, *NAMES))] = _uid(root, rng)
    elif choice < 0.8 and side:
        side[rng.choice(list(side))] = _uid(root, rng)
    elif side:
        side[rng.choice(PORTS)] = side.pop(rng.choice(list(side)))


def _clone(root: Any, rng: random.Random) -> None:
    """Repeat a node or a tensor, few times or many, under uids of its own or not."""
    field = rng.choice(("nodes", "tensors"))
    rows = _rows(root, field)
    if not rows or not isinstance(root[field], list):
        return
    row, first = rng.choice(rows), rng.choice((100, 2**40, -5000))
    # Seldom so many that work which grows with the square takes more than a second.
    count = rng.choices((1, 2, 20, 400, 2500), (60, 20, 15, 4, 1))[0]
    for index in range(min(count, 1 + MOST_CLONED // len(repr(row)))):
        twin = copy.deepcopy(row)
        if field == "tensors" and rng.random() < 0.95:
            twin["uid"] = first + index
        root[field].insert(rng.randrange(len(root[field]) + 1), twin)


def _version(root: Any, rng: random.Random) -> None:
    if isinstance(root, dict):
        root["json_version"] = rng.choice(VERSIONS)


def _plan(root: Any, rng: random.Random) -> None:
    """Change what only a plan file has, to what some plan could have."""
    if not isinstance(root, dict) or "cudnn_backend_data" not in root:
        return _tensor(root, rng)
    uid, other, small = _uid(root, rng), _uid(root, rng), rng.choice((0, 4, 16, 2**40, -1))
    scalar = {"index": rng.randrange(6), "value": rng.choice(("FF800000", "3C00", 1, 0.1))}
    field, value = rng.choice(
        (
            ("variant_pack_uids", [uid]),
            ("variant_pack_uids", []),
            ("pass_by_values", {str(uid): scalar}),
            ("workspace_modifications", {str(uid): [rng.randrange(-1, 4), small, [small / 2]]}),
            ("workspace_modifications", {str(uid): [0, 0, [rng.choice(NUMBERS)]]}),
            ("variant_pack_replacements", [[uid, [other, small]]]),
            ("aligned_operands", {str(uid): [rng.choice((0, 1, 16, 24, 2**20)), 2]}),
            ("fe_workspace_size", rng.choice(NUMBERS)),
            ("behavior_notes", [[rng.choice(NAMES)]]),
        )
    )
    old = root.get(field)
    if rng.random() < 0.7 and isinstance(old, dict) and isinstance(value, dict):
        old.update(value)
    elif rng.random() < 0.7 and isinstance(old, list) and isinstance(value, list):
        root[field] = old + value if rng.random() < 0.5 else old[1:]
    else:
        root[field] = value
    return None


_EDITS: tuple[Callable[[Any, random.Random], None], ...] = (
    *(_drop, _double, _swap, _retype, _number, _text, _text, _key, _extra, _value, _nest, _embed),
    *(_tensor, _tensor, _tensor, _tensor, _node, _node, _node, _clone, _clone, _version),
    *(_plan, _plan, _plan),
)


def mutate_object(root: Any, rng: random.Random) -> None:
    """Change `root` in place at a few places."""
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 6))):
        # No object twice in a tree: what is put into it would be there as often, and so on.
        if root:
            rng.choice(_EDITS)(root, rng)
