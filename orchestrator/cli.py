"""The command line: parse, call one task, render. No logic."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class
from rich.console import Console, RenderableType
from rich.markup import escape

from orchestrator import __version__, options
from orchestrator import completion as completions
from orchestrator.config.inventory import load_inventory
from orchestrator.errors import InputError, NsaPodError, PodError
from orchestrator.files import write_atomically
from orchestrator.git.repository import Repository
from orchestrator.launchers.claim import Claim
from orchestrator.options import FILE, FOLDER, MOST, TEXT, Amount, takes
from orchestrator.plan.limits import duration
from orchestrator.plan.plan import to_json
from orchestrator.pod.session import PodSession
from orchestrator.report import bisection, comparison, hosts, html, pages, preview, screen, terminal
from orchestrator.report import history as report_history
from orchestrator.report.document import Document
from orchestrator.results import Result
from orchestrator.store import trusted
from orchestrator.store.run_directory import find as find_run
from orchestrator.tasks import bisect as bisect_task
from orchestrator.tasks import bootstrap as bootstrap_task
from orchestrator.tasks import cancel as cancel_task
from orchestrator.tasks import check as check_task
from orchestrator.tasks import command as command_task
from orchestrator.tasks import compare as compare_task
from orchestrator.tasks import compare_kept as kept_task
from orchestrator.tasks import doctor as doctor_task
from orchestrator.tasks import environments as environments_task
from orchestrator.tasks import follow as follow_task
from orchestrator.tasks import history as history_task
from orchestrator.tasks import init as init_task
from orchestrator.tasks import logs as logs_task
from orchestrator.tasks import pack as pack_task
from orchestrator.tasks import prune as prune_task
from orchestrator.tasks import report as report_task
from orchestrator.tasks import request as request_task
from orchestrator.tasks import resume as resume_task
from orchestrator.tasks import runs as runs_task
from orchestrator.tasks import ssh as ssh_task
from orchestrator.tasks import validate as validate_task
from orchestrator.tasks import wheelhouse as wheelhouse_task
from orchestrator.tasks.notice import Notice
from orchestrator.text import plain
from orchestrator.ui import Progress, Screen
from orchestrator.verdict.status import OUTCOMES

_INTERRUPTED = 130
_PIPE_CLOSED = 141
_PIPE_WIDTH = 240
_SHELLS = ("bash", "zsh", "fish")


class _Group(click.Group):
    """Commands in the order of a user's day, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_examples(
        "nsa-pod validate --pod local",
        "nsa-pod validate --pod pi-4090 --commit 4106f1b",
        "nsa-pod fetch --pod pi-4090",
    ),
)
@click.version_option(__version__, prog_name="nsa-pod")
def cli() -> None:
    """Turn a rented GPU pod into a verdict that can be trusted.

    Exit codes: 0 passed, 1 failed, 2 bad input, 3 incomplete, 4 the infrastructure failed.
    """


@cli.command(
    epilog=_examples("nsa-pod validate --pod pi-4090 --commit 4106f1b", "nsa-pod validate --pod local --dry-run")
)
@options.reaching
@options.repo
@options.artifacts
@options.gpu
@options.commit
@options.runbook
@options.limits
@options.claims
@options.notify
@click.option("--resume", metavar="[RUN]", is_flag=False, flag_value="", help="Go on with a run whose agent died.")
@click.option("--no-sabotage", is_flag=True, help="Do not run tests again with wrong code (kills, mutants).")
@click.option("--dry-run", is_flag=True, help="Say what would run, as the inventory promises it; contact nothing.")
@takes(options.Validate)
def validate(o: options.Validate) -> int:
    """Run a runbook on a pod, on exactly one commit, and judge what really ran."""
    claim = Claim(o.wait, o.steal)
    limits = o.max_time, o.max_cost
    if o.resume is not None and (any(limit is not None for limit in limits) or o.no_sabotage or o.dry_run):
        given = "--max-time, --max-cost, --no-sabotage or --dry-run"
        raise InputError(f"--resume goes on with the run's own plan: expected no {given}")
    asked = request_task.Asked(
        lambda: o.the_pod, o.repo, o.commit, o.runbook, o.artifacts, *limits, sabotage=not o.no_sabotage
    )
    with Progress(o.verbosity) as progress, Notice(o.notify, progress) as notice:
        progress.busy(f"reading commit {o.commit} of {o.repo.absolute()}")
        request = request_task.find(asked)
        pod = request.pod
        progress.say(f"runbook {request.runbook.name} on commit {request.revision.commit[:7]}, pod {pod.name}")
        if o.dry_run:
            return _preview(request, progress, o.as_json)
        session = _session(o, progress, o.allow_different_gpu)
        if o.resume is None:
            result = validate_task.validate(request, session, claim)
        else:
            result = resume_task.resume(request, session, claim, o.resume)
        notice.ended(result)
    return _show(result, o.as_json)


