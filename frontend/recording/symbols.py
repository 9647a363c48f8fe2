"""Overrides that a program used → the `--symbol` options that set them with one number each."""

from __future__ import annotations

from collections.abc import Iterable

from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.overrides import OverrideOptions, Shape, bind_overrides
from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.frontend.recording.observe import Override

Place = tuple[int, int]  # slot and axis


def suggest_symbols(binding: Binding, overrides: Iterable[Override]) -> tuple[list[str], list[str]]:
    """Return symbols for the dims that changed, and notes on what no symbol can say."""
    if binding.overrides is None:
        return [], ["the graph takes no overrides"]
    shapes = binding.overrides.shapes
    slots = {argument.uid: argument.slot for argument in binding.arguments}
    values = _values(shapes, slots, list(overrides))
    groups: dict[tuple[int, ...], list[Place]] = {}
    notes = []
    for (slot, axis), seen in sorted(values.items()):
        if len({*seen, shapes[slot].dim[axis]}) > 1:
            groups.setdefault(seen, []).append((slot, axis))
        if max(seen) > shapes[slot].dim[axis]:
            notes.append(f"{_place(shapes, (slot, axis))} exceeds what is declared: --unbounded")
    symbols: list[str] = []
    for places in groups.values():
        symbol = _symbol(shapes, places, symbols, notes)
        if symbol:
            symbols.append(symbol)
    return symbols, notes


def _values(
    shapes: tuple[Shape, ...], slots: dict[int, int], overrides: list[Override]
) -> dict[Place, tuple[int, ...]]:
    """Return each dim's value in each override; the declared one where it is not overridden."""
    values: dict[Place, list[int]] = {}
    for at, override in enumerate(overrides):
        for uid, shape in zip(override.uids, override.shapes, strict=False):
            slot = slots.get(uid)
            if slot is None or len(shape) != len(shapes[slot].dim):
                continue
            for axis, size in enumerate(shape):
                if (slot, axis) not in values:
                    values[slot, axis] = [shapes[slot].dim[axis]] * len(overrides)
                values[slot, axis][at] = size
    return {place: tuple(seen) for place, seen in values.items()}


def _symbol(
    shapes: tuple[Shape, ...], places: list[Place], taken: list[str], notes: list[str]
) -> str:
    axes = [shapes[slot].axes[axis] for slot, axis in places]
    name = max(dict.fromkeys(axes), key=axes.count)
    name = name.upper() if len(name) == 1 else name.capitalize()
    names = {text.partition("=")[0].partition(":")[0] for text in taken}
    unique, number = name, 2
    while unique in names:
        unique, number = f"{name}{number}", number + 1
    uses = ",".join(_place(shapes, place) for place in places)
    reason = ""
    for mode in ("", ":declared"):
        text = f"{unique}{mode}={uses}"
        try:
            bind_overrides(shapes, True, OverrideOptions((*taken, text), is_unbounded=True))
        except EmitError as error:
            reason = str(error)
        else:
            return text
    notes.append(reason)
    return ""


def _place(shapes: tuple[Shape, ...], place: Place) -> str:
    slot, axis = place
    return f"{shapes[slot].name}.{shapes[slot].axes[axis]}"
