# SPDX-License-Identifier: Apache-2.0
"""What always holds of the policies of Jobs, whatever happens."""

from dataclasses import dataclass, field

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from refloat.api import index_intervals
from refloat.api.batch import Job, JobStatus, PodFailurePolicy, UncountedTerminatedPods
from refloat.api.core import Pod
from refloat.api.meta import Object
from refloat.policy.job import accounting, observed, outcome, pod_failure, pod_state, scaling
from refloat.policy.job.accounting import Counts
from refloat.policy.job.scaling import NewPod
from tests.unit.policy.builders import (
    at,
    condition,
    container,
    indexed,
    job,
    on_codes,
    on_condition,
    pod,
    policy,
)

# -- pod failure policies ---------------------------------------------------------

ACTIONS = st.sampled_from(["FailJob", "FailIndex", "Ignore", "Count", "Future"])
CODES = st.integers(0, 5)
NAMES = st.sampled_from(["a", "b", "init"])
CONDITION_TYPES = st.sampled_from(["DisruptionTarget", "Other"])
STATUSES = st.sampled_from(["True", "False"])

RULES = st.one_of(
    st.builds(
        lambda action, operator, values, name: on_codes(action, operator, *values, name=name),
        ACTIONS,
        st.sampled_from(["In", "NotIn", "Future"]),
        st.lists(CODES, min_size=1, unique=True),
        st.none() | NAMES,
    ),
    st.builds(on_condition, ACTIONS, CONDITION_TYPES, STATUSES),
)

PODS = st.builds(
    lambda main, init, conditions: pod(
        "u",
        "Failed",
        containers=[container(name, code) for name, code in main],
        init=[container("init", code) for code in init],
        conditions=[condition(*each) for each in conditions],
    ),
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | CODES), max_size=2),
    st.lists(CODES, max_size=1),
    st.lists(st.tuples(CONDITION_TYPES, STATUSES), max_size=2),
)


def judged(rules: list[Object], of: Pod) -> pod_failure.Verdict:
    failure_policy = msgspec.convert(policy(*rules), PodFailurePolicy)
    return pod_failure.match_pod_failure_policy(failure_policy, of)


@given(st.lists(RULES, max_size=5), PODS)
def test_the_first_match_wins(rules: list[Object], of: Pod) -> None:
    """Each rule alone decides whether it matches; the verdict is that of the first match."""
    alone = [judged([rule], of) for rule in rules]
    matching = [index for index, verdict in enumerate(alone) if verdict.action]
    verdict = judged(rules, of)
    assert verdict.rule == (matching[0] if matching else None)
    assert verdict.action == (rules[matching[0]]["action"] if matching else "")


@given(st.lists(RULES, max_size=5), PODS)
def test_exit_code_0_never_matches(rules: list[Object], of: Pod) -> None:
    verdict = judged(rules, of)
    assert verdict.exit_code != 0 or not verdict.container


@given(st.lists(RULES, max_size=5), PODS)
def test_an_unknown_action_is_never_taken(rules: list[Object], of: Pod) -> None:
    assert judged(rules, of).action in {"", *pod_failure.ACTIONS}


# -- indexes ----------------------------------------------------------------------


@given(st.sets(st.integers(0, 60)))
def test_indexes_survive_being_written(indexes: set[int]) -> None:
    text = index_intervals.render(index_intervals.of(indexes))
    intervals = index_intervals.parse(text, 61)
    assert [each for first, last in intervals for each in range(first, last + 1)] == sorted(indexes)
    assert index_intervals.check(text, 61) == len(indexes)


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 31))
def test_completed_indexes_only_grow_while_the_job_does_not_shrink(
    before: set[int], new: set[int], completions: int
) -> None:
    """Behaviour A7.5: what is dropped are indexes that the Job does not have."""
    obj = indexed(
        completions, status={"completedIndexes": index_intervals.render(index_intervals.of(before))}
    )
    pods = [pod(f"p{index}", "Succeeded", index=index) for index in sorted(new)]
    observation = observed.observe(obj, pods)
    want = {index for index in before | new if index < completions}
    assert observation.succeeded == len(want)
    assert observation.succeeded_indexes == index_intervals.of(want)


