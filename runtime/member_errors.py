"""What is said when a call means no member of a family, or nobody can tell which."""

from __future__ import annotations

from collections.abc import Sequence

from cudnn_bindgen.runtime.errors import OperandError

Key = tuple[int, ...]

# A family may have a thousand members; the ones that were nearly meant come first.
_MOST = 8


def unknown_key_error(names: Sequence[str], keys: Sequence[Key], got: Key) -> OperandError:
    """Say that no member has the key."""
    return OperandError(_joined(names), _one_of(keys, got), _said(got))


def unknown_shape_error(
    names: Sequence[str], keys: Sequence[Key], got: Key | None, shapes: Sequence[tuple[str, Key]]
) -> OperandError:
    """Say that no member has tensors of these shapes; `got` is the key that they have, or None."""
    given = ", ".join(f"{name} {list(shape)}" for name, shape in shapes[:_MOST])
    more = ", ..." if len(shapes) > _MOST else ""
    read = f"{_said(got)} of " if got is not None and got not in keys else ""
    return OperandError(_joined(names), f"tensors for {_one_of(keys, got)}", f"{read}{given}{more}")


def ambiguous_error(names: Sequence[str], first: Key, second: Key) -> OperandError:
    """Say that several members take the tensors."""
    return OperandError(
        _joined(names),
        f"a key, because members {_said(first)} and {_said(second)} both take these operands",
        "None",
    )


def half_key_error(names: Sequence[str], missing: str) -> OperandError:
    """Say that some numbers of the key are given, others are not."""
    return OperandError(missing, f"an int, or none of {_joined(names)}", "None")


def unknown_graph_error(fingerprint: str, known: Sequence[str]) -> OperandError:
    """Say that a plan is of no member's graph."""
    more = f" and {len(known) - _MOST} more" if len(known) > _MOST else ""
    return OperandError(
        "plan", f"one of a graph among {', '.join(known[:_MOST])}{more}", f"graph {fingerprint}"
    )


def no_plan_error() -> OperandError:
    """Say that a file tells nothing of plans, so that nobody knows for which member it is."""
    return OperandError("plan", "a file with plans of one member", "structure only")


def _one_of(keys: Sequence[Key], got: Key | None) -> str:
    if got is not None:
        from fractions import Fraction  # takes 2 ms

        # Numbers of a key may be of different size: a step of a batch is not one of a length.
        scales = [max(1, *map(abs, column)) for column in zip(*keys, strict=True)]
        keys = sorted(
            keys,
            key=lambda key: sum(
                Fraction(abs(a - b), scale) for a, b, scale in zip(key, got, scales, strict=True)
            ),
        )
    more = f" and {len(keys) - _MOST} more" if len(keys) > _MOST else ""
    return f"one of {', '.join(map(_said, keys[:_MOST]))}{more}"


def _said(key: Key) -> str:
    return str(key[0]) if len(key) == 1 else str(key)


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names)
