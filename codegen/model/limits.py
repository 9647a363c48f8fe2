"""How large the numbers of a graph may be, as types that msgspec checks."""

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