@given(st.sets(st.integers(0, 12)), st.lists(st.integers(0, 13), min_size=1, max_size=4))
def test_the_count_of_indexes_falls_only_with_the_number_of_indexes(
    done: set[int], sizes: list[int]
) -> None:
    """Behaviour A7.5, B6.4: and what was dropped does not come back when the Job grows again."""
    text, indexes, before = (
        index_intervals.render(index_intervals.of(done)),
        done,
        max(len(done), 0),
    )
    for completions in sizes:
        indexes = {index for index in indexes if index < completions}
        status = {"completedIndexes": text, "succeeded": before, "ready": 0, "terminating": 0}
        plan = accounting.plan(
            observed.observe(indexed(completions, status=status), []),
            outcome=None,
            counts=Counts(0, 0, 0),
            now=at(0),
        )
        text, before = plan.status.completed_indexes, plan.status.succeeded
        assert before == len(indexes)
        assert text == index_intervals.render(index_intervals.of(indexes))


LONG_AGO = 10_000.0  # later than any delay after failures

# -- how many pods ----------------------------------------------------------------

PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])
CROWDS = st.lists(st.tuples(PHASES, st.booleans(), st.booleans(), st.integers(0, 6)), max_size=8)


def crowd(states: list[tuple[str, bool, bool, int]], *, with_index: bool) -> list[Pod]:
    """Pods in any state, tracked or not, deleted or not."""
    return [
        pod(
            f"p{number}",
            phase,
            tracked=tracked,
            deleted=0 if deleted else None,
            index=index if with_index else None,
        )
        for number, (phase, tracked, deleted, index) in enumerate(states)
    ]


@given(CROWDS, st.integers(0, 5), st.integers(0, 6), st.booleans())
def test_under_failed_nothing_is_created_above_the_parallelism(
    states: list[tuple[str, bool, bool, int]], parallelism: int, completions: int, suspend: bool
) -> None:
    """Whatever was deleted by whomever: active and terminating pods take their places."""
    pods = crowd(states, with_index=False)
    obj = job(
        parallelism=parallelism,
        completions=completions,
        suspend=suspend,
        podReplacementPolicy="Failed",
        backoffLimit=100,
    )
    alive = sum(not each.is_terminal for each in pods)
    plan = scaling.plan(observed.observe(obj, pods), at(LONG_AGO))
    assert not plan.create or alive + len(plan.create) <= parallelism
    assert not (plan.create and plan.delete)
    assert not (suspend and plan.create)


@given(CROWDS, st.integers(0, 5), st.integers(0, 7), st.sampled_from(["Failed", "Other"]))
def test_no_index_gets_a_pod_that_has_one_or_needs_none(
    states: list[tuple[str, bool, bool, int]], parallelism: int, completions: int, when: str
) -> None:
    pods = crowd(states, with_index=True)
    obj = indexed(
        completions,
        parallelism=parallelism,
        podReplacementPolicy="Failed" if when == "Failed" else "TerminatingOrFailed",
        backoffLimit=100,
    )
    new = [each.index for each in scaling.plan(observed.observe(obj, pods), at(LONG_AGO)).create]
    uids = {
        pod_state.completion_index(each)
        for each in pods
        if not each.is_terminal and (when == "Failed" or not each.is_terminating)
    }
    done = {
        pod_state.completion_index(each)
        for each in pods
        if pod_state.has_succeeded(each) and pod_state.is_tracked(each)
    }
    assert len(set(new)) == len(new)
    assert not set(new) & (uids | done)
    assert all(index is not None and index < completions for index in new)


# -- the protocol of counting, with crashes ---------------------------------------


class Crash(Exception):
    """The controller is gone, between two of its writes."""


IGNORED_CODE = 3


