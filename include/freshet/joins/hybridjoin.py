"""HYBRIDJOIN: waiting stream tuples joined with the partition of R that the oldest of them needs.

Naeem, Dobbie, Weber: HYBRIDJOIN for near-real-time data warehousing. International Journal of Data
Warehousing and Mining, 2011.

R has an index on the join key and is cut into partitions of d rows. Up to h_S stream tuples wait in a hash
table H and, by age, in a queue Q from which a tuple can be deleted anywhere. One iteration is:

 1. refill H with as many tuples as have left it, or as many as there are;
 2. load the partition of the oldest tuple in Q into the disk buffer;
 3. join H with it; what matches leaves H and Q.

When the stream pauses it goes on until H is empty. It is X-HYBRIDJOIN without the hot part, and the first of
the family.

    | disk buffer d | intake | H and Q: h_S waiting tuples, and gaps |
    |     M / 8     | M / 16 |               the rest                |

The deviations are those of X-HYBRIDJOIN (`xhybridjoin.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from freshet.joins.queued import SWAPPABLE_PAGES, WAITING_TUPLES
from freshet.joins.xhybridjoin import XHybridJoin


class HybridJoin(XHybridJoin):
    """HYBRIDJOIN."""

    name = "hybridjoin"
    without_hot_part = True
    known_settings: ClassVar[Mapping[str, str]] = {
        "swappable_pages": SWAPPABLE_PAGES,
        "waiting_tuples": WAITING_TUPLES,
    }
