"""What the template of a module sees: typed views, whose attributes it prints as they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from types import SimpleNamespace

from cudnn_bindgen import __version__
from cudnn_bindgen.codegen.bind.binding import Binding
from cudnn_bindgen.codegen.bind.chain import Chain
from cudnn_bindgen.codegen.bind.family import Family
from cudnn_bindgen.codegen.model.graph import under
from cudnn_bindgen.codegen.render.argument import KEY_TYPE, Argument, argument_view
from cudnn_bindgen.codegen.render.describe import describe_arguments, describe_links, describe_nodes
from cudnn_bindgen.codegen.render.docstrings import stub_docs
from cudnn_bindgen.codegen.render.overrides import Shape, Symbols, override_shapes
from cudnn_bindgen.codegen.render.signatures import Signature, run_signature
from cudnn_bindgen.codegen.text import (
    enclose,
    fill,
    quoted,
    shorten,
    wrap_bytes,
)
from cudnn_bindgen.module_data import RUNTIME_ABI, ModuleData, PlanParts, pack

# More of them are counted, not listed.
_MOST_PLANS = 12


@dataclass(frozen=True)
class Module:
    """A module before it is text.

    `binding` is the graph's, what a family has in common, or what callers see of a chain.
    """

    binding: Binding
    family: Family | None
    data_: ModuleData
    origin: str
    table: list[str]
    options: list[str]
    sizes: dict[int, tuple[list[str], list[str]]] | None = None
    chain: Chain | None = None

    version = __version__
    abi = RUNTIME_ABI

    @property
    def kind(self) -> str:
        """What the fingerprint is of."""
        return "Family" if self.family else "Chain" if self.chain else "Graph"

    @property
    def fingerprint(self) -> str:
        """The graph's, the family's or the chain's."""
        return self.data_.fingerprint

    @property
    def title(self) -> str:
        """The nodes, and how many shapes or graphs there are of several."""
        title = docstring_row(describe_nodes(self.binding), 80)
        title += f", a chain of {len(self.chain.links)} graphs" if self.chain else ""
        return title + (f", in {len(self.family.members)} shapes" if self.family else "")

    @property
    def notes(self) -> list[str]:
        """What else is said of links, operands, scalars, the key and the plans."""
        links = describe_links(self.chain) if self.chain else ()
        texts = [*links, *describe_arguments(self.binding), *self._plans()]
        if self.overrides and self.binding.overrides and not self.binding.overrides.is_unbounded:
            texts.append("Overrides: dims are at most the declared ones.")
        lines = [line for text in texts for line in fill_words(text)]
        return [*lines, *self._key_notes]

    @property
    def _key_notes(self) -> list[str]:
        return [
            f"{dim.name}: {self.family.operands[dim.slot].name}"
            f".{self.family.axes[dim.slot][dim.axis]}, a number of the key that chooses the graph"
            for dim in (self.family.key if self.family else ())
            if self.family
        ]

    @cached_property
    def docs(self) -> SimpleNamespace:
        """The docstrings of the stub, by name."""
        key = [f"{note}." for note in self._key_notes]
        return stub_docs(self.binding, self.sizes, key, takes_overrides=bool(self.overrides))

    def _plans(self) -> list[str]:
        names = [f" of {link.name}" for link in self.chain.links] if self.chain else repeat("")
        texts = [
            f"Plan{name} for SM {plan.sm}, {plan.sm_count or 'any number of'} multiprocessors, "
            f"{under(plan.cudnn_version)}: {shorten(plan.engine, 200)}{_kernels(plan)}."
            for name, graph in zip(names, self.data_.graphs, strict=False)
            for plan in graph.plans
        ]
        return texts if len(texts) <= _MOST_PLANS else [f"{len(texts)} plans."]

    @cached_property
    def arguments(self) -> list[Argument]:
        """Operands and scalars, in slot order."""
        return [
            argument_view(one, is_of_family=bool(self.family)) for one in self.binding.arguments
        ]

    @property
    def operands(self) -> list[Argument]:
        """Those that are addresses."""
        return [argument for argument in self.arguments if not argument.is_scalar]

    @property
    def scalars(self) -> list[Argument]:
        """Those that are values."""
        return [argument for argument in self.arguments if argument.is_scalar]

    @property
    def key(self) -> list[str]:
        """The names of a family's key; none for one graph."""
        return [dim.name for dim in self.family.key] if self.family else []

    @cached_property
    def parameters(self) -> list[Argument]:
        """What `enqueue` and `execute` take: in Python what has a default comes last."""
        key = [Argument(name, name, KEY_TYPE, note="of the key") for name in self.key]
        required = [argument for argument in self.arguments if not argument.default]
        optional = [argument for argument in self.arguments if argument.default]
        return [*required, *key, *optional]

    @property
    def stdint(self) -> list[str]:
        """Types of the C library that are named."""
        return sorted({p.c_type for p in self.parameters if p.c_type.endswith("_t")})

    @property
    def conversions(self) -> list[str]:
        """The cimport of what turns arguments into C values, as lines."""
        start = "from cudnn_bindgen.runtime.arguments cimport "
        own = {"address", "explain_calls", "flag"}
        names = sorted(own | {parameter.c.conversion for parameter in self.parameters})
        line = start + ", ".join(names)
        return [line] if len(line) <= 100 else enclose(f"{start}(", names, ")")

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of the module that are data."""
        return (
            ("FINGERPRINT", "KEY", "MEMBERS")
            if self.family
            else ("FINGERPRINT", "GRAPH", "OPERANDS")
        )

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the module that are the Binding's."""
        return (
            *(() if self.family else ("execute_uids", "execute_slots")),
            "bind",
            *("workspace_size", "load_plan", "close", "set_checks", "set_launch_policy"),
            *("launch_path", "launch_stats", "launch_nodes"),
        )

    @property
    def explained(self) -> list[str]:
        """The calls that let functions say what a call lacks, as lines."""
        lines = ["explain_calls((execute, run), Binding, __doc__)"]
        if self.overrides:
            lines.append("explain_calls(vars(Overrides).values(), None, None)")
        return lines

    @property
    def slots(self) -> list[str]:
        """What stands in each slot of the variant pack, as lines."""
        # cuDNN reads a scalar while the call runs, so the parameter itself is its storage.
        values = (f"&{a.name}" if a.is_scalar else a.name for a in self.arguments)
        return enclose("    cdef void** slots = [", values, "]")

    @property
    def execute_parameters(self) -> list[str]:
        """The parameters of `execute`, as lines."""
        last = ["workspace_ptr=0", "stream=0", *(["overrides=None"] if self.overrides else [])]
        names = [f"{parameter.argument}{parameter.default}" for parameter in self.parameters]
        return enclose("def execute(", [*names, *last], "):")

    @property
    def enqueue_call(self) -> list[str]:
        """The call of `enqueue` in `execute`, as lines."""
        last = ["override_values(overrides)"] if self.overrides else []
        last += [f'address({name}, "{name}")' for name in ("workspace_ptr", "stream")]
        values = [parameter.conversion for parameter in self.parameters]
        return enclose("    enqueue(", [*values, *last], ")")

    @property
    def run_parameters(self) -> list[str]:
        """The parameters of `run`, as lines."""
        operands = [f"{one.name}{'=None' if one.is_output else ''}" for one in self.operands]
        scalars = [f"{scalar.argument}{scalar.default}" for scalar in self.scalars]
        last = ["workspace=None", "stream=None", "check=True"]
        last += ["overrides=None"] if self.overrides else []
        key = [f"{name}=None" for name in self.key]
        return enclose("def run(", [*operands, "*", *scalars, *key, *last], "):")

    @property
    def given(self) -> list[str]:
        """What `run` is given for each operand, as lines."""
        values = (f"<PyObject*>{operand.name}" for operand in self.operands)
        return enclose("    cdef PyObject** given = [", values, "]")

    @property
    def given_key(self) -> list[str]:
        """What `run` is given for each number of the key, as lines."""
        values = (f"<PyObject*>{name}" for name in self.key)
        return enclose("    cdef PyObject** key_ = [", values, "]")

    @cached_property
    def overrides(self) -> list[Shape]:
        """A setter for each operand; none where the graph takes no overrides."""
        parts = self.binding.overrides
        return override_shapes(parts) if parts else []

    @cached_property
    def symbols(self) -> Symbols | None:
        """The setter of the numbers that dims follow, if there are any."""
        parts = self.binding.overrides
        return Symbols(parts) if parts and parts.symbols else None

    @property
    def has_plans(self) -> bool:
        """Whether a plan comes with the module."""
        return any(graph.plans for graph in self.data_.graphs)

    @cached_property
    def run(self) -> Signature:
        """How `run` may be called."""
        return run_signature(self.binding)

    @property
    def has_overloads(self) -> bool:
        """Whether the stub has a function that may be called in several ways."""
        return self.run.is_overloaded or not self.has_plans

    @property
    def key_names(self) -> list[str]:
        """The types of KEY."""
        return ["str"] * len(self.key)

    @property
    def key_numbers(self) -> list[str]:
        """The types of a key."""
        return ["int"] * len(self.key)

    @property
    def typed_key(self) -> list[str]:
        """The key as parameters."""
        return [f"{name}: int" for name in self.key]

    @property
    def uid_value(self) -> str:
        """The type of what `execute_uids` is given for a uid."""
        return "int | float" if self.scalars else "int"

    @property
    def data(self) -> list[str]:
        """All that the runtime is told, as lines."""
        return wrap_bytes(pack(self.data_))


def docstring_row(text: str, width: int = 100) -> str:
    """Return what stands in a docstring for a line of text, cut to `width` columns there."""
    row = quoted(shorten(text, width))
    # Quoting at most doubles a text.
    return row if len(row) <= width else quoted(shorten(text, width // 2))


def fill_words(text: str) -> list[str]:
    """Return a sentence as lines of a docstring."""
    return [line.strip() for line in fill((f"{word} " for word in quoted(text).split(" ")), 98)]


def _kernels(plan: PlanParts) -> str:
    """Say which device code a plan carries in place of cuDNN's text."""
    if plan.kernels is None:
        return ""
    return f", kernels with SHA-256 {hashlib.sha256(b''.join(plan.kernels.binaries)).hexdigest()}"