@dataclass
class JobModel:
    """An API server with one Job, its pods, and a controller that may crash.

    Every write asks `_write` first, which crashes when the time has come:
    before the write takes effect, or after, when only the answer is lost.
    """

    job: Job
    crash_at: int = -1
    crash_before: bool = True
    pods: dict[str, Pod] = field(default_factory=dict)
    cached: dict[str, Pod] = field(default_factory=dict)
    removing: set[str] = field(default_factory=set)
    ended: dict[str, Pod] = field(default_factory=dict)
    """The last state of every pod that lost its finalizer."""

    failures: set[str] = field(default_factory=set)
    """Every pod that was ever listed as failed: failed for good, even if it ends well (A5.5)."""

    made: int = 0
    now: float = 0
    writes: int = 0

    # -- the API

    def _write(self) -> None:
        self.writes += 1
        if self.writes - 1 == self.crash_at and self.crash_before:
            raise Crash

    def _answer(self) -> None:
        self.check()
        if self.writes - 1 == self.crash_at:
            raise Crash

    def write_status(self, status: JobStatus) -> None:
        self._write()
        old = self.job.status
        assert status.failed >= old.failed
        assert status.succeeded >= old.succeeded
        self.job = msgspec.structs.replace(self.job, status=status)
        uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
        self.failures.update(uncounted.failed or ())
        self._answer()

    def release(self, uid: str) -> None:
        self._write()
        pod = self.pods.get(uid)
        if pod is not None and pod_state.is_tracked(pod):
            self.ended[uid] = pod
            self._put(_changed(pod, finalizers=()))
        self._answer()

    def create(self, new: NewPod) -> None:
        self._write()
        self.made += 1
        uid = f"p{self.made}"
        self._put(pod(uid, index=new.index, created=self.now))
        self._answer()

    def _put(self, changed: Pod) -> None:
        """Keep a pod, unless nothing keeps it any more."""
        if pod_state.is_tracked(changed) or changed.metadata.deletion_timestamp is None:
            self.pods[changed.metadata.uid] = changed
        else:
            self.pods.pop(changed.metadata.uid, None)

    # -- what happens to pods

    def end(self, uid: str, phase: str, exit_code: int) -> None:
        pod = self.pods[uid]
        if not pod.is_terminal:
            status = container("main", 0 if phase == "Succeeded" else exit_code, ended=self.now)
            self._put(_changed(pod, status={"phase": phase, "containerStatuses": [status]}))

    def delete(self, uid: str) -> None:
        self._put(_changed(self.pods[uid], deleted=self.now))

    def catch_up(self) -> None:
        """The cache shows what is; finalizers that are gone are seen to be gone."""
        self.cached = dict(self.pods)
        self.removing = {
            uid
            for uid in self.removing
            if uid in self.pods and pod_state.is_tracked(self.pods[uid])
        }

    def restart(self) -> None:
        """All that was in memory is lost, and the cache is filled anew."""
        self.removing = set()
        self.cached = dict(self.pods)

    # -- the controller

    def sync(self) -> None:
        fresh = self.cached == self.pods
        now = at(self.now)
        observation = observed.observe(
            self.job, list(self.cached.values()), removing=frozenset(self.removing)
        )
        assert outcome.decide(observation, now) is None
        active, terminating = len(observation.active), len(observation.terminating)
        if fresh:  # what expectations are for: nothing is created on stale knowledge
            for new in scaling.plan(observation, now).create:
                self.create(new)
                active += 1
        plan = accounting.plan(
            observation,
            outcome=None,
            counts=Counts(active, observation.ready, terminating),
            now=now,
            settings=accounting.AccountingSettings(most_uncounted=3),
        )
        if plan.write:
            self.write_status(plan.status)
        for each in plan.removals:
            self.removing.add(each.metadata.uid)
            self.release(each.metadata.uid)
        settlement = accounting.settle(plan, [each.metadata.uid for each in plan.removals], now)
        if settlement.write:
            self.write_status(settlement.status)

    # -- what must always be so

    def check(self) -> None:
        """No counter before its finalizer is gone, no finalizer before it is recorded (A5.13)."""
        status, spec = self.job.status, observed.observe(self.job, []).spec
        lists = status.uncounted_terminated_pods or UncountedTerminatedPods()
        uncounted = (*(lists.succeeded or ()), *(lists.failed or ()))
        ends = sum(uid in self.ended for uid in uncounted)
        failed = [each for each in self.ended.values() if not self._succeeded(each)]
        ignored = sum(spec.matcher.match(each).action == "Ignore" for each in failed)
        count = status.failed if spec.indexed else status.failed + status.succeeded
        want = len(failed) if spec.indexed else len(self.ended)
        assert count + ends == want - ignored
        if spec.indexed:
            self._check_indexes()
        if spec.waits:
            self._check_room()

    def _succeeded(self, end: Pod) -> bool:
        return pod_state.has_succeeded(end) and end.metadata.uid not in self.failures

    def _check_indexes(self) -> None:
        """All successes are recorded, and nothing else."""
        done = {
            pod_state.completion_index(each)
            for each in self.ended.values()
            if self._succeeded(each)
        }
        tracked = {
            pod_state.completion_index(each)
            for each in self.pods.values()
            if pod_state.is_tracked(each) and self._succeeded(each)
        }
        intervals = index_intervals.parse(
            self.job.status.completed_indexes, self.job.spec.completions or 0
        )
        recorded = {each for first, last in intervals for each in range(first, last + 1)}
        assert done <= recorded <= done | tracked

    def _check_room(self) -> None:
        """Under Failed: no more pods than asked for, and no index with two of them."""
        alive = [each for each in self.pods.values() if not each.is_terminal]
        assert len(alive) <= (self.job.spec.parallelism or 0)
        indexes = [pod_state.completion_index(each) for each in alive]
        if self.job.spec.completion_mode == "Indexed":
            assert len(set(indexes)) == len(indexes)


