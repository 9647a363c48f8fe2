"""What users choose by name: launch policies, and what becomes of a device without a plan."""

from __future__ import annotations

import os

from cudnn_bindgen.runtime.errors import OperandError, describe

ENVIRONMENT = "CUDNN_BINDGEN_LAUNCH"

# The numbers of LaunchPolicy in records.hpp.
POLICIES = {"auto": 0, "direct": 1, "record": 2}


def policy_number(name: object, where: str = "policy") -> int:
    """Return the number of a policy.

    Raises
    ------
    OperandError
        There is none of that name.
    """
    # A caller may give anything, also what has no hash.
    if not isinstance(name, str) or name not in POLICIES:
        raise OperandError(where, f"one of {', '.join(POLICIES)}", describe(name))
    return POLICIES[name]


def makes_missing(on_missing: object) -> bool:
    """Return whether a plan is made where there is none: what `load_plan` was told.

    Raises
    ------
    OperandError
        It is neither "refuse" nor "plan".
    """
    if not isinstance(on_missing, str) or on_missing not in ("refuse", "plan"):
        raise OperandError("on_missing", '"refuse" or "plan"', describe(on_missing))
    return on_missing == "plan"


def default_policy() -> int:
    """Return the policy that modules start with: ``CUDNN_BINDGEN_LAUNCH``, else auto."""
    return policy_number(os.environ.get(ENVIRONMENT) or "auto", ENVIRONMENT)
