# SPDX-License-Identifier: Apache-2.0
"""The images of a node, which have no effect on processes.

Every image exists, unless the settings list it as missing or slow. So tests and demos
can show pods whose image is missing. Messages and back-off are those of a kubelet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from refloat.agent.runtime import StartError
from refloat.api.meta import Object

FIRST_SECONDS, LONGEST_SECONDS = 10.0, 300.0

# A kubelet syncs a pod again soon after a failed pull, and then reports the back-off.
_LOOK_AGAIN_SECONDS = 2.0

# The most failures in memory, by pod and image; the oldest are dropped.
_MAX_FAILURES = 10_000


class ImageError(StartError):
    """The image cannot be pulled now; the event has only the reason."""

    def __init__(self, message: str, reason: str, retry_seconds: float | None = None) -> None:
        super().__init__(message, reason=reason)
        self.retry_seconds = retry_seconds

    @property
    def note(self) -> str:
        return f"Error: {self.reason}"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Settings by shell pattern of image names; the first match counts."""

    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The command of containers without one."""

    missing: Sequence[str] = ()
    """Images that no registry has."""

    pull_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a pull; 0 for others."""


@dataclass(slots=True)
class _Failure:
    seconds: float
    until: float
    message: str


class Images:
    """The images of one node."""

    def __init__(self, settings: ImageSettings) -> None:
        self._settings = settings
        self._present: set[str] = set()
        self._failures: dict[tuple[str, str], _Failure] = {}

    def command(self, image: str) -> Sequence[str]:
        for pattern, command in self._settings.commands.items():
            if fnmatchcase(image, pattern):
                return command
        raise StartError(
            f'container has no command, and no pattern under "commands" in the file of --images '
            f'fits image "{image}"'
        )

    def pull_seconds(self, container: Object) -> float:
        """Seconds until the image is on the node; call `check` first."""
        image = container.get("image", "")
        if image in self._present and container.get("imagePullPolicy") != "Always":
            return 0.0
        for pattern, seconds in self._settings.pull_seconds.items():
            if fnmatchcase(image, pattern):
                return seconds
        return 0.0

    def add(self, image: str) -> None:
        """Record that an image is on the node."""
        self._present.add(image)

    def check(self, uid: str, container: Object, now: float) -> None:
        """Raises `StartError` if the image cannot be pulled now."""
        image = container.get("image", "")
        if not any(fnmatchcase(image, each) for each in self._settings.missing):
            return
        if container.get("imagePullPolicy") == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            raise ImageError(text, "ErrImageNeverPull")
        key = (uid, image)
        failure = self._failures.get(key)
        if failure is not None and failure.until > now:
            text = f'Back-off pulling image "{image}": ErrImagePull: {failure.message}'
            raise ImageError(text, "ImagePullBackOff", failure.until - now)
        seconds = FIRST_SECONDS if failure is None else min(2 * failure.seconds, LONGEST_SECONDS)
        message = f'failed to resolve reference "{image}": {image}: not found'
        self._failures[key] = _Failure(seconds, now + seconds, message)
        if len(self._failures) > _MAX_FAILURES:
            del self._failures[next(iter(self._failures))]
        raise ImageError(message, "ErrImagePull", _LOOK_AGAIN_SECONDS)
