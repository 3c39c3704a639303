"""X-HYBRIDJOIN: waiting stream tuples joined with the partition the oldest needs, and a hot part of R.

Naeem, Dobbie, Weber: Efficient processing of streaming updates with archived master data in near-real-time
data warehousing. Knowledge and Information Systems, 2013.

R is sorted by access frequency. Its first d_N rows, the hot part, stay in memory. The rest is cut into
partitions of d_S rows, the first of which starts at d_N. Up to h_S stream tuples wait in a hash table H and,
by age, in a queue Q. One iteration is:

 1. refill H with as many tuples as have left it, or as many as there are;
 2. join H with the hot part; what matches leaves H and Q;
 3. load the partition of the oldest tuple in Q into the swappable part;
 4. join H with it; what matches leaves H and Q.

Memory of M bytes (untuned: hot and swappable part are equal, as in the paper, an eighth of M each):

    | hot part d_N | swappable part d_S | intake | H and Q: h_S waiting tuples, and gaps |
    |    M / 8     |       M / 8        | M / 16 |               the rest                |

Deviations from the paper, besides those of all queued joins (`queued.py`):
 - H is refilled with min(w, available) tuples; the pseudo-code waits for w, and a short stream would never
   start. An iteration starts when a tuple finds H full or when the stream pauses, so a batch that fits H
   loads each partition it touches once.
 - Of a partition only those pages are read that hold a row some tuple waits for, one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from freshet.joins.queued import HOT_ROWS, SWAPPABLE_PAGES, WAITING_TUPLES, QueuedJoin


class XHybridJoin(QueuedJoin):
    """The untuned X-HYBRIDJOIN."""

    name = "x-hybridjoin"
    known_settings: ClassVar[Mapping[str, str]] = {
        "hot_rows": HOT_ROWS,
        "swappable_pages": SWAPPABLE_PAGES,
        "waiting_tuples": WAITING_TUPLES,
    }

    def _due_partition(self) -> int | None:
        return self._waiting.oldest_partition() if self._waiting.count else None
