"""The demo: sales of products, as files of JSON lines, and the product master they refer to.

Everything follows from the sizes and the seed, but the times of the sales, which end at a given `now`. A
known number of records is bad, each in one way only, so that a load can be checked by counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from freshet.workload.zipf import ZipfKeys

FIRST_PRODUCT = 100_001
_SUPPLIERS = 5_000
_SECONDS = 1_800
_ADJECTIVES = "amber brisk calm dusty eager frosty gentle hollow ivory jolly".split()
_NOUNS = "anchor basket candle drum easel funnel goblet hammer inkwell jug".split()


@dataclass(frozen=True)
class Planted:
    """How many records are bad, by the reason they are parked for."""

    unmatched: int
    malformed: int
    wrong_type: int
    null_key: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


FEWEST_SALES = len(fields(Planted))
"""The smallest demo has one bad record of each kind."""


@dataclass(frozen=True)
class SalesSize:
    """How much of the demo there is."""

    sales: int = 1_000_000
    products: int = 200_000
    files: int = 16
    exponent: float = 1.0
    seed: int = 20_130_000
    planted: Planted = Planted(unmatched=2_500, malformed=400, wrong_type=300, null_key=800)

    def scaled(self, sales: int, products: int) -> SalesSize:
        """Another size with the same share of bad records, at least one of each kind."""
        share = sales / self.sales
        planted = {reason: max(1, round(count * share)) for reason, count in self.planted.as_dict().items()}
        return replace(self, sales=sales, products=products, planted=Planted(**planted))

    def __post_init__(self) -> None:
        bad = sum(self.planted.as_dict().values())
        if bad > self.sales:
            raise ValueError(f"{bad} bad records cannot be planted in {self.sales} sales")


def products(size: SalesSize) -> pa.Table:
    """The product master: one row a product, in the order of product_id."""
    random = np.random.default_rng(size.seed + 1)
    number = np.arange(size.products)
    cents = random.integers(50, 50_000, size.products)
    adjective = pa.array(_ADJECTIVES).take(pa.array(number % len(_ADJECTIVES)))
    noun = pa.array(_NOUNS).take(pa.array(number // len(_ADJECTIVES) % len(_NOUNS)))
    return pa.table(
        {
            "product_id": pa.array(number + FIRST_PRODUCT, pa.int64()),
            "surrogate_key": pa.array(random.permutation(size.products) + 1, pa.int64()),
            "supplier_id": pa.array(random.integers(1, _SUPPLIERS + 1, size.products), pa.int32()),
            "sale_price": _hundredths(cents),
            "name": pc.binary_join_element_wise(adjective, noun, pa.array(number).cast(pa.string()), " "),
        }
    )


def _hundredths(cents: npt.NDArray[np.int64]) -> pa.Array:
    """Amounts with two digits after the point, made of the 128-bit integers that Arrow keeps them as."""
    words = np.zeros((len(cents), 2), "<i8")
    words[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(10, 2), len(cents), [None, pa.py_buffer(words)])


def sales_files(size: SalesSize, now: datetime) -> Iterator[tuple[str, pa.Buffer]]:
    """The stream, file by file in the order of time: a name and its contents."""
    keys = ZipfKeys(size.products, size.exponent, size.seed)
    random = np.random.default_rng(size.seed + 2)
    fates = _fates(size, random)
    bounds = np.linspace(0, size.sales, size.files + 1).astype(int)
    for number in range(size.files):
        start, end = int(bounds[number]), int(bounds[number + 1])
        sales = _Sales(
            number=np.arange(start, end),
            product=keys.draw(end - start) + FIRST_PRODUCT,
            quantity=random.integers(1, 21, end - start),
            sold_at=_times(size, start, end, now),
            fate=fates[start:end],
        )
        yield f"sales-{number + 1:05d}.json", sales.to_lines(size)


def _fates(size: SalesSize, random: np.random.Generator) -> npt.NDArray[np.int8]:
    """What becomes of each record: 0 is good, otherwise the number of the reason it is bad for."""
    fates = np.zeros(size.sales, np.int8)
    counts = size.planted.as_dict().values()
    bad = random.choice(size.sales, sum(counts), replace=False)
    fates[bad] = np.repeat(np.arange(1, len(counts) + 1), list(counts))
    return fates


_UNMATCHED, _MALFORMED, _WRONG_TYPE, _NULL_KEY = 1, 2, 3, 4


def _times(size: SalesSize, start: int, end: int, now: datetime) -> pa.Array:
    """The times of some records as text: evenly spread over half an hour, the last one at `now`."""
    last = int(now.timestamp() * 1_000)
    moments = last - (size.sales - 1 - np.arange(start, end)) * (_SECONDS * 1_000) // max(size.sales, 1)
    seconds, position = np.unique(moments // 1_000, return_inverse=True)
    texts = [datetime.fromtimestamp(int(second), UTC).strftime("%Y-%m-%dT%H:%M:%S.") for second in seconds]
    fraction = pc.utf8_lpad(pa.array(moments % 1_000).cast(pa.string()), 3, "0")
    return pc.binary_join_element_wise(
        pa.array(texts, pa.string()).take(pa.array(position)), fraction, "Z", ""
    )


@dataclass(frozen=True)
class _Sales:
    """Some records of the stream on their way to JSON."""

    number: npt.NDArray[np.int64]
    product: npt.NDArray[np.int64]
    quantity: npt.NDArray[np.int64]
    sold_at: pa.Array
    fate: npt.NDArray[np.int8]

    def to_lines(self, size: SalesSize) -> pa.Buffer:
        """The records as JSON lines, the bad ones spoiled in their way."""
        text = pa.string()
        # Bad records take turns at the ways of being bad in their kind.
        turn = self.number % 3
        product = np.where(self.fate == _UNMATCHED, self.product + size.products, self.product)
        product_text = pa.array(product).cast(text)
        product_text = _where(self.fate == _NULL_KEY, "null", product_text)
        product_text = _where((self.fate == _WRONG_TYPE) & (turn == 0), '"unknown"', product_text)
        quantity = pa.array(self.quantity).cast(text)
        quantity = _where((self.fate == _WRONG_TYPE) & (turn == 1), '"many"', quantity)
        sold_at = _where((self.fate == _WRONG_TYPE) & (turn == 2), "yesterday", self.sold_at)
        sale = pc.utf8_lpad(pa.array(self.number).cast(text), 9, "0")
        start = _joined('{"sale_id":"S', sale, '","product_id":', product_text)
        whole = _joined(start, ',"quantity":', quantity, ',"sold_at":"', sold_at, '"}\n')
        broken = _joined(start, ',"quan\n')
        return _text_of(pc.if_else(pa.array(self.fate == _MALFORMED), broken, whole))


def _joined(*parts: str | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _text_of(lines: pa.Array) -> pa.Buffer:
    """All strings one behind the other, as they already lie in the array's memory."""
    _, offsets, data = lines.buffers()
    return data.slice(0, int(np.frombuffer(offsets, np.int32)[len(lines)]))


def _where(condition: npt.NDArray[np.bool_], value: str, otherwise: pa.Array) -> pa.Array:
    return pc.if_else(pa.array(condition), value, otherwise)
