"""Can the interpreters of the plan find what they shall run, in the planned version, the same everywhere?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.doctor.facts import ProgramFacts
from pdctl.doctor.majority import majority
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds, ProgramNeed
from pdctl.doctor.survey import Survey

PROGRAMS = Topic("programs")


def check_programs(survey: Survey) -> Iterator[Finding]:
    for needs, facts in survey.answered:
        pairs = tuple(zip(needs.programs, facts.programs, strict=True))
        faults = [fault for need, program in pairs for fault in _faults(needs, need, program, survey)]
        yield from faults or _ok(needs, pairs)
    yield from _differences(survey)


def _ok(needs: NodeNeeds, pairs: tuple[tuple[ProgramNeed, ProgramFacts], ...]) -> Iterator[Finding]:
    if not pairs:
        programs = ", ".join(dict.fromkeys(f"`{port.process.argv[0]}`" for port in needs.ports))
        yield PROGRAMS.skipped(
            needs.name, f"{programs or 'what runs there'} is no Python: try it by hand there"
        )
        return
    interpreters = [f"Python {program.version}" for _need, program in pairs]
    # The one that matters most stands first; of all others it is enough that they are there.
    leading = [
        next((f"{each.name} {each.version}" for each in program.packages if each.version), None)
        for _need, program in pairs
    ]
    yield PROGRAMS.ok(needs.name, ", ".join(dict.fromkeys([*interpreters, *filter(None, leading)])))


def _faults(needs: NodeNeeds, need: ProgramNeed, program: ProgramFacts, survey: Survey) -> Iterator[Finding]:
    if program.is_late:
        yield PROGRAMS.warning(
            needs.name,
            "PD717",
            f"`{need.python}` could not be asked: {program.problem}",
            notes=("a slow disk or a busy node does that, and the process would start all the same",),
            help="try again; an environment on a network file system is quicker the second time",
        )
        return
    if program.problem is not None:
        yield PROGRAMS.error(
            needs.name,
            "PD717",
            f"`{need.python}` can't be run: {program.problem}",
            help="install it there, or name another under `engine.python` or `router.python`",
        )
        return
    for package in program.packages:
        planned = survey.versions.get(package.name)
        if not package.is_found:
            yield PROGRAMS.error(
                needs.name,
                "PD718",
                f"`{need.python}` finds no package `{package.name}`",
                help=f"install it: `{need.python} -m pip install {_requirement(package.name, planned)}`",
            )
        elif planned is not None and package.version is not None and package.version != planned:
            yield PROGRAMS.warning(
                needs.name,
                "PD719",
                f"`{need.python}` has {package.name} {package.version}, the topology says {planned}",
                notes=("its flags and defaults were checked for the version of the topology",),
                help=f"install {_requirement(package.name, planned)}, or correct the version",
            )


def _requirement(package: str, planned: str | None) -> str:
    project = {"runtime": "'pdctl[runtime]'", "sglang_router": "sglang-router"}.get(package, package)
    return project if planned is None else f"{project}=={planned}"


def _differences(survey: Survey) -> Iterator[Finding]:
    """A package that most nodes have in one version and some in another."""
    version_on: dict[str, dict[str, str]] = defaultdict(dict)
    for needs, facts in survey.answered:
        for program in facts.programs:
            for package in program.packages:
                if package.version is not None:
                    version_on[package.name][needs.name] = package.version
    for name, versions in version_on.items():
        usual, others = majority(versions)
        for node, version in others.items():
            yield PROGRAMS.error(
                node,
                "PD720",
                f"has {name} {version}, other nodes have {usual}",
                notes=("prefill and decode of different versions may not understand each other",),
                help="install the same version everywhere",
            )
