"""Whether an interpreter can run what is planned for it, asked of the interpreter itself, importing nothing.

Importing an engine takes half a minute and may touch devices. Finding its package takes little more than the
interpreter's own start: `python -m` asks the same first, and the version stands in the name of the folder
that installers write beside it (`sglang-0.5.23.dist-info`). `importlib.metadata` reads that very name, for
four times the work.
"""

from __future__ import annotations

import os
import subprocess

from .record import RequestError

ASK_TIMEOUT_S = 20.0
# No import: each would cost more than the question. Finders of editable installations are asked too.
_ASK = r"""
import os, sys
print("python", "%d.%d.%d" % sys.version_info[:3], sep="\t")
def plain(name):
    return name.replace("_", "-").replace(".", "-").lower()
version_of = {}
for folder in sys.path:
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        continue
    for entry in entries:
        if entry.endswith((".dist-info", ".egg-info")):
            project, _, version = entry.rpartition(".")[0].partition("-")
            version_of.setdefault(plain(project), version.partition("-")[0])
finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
for name in sys.argv[1:]:
    found = any(finder.find_spec(name, None) is not None for finder in finders)
    print("package", name, int(found), version_of.get(plain(name), ""), sep="\t")
"""


def program(question: object, cwd: str) -> dict:
    """`{"version", "problem", "is_late", "packages": [{"name", "is_found", "version"}]}`, of one."""
    python, env, packages = _checked(question)
    try:
        done = subprocess.run(
            [python, "-c", _ASK, *packages],
            env=_environment(env),
            cwd=cwd or None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _failure("it does not start within %g s" % ASK_TIMEOUT_S, is_late=True)
    except OSError as error:
        return _failure(error.strerror or str(error))
    text = done.stdout.decode("utf-8", "replace")
    rows = [line.split("\t") for line in text.splitlines()]
    versions = [row[1] for row in rows if row[0] == "python" and len(row) == 2]
    if done.returncode != 0 or not versions:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return _failure("it fails with code %d%s" % (done.returncode, ": " + words[-1] if words else ""))
    found = [
        {"name": row[1], "is_found": row[2] == "1", "version": row[3] or None}
        for row in rows
        if row[0] == "package" and len(row) == 4
    ]
    return {"version": versions[0], "problem": None, "is_late": False, "packages": found}


def _checked(question: object) -> tuple[str, dict, list]:
    if not isinstance(question, dict) or not isinstance(question.get("python"), str):
        raise RequestError("a program has no `python`")
    env, packages = question.get("env") or {}, question.get("packages") or []
    if not isinstance(env, dict) or not isinstance(packages, list):
        raise RequestError("`env` is not a map, or `packages` not a list")
    return question["python"], env, packages


def _environment(env: dict) -> dict[str, str]:
    """As a worker's (`worker_environment`), or another package would be found than the one that will run."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ.update({name: value for name, value in env.items() if isinstance(value, str)})
    return environ


def _failure(problem: str, is_late: bool = False) -> dict:
    return {"version": None, "problem": problem, "is_late": is_late, "packages": []}