@cli.command(epilog=_examples("nsa-pod check", "nsa-pod check nightly --pod pi-4090"))
@options.any_pod
@options.inventory
@options.repo
@options.json
@click.option("--commit", type=TEXT, default="HEAD", metavar="REV", help="Whose paths are looked up [default: HEAD].")
@click.argument("runbook", type=TEXT, required=False)
@takes(options.Check)
def check(o: options.Check) -> int:
    """Say all that is wrong with pods.yaml and RUNBOOK (without it: the repository's own); contact nothing.

    Exit code 2 if anything is wrong.
    """
    found = check_task.check(check_task.What(o.repo, o.commit, o.runbook, o.pod, o.inventory))
    _print(found, o.as_json, lambda held: f"nothing is wrong with {', '.join(held['files'])} on {held['commit'][:7]}")
    return 0


@cli.command(epilog=_examples("nsa-pod bootstrap --pod pi-4090", "nsa-pod bootstrap --pod pi-4090 --explain"))
@options.reaching
@options.repo
@options.gpu
@click.option("--runbook", type=TEXT, metavar="R", help="Whose packages are installed [default: the pod's runbook].")
@click.option("--explain", is_flag=True, help="Say which environment fits, and why others do not; install nothing.")
@click.option("--fresh", is_flag=True, help="Resolve the packages anew instead of keeping the last lock.")
@click.option("--wheelhouse", type=FOLDER, help="Carry this directory of wheels to the pod and ask no network there.")
@click.option("--offline", is_flag=True, help="Ask no network on the pod: use what lies there, or the --wheelhouse.")
@click.option(
    "--download-wheelhouse", type=FOLDER, help="Fill this directory here with the wheels for the pod; install nothing."
)
@click.option("--allow-source-build", is_flag=True, help="Compile flash-attn on the pod where it has no wheel.")
@click.option(
    "--build-limit",
    type=Amount(min=0, min_open=True, max=MOST),
    default=bootstrap_task.SOURCE_BUILD_S / 60,
    metavar="MINUTES",
    help="End a compilation that takes longer [default: 120].",
)
@takes(options.Bootstrap)
def bootstrap(o: options.Bootstrap) -> int:
    """Set up a pod's environment: paired torch, triton and flash-attn, verified and reused."""
    if o.explain and o.download_wheelhouse:
        raise InputError("expected --explain or --download-wheelhouse, not both")
    needs = request_task.needs_of(o.the_pod, o.repo, o.runbook)
    how = bootstrap_task.Options(
        fresh=o.fresh,
        wheelhouse=o.wheelhouse,
        offline=o.offline,
        source_build=o.allow_source_build,
        source_build_s=o.build_limit * 60,
    )
    with Progress(o.verbosity) as progress:
        session = _session(o, progress, o.allow_different_gpu)
        found: Mapping[str, object]
        if o.explain:
            found = environments_task.reasons(session, needs.spec, how)
        elif o.download_wheelhouse:
            found = wheelhouse_task.download(session, needs.spec, o.download_wheelhouse, needs.installations)
        else:
            found = environments_task.set_up(session, needs, how)
    _print(found, o.as_json, terminal.facts)
    return 0


