"""``boundlab attack``: counterexamples for images, and for properties in VNN-LIB files."""

from __future__ import annotations

import argparse
import math

from rich.table import Table

from boundlab.attacks import Attack, AttackSettings, attack
from boundlab.commands.arguments import flat
from boundlab.commands.bars import certify_with_bar
from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.competition import SAT, UNKNOWN, counterexample_text, result_text
from boundlab.commands.counterexamples import COUNTEREXAMPLES
from boundlab.commands.jobs import Job, check_radii
from boundlab.commands.loading import is_onnx, load_onnx_alone
from boundlab.commands.speaking import Json, busy, out, progress, say, write_json
from boundlab.commands.subjects import RESULTS, TABLE, check_folder, read_subject
from boundlab.commands.tables import verdict_table, write_table
from boundlab.defaults import EPS
from boundlab.errors import ArgumentError
from boundlab.scaling.parts import parts_on
from boundlab.specs.vnnlib import load_vnnlib
from boundlab.storage.files import write_atomically

PROPERTIES = (".vnnlib", ".vnnlib.gz")


def attack_subject(options: argparse.Namespace) -> None:
    """Attack images, or a property."""
    if options.data.name.endswith(PROPERTIES):
        if options.ray is not None:
            raise ArgumentError("--ray spreads images; a property is attacked in one process")
        _attack_property(options)
        return
    if options.timeout is not None or options.result is not None:
        raise ArgumentError("--timeout and --result belong to properties (DATA.vnnlib)")
    _attack_images(options)


# -- images ----------------------------------------------------------------------------------------


def _attack_images(options: argparse.Namespace) -> None:
    check_folder(options.output, options.resume, TABLE)
    radii = check_radii(flat(options.eps) or EPS)
    about = read_subject(options)
    given = {"steps": options.steps, "restarts": options.restarts}
    job = Job(
        about.images,
        about.labels,
        radii,
        (),
        norm=about.norm,
        valid=about.valid,
        batch=about.batch,
        device=about.device,
        name=about.name,
        attack=AttackSettings(**{key: n for key, n in given.items() if n is not None}),
    )
    console, bar = out(options), progress(options)
    results = options.output / RESULTS
    with parts_on(options.ray, job.device) as spread:
        found = certify_with_bar(about.net, job, results, options.resume, bar, spread)
    write_table(options.output / TABLE, verdict_table(found))
    console.print(_table(found))
    count = 0 if found.examples is None else len(found.examples)
    path = str(options.output / COUNTEREXAMPLES)
    say(console, f"Counterexamples: {path}" if count else "None was found.")
    write_json(options, {**_document(found), "counterexamples": path if count else None})


def _table(found: Certification) -> Table:
    correct = int(found.correct.sum())
    title = f"{correct} of {len(found.labels)} images are classified correctly"
    table = Table(title=title, title_justify="left")
    for name in ("radius", "falsified", "open", "wrong"):
        table.add_column(name, justify="right")
    for radius in found.radii:
        shares = [f"{share:.1%}" for share in _shares(found, radius).values()]
        table.add_row(f"{radius:.3g}", *shares)
    return table


def _shares(found: Certification, radius: float) -> dict[str, float]:
    verdicts = found.verdicts(radius)
    wanted = (Verdict.FALSIFIED, Verdict.OPEN, Verdict.WRONG)
    return {str(one): verdicts.count(one) / len(verdicts) for one in wanted}


def _document(found: Certification) -> dict[str, Json]:
    """The table for scripts, in shares of all images."""
    return {
        "images": len(found.labels),
        "norm": found.task.norm,
        "radii": [{"radius": radius, **_shares(found, radius)} for radius in found.radii],
    }


# -- properties ------------------------------------------------------------------------------------


def _attack_property(options: argparse.Namespace) -> None:
    if not is_onnx(options.model):
        raise ArgumentError(
            f"a property is attacked on a network in an ONNX file, not on {options.model!r}"
        )
    result = options.result
    if result is not None and result.exists() and result.stat().st_size:
        raise ArgumentError(f"there is a file {result} already: give another --result")
    model = load_onnx_alone(options.model, options.weights)
    if len(model.inputs) != 1:
        names = ", ".join(one.name for one in model.inputs)
        raise ArgumentError(f"the attack moves one input; {options.model} takes {names}")
    prop = load_vnnlib(options.data)
    sizes = {region.centre.numel() for region in prop.regions}
    (own,) = (x[0].numel() for x in model.example(1))
    if sizes - {own}:
        raise ArgumentError(
            f"{options.data} is about {sizes.pop()} inputs, and {options.model} takes {own}"
        )
    steps = 50 if options.steps is None else options.steps
    with busy(options, "searching for a counterexample"):
        found = attack(model, prop, steps=steps, restarts=options.restarts, timeout=options.timeout)
    if result is not None:
        write_atomically(result, found_text(found))
    _say_found(options, found)


def _say_found(options: argparse.Namespace, found: Attack) -> None:
    """What an attack on a property found, for people and for scripts."""
    console, hit = out(options), bool(found.violated.any())
    nearest = float(found.margin.min()) if len(found.margin) else math.inf
    if hit:
        console.print(f"A counterexample was found: margin {nearest:.4g}.")
    else:
        console.print(f"No counterexample was found; the closest margin is {nearest:.4g}.")
    file = None
    if options.result is not None:
        file = str(options.result)
        say(console, f"Result: {file}")
    status = SAT if hit else UNKNOWN
    write_json(options, {"status": status, "margin": nearest, "result": file})


def found_text(found: Attack) -> str:
    """What an attack on a property found, as the competition writes it: "sat" and the
    counterexample, or "unknown"."""
    hits = found.violated.nonzero().flatten()
    if not len(hits):
        return result_text(UNKNOWN)
    first = int(hits[0])
    return result_text(SAT, counterexample_text(found.inputs[first], found.outputs[first]))
