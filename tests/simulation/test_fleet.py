# SPDX-License-Identifier: Apache-2.0
"""Twenty nodes and two hundred pods, in virtual time: all end, always in the same way."""

from collections import Counter

from refloat.sim.run import Sim, run
from refloat.sim.trace import Trace
from tests.simulation import fleet_program
from tests.virtual import virtual


def histories(trace: Trace) -> dict[str, list[tuple[str, str]]]:
    """What each pod went through: phase and node."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for text in trace.texts:
        if " on " not in text:
            continue
        name, state, _, node = text.split()
        steps = lines.setdefault(name, [])
        if steps[-1:] != [(state, node)]:
            steps.append((state, node))
    return lines


@virtual(seeds=3)
async def test_all_pods_end_as_their_scripts_say(sim: Sim) -> None:
    trace = await fleet_program.program(sim)
    lines = histories(trace)
    assert len(lines) == fleet_program.PODS
    for name, steps in lines.items():
        number = int(name.removeprefix("pod-"))
        deleted = number % fleet_program.DELETED == 0
        assert steps[0] == ("Pending", "-")
        failed = number % fleet_program.FAILS == 1 or deleted
        # A pod that was deleted before the binding never ended on a node.
        if deleted and steps[-1] == ("gone", "-"):
            continue
        phases = list(dict.fromkeys(state for state, _ in steps))
        want = ["Pending", "Running", "Failed" if failed else "Succeeded"]
        assert phases == (want + ["gone"] * deleted), name
        assert len({node for _, node in steps} - {"-"}) == 1
    assert trace.texts[-1] == f"left: {sum(s[-1][0] != 'gone' for s in lines.values())}"


@virtual()
async def test_no_node_ever_runs_more_than_it_said_and_all_are_used(sim: Sim) -> None:
    trace = await fleet_program.program(sim)
    busy: dict[str, str] = {}
    used = Counter[str]()
    for text in trace.texts:
        if " on " not in text:
            continue
        name, state, _, node = text.split()
        if state == "Running":
            busy[name] = node
            used[node] += 1
            assert max(Counter(busy.values()).values()) <= int(fleet_program.PODS_PER_NODE)
        elif state != "Pending":
            busy.pop(name, None)
    assert len(used) == fleet_program.NODES


def test_another_seed_has_another_history() -> None:
    assert len({run(fleet_program.program, seed=seed).digest() for seed in range(2)}) == 2