@cli.command(epilog=_examples("nsa-pod fetch --pod pi-4090", "nsa-pod fetch --pod pi-4090 --commit 4106f1b --no-wait"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@options.notify
@click.option("--no-wait", is_flag=True, help="Bring what is there now; do not wait for the run's end.")
@options.run
@takes(options.Fetch)
def fetch(o: options.Fetch) -> int:
    """Bring a run home and judge it: RUN, or the newest on the pod whose commit is in the repository."""
    return _follow(o, wait=not o.no_wait)


@cli.command(epilog=_examples("nsa-pod follow --pod pi-4090 20261121-101500-4106f1b-0a1b2c3d"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@options.notify
@options.run
@takes(options.Follow)
def follow(o: options.Follow) -> int:
    """Follow a run that is going on, to its end."""
    return _follow(o, wait=True)


@cli.command(epilog=_examples("nsa-pod cancel --pod pi-4090"))
@options.reaching
@options.run
@takes(options.Cancel)
def cancel(o: options.Cancel) -> int:
    """Stop a run; what has run until then is kept. Without RUN: the one that holds the pod."""
    with Progress(o.verbosity) as progress:
        stopped = cancel_task.cancel(_session(o, progress), o.run)
    _print({"cancelled": stopped}, o.as_json, terminal.facts)
    return 0


@cli.command(epilog=_examples("nsa-pod doctor --pod pi-4090"))
@options.reaching
@takes(options.Reaching)
def doctor(o: options.Reaching) -> int:
    """Find out whether a pod can be used, and what to do if not. Exit code 4 if it cannot."""
    with Progress(o.verbosity) as progress:
        checks = doctor_task.doctor(_session(o, progress))
    _print([check.as_dict() for check in checks], o.as_json, terminal.findings)
    return 4 if any(check.level == "fail" for check in checks) else 0


@cli.command(epilog=_examples("nsa-pod pods"))
@options.inventory
@options.json
@takes(options.Pods)
def pods(o: options.Pods) -> int:
    """List the inventory."""
    found = load_inventory(o.inventory).pods.values()
    _print([pod.model_dump(exclude_none=True, exclude={"env"}) for pod in found], o.as_json, terminal.pods)
    return 0


@cli.command(epilog=_examples("nsa-pod trust", "nsa-pod trust --inventory ../pods.yaml --revoke"))
@options.inventory
@options.json
@click.option("--revoke", is_flag=True, help="Take it back: no pod of the file is contacted any more.")
@takes(options.Trust)
def trust(o: options.Trust) -> int:
    """Answer for a pods.yaml that was found in a directory, as its content is now: its pods may be contacted.

    What was not trusted contacts nothing. A file named by --inventory or $NSA_POD_INVENTORY needs no trust, nor does a
    `local` pod that sets no python, env or workdir.
    """
    found, path = o.the_inventory, str(o.the_inventory.path)
    if o.revoke:
        said = f"{path} is not trusted any more" if trusted.revoke(found) else f"{path} was not trusted"
    else:
        trusted.trust(found)
        said = f"{path} is trusted as it is now"
    answer = {"inventory": path, "sha256": found.sha256, "trusted": not o.revoke, "demands": trusted.demands(found)}
    _print(answer, o.as_json, lambda a: "\n".join([said, *([] if o.revoke else a["demands"])]))
    return 0


@cli.command(epilog=_examples("nsa-pod runs --verdict failed --since 7d", "nsa-pod runs --pod pi-4090"))
@options.reaching
@options.repo
@options.artifacts
@options.of_commit
@click.option("--verdict", type=click.Choice(list(OUTCOMES)), multiple=True, help="Only with this verdict; may repeat.")
@click.option("--since", metavar="T", help="Only begun since a date (2026-11-20, UTC), or 7d, 12h, 90m ago.")
@click.option("--here", is_flag=True, help="With --pod: only those kept here; contact nothing.")
@takes(options.Runs)
def runs(o: options.Runs) -> int:
    """List the runs kept here, or with --pod those on the pod too. Verdicts are as they were settled."""
    commit = Repository.open(o.repo).revision(o.commit).commit if o.commit else None
    wanted = runs_task.Filter(o.pod, commit, o.verdict, runs_task.since(o.since) if o.since else None)
    if o.pod is None or o.here:
        _print(runs_task.kept_here(o.kept_in, o.repo, wanted), o.as_json, terminal.runs)
        return 0
    with Progress(o.verbosity) as progress:
        found = runs_task.on_pod(_session(o, progress), o.kept_in, o.repo, wanted)
    _print(found, o.as_json, terminal.runs)
    return 0


@cli.command(epilog=_examples("nsa-pod logs latest tests", "nsa-pod logs 20261121-1015 train --stderr --follow"))
@options.pod
@options.inventory
@options.trust
@options.loudness
@options.repo
@options.artifacts
@click.option("--stderr", is_flag=True, help="Its stderr instead of its stdout.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the stage has ended.")
@click.argument("run", type=TEXT, shell_complete=completions.runs)
@click.argument("stage", type=TEXT, shell_complete=completions.stages)
@takes(partial(options.Logs, as_json=False))
def logs(o: options.Logs) -> int:
    """Print what a stage wrote, or has until now.

    RUN is a run id or its beginning, a directory, or `latest`. What has not come home is asked of the pod.
    """
    wanted = logs_task.Wanted(o.run, o.stage, "stderr" if o.stderr else "stdout", o.follow)
    out = Screen("stdout").write
    here = logs_task.run_here(o.kept_in, o.repo, o.run)
    if here and logs_task.show_here(here, wanted, out):
        return 0
    if here:
        plan = here.plan()
        wanted, o = replace(wanted, run=plan["run_id"]), replace(o, pod=o.pod or plan["pod"])
    with Progress(o.verbosity) as progress:
        logs_task.show(_session(o, progress), wanted, out)
    return 0


@cli.command(
    cls=options.WithCommand,
    epilog=_examples("nsa-pod ssh pi-4090", "nsa-pod ssh pi-4090 -- nvidia-smi", "nsa-pod ssh -- -L 80:localhost:80"),
)
@options.named_pod
@options.pod
@options.inventory
@options.trust
@takes(partial(options.Ssh, as_json=False, quiet=False, verbose=False))
def ssh(o: options.Ssh) -> int:
    """Log in to a pod by your own ssh.

    It gets the pinned host key and the pod's settings; what follows `--` comes after the host.
    """
    with Progress(o.verbosity) as progress:
        command = ssh_task.command(_session(o, progress), o.command)
    os.execvp(command[0], command)


@cli.command(
    cls=options.WithCommand,
    epilog=_examples("nsa-pod run pi-4090 -- python -m nsa.sanity", "nsa-pod run --commit v1 -- make bench"),
)
@options.named_pod
@options.reaching
@options.repo
@options.artifacts
@options.gpu
@options.commit
@options.runbook
@options.limits
@options.claims
@takes(options.Run)
def run(o: options.Run) -> int:
    """Run one command on a pod, without a verdict.

    It runs in the tree of a commit and the runbook's environment, and is recorded as any run. The exit code is the
    command's, 128 + N if signal N ended it, 4 if it did not come to an end of its own.
    """
    if not o.command:
        raise InputError("expected a command: nsa-pod run POD -- COMMAND...")
    claim = Claim(o.wait, o.steal)
    limits = o.max_time, o.max_cost
    asked = request_task.Asked(lambda: o.the_pod, o.repo, o.commit, o.runbook, o.artifacts, *limits, command=o.command)
    sinks: logs_task.Sinks = {} if o.as_json else {"stdout": Screen("stdout").write, "stderr": Screen("stderr").write}
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commit {o.commit} of {o.repo.absolute()}")
        request = request_task.find(asked)
        result = command_task.run(request, _session(o, progress, o.allow_different_gpu), claim, sinks)
        progress.say(f"{result.summary}: {result.path}")
    if o.as_json:
        click.echo(result.to_json(), nl=False)
    elif result.error:
        raise PodError(result.error)
    return result.exit_code


@cli.command(epilog=_examples("nsa-pod compare main HEAD --pod pi-4090", "nsa-pod compare v1 HEAD --fail-on slower:3%"))
@options.reaching
@options.repo
@options.artifacts
@options.gpu
@options.runbook
@options.timed
@options.blocks
@click.option("--threshold", default="1%", metavar="P", help="From which part on a row is different [default: 1%].")
@options.harness
@click.option("--fail-on", type=TEXT, metavar="slower:P", help="Exit code 1 if a row is so much slower, 3 if unsure.")
@options.page
@options.limits
@options.claims
@click.argument("a", type=TEXT, shell_complete=completions.commits)
@click.argument("b", type=TEXT, shell_complete=completions.commits)
@takes(options.Compare)
def compare(o: options.Compare) -> int:
    """Say which of the commits A and B is faster, and how sure: both built, tested and timed in turn in one run.

    With two runs that are kept here (run ids or directories) it says what differs, and calls nothing faster.
    """
    limit = compare_task.limit_of(o.fail_on) if o.fail_on else None
    runs = kept_task.two_runs(o.kept_in, o.repo, o.a, o.b)
    if runs:
        told = comparison.document_of_runs(kept_task.compare(*runs))
        _page(pages.of_runs(told), o.page)
        _print(told, o.as_json, comparison.page_of_runs)
        return 3 if limit else 0
    asked = request_task.Asked(lambda: o.the_pod, o.repo, o.a, o.runbook, o.artifacts, o.max_time, o.max_cost)
    threshold = compare_task.part_of(o.threshold, "--threshold")
    what = compare_task.What(asked, o.b, o.stage, o.blocks, threshold, compare_task.harness_of(o.harness))
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commits {o.a} and {o.b} of {o.repo.absolute()}")
        pair = compare_task.find(what)
        made = compare_task.compare(pair, _session(o, progress, o.allow_different_gpu), Claim(o.wait, o.steal))
    if made.result.error:
        raise PodError(made.result.error)
    _page(pages.of_comparison(made.document), o.page)
    _print(made.document, o.as_json, comparison.page)
    return made.exit_code(limit)


@cli.command(epilog=_examples("nsa-pod bisect v1 HEAD --stage tests", "nsa-pod bisect v1 HEAD --stage b --slower 5%"))
@options.reaching
@options.repo
@options.artifacts
@options.gpu
@options.runbook
@click.option("--stage", type=TEXT, metavar="S", required=True, help="The stage that tells good from bad.")
@options.page
@click.option("--slower", metavar="P", help="Bad is what is so much slower, such as 5% [default: what does not pass].")
@options.blocks
@options.limits
@options.claims
@click.argument("good", type=TEXT, shell_complete=completions.commits)
@click.argument("bad", type=TEXT, shell_complete=completions.commits)
@takes(options.Bisect)
def bisect(o: options.Bisect) -> int:
    """Find the commit after GOOD, up to BAD, that made a stage fail, or slower.

    A commit that cannot be told is tried with more blocks, then passed over. Exit code 3 if none is left alone.
    """
    asked = request_task.Asked(lambda: o.the_pod, o.repo, o.good, o.runbook, o.artifacts, o.max_time, o.max_cost)
    slower = compare_task.part_of(o.slower, "--slower") if o.slower else None
    what = bisect_task.What(asked, o.bad, o.stage, slower, o.blocks)
    with Progress(o.verbosity) as progress:
        progress.busy(f"reading commits {o.good} to {o.bad} of {o.repo.absolute()}")
        found = bisect_task.bisect(what, _session(o, progress, o.allow_different_gpu), Claim(o.wait, o.steal))
    _page(pages.of_bisection(found), o.page)
    _print(found, o.as_json, bisection.page)
    return OUTCOMES["passed" if found["first_bad"] else "incomplete"].exit_code


@cli.command(epilog=_examples("nsa-pod report", "nsa-pod report 20261121-101500 --html --output run.html"))
@options.repo
@options.artifacts
@options.json
@options.inventory
@click.option("--markdown", is_flag=True, help="Print report.md instead of the table: --format markdown.")
@click.option("--html", is_flag=True, help="Print one page that needs nothing else: --format html.")
@click.option("--format", "form", type=click.Choice(report_task.FORMS), help="How it is printed [default: text].")
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write it there instead of to stdout.")
@click.option("--redact-hosts", is_flag=True, help="Leave out hosts, addresses, users, ports, homes: to be shared.")
@options.run
@takes(options.Report)
def report(o: options.Report) -> int:
    """Judge a run again from its evidence: RUN (a run id or a directory), or the latest."""
    form = o.chosen
    found = find_run(o.kept_in, o.repo, o.run)
    hidden = hosts.known_to(found.path, o.pods.pods.values()) if o.redact_hosts else hosts.Hosts(active=False)
    result = hidden.result(found.rejudge())
    told = report_task.Told(result, found.plan(), found.path, hidden, o.output)
    if form == "text" and not o.output:
        report_task.show(told, _stdout())
    else:
        _write(report_task.written(told, form), o.output)
    return result.exit_code


@cli.command(epilog=_examples("nsa-pod history", "nsa-pod history S=4096 --stage decode_bench --html -o history.html"))
@options.repo
@options.artifacts
@options.json
@click.option("--html", is_flag=True, help="Print one page that needs nothing else.")
@click.option("--output", "-o", type=FILE, metavar="FILE", help="Write it there instead of to stdout.")
@options.pod_option("Only runs on this pod [default: on all of one kind].")
@click.option("--device", type=TEXT, metavar="GPU", help="On pods with this GPU, or CPU [default: the newest run's].")
@click.option("--stage", type=TEXT, metavar="S", help="Only rows of this stage.")
@click.option("--since", metavar="T", help="Only runs begun since a date (2026-11-20, UTC), or 7d, 12h, 90m ago.")
@click.option(
    "--runbook",
    type=TEXT,
    metavar="R",
    shell_complete=completions.runbooks,
    help="Recommend the thresholds that this runbook asks for.",
)
@click.option("--write", type=FILE, metavar="FILE", help="Write the recommended thresholds there, as YAML.")
@click.argument("rows", type=TEXT, required=False)
@takes(options.History)
def history(o: options.History) -> int:
    """Show what the runs kept here measured, over their commits: what changed, and where.

    ROWS is a text that the wanted rows hold, such as a column or S=4096.
    """
    if o.write and not o.runbook:
        raise InputError("--write needs --runbook: a runbook asks for thresholds")
    since = runs_task.since(o.since) if o.since else None
    wish = history_task.Wish(o.pod, o.device, o.stage, o.rows, since)
    found = history_task.history(o.kept_in, o.repo, wish, o.runbook)
    if o.write:
        history_task.write_thresholds(found, o.write)
    if o.html:
        page = report_history.document(found.device, found.runs, found.trends, found.recommendations)
        _write(html.render(page), o.output)
    elif o.as_json:
        _write(
            json.dumps(report_history.told(found.trends, found.recommendations, found.device), indent=1) + "\n",
            o.output,
        )
    else:
        _stdout().print(report_history.screen(found.trends, found.recommendations, found.others, found.device))
    return 0


@cli.command(epilog=_examples("nsa-pod pack", "nsa-pod pack 20261121-101500 --output for-alice.zip"))
@options.repo
@options.artifacts
@click.option("--output", "-o", type=FILE, metavar="FILE", help="[default: the run id in the current directory].")
@options.run
@takes(options.Pack)
def pack(o: options.Pack) -> int:
    """Put a run with all of its evidence into one file, for a colleague to `open`: RUN, or the latest."""
    click.echo(pack_task.pack(find_run(o.kept_in, o.repo, o.run), o.output))
    return 0


@cli.command("open", epilog=_examples("nsa-pod open 20261121-101500-4106f1b-0a1b2c3d.nsa-pod.zip"))
@options.repo
@options.artifacts
@options.json
@click.argument("file", type=FILE)
@takes(options.Open)
def open_(o: options.Open) -> int:
    """Check a packed run file by file, keep it with the others, and judge it again from its evidence."""
    return _show(pack_task.open_(o.file, o.kept_in, o.repo), o.as_json)


@cli.command(epilog=_examples("nsa-pod envs --pod pi-4090"))
@options.reaching
@takes(options.Reaching)
def envs(o: options.Reaching) -> int:
    """List the environments on a pod, the last used first."""
    with Progress(o.verbosity) as progress:
        found = environments_task.on_pod(_session(o, progress))
    _print(found, o.as_json, terminal.environments)
    return 0


@cli.command(epilog=_examples("nsa-pod prune --pod pi-4090 --keep 5", "nsa-pod prune --pod pi-4090 --older-than 7d"))
@options.reaching
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Keep the N newest runs and what they need.")
@click.option("--older-than", type=TEXT, metavar="T", help="Keep what was used in the last 7d, 12h, ...")
@click.option("--dry-run", is_flag=True, help="Say what would be removed; remove nothing.")
@takes(options.Prune)
def prune(o: options.Prune) -> int:
    """Remove runs, trees, environments, caches and leftovers from a pod; never what is in use, or waited for.

    With both limits, what either keeps stays; with neither, what fits under the pod's max_disk. Leftovers always go.
    """
    wish = prune_task.Wish(o.keep, None if o.older_than is None else duration(o.older_than))
    with Progress(o.verbosity) as progress:
        pruned = prune_task.prune(_session(o, progress), wish, dry_run=o.dry_run)
    _print(pruned, o.as_json, terminal.pruned)
    return 0


@cli.command(epilog=_examples("nsa-pod init"))
@click.argument("folder", type=FOLDER, default=".")
def init(folder: Path) -> int:
    """Look at the repository in FOLDER and write a pods.yaml and a runbook that fit; nothing that exists is touched."""
    done = init_task.init(folder)
    click.echo(f"found {done.found}", err=True)
    for path in done.kept:
        click.echo(f"kept {path}, which was there", err=True)
    for path in done.written:
        click.echo(path)
    if done.written:
        click.echo("next: read them, commit, then `nsa-pod check` and `nsa-pod validate --pod local`", err=True)
    return 0


@cli.command(epilog=_examples('eval "$(nsa-pod completion bash)"'))
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """Print the shell's completion script."""
    complete = get_completion_class(shell)
    assert complete is not None  # click knows the shells that the argument allows
    click.echo(complete(cli, {}, "nsa-pod", "_NSA_POD_COMPLETE").source())
    return 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: each failure is one sentence on stderr, and with --json an object on stdout."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    as_json = "--json" in own
    try:
        code = cli.main(given, prog_name="nsa-pod", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as e:
        click.echo(e.format_message(), err=True)
        code = e.exit_code
    except click.ClickException as e:
        code = _fail([e.format_message()], e.exit_code, as_json)
    except NsaPodError as e:
        code = _fail(e.sentences, e.exit_code, as_json)
    except BrokenPipeError:  # whoever read stdout has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _PIPE_CLOSED
    except OSError as e:  # this machine's disk, where nothing more can be said of it
        code = _fail([f"{e.filename or 'this machine'}: {e.strerror or e}"], NsaPodError.exit_code, as_json)
    except BaseException as e:
        if not _is_interrupt(e):
            raise
        sys.unraisablehook = lambda _: None  # what the interrupt left half done complains when it is collected
        code = _fail(["interrupted"], _INTERRUPTED, as_json)
    sys.exit(code or 0)


def _is_interrupt(e: BaseException | None) -> bool:
    """Whether it came of an interrupt: one in the middle of a `with` can come out as what its end made of it."""
    return e is not None and (isinstance(e, (KeyboardInterrupt, click.Abort)) or _is_interrupt(e.__context__))


def _fail(sentences: Sequence[str], code: int, as_json: bool) -> int:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for sentence in sentences:
        console.print(f"[red]error:[/] {escape(plain(sentence, 2000))}")
    if as_json:
        each = {"errors": list(sentences)} if len(sentences) > 1 else {}
        click.echo(json.dumps({"verdict": "error", "error": "; ".join(sentences), **each}))
    return code


def _follow(o: options.Follow, *, wait: bool) -> int:
    choice = follow_task.Choice(o.repo, o.commit, o.run, o.kept_in, o.artifacts is not None)
    with Progress(o.verbosity) as progress, Notice(o.notify, progress) as notice:
        result = follow_task.follow(_session(o, progress), choice, wait=wait)
        notice.ended(result)
    return _show(result, o.as_json)


def _preview(request: request_task.Request, progress: Progress, as_json: bool) -> int:
    request.warn(progress)
    plan = request.preview()
    expected = validate_task.expected(plan)
    if as_json:
        progress.say(expected)
        click.echo(to_json(plan), nl=False)
    else:
        _stdout().print(preview.page(plan, request.pod, request.runbook.environment, expected))
    wrong = request.findings or any(stage["blocked"] for stage in plan["stages"])
    return OUTCOMES["incomplete" if wrong else "passed"].exit_code


def _session(o: options.Reaching, progress: Progress, allow_different_gpu: bool = False) -> PodSession:
    confirm = progress.ask if sys.stdin.isatty() else None
    trusted.require(o.the_inventory, o.the_pod, confirm)
    return PodSession(
        o.the_pod,
        progress,
        accept_new_host_key=o.accept_new_host_key,
        allow_different_gpu=allow_different_gpu,
        confirm=confirm,
    )


def _show(result: Result, as_json: bool) -> int:
    if as_json:
        click.echo(result.to_json(), nl=False)
    else:
        screen.show(result, _stdout())
    return result.exit_code


def _print(value: Any, as_json: bool, render: Callable[[Any], RenderableType]) -> None:
    if as_json:
        click.echo(json.dumps(value, indent=1))
    else:
        _stdout().print(render(value))


def _write(text: str, output: Path | None) -> None:
    if output:
        write_atomically(output, text)
    else:
        click.echo(text, nl=False)


def _page(document: Document, output: Path | None) -> None:
    if output:
        write_atomically(output, html.render(document))


def _stdout() -> Console:
    """Wide where nobody looks: a file or a pipe has no width to wrap at."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
