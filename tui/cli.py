"""The command line: one table of commands, parsed with argparse, each run by a module that is imported only when asked.

`status --json` must answer in 0.2 s, so nothing here (and nothing that a text command needs) imports Textual.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence

from ranktop import __version__

#: Exit code of a command that was called wrongly or could not read what it was given.
USAGE = 2

NEXT_STEPS = """\
ranktop shows every rank of a distributed PyTorch job and names the first one to stall.

  a new job       ranktop run -- torchrun --nproc-per-node 8 train.py     then, in another terminal: ranktop watch
  a hung job      ranktop attach --once         the training processes already on this host, the odd one out named
  only dumps left ranktop analyze DIR           the flight-recorder dumps that PyTorch wrote
  the newest run  ranktop status                one answer      ranktop explain   the whole story
  to see it work  ranktop demo                  a real small job on this machine, with a real fault

ranktop COMMAND --help tells more; ranktop --version prints the version.
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with errors on one line as the contract says."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds must be above 0")
    return value


def _number(text: str) -> int:
    """A sequence number."""
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a sequence number")
    return int(text)


def _count(text: str) -> int:
    """A positive number of ranks."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:9]) < 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks")
    return int(text)


def _run(args: argparse.Namespace) -> int:
    from ranktop.collectors.launcher import RunOptions, run

    command = list(args.command)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        sys.stderr.write("ranktop run: no COMMAND after -- (for example: ranktop run -- torchrun train.py)\n")
        return USAGE
    return run(
        RunOptions(
            run_dir=args.run_dir, stall_after=args.stall_after, rank_logs=args.rank_logs, no_snapshot=args.no_snapshot
        ),
        command,
    )


def _watch(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import watch

    return watch.main(args.dir, ascii_only=args.ascii)


def _status(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import status

    return status.main(args.dir, as_json=args.json)


def _wait(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import wait

    return wait.main(args.dir, until=args.until, timeout_s=args.timeout)


def _explain(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import explain

    return explain.main(args.dir, graph=args.graph, ascii_only=args.ascii)


def _analyze(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import analyze

    return analyze.main(
        args.path,
        world_size=args.world_size,
        as_json=args.json,
        around=args.around,
        group=args.group,
        graph=args.graph,
        ascii_only=args.ascii,
    )


def _snapshot(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import snapshot

    return snapshot.main(args.dir, output=args.output)


def _attach(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import attach

    return attach.main(args.pid, as_json=args.json)


def _demo(args: argparse.Namespace) -> int:
    from ranktop.tui.commands import demo

    return demo.main(fault=args.fault, ranks=args.ranks, ascii_only=args.ascii)


#: Names of `ranktop demo --fault`, in the order that --help shows; `tui/demo_jobs/train.py` does them.
FAULTS = {
    "data": "a rank stops in its data loading",
    "conditional": "a metric is reduced on rank 0 only",
    "order": "one rank takes two groups' collectives in the opposite order",
    "killed": "a rank is killed (SIGKILL)",
    "stopped": "a rank's process is stopped (SIGSTOP)",
    "none": "nothing goes wrong",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    parser = _Parser(
        prog="ranktop",
        description="A terminal monitor for distributed PyTorch/NCCL training: every rank, its last collective, its GPU, "
        "and on a hang the first rank to stall, the line of code, the cause and what to do.",
        epilog="Exit codes of status, analyze and attach: 0 starting, running, finished; 3 stalled; 4 failed; 5 slow; "
        "6 unknown; 2 usage or unreadable.",
    )
    parser.add_argument("--version", action="version", version=f"ranktop {__version__}")
    commands = parser.add_subparsers(dest="command_name", metavar="COMMAND", parser_class=_Parser)

    def add(name: str, act: Callable[[argparse.Namespace], int], text: str, more: str = "") -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip(), allow_abbrev=False
        )
        sub.set_defaults(act=act)
        return sub

    def takes_dir(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "dir",
            nargs="?",
            metavar="DIR",
            help="the run directory (default: $RANKTOP_RUN_DIR, else the newest live run, else the newest)",
        )

    run = add(
        "run",
        _run,
        "launch a job and record it",
        "The command runs unchanged: its output, terminal, signals and exit code are its own. "
        "126 and 127 mean, as in a shell, that it is not executable or not found; 128+n that signal n ended it.",
    )
    run.add_argument("--run-dir", metavar="DIR", help="where the record goes; every host of the job gives the same one")
    run.add_argument("--stall-after", metavar="S", type=_seconds, help="call a wait of S seconds a stall")
    run.add_argument(
        "--rank-logs", action="store_true", help="have torchrun copy each rank's output into files (prefixes its lines)"
    )
    run.add_argument("--no-snapshot", action="store_true", help="take no snapshot when the job stalls")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …", help="the launch command, unchanged")

    watch = add(
        "watch", _watch, "the terminal app, on a live or finished run", "Press ? in it for its keys, q to leave."
    )
    takes_dir(watch)
    watch.add_argument("--ascii", action="store_true", help="use ASCII characters only")

    status = add(
        "status",
        _status,
        "one answer about a run, then exit",
        "Exit code: 0 starting, running or finished; 3 stalled; 4 failed; 5 slow; 6 unknown; 2 unreadable.",
    )
    takes_dir(status)
    status.add_argument("--json", action="store_true", help="print one JSON object (schema ranktop.status/1)")

    wait = add(
        "wait",
        _wait,
        "wait until a run reaches a state",
        "Exit code: 0 reached; 1 timed out or no longer possible; 2 unreadable.",
    )
    takes_dir(wait)
    wait.add_argument("--until", required=True, choices=("stalled", "failed", "finished"), help="the state to wait for")
    wait.add_argument("--timeout", metavar="S", type=_seconds, help="give up after S seconds")

    explain = add("explain", _explain, "the verdict told as a person would", "Exit codes as status.")
    takes_dir(explain)
    explain.add_argument(
        "--graph", choices=("text", "dot"), help="instead, who waits for whom: as a tree, or for Graphviz"
    )
    explain.add_argument("--ascii", action="store_true", help="use ASCII characters only")

    snapshot = add("snapshot", _snapshot, "everything about this moment in one file")
    takes_dir(snapshot)
    snapshot.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: in the run directory)")

    analyze = add(
        "analyze",
        _analyze,
        "the verdict from the flight-recorder dumps that PyTorch left",
        "Reads dumps of PyTorch 2.3 and newer, pickle or JSON, one file a rank; nothing in a dump is ever run. "
        "Exit code: 0 nothing wrong; 3 stalled; 6 unknown; 2 unreadable.",
    )
    analyze.add_argument("path", nargs="+", metavar="PATH", help="a folder of dumps, or dumps")
    analyze.add_argument(
        "--world-size", type=_count, metavar="N", help="the job's number of ranks, where the dumps show fewer"
    )
    forms = analyze.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print one JSON object (schema ranktop.status/1)")
    forms.add_argument(
        "--around", type=_number, metavar="SEQ", help="instead, every rank's operations around that number of a group"
    )
    forms.add_argument(
        "--graph", choices=("text", "dot"), help="instead, who waits for whom: as a tree, or for Graphviz"
    )
    analyze.add_argument(
        "--group", metavar="NAME", help="with --around: the group's name or description (default: the verdict's)"
    )
    analyze.add_argument("--ascii", action="store_true", help="use ASCII characters only")

    attach = add(
        "attach",
        _attach,
        "the training processes already on this host that nobody instrumented",
        "Reads their stacks twice without pausing them and names the odd one out. Exit codes as status.",
    )
    attach.add_argument(
        "pid", nargs="*", type=int, metavar="PID", help="only these processes (default: every rank here)"
    )
    attach.add_argument("--once", action="store_true", required=True, help="one answer, then exit")
    attach.add_argument("--json", action="store_true", help="print one JSON object (schema ranktop.status/1)")

    faults = "; ".join(f"{name}: {text}" for name, text in FAULTS.items())
    demo = add(
        "demo",
        _demo,
        "a real small torchrun job on this machine, with a real fault, watched live",
        f"Without a terminal it tells the same story as text and ends. Faults: {faults}.",
    )
    demo.add_argument("--fault", choices=tuple(FAULTS), default="data", help="what goes wrong (default: data)")
    demo.add_argument(
        "--ranks", type=int, default=4, choices=range(2, 9), metavar="N", help="2 to 8 ranks (default: 4)"
    )
    demo.add_argument("--ascii", action="store_true", help="use ASCII characters only")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; never raises for anything a user can do."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        sys.stdout.write(NEXT_STEPS)
        return 0
    parser = build_parser()
    try:
        args = parser.parse_args(words)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else USAGE
    if not hasattr(args, "act"):
        parser.print_usage(sys.stderr)
        return USAGE
    try:
        code: int = args.act(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output left (`ranktop status | head`); nothing is wrong, and Python must not say so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code
