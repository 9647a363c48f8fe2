"""What can be wrong with a graph file, said in one line."""

from __future__ import annotations

from cudnn_bindgen.codegen.text import printable, shorten

# Of each part of a message; what a file holds may be of any length.
_LONGEST = 300

# The remedy for what no frontend writes.
WRITE_AGAIN = "the file is damaged or was edited: write it again from the graph"

# For a plan file whose halves disagree.
OTHER_GRAPH = "plan and structure are of different graphs: write the file again with serialize()"


class GraphFormatError(ValueError):
    """A graph file cannot be read, with the place in it and what was expected there.

    Attributes
    ----------
    problem
        What was expected and what was found, or why the file is refused.
    path
        JSON path of the offending value, such as ``$.tensors[3].uid``; empty for the whole file.
    hint
        What the user can do about it.
    file
        Name of the file as the user gave it; filled in by the reader, as are the next two.
    dialect
        What the file was taken for.
    line
        Where in a log the graph stands, counted from 1; 0 if the file is the graph.
    also
        JSON paths of other places with the same problem.
    """

    def __init__(self, problem: str, *, path: str = "", hint: str = WRITE_AGAIN) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.hint = hint
        self.file = ""
        self.dialect = ""
        self.line = 0
        self.also: tuple[str, ...] = ()

    def __str__(self) -> str:
        line = f"line {self.line}" if self.line else ""
        parts = (self.file, line, self.path, self.problem)
        place = ": ".join(shorten(part, _LONGEST) for part in parts if part)
        return f"{place} ({printable(self.hint)})"


class EmitError(ValueError):
    """A binding cannot be emitted as asked: a bad module name, two graphs with one name."""

    def __str__(self) -> str:
        return printable(super().__str__())


class PlanError(ValueError):
    """A graph cannot be rebuilt with the frontend, or no plan can be made of it.

    Attributes
    ----------
    problem
        What was expected and what was found, or what the frontend or cuDNN said.
    path
        JSON path in the graph's file; empty for the whole graph.
    hint
        What the user can do about it; may be empty.
    file
        Name of the file as the user gave it; filled in by the command.
    """

    def __init__(self, problem: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.hint = hint
        self.file = ""

    def __str__(self) -> str:
        parts = (self.file, self.path, self.problem)
        place = ": ".join(shorten(part, _LONGEST) for part in parts if part)
        return f"{place} ({printable(self.hint)})" if self.hint else place


class CompileError(RuntimeError):
    """A module cannot be compiled; the message is what Cython or the C compiler printed."""


class RecordError(Exception):
    """A program cannot be recorded, or what was recorded cannot be read."""
