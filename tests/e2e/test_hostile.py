# SPDX-License-Identifier: Apache-2.0
"""Hostile requests cost neither the server nor the nodes much.

`python -m tests.hostile` sends all of them and prints a table. The tests send a part.
The first test runs the server on asyncio's loop and measures each callback in processor
time of the thread, so a busy machine does not count. The second test runs the server on
uvloop, as users do, and measures the memory of the whole process, with all that the
attacks have stored, once the server has returned what is free.
"""

from pathlib import Path

from tests.hostile import attacks, driver

SLOW = (
    "4 x labelSelector of 5,000 terms (admin)",
    "4 x labelSelector of 5,000 terms (tenant)",
    "4 x fieldSelector of 25,000 terms (readonly)",
    "450,000 parameters (anonymous)",
    "128 targets of 900 KB (anonymous)",
    "fieldManager of 300,000 control characters (admin)",
    "Accept of 110,000 clauses (tenant)",
    "Content-Type of 80,000 parameters (tenant)",
    "review with 300,000 empty requirements (tenant)",
    "review with a rawSelector of 3 MB (tenant)",
    "strategic patch of 4,000 deletions (admin)",
    "strategic patch with the reverse order of 8,000 (admin)",
    "JSON patch of 10,000 copies in a wide object (admin)",
    "merge patch with 45,000 wrong keys (admin)",
    "apply of 40,000 keys (admin)",
    "a label of 2.9 MB of control characters (admin)",
    "9,000 owner references (admin)",
    "a pod of 11,000 tolerations (admin)",
    "a body of 1,000,000 empty objects (admin)",
    "YAML with nested aliases (admin)",
    "a wide object as YAML (readonly)",
    "a list of large objects as a table (readonly)",
    "20 connections with 20 unread objects of 1 MB (readonly)",
    "60 unread watches of changes (readonly)",
    "60 bodies of 3 MB that do not end (admin)",
    "300 connections that are not used (anonymous)",
)


LARGE = (
    "128 targets of 900 KB (anonymous)",
    "fieldManager of 300,000 control characters (admin)",
    "review with 300,000 empty requirements (tenant)",
    "apply of 40,000 keys (admin)",
    "a label of 2.9 MB of control characters (admin)",
    "a body of 1,000,000 empty objects (admin)",
    "a list of large objects as a table (readonly)",
    "20 connections with 20 unread objects of 1 MB (readonly)",
    "60 unread watches of changes (readonly)",
    "60 bodies of 3 MB that do not end (admin)",
    "300 connections that are not used (anonymous)",
)


def _attacks(names: tuple[str, ...]) -> list[attacks.Attack]:
    selection = [each for each in attacks.ALL if each.name in names]
    assert len(selection) == len(names)
    return selection


async def test_no_hostile_request_holds_the_server(tmp_path: Path) -> None:
    async with driver.under_attack(tmp_path / "data", "asyncio") as siege:
        costs = [cost async for cost in siege.costs(_attacks(SLOW))]
    assert [delay for cost in costs for delay in cost.delays()] == []


async def test_no_hostile_request_makes_the_server_grow(tmp_path: Path) -> None:
    async with driver.under_attack(tmp_path / "data", "uvloop") as siege:
        growths = {cost.name: cost.growth async for cost in siege.costs(_attacks(LARGE))}
        growths["in the end"] = await siege.final_growth()
    assert {name: size for name, size in growths.items() if size > driver.GROWTH_BYTES} == {}
