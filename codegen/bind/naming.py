"""Every identifier that is emitted: which name a tensor gets, and that it is a legal one.

A name the user chose is kept; one that the frontend made up gives way to the tensor's port. All
names are ASCII, lower case, at most 40 characters, and unique within a module.
"""

from __future__ import annotations

import keyword
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.model.graph import is_made_up

MAX_LENGTH = 40

# What a parameter must not shadow in emitted code: Python's and Cython's words, C's types, and the
# names that the emitted module uses itself.
_WORDS = """
    address api arguments auto bfloat16 bint bool bytes cdef char check cimport close complex
    const cpdef ctypedef default dict double enqueue enum except execute execute_member
    execute_overridden execute_plan execute_uids extern fingerprint float float16 float32
    flag float64 fused gil given graph include inline int int16_t int32 int32_t int64 int64_t int8_t
    list load_plan long name namespace new noexcept nogil object operands operator out
    override_values overrides parts plan pointers ptrdiff_t public queue readonly register
    replace_plans restrict run run_member run_tensors scalars self set short signed size_t
    sizeof slots ssize_t static staticmethod str stream struct template this tuple type uint16_t
    uint32_t uint64_t uint8_t uintptr_t union unsigned values_of void volatile workspace
    workspace_ptr workspace_size
"""
_RESERVED = frozenset([*keyword.kwlist, *keyword.softkwlist, *_WORDS.split()])


# What a module must not be called: in its folder it would be found in place of these. They are what
# this tool and a module import, whatever is installed here, and what programs have tensors from.
_OF_OTHERS = {
    *("Cython", "_distutils_hack", "click", "cuda", "cudnn", "cudnn_bindgen", "cupy", "cython"),
    *("distutils", "filelock", "jax", "jaxlib", "jinja2", "markdown_it", "markupsafe", "mdurl"),
    *("msgspec", "numpy", "nvidia", "pkg_resources", "platformdirs", "pygments", "pyximport"),
    *("rich", "setuptools", "tomli", "torch", "ubjson", "_ubjson"),
}
# Words of Cython, and its packages of declarations.
_OF_CYTHON = {
    *("DEF", "ELIF", "ELSE", "IF", "NULL", "cdef", "cimport", "cpdef", "ctypedef", "include"),
    *("cpython", "libc", "libcpp", "openmp"),
}


def identifier(name: str) -> str:
    """Return `name` as a legal lower-case identifier, or "" when nothing of it is left."""
    plain = unicodedata.normalize("NFKD", name[: 4 * MAX_LENGTH])
    plain = re.sub(r"[^a-z0-9_]+", "_", re.sub(r"[^\x00-\x7f]", "", plain).lower())
    plain = plain.strip("_")[:MAX_LENGTH].rstrip("_")
    if not plain:
        return ""
    if plain[0].isdigit():
        plain = f"t{plain}"
    return f"{plain}_" if plain in _RESERVED else plain


def number_names(names: Iterable[str]) -> list[str]:
    """Tell equal names apart by position: a, a, b → a, a_2, b. What looks like a number stays."""
    names = list(names)
    taken = set(names)
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        numbered = name
        if seen[name] > 1:
            while (numbered := f"{name}_{seen[name]}") in taken:
                seen[name] += 1
            taken.add(numbered)
        result.append(numbered)
    return result


def choose_names(structural: Sequence[str], given: Sequence[str]) -> list[str]:
    """Choose one name for each operand.

    Parameters
    ----------
    structural
        Legal names that come from ports alone, each unique (`number_names`).
    given
        The names in the file, in the same order.

    Returns
    -------
    list of str
        Unique. An operand that keeps its structural name never loses it to another's given name.
    """
    wanted = ["" if is_made_up(name) else identifier(name) for name in given]
    taken = {name for name, want in zip(structural, wanted, strict=True) if not want}
    next_number: dict[str, int] = {}
    names = []
    for name, want in zip(structural, wanted, strict=True):
        if want:
            name, number = want, next_number.get(want, 2)
            while name in taken:
                name, number = f"{want}_{number}", number + 1
            next_number[want] = number
            taken.add(name)
        names.append(name)
    return names


def argument_name(name: str, is_scalar: bool) -> str:
    """Return the parameter of `execute` for an operand: ``q`` → ``q_ptr``; a scalar keeps its name.

    Unique when `name` is: no scalar ends in ``_ptr``.
    """
    if is_scalar:
        return f"{name}_" if name.endswith("_ptr") else name
    argument = f"{name.removesuffix('_')}_ptr"  # class_ is a name, class_ptr needs no underscore
    return f"{name}_ptr" if argument in _RESERVED else argument


def module_name(stem: str) -> str:
    """Return the module name that a file's stem suggests."""
    return identifier(stem) or "graph"


def check_module_name(name: str) -> str:
    """Return `name` if it can name a module.

    Raises
    ------
    EmitError
        It is no ASCII identifier, or a keyword.
    """
    if name.isascii() and name.isidentifier() and not keyword.iskeyword(name):
        return name
    raise EmitError(f'module name: expected a Python identifier, got "{name}"')


def explain_taken(module: str) -> str:
    """Say what a module is better not called, if it is called so; else return an empty string."""
    if module in _OF_OTHERS or module in sys.stdlib_module_names:
        return "that hides no other"
    if module in _OF_CYTHON or (module.startswith("__") and module.endswith("__")):
        return "that Python and Cython leave free"
    return ""
