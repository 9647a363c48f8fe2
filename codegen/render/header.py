"""What a module says of its making: written into its head, and read again with its data.

Each option that is not the default has a line of its own. Where it is too long, a backslash ends
the line and a plus sign begins the next one.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Sequence

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.text import literal
from cudnn_bindgen.module_data import ModuleData, unpack

_ROOM = 90
_HEAD = re.compile(r"(?:#.*\n)*")
_OPTION = re.compile(r"^# Option (--[a-z-]+)(?: (.*))?$", re.MULTILINE)
_DATA = re.compile(r"(?:^        b'[A-Za-z0-9+/=]+'\n)+", re.MULTILINE)


def write_options(options: Sequence[tuple[str, str]]) -> list[str]:
    """Return comments, in printable ASCII, for options and their values; a flag's is empty."""
    lines: list[str] = []
    for option, value in options:
        is_plain = value.isascii() and value.isprintable() and value.strip() == value
        if not is_plain or value.startswith('"') or value.endswith("\\"):
            value = literal(value)
        text = f"Option {option} {value}".rstrip()
        first, *rest = (text[at : at + _ROOM] for at in range(0, len(text), _ROOM))
        parts = [first, *(f"+ {part}" for part in rest)]
        lines += [*(f"{part}\\" for part in parts[:-1]), parts[-1]]
    return lines


def read_module(text: str) -> tuple[list[str], ModuleData]:
    """Return the options of an emitted module, as words of a command line, and its data.

    Raises
    ------
    EmitError
        It was not emitted, or edited since.
    """
    head, data = _HEAD.match(text), _DATA.search(text)
    try:
        if head is None or data is None:
            raise ValueError
        packed = "".join(re.findall("b'(.*)'", data[0]))
        said = _OPTION.findall(head[0].replace("\\\n# + ", ""))
        words = [f"{option}={_value(value)}" if value else option for option, value in said]
        return words, unpack(packed.encode())
    except (ValueError, SyntaxError, TypeError, EOFError, zlib.error):
        raise EmitError("expected a module that cudnn-bindgen has emitted, got another") from None


def _value(text: str) -> object:
    return ast.literal_eval(text) if text.startswith('"') else text
