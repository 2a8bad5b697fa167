# SPDX-License-Identifier: Apache-2.0
"""What a benchmark found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, beside what there is to compare it with."""

    what: str
    value: float
    unit: str
    stock: float | None = None  # a stock kube-apiserver with etcd, same kind of machine
    aim: float | None = None
    smaller_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times better than stock."""
        if self.stock is None or not self.value:
            return None
        return self.stock / self.value if self.smaller_is_better else self.value / self.stock

    @property
    def reached(self) -> bool | None:
        if self.aim is None:
            return None
        return self.value <= self.aim if self.smaller_is_better else self.value >= self.aim