def _changed(
    old: Pod,
    *,
    status: Object | None = None,
    deleted: float | None = None,
    finalizers: tuple[str, ...] | None = None,
) -> Pod:
    body = msgspec.to_builtins(old)
    if status is not None:
        body["status"] = status
    if deleted is not None:
        body["metadata"].setdefault("deletionTimestamp", at(deleted).isoformat())
    if finalizers is not None:
        body["metadata"]["finalizers"] = list(finalizers)
    return msgspec.convert(body, Pod)


EVENTS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(["Succeeded", "Failed"]), CODES),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("stale sync")),
    st.tuples(st.just("sync")),
    st.tuples(st.just("crash"), st.integers(0, 9), st.booleans()),
)


def happen(world: JobModel, event: tuple[object, ...]) -> None:
    kind, *more = event
    world.now += LONG_AGO
    if kind in ("end", "delete"):
        alive = [uid for uid, each in world.pods.items() if not each.is_terminal]
        if alive and kind == "end":
            number, phase, code = more
            assert isinstance(number, int)
            assert isinstance(code, int)
            world.end(alive[number % len(alive)], str(phase), code or 1)
        elif alive:
            assert isinstance(more[0], int)
            world.delete(alive[more[0] % len(alive)])
    elif kind == "crash":
        crash(world, more)
    else:
        if kind == "sync":
            world.catch_up()
        world.sync()


def crash(world: JobModel, more: list[object]) -> None:
    number, before = more
    assert isinstance(number, int)
    world.catch_up()
    world.crash_at, world.crash_before = world.writes + number, bool(before)
    try:
        world.sync()
    except Crash:
        world.restart()
    world.crash_at = -1


def play(of: Job, events: list[tuple[object, ...]]) -> JobModel:
    world = JobModel(of)
    for event in events:
        happen(world, event)
        world.check()
    for _ in range(20):  # without faults everything is settled soon
        world.now += LONG_AGO
        world.catch_up()
        world.sync()
    return world


def all_is_counted(world: JobModel) -> None:
    """Every pod that ended is counted once, and nothing is left over."""
    uncounted = world.job.status.uncounted_terminated_pods or UncountedTerminatedPods()
    assert not uncounted.succeeded
    assert not uncounted.failed
    assert not any(each.is_terminal and pod_state.is_tracked(each) for each in world.pods.values())
    world.check()


POLICY = policy(on_codes("Ignore", "In", IGNORED_CODE))

ENDLESS: Object = {"backoffLimit": 10**6}

IMPATIENT = job(
    parallelism=3, completions=10**4, podReplacementPolicy="TerminatingOrFailed", **ENDLESS
)
IMPATIENT_INDEXED = indexed(
    500, parallelism=3, podReplacementPolicy="TerminatingOrFailed", **ENDLESS
)

JOBS = st.sampled_from(
    [
        job(parallelism=3, completions=10**4, podReplacementPolicy="Failed", **ENDLESS),
        IMPATIENT,
        job(parallelism=3, completions=10**4, podFailurePolicy=POLICY, **ENDLESS),
        indexed(500, parallelism=3, podReplacementPolicy="Failed", **ENDLESS),
        IMPATIENT_INDEXED,
        indexed(500, parallelism=3, podFailurePolicy=POLICY, **ENDLESS),
    ]
)


# A pod is deleted and listed as failed; before its finalizer is removed, the
# controller crashes and the pod ends well.
CHANGED_ITS_MIND = [("sync",), ("delete", 0), ("crash", 1, False), ("end", 0, "Succeeded", 0)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS, st.lists(EVENTS, max_size=25))
@example(IMPATIENT, CHANGED_ITS_MIND)
@example(IMPATIENT_INDEXED, CHANGED_ITS_MIND)
def test_no_pod_is_counted_twice_or_never(of: Job, events: list[tuple[object, ...]]) -> None:
    all_is_counted(play(of, events))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS, st.lists(EVENTS.filter(lambda event: event[0] != "crash"), max_size=12))
def test_a_crash_at_any_write_changes_nothing_in_the_end(
    of: Job, events: list[tuple[object, ...]]
) -> None:
    """One crash before and after each write, and the counts are those of the calm run."""
    script = [("sync",), *events, ("sync",)]
    calm = play(of, script)
    for number in range(12):
        for before in (True, False):
            disturbed = play(of, [*script[:-1], ("crash", number, before), ("sync",)])
            all_is_counted(disturbed)
            assert counters(disturbed) == counters(calm)


def counters(world: JobModel) -> tuple[int, int, str]:
    status = world.job.status
    return status.succeeded, status.failed, status.completed_indexes
