# SPDX-License-Identifier: Apache-2.0
"""The errors of a simulation itself, not of the simulated code.

SimulationError
├── Unsimulated     simulated code used the real world
├── Deadlock        no task can continue, and the main task has not ended
├── OutOfSteps      the run reached its bound of steps
├── OutOfTime       the run reached its bound of virtual time
├── Leaked          the garbage collector ended an async generator
└── Unhandled       no task awaited an exception

Each error ends the run, even if simulated code catches the error, and names the seed.
"""

from refloat.base.errors import RefloatError


class SimulationError(RefloatError):
    """The run is void."""


class Unsimulated(SimulationError):
    """Simulated code tried to use a thread, a socket, a process or real time."""


class Deadlock(SimulationError):
    """Nothing is ready and no timer is set."""


class OutOfSteps(SimulationError):
    """The bound of steps was reached; a task may be spinning."""


class OutOfTime(SimulationError):
    """The bound of virtual time was reached."""


class Leaked(SimulationError):
    """The time of garbage collection is chance, so no code may depend on that time."""


class Unhandled(SimulationError):
    """An error that asyncio would only log; the cause is chained."""
