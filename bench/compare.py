#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
compare - runs programs plain and under libcupola.so and prints the before/after table.

What:       plain and preloaded runs alternate (A B A B ...), the median of each is shown. Times and hashes are the
            programs' own lines ("name=... time_s=... hash=..."); driver calls are allocations and frees: what the
            program asked for before, what reached the driver after (CUPOLA_STATS, or the software driver's counters).
Not here:   the programs (apps/), setting up and building (demo.sh).
Invariants: "equal" says yes only when every run of the program, plain or not, printed the same hash.
Exit code:  0, or 1 when a program failed or outputs differ, or 2 when nothing could be measured.
"""
import argparse
import collections
import csv
import datetime
import glob
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SKIP = 77

Program = collections.namedtuple("Program", "name command where env is_extra", defaults=({}, False))
NO_CACHING = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

# where: "gpu" needs a real driver, "any" runs on the software driver too. Extras need --all (or to be named).
PROGRAMS = [
    Program("thrust_loop-static", ["{bench}/thrust_loop-static"], "gpu"),
    Program("thrust_loop-shared", ["{bench}/thrust_loop-shared"], "gpu"),
    Program("cupy_loop", ["{python}", "{apps}/cupy_loop.py", "loop"], "gpu"),
    Program("cupy_script", ["{python}", "{apps}/cupy_loop.py", "script"], "gpu"),
    Program("torch_mlp", ["{python}", "{apps}/torch_mlp.py"], "gpu", NO_CACHING),
    Program("torch_gpt", ["{python}", "{apps}/torch_gpt.py"], "gpu", NO_CACHING, True),
    Program("torch_resnet", ["{python}", "{apps}/torch_resnet.py"], "gpu", NO_CACHING, True),
    Program("torch_loader", ["{python}", "{apps}/torch_loader.py"], "gpu", NO_CACHING, True),
    Program("torch_gcn", ["{python}", "{apps}/torch_gcn.py"], "gpu", NO_CACHING, True),
    Program("pipeline", ["{bench}/pipeline"], "any"),
    Program("streams", ["{bench}/streams"], "any", {}, True),
    Program("streams-small", ["{bench}/streams", "--least", "4k", "--bytes", "1m", "--groups", "132"], "gpu", {}, True),
    Program("streams-async", ["{bench}/streams", "--async", "1"], "gpu", {}, True),
    Program("sweep", ["{bench}/sweep"], "any"),
    Program("free_latency", ["{bench}/free_latency"], "any"),
    Program("doors-dlsym", ["{bench}/doors-dlsym"], "any", {}, True),
    Program("doors-link", ["{bench}/doors-link"], "any"),
    Program("doors-static", ["{bench}/doors-static"], "gpu", {}, True),
    Program("doors-shared", ["{bench}/doors-shared"], "any"),
    Program("launch_cost", ["{bench}/launch_cost"], "any", {}, True),
    Program("ipc_ring", ["{bench}/ipc_ring", "--bytes", "4m"], "any", {}, True),
    Program("launch_threads", ["{bench}/launch_threads"], "any", {}, True),
]


class Failure(Exception):
    """A program that neither ran through nor skipped itself."""


class Skip(Exception):
    """A program that said why it can't run here."""


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs programs plain and under libcupola.so; prints the table.")
    parser.add_argument("programs", nargs="*", help="names from --list; default: all but the extras")
    parser.add_argument("--all", action="store_true", help="the extras too")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder (default: build)")
    parser.add_argument("--library", dest="shim", metavar="FILE", help="default: libcupola.so of the build folder")
    parser.add_argument("--software", action="store_true", help="the software driver even where there is a GPU")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one run (default: 300)")
    parser.add_argument("--csv", nargs="?", const="", metavar="FILE",
                        help="also write a CSV file (default name: bench/results/DATE-MACHINE.csv)")
    options = parser.parse_args()
    known = {program.name for program in PROGRAMS}
    unknown = [name for name in options.programs if name not in known]
    if unknown or options.rounds < 1:
        parser.error(f"no such program: {' '.join(unknown)}" if unknown else "--rounds must be at least 1")
    options.build = os.path.abspath(options.build)
    options.shim = os.path.abspath(options.shim or os.path.join(options.build, "libcupola.so"))
    return options


# ---- the machine ------------------------------------------------------------------------------------------------


class Machine:
    def __init__(self, options):
        self.soft_lib = os.path.join(options.build, "tests", "softcuda", "lib")
        name, why = (None, "asked for") if options.software else probe()
        name = name and name.replace("driver for CUDA", f"driver {driver_version()}, CUDA")
        self.is_simulated = name is None
        self.name = name or f"software driver, {why}"
        if self.is_simulated and not os.path.isdir(self.soft_lib):
            sys.exit(f"compare: no GPU ({why}) and no software driver in {self.soft_lib}: build it first")

    def environment(self, program):
        env = {**os.environ, **program.env, "PYTHONDONTWRITEBYTECODE": "1"}
        preload = re.split("[: ]", env.pop("LD_PRELOAD", ""))
        preload = [entry for entry in preload if entry and "libcupola" not in entry]
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        if self.is_simulated:
            env["LD_LIBRARY_PATH"] = join_path(self.soft_lib, env.get("LD_LIBRARY_PATH"))
        return env

    def slug(self):
        text = "softcuda" if self.is_simulated else self.name.split(",")[0]
        return re.sub("[^a-z0-9]+", "-", text.lower().replace("nvidia", "")).strip("-")


def probe():
    command = [sys.executable, os.path.join(HERE, "probe.py")]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return None, "the CUDA driver does not answer"
    text = done.stdout.strip()
    return (text, None) if done.returncode == 0 else (None, text or f"probe: exit code {done.returncode}")


def driver_version():
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", file.read()).group(1)
    except (OSError, AttributeError):
        return "of unknown version"


def join_path(first, rest):
    return f"{first}:{rest}" if rest else first


# ---- one run ----------------------------------------------------------------------------------------------------


def expand(program, options):
    words = {"bench": os.path.join(options.build, "bench"), "apps": os.path.join(HERE, "apps"),
             "python": sys.executable}
    return [word.format(**words) for word in program.command]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def run_once(command, env, timeout):
    """The rows that the program printed, as dictionaries. Its whole process group ends with it."""
    if not os.path.exists(command[0]):
        raise Skip("not built (no nvcc, or not this part of the toolkit)")
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             start_new_session=True)
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise Failure(f"no end after {timeout:g} s") from None
    if child.returncode == SKIP:
        raise Skip(re.sub("^skipped: ", "", last_line(out)) or "exit code 77")
    if child.returncode == 127:
        raise Skip(last_line(err) or "cannot be started")
    if child.returncode != 0:
        raise Failure(f"exit code {child.returncode}: {last_line(err) or last_line(out)}")
    if "cannot be preloaded" in err:
        raise Failure(next(line for line in err.splitlines() if "cannot be preloaded" in line))
    rows = [dict(re.findall(r"(\w+)=(\S+)", line)) for line in out.splitlines() if line.startswith("name=")]
    if not rows or any("time_s" not in row or "hash" not in row for row in rows):
        raise Failure("printed no line with time_s= and hash=")
    return rows


