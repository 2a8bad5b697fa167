# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a simulation, as opposed to within it.

SimulationError
├── Unsimulated     simulated code reached for the real world
├── Deadlock        nobody can ever go on, and the main task has not ended
├── OutOfSteps      it ran for more steps than it was given
├── OutOfTime       it ran for more virtual time than it was given
├── Leaked          an async generator was left to the garbage collector
└── Unhandled       an exception that nobody waited for

Each ends the run, also when simulated code catches it, and says the seed.
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
    """When garbage is collected is chance, so nothing may depend on it."""


class Unhandled(SimulationError):
    """What asyncio would only log; the cause is chained."""
