# SPDX-License-Identifier: Apache-2.0
"""An informer against the truth, over random histories and random faults.

First everything goes on at once: objects come, change and go, and the server
is cut off, forgets, falls silent, goes back in time. Then the faults end, and
the cache must become equal to the truth. All the while every handler must be
told a history that could have been (`informed.Told` insists on it), also one
that joins late.
"""

from collections.abc import Callable

from refloat.base.rand import Rand
from refloat.client import errors
from refloat.runtime import index
from refloat.runtime.cache import key_of
from refloat.sim.run import Sim
from tests.unit.runtime.checked_informer import APP, CheckedInformer, Told, world
from tests.virtual import virtual

SEEDS = 1000
STEPS = 60
NAMES = "abcdefgh"

# A silent watch, the longest wait, and a little.
HEALED_SECONDS = 200.0


class Chaos:
    """Does one random thing after the other to a server."""

    def __init__(self, w: CheckedInformer, rand: Rand) -> None:
        self._w = w
        self._server = w.server
        self._rand = rand
        self._faults: list[Callable[[], object]] = [
            self._server.cut,
            self._server.end_watches,
            self._server.forget,
            self._server.expire_watches,
            self._fail,
            self._fall_silent,
            self._slow_down,
            self._replay,
        ]

    async def step(self) -> None:
        chance = self._rand.random()
        if chance < 0.6:
            self._change()
        elif chance < 0.9:
            self._rand.choice(self._faults)()
        elif chance < 0.92:
            await self._rewind()
        await self._w.settle(self._rand.choice([0.0, 0.0, 0.01, 0.3, 2.0, 40.0]))

    def heal(self) -> None:
        self._server.failures.clear()
        self._server.silent = False
        self._server.initial_pause = self._server.page_pause = 0.0

    def _change(self) -> None:
        name = self._rand.choice(NAMES)
        if f"default/{name}" in self._server.objects and self._rand.random() < 0.4:
            self._server.drop(name)
        else:
            node = self._rand.choice(["", "n1", "n2"])
            app = self._rand.choice("xy")
            owner = [{"uid": self._rand.choice(["j1", "j2"]), "controller": True}]
            metadata = {"labels": {"app": app}, "ownerReferences": owner}
            self._server.put(name, metadata=metadata, spec={"nodeName": node})

    def _fail(self) -> None:
        failure = self._rand.choice(
            [
                errors.Unavailable("away"),
                errors.Timeout("no answer"),
                errors.Expired("gone", code=410),
                errors.TooManyRequests("later", retry_after=3),
                RuntimeError("a defect"),
            ]
        )
        self._server.failures += [failure] * (1 + self._rand.below(3))
        self._server.cut()

    def _fall_silent(self) -> None:
        self._server.silent = not self._server.silent

    def _slow_down(self) -> None:
        self._server.initial_pause = self._server.page_pause = self._rand.choice([0.0, 0.5, 20.0])

    def _replay(self) -> None:
        """Send again what was sent already, from somewhere in the past."""
        for watch in self._server.watches:
            watch.position -= self._rand.below(4)

    async def _rewind(self) -> None:
        """Restore an older state; clients could not notice if versions soon were higher again."""
        self.heal()
        back = max(100, self._server.version - self._rand.below(10))
        self._server.forgotten = min(self._server.forgotten, back)
        self._server.rewind(back)
        await self._w.settle(HEALED_SECONDS)


@virtual(seeds=SEEDS)
async def test_the_cache_becomes_the_truth_whatever_happened(sim: Sim) -> None:
    async with world(sim, *NAMES[:3], page_size=2) as w:
        w.server.knows_initial_events = sim.rand.random() < 0.7
        w.server.changes_among_initial = sim.rand.random() < 0.5
        chaos = Chaos(w, sim.rand)
        w.informer.start()
        late: list[Told] = []
        for step in range(STEPS):
            if step % 20 == 10:
                late.append(Told(w.cache))
                w.informer.add_handler(late[-1])
            await chaos.step()
        chaos.heal()
        await w.settle(HEALED_SECONDS)
        assert w.informer.has_synced
        w.assert_true_to_the_server()
        assert all(each.state == w.told.state for each in late)
        assert_indexes_agree(w)


def assert_indexes_agree(w: CheckedInformer) -> None:
    """Each index gives what a look at every object would."""
    for each, values in ((index.NODE, ["n1", "n2"]), (index.OWNER, ["j1", "j2"]), (APP, ["x"])):
        for value in values:
            keys = {key_of(pod) for pod in w.cache.by(each, value)}
            assert keys == {key_of(pod) for pod in w.cache if value in each.values(pod)}