def run_preloaded(command, env, options, folder):
    """As run_once() under the library; also the sum of the counters that its processes wrote."""
    stats = os.path.join(folder, "stats.json")
    env = {**env, "LD_PRELOAD": join_path(options.shim, env.get("LD_PRELOAD")), "CUPOLA_STATS": stats}
    for old in glob.glob(stats + "*"):
        os.remove(old)
    rows = run_once(command, env, options.timeout)
    totals = collections.Counter()
    for name in glob.glob(stats + "*"):
        with open(name, encoding="utf-8") as lines:
            for line in lines:
                values = json.loads(line)
                totals.update({key: value for key, value in values.items() if isinstance(value, int)})
    return rows, totals


# ---- one program ------------------------------------------------------------------------------------------------


class Row:
    """One line of the table: what A B A B runs of one program said under one name."""

    def __init__(self, name):
        self.name = name
        self.plain_s, self.cupola_s, self.hashes = [], [], set()
        self.plain_calls = self.cupola_calls = None

    def add(self, row, times):
        times.append(float(row["time_s"]))
        self.hashes.add(row["hash"])

    def ratio(self):
        after = statistics.median(self.cupola_s)
        return statistics.median(self.plain_s) / after if after > 0 else float("nan")


def call_counts(plain, preloaded, totals):
    """Allocations and frees that reached the driver, before and after; None where nobody counted."""
    if "driver_calls" in plain:
        return int(plain["driver_calls"]), int(preloaded["driver_calls"])
    if totals:
        return totals["allocs"] + totals["frees"], totals["driver_allocs"] + totals["driver_frees"]
    return (int(plain["allocs"]) + int(plain["frees"]) if "allocs" in plain else None), None


def measure(program, machine, options, folder):
    rows = {}
    command, env = expand(program, options), machine.environment(program)
    for round_number in range(options.rounds):
        progress(program.name, f"round {round_number + 1} of {options.rounds}, plain")
        plain = run_once(command, env, options.timeout)
        progress(program.name, f"round {round_number + 1} of {options.rounds}, with cupola")
        preloaded, totals = run_preloaded(command, env, options, folder)
        if [row["name"] for row in plain] != [row["name"] for row in preloaded]:
            raise Failure("printed other lines with cupola than without")
        for before, after in zip(plain, preloaded):
            if int(after.get("violations", 0)):
                raise Failure(f"the software driver saw {after['violations']} early reuses")
            name = before["name"]
            label = name if name.startswith(program.name) else f"{program.name} {name}"
            row = rows.setdefault(label, Row(label))
            row.add(before, row.plain_s)
            row.add(after, row.cupola_s)
        # Counters are of the whole process: shown once, on its first row.
        first = next(iter(rows.values()))
        first.plain_calls, first.cupola_calls = call_counts(plain[-1], preloaded[-1], totals)
    return list(rows.values())


