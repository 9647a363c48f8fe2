"""What the matrix leaves out, and why. Imports no frontend: the tests read it, too."""

from __future__ import annotations

VERSIONS = ("1.18.0", "1.23.0", "1.26.0", "1.29.1", "1.32.0")

# (version, graph) → why there is no such dump. `dump.py` fails when a builder fails that is not
# listed, and when one that is listed as failing does not.
FAILS = {
    ("1.18.0", "concatenate"): "the Python front has no concatenate",
    ("1.18.0", "scalar_with_value"): "the Python front has no tensor_scalar",
    ("1.18.0", "scalar_of_compile_time"): "the Python front has no tensor_scalar",
}
# A third of all data: once is enough.
LEFT_OUT = {(version, "pointwise_chain") for version in VERSIONS if version != "1.26.0"}


def is_validated(version: str, graph: str) -> bool:
    """Whether the graph is validated before it is dumped.

    Validating attention, frontend 1.18 asks CUDA for a device whatever `sm_version` says. With all
    shapes stated the text is the same before and after.
    """
    return version != "1.18.0" or not graph.startswith("sdpa")
