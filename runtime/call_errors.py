"""What is said of a call whose arguments are not those of the function. Imported once one fails."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from cudnn_bindgen.module_data import GraphData
from cudnn_bindgen.runtime.errors import describe

# More missing arguments than this are counted.
_MOST = 12


def call_error(
    method: str,
    names: Sequence[str],
    optional: Sequence[bool],
    positional: int,
    given: int,
    named: Sequence[str],
    graph: GraphData | None = None,
) -> TypeError | None:
    """Return the error for a call, or None where its arguments are those of the function.

    Parameters
    ----------
    method
        What was called.
    names, optional
        Of each parameter.
    positional
        How many of them need no name.
    given, named
        How many arguments came by position, and the names of the others.
    graph
        Whose operands the parameters may be.
    """
    if given > positional:
        least = sum(not one for one in optional[:positional])
        takes = f"{positional}" if least == positional else f"from {least} to {positional}"
        by_name = [*names[positional:]]
        rest = f"; {_join(by_name)} must be named" if by_name else ""
        was = "was" if given == 1 else "were"
        plural = "" if takes == "1" else "s"
        return TypeError(
            f"{method}() takes {takes} positional argument{plural} but {given} {was} given{rest}"
        )
    for name in named:
        if name not in names:
            alike = get_close_matches(name, names, 1)
            hint = f"; did you mean {alike[0]}?" if alike else ""
            got = describe(name)
            return TypeError(f"{method}() got an unexpected keyword argument {got}{hint}")
        if name in names[:given]:
            return TypeError(f"{method}() got multiple values for argument {name!r}")
    missing = [
        name
        for index, (name, is_optional) in enumerate(zip(names, optional, strict=True))
        if index >= given and not is_optional and name not in named
    ]
    if not missing:
        return None
    notes = _notes(graph) if graph else {}
    plural = "" if len(missing) == 1 else "s"
    listed = _join([name + notes.get(name, "") for name in missing])
    return TypeError(f"{method}() missing {len(missing)} required argument{plural}: {listed}")


def compiled_call_error(function: Any, given: int, named: Sequence[str]) -> TypeError | None:
    """Return `call_error` for a function that Cython compiled, of a module or a class in it."""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[:count]
    keyword = function.__kwdefaults__ or {}
    first_default = code.co_argcount - len(function.__defaults__ or ())
    optional = [
        index >= first_default if index < code.co_argcount else name in keyword
        for index, name in enumerate(names)
    ]
    skipped = int(names[0] == "self") if "." in function.__qualname__ else 0
    binding = function.__globals__.get("_binding")
    return call_error(
        function.__name__,
        names[skipped:],
        optional[skipped:],
        code.co_argcount - skipped,
        given - skipped,
        named,
        None if skipped else getattr(binding, "data", [None])[0],
    )


def _notes(graph: GraphData) -> dict[str, str]:
    """Return what is said of each argument of `execute` and `run`."""
    notes = {}
    for slot, operand in enumerate(graph.operands):
        # The members of a family have uids of their own.
        uid = "" if graph.key else f"uid {operand.uid}, "
        name = describe(ascii(operand.name)[1:-1])
        note = f" ({uid}{operand.role} {name})"
        notes[operand.argument] = note
        if slot < len(graph.layouts):
            notes[graph.layouts[slot][0]] = note
    return notes


def _join(names: Sequence[str]) -> str:
    shown = names if len(names) <= _MOST else [*names[:_MOST], f"{len(names) - _MOST} more"]
    return ", ".join(shown)