def measure_all(machine, options):
    chosen = [program for program in PROGRAMS
              if (program.name in options.programs if options.programs else options.all or not program.is_extra)]
    rows, skipped, failed = [], [], []
    with tempfile.TemporaryDirectory(prefix="cupola-compare-") as folder:
        for program in chosen:
            try:
                if machine.is_simulated and program.where == "gpu":
                    raise Skip("needs a GPU")
                rows += measure(program, machine, options, folder)
            except Skip as why:
                skipped.append((program.name, str(why)))
            except Failure as why:
                failed.append((program.name, str(why)))
    progress()
    return rows, skipped, failed


# ---- saying it --------------------------------------------------------------------------------------------------


def progress(name="", step=""):
    """One line that rewrites itself on a terminal; elsewhere a line for each program. Without a name: done."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{name}{': ' if name else ''}{step}", end="", file=sys.stderr, flush=True)
    elif name and step.startswith("round 1 ") and step.endswith("plain"):
        print(f"  {name}", file=sys.stderr, flush=True)


def time_text(seconds):
    for unit, scale in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def table_lines(rows, is_simulated):
    note = ", simulated" if is_simulated else ""
    lines = [["program", "plain" + note, "with cupola" + note, "ratio", "driver calls before", "after",
              "outputs equal"]]
    for row in rows:
        counts = ["" if count is None else f"{count:,}" for count in (row.plain_calls, row.cupola_calls)]
        lines.append([row.name, time_text(statistics.median(row.plain_s)), time_text(statistics.median(row.cupola_s)),
                      f"{row.ratio():.1f}x", *counts, "yes" if len(row.hashes) == 1 else "NO"])
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    texts = ["  ".join(cell.ljust(width) if i in (0, 6) else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines]
    return [texts[0], "-" * len(texts[0]), *texts[1:]]


def commit_text():
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    try:
        commit = git("rev-parse", "--short", "HEAD").stdout.strip()
        return (commit or "unknown") + ("-dirty" if commit and git("status", "--porcelain").stdout.strip() else "")
    except OSError:
        return "unknown"


def command_text():
    """As it was given, with the variables that reach the preloaded runs; without the name of the file."""
    words = [word for before, word in zip([""] + sys.argv, sys.argv) if before != "--csv" or word.startswith("-")]
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items())
                 if name.startswith("CUPOLA_") and name != "CUPOLA_STATS"]
    return shlex.join([*variables, "bench/compare.py", *words[1:]])


def write_csv(path, rows, machine, options):
    with open(path, "w", newline="", encoding="utf-8") as file:
        file.write(f"# command: {command_text()}\n")
        file.write(f"# machine: {machine.name}; {platform.machine()}, {os.cpu_count()} CPUs\n")
        file.write(f"# date: {datetime.date.today().isoformat()}; commit: {commit_text()}; rounds: {options.rounds}\n")
        kind = "simulated, not a GPU's" if machine.is_simulated else "seconds, medians of the rounds"
        file.write(f"# times: {kind}; driver calls: allocations and frees of the whole process, warm-up included\n")
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["program", "plain_s", "cupola_s", "ratio", "plain_min_s", "plain_max_s", "cupola_min_s",
                      "cupola_max_s", "driver_calls_plain", "driver_calls_cupola", "outputs_equal"])
        for row in rows:
            times = [statistics.median(row.plain_s), statistics.median(row.cupola_s), row.ratio(), min(row.plain_s),
                     max(row.plain_s), min(row.cupola_s), max(row.cupola_s)]
            counts = ["" if count is None else count for count in (row.plain_calls, row.cupola_calls)]
            out.writerow([row.name, *(f"{value:.6g}" for value in times), *counts,
                          "yes" if len(row.hashes) == 1 else "NO"])
    print(f"written: {os.path.relpath(path)}")


def main():
    options = parse_arguments()
    if options.list:
        for program in PROGRAMS:
            print(f"{program.name:20} {'extra; ' if program.is_extra else ''}"
                  f"{'GPU only' if program.where == 'gpu' else 'GPU or software driver'}")
        return 0
    if not os.path.exists(options.shim):
        sys.exit(f"compare: no {options.shim}: build it first (cmake --preset release && cmake --build build)")
    machine = Machine(options)
    print(f"machine: {machine.name}; median of {options.rounds} alternating rounds")
    rows, skipped, failed = measure_all(machine, options)
    if rows:
        print("\n" + "\n".join(table_lines(rows, machine.is_simulated)))
        print("\ndriver calls: allocations and frees of the whole process that reached the driver, warm-up included")
    for why in dict.fromkeys(why for _, why in skipped):
        print(f"skipped, {why}: {', '.join(name for name, its in skipped if its == why)}")
    for name, why in failed:
        print(f"FAILED {name}: {why}")
    if rows and options.csv is not None:
        name = f"{datetime.date.today().isoformat()}-{machine.slug()}.csv"
        path = options.csv or os.path.join(HERE, "results", name)
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        write_csv(path, rows, machine, options)
    if failed or any(len(row.hashes) != 1 for row in rows):
        return 1
    return 0 if rows else 2


if __name__ == "__main__":
    sys.exit(main())
