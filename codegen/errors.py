"""What can be wrong with a graph file, said in one line."""

from __future__ import annotations

from cudnn_bindgen.codegen.text import printable


class GraphFormatError(ValueError):
    """A graph file cannot be read, with the place in it and what was expected there.

    Attributes
    ----------
    problem
        What was expected and what was found, or why the file is refused.
    path
        JSON path of the offending value, such as ``$.tensors[3].uid``; empty for the whole file.
    hint
        What the user can do about it; may be empty.
    file
        Name of the file as the user gave it; filled in by the reader.
    """

    def __init__(self, problem: str, *, path: str = "", hint: str = "", file: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.hint = hint
        self.file = file

    def __str__(self) -> str:
        parts = [printable(part) for part in (self.file, self.path, self.problem) if part]
        return ": ".join(parts) + (f" ({printable(self.hint)})" if self.hint else "")


class EmitError(ValueError):
    """A binding cannot be emitted as asked: a bad module name, two graphs with one name."""

    def __str__(self) -> str:
        return printable(super().__str__())
