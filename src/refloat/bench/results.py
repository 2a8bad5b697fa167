# SPDX-License-Identifier: Apache-2.0
"""The figures of a benchmark, and the progress that it reports."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Progress: TypeAlias = Callable[[str], object]
"""Reports the step that begins."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, beside the figures to compare it with."""

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


def cost(
    what: str, value: float, unit: str, *, stock: float | None = None, aim: float | None = None
) -> Row:
    """A figure of which less is better."""
    return Row(what, value, unit, stock=stock, aim=aim, smaller_is_better=True)
