"""The docstrings of a module's stub: what hovering shows of its functions.

The words are those of the runtime's stubs, binding.pyi and overrides.pyi. What these say of any
graph in one entry ("operands: a tensor of each") becomes an entry for each argument of this one.
Entries stand as `name: text`, because that is what editors show while an argument is typed.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import cudnn_bindgen
from cudnn_bindgen.codegen.bind.binding import Argument, Binding
from cudnn_bindgen.codegen.model.data_types import DATA_TYPES
from cudnn_bindgen.codegen.render.describe import describe_value
from cudnn_bindgen.codegen.text import join_sizes

Sizes = tuple[Sequence[int | str], Sequence[int | str]]

_RUNTIME = Path(cudnn_bindgen.__file__).parent / "runtime"
_ENTRY = re.compile(r"    (\w+): ")
_WIDTH = 100


def stub_docs(
    binding: Binding,
    sizes: Mapping[int, Sizes] | None,
    key: list[str],
    *,
    takes_overrides: bool,
) -> SimpleNamespace:
    """Return the docstring of each function and constant of a module's stub, by name.

    Of a family, `sizes` are dims and strides in words, by slot, and `key` an entry for each number.
    """

    def entry(one: Argument, name: str, *, is_tensor: bool = False) -> str:
        return _entry(name, one, sizes[one.slot] if sizes else None, is_tensor=is_tensor)

    words, setters = words_of("binding", "Binding"), {**words_of("overrides", "Overrides")}
    addresses = [entry(one, one.argument) for one in binding.operands]
    tensors = [entry(one, one.name, is_tensor=True) for one in binding.operands]
    scalars = [entry(one, one.argument) for one in binding.scalars]
    required = sum(not one.default for one in binding.scalars)
    entries = {
        "execute": {"arguments": [*addresses, *scalars[:required], *key, *scalars[required:]]},
        "run": {"operands": tensors, "scalars": [*scalars, *key]},
        "bind": {"operands": tensors, "scalars": [*scalars, *key]},
    }
    own = {"key": key} | ({} if takes_overrides else {"overrides": [], "records": []})
    return SimpleNamespace(
        **{
            name: docstring(text, own | entries.get(name, {}))
            for name, text in words.items()
            if name.islower()
        },
        constants=SimpleNamespace(
            **{
                name.lower(): docstring(text, indent=0)
                for name, text in words.items()
                if name.isupper()
            }
        ),
        overrides=SimpleNamespace(
            itself=docstring(setters.pop("")),
            **{name: docstring(text, indent=8) for name, text in setters.items()},
        ),
        execute_summary=words["execute"].partition("\n")[0],
        run_summary=words["run"].partition("\n")[0],
    )


@cache
def words_of(stub: str, owner: str) -> Mapping[str, str]:
    """Return the docstring of a class in a stub of the runtime, as "", and those of its members."""
    tree = ast.parse((_RUNTIME / f"{stub}.pyi").read_text(encoding="utf-8"))
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    words = {"": ast.get_docstring(found) or ""}
    for node, following in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(node, ast.FunctionDef):
            words[node.name] = ast.get_docstring(node) or ""
        elif isinstance(node, ast.AnnAssign) and isinstance(following, ast.Expr):
            words[ast.unparse(node.target)] = ast.literal_eval(following.value)
    return words


def docstring(
    words: str, entries: Mapping[str, Sequence[str]] | None = None, indent: int = 4
) -> str:
    """Return words as a docstring, quoted and indented; `entries` stand for theirs, by name."""
    known = entries or {}
    lines: list[str] = []
    is_replaced = False
    for line in inspect.cleandoc(words).splitlines():
        entry = _ENTRY.match(line)
        if entry or not line.startswith("        "):
            is_replaced = entry is not None and entry[1] in known
            if entry and is_replaced:
                lines += [part for text in known[entry[1]] for part in _wrap(text, indent)]
        if not is_replaced:
            lines.append(line)
    text = re.sub(r"\n\nArgs:(?=\n\n|\Z)", "", "\n".join(lines))
    end = "\n" if "\n" in text else ""
    return textwrap.indent(f'"""{text}{end}"""', " " * indent)


def _entry(name: str, argument: Argument, sizes: Sizes | None, *, is_tensor: bool) -> str:
    """Return what is said of an argument; `sizes` are a family's, whose uids differ."""
    dim, stride = sizes or (argument.dim, argument.stride)
    data_type = _as_tensor(argument.data_type) if is_tensor else argument.data_type
    facts = [argument.role, *([] if sizes else [f"uid {argument.uid}"]), data_type]
    if not argument.is_scalar:
        facts += [f"dim {join_sizes(dim)}", f"stride {join_sizes(stride)}"]
        facts += [f"{argument.alignment}-byte aligned"]
        facts += [argument.layout.kind] if argument.layout.kind != "plain" else []
    facts += [f"default {argument.default.value!r}"] if argument.default else []
    value = describe_value(argument)
    return f"{name}: {', '.join(facts)}{f'; {value}' if value else ''}."


def _as_tensor(data_type: str) -> str:
    """Return a data type with the name that frameworks have for it, where that is another."""
    row = DATA_TYPES[data_type]
    if row.torch.upper() in ("", data_type):
        return data_type
    return f"{data_type} ({row.torch}" + (f", {row.pack} each)" if row.pack > 1 else ")")


def _wrap(text: str, indent: int) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - indent - 8, break_on_hyphens=False)
    return [f"    {lines[0]}", *(f"        {line}" for line in lines[1:])]
