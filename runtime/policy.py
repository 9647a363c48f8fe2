"""Names of the launch policies, and the environment variable that chooses one for all modules."""

from __future__ import annotations

import os

ENVIRONMENT = "CUDNN_BINDGEN_LAUNCH"

# The numbers of LaunchPolicy in launch_policy.hpp.
POLICIES = {"auto": 0, "direct": 1, "record": 2}


def policy_number(name: object, where: str = "policy") -> int:
    """Return the number of a policy.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    # A caller may give anything, also what has no hash.
    if not isinstance(name, str) or name not in POLICIES:
        raise ValueError(f"{where}: expected one of {', '.join(POLICIES)}, got {name!r}")
    return POLICIES[name]


def default_policy() -> int:
    """Return the policy that modules start with: ``CUDNN_BINDGEN_LAUNCH``, else auto."""
    return policy_number(os.environ.get(ENVIRONMENT) or "auto", ENVIRONMENT)
