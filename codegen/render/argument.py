"""An argument of a module as its template sees it: names, C type, conversion."""

from __future__ import annotations

from dataclasses import dataclass

from cudnn_bindgen.codegen.bind import binding
from cudnn_bindgen.codegen.text import literal


@dataclass(frozen=True, slots=True)
class _CType:
    """How a scalar type looks in emitted code."""

    c_type: str
    conversion: str
    python_type: str


_SCALARS = {
    "BFLOAT16": _CType("uint16_t", "bfloat16", "float"),
    "DOUBLE": _CType("double", "float64", "float"),
    "FLOAT": _CType("float", "float32", "float"),
    "HALF": _CType("uint16_t", "float16", "float"),
    "INT32": _CType("int32_t", "int32", "int"),
    "INT64": _CType("int64_t", "int64", "int"),
}
_ADDRESS = _CType("void*", "address", "int")
KEY_TYPE = _SCALARS["INT64"]


@dataclass(frozen=True)
class Argument:
    """A parameter of `enqueue` and `execute`: an operand, a scalar, or a number of a key.

    `name` is its name in C and of `run`, `argument` the one of `execute`; `slot` is -1 for a key's.
    """

    name: str
    argument: str
    c: _CType
    slot: int = -1
    note: str = ""
    uid_note: str = ""
    default: str = ""
    is_output: bool = False
    uid: int = 0

    @property
    def in_c(self) -> str:
        """Its name in the header: no word of C or C++, and no macro, ends so."""
        return self.argument if not self.is_scalar else f"{self.name}_value"

    @property
    def c_type(self) -> str:
        """Its type in C."""
        return self.c.c_type

    @property
    def python_type(self) -> str:
        """Its type in the stub of `execute`."""
        return self.c.python_type

    @property
    def conversion(self) -> str:
        """From the Python object to C."""
        return f"{self.c.conversion}({self.argument}, {literal(self.argument)})"

    @property
    def local(self) -> str:
        """A scalar's storage in `run`: no other name begins with an underscore."""
        return f"_{self.name}"

    @property
    def is_scalar(self) -> bool:
        """Whether it is passed by value."""
        return self.c is not _ADDRESS


def argument_view(argument: binding.Argument, *, is_of_family: bool) -> Argument:
    """Return what a template sees of an argument; in a family uids are each member's own."""
    uid = "" if is_of_family else f"uid {argument.uid}, "
    return Argument(
        name=argument.name,
        argument=argument.argument,
        c=_SCALARS[argument.data_type] if argument.is_scalar else _ADDRESS,
        slot=argument.slot,
        note=f"{uid}{argument.role}, {argument.data_type}",
        uid_note="" if is_of_family else f"  # uid {argument.uid}",
        default=f"={literal(argument.default.value)}" if argument.default else "",
        is_output=argument.role == "output",
        uid=argument.uid,
    )
