"""What the template of a header for C and C++ prints beside the module's own view."""

from __future__ import annotations

from dataclasses import dataclass

from cudnn_bindgen.codegen.render.view import Module


@dataclass(frozen=True, slots=True)
class CHeader:
    """A module as C sees it; `name` begins each of the header's names."""

    module: Module
    name: str

    @property
    def comment(self) -> list[str]:
        """The graph's origin and arguments; nothing in them ends or begins a comment."""
        lines = [self.module.origin, "", *self.module.table]
        return [line.replace("*/", "* /").replace("/*", "/ *") for line in lines]

    @property
    def types(self) -> list[str]:
        """What `enqueue` takes."""
        rest = ["void *"] * (3 if self.module.overrides else 2)
        return [*(one.c_type.replace("*", " *") for one in self.module.parameters), *rest]

    @property
    def signature(self) -> str:
        """What Cython calls the capsule of `enqueue`."""
        return f"int ({', '.join(self.types)})"
