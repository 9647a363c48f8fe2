"""How large the numbers of a graph may be: types for msgspec, and what the runtime holds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# Bytes of workspace, and from one address to another: no GPU has addresses for more. Whoever adds
# some of them to others, to cuDNN's own share or to an address, stays below int64.
Bytes = Annotated[int, Meta(ge=0, le=2**48)]
# cuDNN has 8 axes; the product of thousands takes minutes.
Rank = Meta(max_length=64)

# The runtime has arrays of these sizes (tests/codegen/model/test_limits.py).
# cuDNN 9.27 keeps so many uids of a variant pack and drops the rest without a word.
MAX_OPERANDS = 300
MAX_SYMBOLS = 64
# A call with a key of more numbers is no longer one that anybody reads.
MAX_KEY = 16
