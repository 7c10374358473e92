"""``boundlab verify``: does a property hold? One instance, or a list of them."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from boundlab.commands import competition
from boundlab.commands.answers import Answer, answer, answer_to
from boundlab.commands.benchmark import RESULTS, Plan, by_set, summary, verify_instances
from boundlab.commands.competition import ERROR, WORDS, Instance, read_instances, result_text
from boundlab.commands.limits import end_with_parent, is_about_memory
from boundlab.commands.memory_limit import limit_memory
from boundlab.commands.outcomes import Outcome, OutcomeFile
from boundlab.commands.page import how_made, with_digest
from boundlab.commands.queries import load_query, networks_given
from boundlab.commands.speaking import STDOUT, Json, busy, out, progress, say, write_json
from boundlab.commands.sweep_report import sweep_page
from boundlab.commands.sweeps import OPTIONAL, sweep_of
from boundlab.defaults import TIMEOUT
from boundlab.errors import ArgumentError, BoundlabError, MemoryLimit
from boundlab.scaling.instances import plan_on, spread
from boundlab.storage.files import write_atomically

REPORT = "report.html"
STANDARD = {competition.TIMEOUT: "timed-out"}
"""Words that the command line of VNN-LIB 2 has for the competition's."""
SHOWN = 20
"""Values of a counterexample that are still printed if no file is asked for."""


def verify(options: argparse.Namespace) -> None:
    """Answer for one instance, or for a list."""
    end_with_parent()
    _check_options(options)
    single = (options.network, options.property)
    if options.networks:
        if options.network is None or (options.property, options.instances) != (None, None):
            raise ArgumentError("--network takes the VNN-LIB file alone before it, and no list")
        _one(options, lambda deadline: _to_query(options, deadline))
    elif options.instances is not None:
        if single != (None, None) or options.output is None:
            raise ArgumentError("--instances takes --output DIR, and no network or property beside")
        _list(options)
    elif None in single:
        raise ArgumentError("give a network and a property, or a list of them with --instances")
    else:
        files = options.network, options.property
        how = options.threads, options.arithmetic
        _one(options, lambda deadline: answer(*files, deadline, *how))


def _check_options(options: argparse.Namespace) -> None:
    """Refuse options that no run takes."""
    timeout = options.timeout
    if timeout is not None and not 0 < timeout < math.inf:
        raise ArgumentError(f"--timeout must be a positive number of seconds, not {timeout:g}")
    if options.threads is not None and options.threads < 1:
        raise ArgumentError(f"--threads must be at least 1, not {options.threads}")
    if options.ray is not None and options.instances is None:
        raise ArgumentError("--ray spreads a list of instances (--instances)")


def _to_query(options: argparse.Namespace, deadline: float) -> Answer:
    given = networks_given(options.networks)
    how = options.threads, options.arithmetic
    return answer_to(lambda: load_query(options.network, given), deadline, *how)


def _one(options: argparse.Namespace, ask: Callable[[float], Answer]) -> None:
    deadline = options.begun + (options.timeout or TIMEOUT)
    try:
        limit_memory(options.memory)
        with busy(options, "verifying"):
            found = ask(deadline)
    except Exception as error:  # any: whoever reads the files is told
        if is_about_memory(error) and not isinstance(error, BoundlabError):
            error = MemoryLimit("memory ran out")
        failed = Outcome.failed(error, time.monotonic() - options.begun)
        _write(options, result_text(ERROR), failed)
        raise error
    _write(options, found.result, found.outcome(time.monotonic() - options.begun))
    if options.quiet or options.json == STDOUT:
        return
    if not options.networks:
        print(found)
        if found.example and options.result is None:
            print(shown_example(found.example))
        return
    print(STANDARD.get(found.word, found.word))
    print(found.example, end="")
    print(*str(found).splitlines()[1:], sep="\n", file=sys.stderr)


def shown_example(example: str) -> str:
    """A counterexample, or where it can be had if it is too long to be read."""
    if example.count("\n") > SHOWN:
        return "  --result FILE writes its inputs and outputs"
    return example.rstrip("\n")


def _write(options: argparse.Namespace, result: str, outcome: Outcome) -> None:
    if options.result is not None:
        write_atomically(options.result, result)
    write_json(options, asdict(outcome))


def _list(options: argparse.Namespace) -> None:
    if options.result is not None:
        raise ArgumentError("--result is of one instance; a list takes --output")
    path = options.instances
    instances = read_instances(path, options.timeout)
    jobs = 1 if options.jobs is None else options.jobs
    how = options.threads, options.memory, options.arithmetic
    plan = Plan(instances, path.parent, options.output, jobs, *how)
    plan = plan_on(options.ray, plan)
    results, report = plan.output / RESULTS, plan.output / REPORT
    if report.exists() and not results.exists():
        raise ArgumentError(f"{report} is of something else: give another --output")
    held = OutcomeFile.open(results, options.resume)
    made = how_made(options.given, {"List": with_digest(path)}, OPTIONAL)
    console, bar = out(options), progress(options)
    name = path.resolve().parent.name
    try:
        with spread(options.ray, plan, options.jobs) as runner:
            verify_instances(plan, held, bar, runner)
    except KeyboardInterrupt:
        console.print(summary(instances, held, name))
        console.print("The same command with --resume goes on from there.")
        write_atomically(report, sweep_page(sweep_of(plan, held, name, made)))
        raise
    console.print(summary(instances, held, name))
    write_atomically(report, sweep_page(sweep_of(plan, held, name, made)))
    for what, written in (("Results", results), ("Report", report)):
        say(console, f"{what}: {written}")
    write_json(options, {"sets": _counts(instances, held, name), "results": str(results)})


def _counts(instances: Sequence[Instance], held: OutcomeFile, name: str) -> dict[str, Json]:
    """How many instances of each set have which status. name: of a set that has none."""
    return {
        own or name: {word: sum(one.status == word for one in outcomes) for word in WORDS}
        for own, outcomes in by_set(instances, held).items()
    }
