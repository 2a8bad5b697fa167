# SPDX-License-Identifier: Apache-2.0
"""Images that are missing, or slow to pull."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from refloat.agent.process import image_file
from refloat.agent.process.images import ImageError, Images, ImageSettings
from refloat.agent.runtime import ContainerRecord
from refloat.base.errors import UsageError
from tests.cases import cases
from tests.unit.agent.process.node import ProcessNode, node, pod, sh, until

NOT_FOUND = 'failed to resolve reference "gone:1": gone:1: not found'


def container(image: str = "gone:1", policy: str = "IfNotPresent") -> dict[str, Any]:
    return {"name": "main", "image": image, "imagePullPolicy": policy}


def refused(images: Images, now: float, uid: str = "u", **fields: str) -> ImageError:
    with pytest.raises(ImageError) as error:
        images.check(uid, container(**fields), now)
    return error.value


def test_every_image_is_there_unless_it_is_said_not_to_be() -> None:
    images = Images(ImageSettings(missing=["gone:*"]))
    images.check("u", container("busybox"), 0)
    assert images.pull_seconds(container("busybox")) == 0


def test_pulls_that_fail_back_off_and_say_so() -> None:
    images = Images(ImageSettings(missing=["gone:*"]))
    first = refused(images, 0)
    assert (first.reason, str(first), first.note) == (
        "ErrImagePull",
        NOT_FOUND,
        "Error: ErrImagePull",
    )
    again = refused(images, 2)
    assert again.reason == "ImagePullBackOff"
    assert str(again) == f'Back-off pulling image "gone:1": ErrImagePull: {NOT_FOUND}'
    assert again.retry_seconds == 8


def test_the_back_off_doubles_to_five_minutes() -> None:
    images = Images(ImageSettings(missing=["gone:*"]))
    now, waits = 0.0, []
    for _ in range(7):
        assert refused(images, now).reason == "ErrImagePull"
        wait = refused(images, now).retry_seconds
        assert wait is not None
        waits.append(wait)
        now += wait
    assert waits == [10, 20, 40, 80, 160, 300, 300]


def test_each_pod_backs_off_for_itself() -> None:
    images = Images(ImageSettings(missing=["gone:*"]))
    assert refused(images, 0, "u").reason == "ErrImagePull"
    assert refused(images, 0, "other").reason == "ErrImagePull"


def test_an_image_that_is_never_pulled_is_not_there() -> None:
    images = Images(ImageSettings(missing=["gone:*"]))
    error = refused(images, 0, policy="Never")
    assert error.reason == "ErrImageNeverPull"
    assert str(error) == 'Container image "gone:1" is not present with pull policy of Never'


@cases("policy want", {"once is enough": ("IfNotPresent", 0.0), "again each time": ("Always", 5.0)})
def test_what_was_pulled_is_there(policy: str, want: float) -> None:
    images = Images(ImageSettings(pull_seconds={"slow*": 5.0}))
    slow = container("slow", policy)
    assert images.pull_seconds(slow) == 5.0
    images.add("slow")
    assert images.pull_seconds(slow) == want


async def test_a_container_is_being_made_while_its_image_is_pulled(tmp_path: Path) -> None:
    slow = ImageSettings(pull_seconds={"any": 0.2})
    async with node(tmp_path, images=slow) as here:
        await here.start(pod("a", "true"))
        record = here.current("a")
        assert (record.started_at, record.has_ended) == (None, False)
        assert here.runtime.pods() == ["a"]
        assert (await here.ended("a")).exit_code == 0
        assert "a" in here.changes


async def test_one_given_up_while_its_image_is_pulled_never_runs(tmp_path: Path) -> None:
    slow = ImageSettings(pull_seconds={"any": 100})
    async with node(tmp_path, images=slow) as here:
        await here.start(pod("a", "true"))
        assert here.runtime.stop("a", "main", 30)
        assert here.runtime.containers("a") == {}
        await until(lambda: here.changes == ["a"])


async def test_one_that_ended_while_its_image_was_pulled_never_runs(tmp_path: Path) -> None:
    """Independent of the events of the watch."""
    slow = ImageSettings(pull_seconds={"any": 0.2})
    async with node(tmp_path, images=slow) as here:
        await here.start(pod("a", "true"))
        del here.pods["a"]
        await until(lambda: here.changes == ["a"])
        assert here.runtime.containers("a") == {}
        assert not here.runtime.folder("a").path.exists()


async def test_one_stopped_while_it_is_launched_after_its_pull_lives_until_it_is_gone(
    tmp_path: Path,
) -> None:
    """The keeper got the request, so the container will run (behaviour D4.5)."""
    slow = ImageSettings(pull_seconds={"any": 0.2})
    async with node(tmp_path, images=slow) as here:
        keeper = here.runtime.features["pid"]
        await here.start(sh("a", "trap '' TERM; echo ready; while true; do sleep 1; done"))
        os.kill(keeper, signal.SIGSTOP)
        await until(lambda: here.runtime._starting)
        assert here.runtime.stop("a", "main", 0.3)
        assert not here.runtime.stop("a", "main", 30)
        assert not here.current("a").has_ended
        observations: list[tuple[ContainerRecord, list[int]]] = []
        here.runtime.listen(lambda uid: observations.append((here.current(uid), here.processes())))
        os.kill(keeper, signal.SIGCONT)
        record = await here.ended("a")
        assert record.exit_code in (137, 143)
        assert [each for each in observations if each[0].has_ended] == [(record, [])]


async def test_container_that_runs_though_nobody_waits_for_it_is_told_of(here: ProcessNode) -> None:
    os.kill(here.runtime.features["pid"], signal.SIGSTOP)
    starting = asyncio.ensure_future(here.start(pod("a", "sleep", "100")))
    await until(lambda: here.runtime._starting)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    os.kill(here.runtime.features["pid"], signal.SIGCONT)
    await until(lambda: here.changes == ["a"])
    assert here.current("a").started_at is not None
    here.runtime.stop("a", "main", 0)
    await here.ended("a")


def test_a_file_says_what_images_are(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text('commands: {"x:*": [echo, hi]}\nmissing: [y]\npullSeconds: {z: 1.5}\n')
    assert image_file.read(file) == ImageSettings({"x:*": ["echo", "hi"]}, ("y",), {"z": 1.5})


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "images.yaml").touch()
    assert image_file.read(tmp_path / "images.yaml") == ImageSettings()


@cases(
    "text want",
    {
        "an unknown field": ("lost: [x]", "unknown field `lost`"),
        "a text": ("missing: x", r"Expected `array`, got `str` - at `\$.missing`"),
        "no command": ("commands: {x: []}", r"commands\['x'\]: \[\] is no command"),
        "before now": ("pullSeconds: {x: -1}", r"pullSeconds\['x'\]: -1.0 is no"),
        "not YAML": ("{", "while parsing"),
    },
)
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, text: str, want: str) -> None:
    file = tmp_path / "images.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=want) as error:
        image_file.read(file)
    assert str(error.value).startswith(str(file))
