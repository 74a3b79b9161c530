"""Honest oddities of programs: shells, make, and Python in all its ways of starting."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.honesty.case import Case, Stage, first, truth
from tests.support.agent_pod import artifact
from tests.support.stage_cases import makes, runs

SPAWNS = """
import multiprocessing, sys
def double(x): return 2 * x
def main():
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool: print(method, sum(pool.map(double, range(4))))
if __name__ == "__main__":
    main()
    sys.exit(0)
"""
RETRIES = """
import logging
for attempt in range(3):
    try:
        if attempt < 2: raise OSError("busy")
        print("done in attempt", attempt + 1)
    except OSError:
        logging.exception("trying again")
"""
MODULES = """
import importlib, runpy, sys, types, importlib.util
made = types.ModuleType("odd_made"); exec("VALUE = 3", made.__dict__); sys.modules["odd_made"] = made
import odd_made
import odd_reloaded
importlib.reload(odd_reloaded)
print(odd_made.VALUE, runpy.run_path("odd_scripts/plain.py")["VALUE"], runpy.run_module("odd_reloaded")["VALUE"])
exec(compile("print(__name__)", "<made>", "exec"))
spec = importlib.util.find_spec("odd_lazy")
spec.loader = importlib.util.LazyLoader(spec.loader)
lazy = importlib.util.module_from_spec(spec); sys.modules["odd_lazy"] = lazy; spec.loader.exec_module(lazy)
print(lazy.VALUE)
"""
HOOKS = """
import importlib.abc, importlib.machinery, sys
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.startswith("odd_virtual") else None
    def create_module(self, spec): return None
    def exec_module(self, module): module.VALUE = module.__name__
sys.meta_path.insert(0, Finder())
sys.path_hooks.insert(0, lambda path: (_ for _ in ()).throw(ImportError(path)))
import odd_virtual_one
print(odd_virtual_one.VALUE)
"""
FORKS = """
import os, threading
pid = os.fork()
if pid == 0:
    os.write(1, b"child\\n")
    os._exit(0)
print("parent", os.waitpid(pid, 0)[1])
threading.Thread(target=threading.Event().wait, daemon=True).start()
pid = os.fork()
if pid == 0:
    os.execvp("true", ["true"])
os.waitpid(pid, 0)
"""
ZIPAPP = """
mkdir -p $TMPDIR/app && printf 'import sys\\nprint("zipped", sys.argv[1])\\n' > $TMPDIR/app/__main__.py
python -m zipapp $TMPDIR/app -o $TMPDIR/app.pyz
python $TMPDIR/app.pyz 1
"""
SERVER = """
set -eu
python - <<'END' &
import http.server, threading
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
open("$TMPDIR_/port".replace("$TMPDIR_", __import__("os").environ["TMPDIR"]), "w").write(str(server.server_port))
server.serve_forever()
END
pid=$!
trap 'kill $pid 2>/dev/null || true' EXIT
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ -s "$TMPDIR/port" ] && break; sleep 0.5; done
python -c 'import sys, urllib.request as r; print(r.urlopen(f"http://127.0.0.1:{sys.argv[1]}/runbooks").status)' \
    "$(cat "$TMPDIR/port")"
"""
STRICT = """
#!/usr/bin/env bash
set -euo pipefail
IFS=$'\\n\\t'
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trap 'rm -rf "$work"' EXIT
work=$(mktemp -d)
log() { printf '%s\\n' "$*" >&2; }
usage() { log "usage: $0"; return 2; }
check() { local name=$1; shift; if "$@"; then echo "ok $name"; else echo "not ok $name"; return 1; fi; }
check "true" true
check "here" test -d "$here"
if ! grep -q nothing /dev/null; then echo "absent, as it should be"; fi
usage || echo "usage returned $?"
i=0; ((i++)) || true
((++i)); let "i += 1"
while read -r line; do echo "line $line"; done < <(printf 'a\\nb\\n')
IFS=' ' read -r first rest <<< "one two three"
mapfile -t lines < <(seq 3); echo "${#lines[@]} lines"
declare -A seen=([a]=1); [[ -n ${seen[a]} && ! -v seen[b] ]] && echo "maps"
[[ "$first" =~ ^o(.*)$ ]] && echo "${BASH_REMATCH[1]}"
case $rest in two*) echo "matches";; *) exit 1;; esac
for f in "$here"/*.none; do [ -e "$f" ] || continue; echo "$f"; done
shopt -s nullglob; for f in "$here"/*.none; do echo "$f"; done
false || true
! false
until [ "$i" -ge 5 ]; do i=$((i + 1)); done
select_one() { local x; for x in "$@"; do [ "$x" = b ] && return 0; done; return 1; }
select_one a b && echo "found"
(cd / && pwd) >/dev/null
{ echo grouped; } | cat
coproc cat; echo hi >&"${COPROC[1]}"; read -r said <&"${COPROC[0]}"; echo "$said"; exec {COPROC[1]}>&-; wait
echo done
"""
LOOSE = """
rm none.txt 2>/dev/null || true
kill 999999 2>/dev/null || true
grep nothing runbooks/r.yaml || true
pkill_none() { kill -0 999999 2>/dev/null; }
if pkill_none; then exit 1; fi
command -v nvidia-smi >/dev/null 2>&1 || echo "no GPU tools"
nvidia-smi >/dev/null 2>&1 && echo "a GPU" || echo "no GPU"
which ninja_none > /dev/null 2>&1
type git >/dev/null && git rev-parse HEAD >/dev/null
diff runbooks/r.yaml runbooks/r.yaml && echo same
if diff -q runbooks/r.yaml odd_loose/script.sh >/dev/null; then exit 1; else echo differ; fi
cmp -s runbooks/r.yaml odd_loose/script.sh || echo "differ again"
test -f none.txt || echo "no file"
[ -d none ] && echo "never"
true
"""
PIPES = """
set -o pipefail
seq 100000 | head -n 3
yes | head -1 | cat
seq 100000 | grep -q 7 && echo "found"
python -c 'for i in range(100000): print(i)' | sed -n '2{p;q}'
cat runbooks/r.yaml | head -c 5; echo
find . -name '*.md' -exec basename {} \\; | sort | uniq -c
find . -name r.yaml -print0 | xargs -0 -n1 wc -l
printf '1 2\\n' | { read -r a b; echo "$((a + b))"; }
echo x | tee $TMPDIR/x >/dev/null
python -c 'print(1)' 2> >(cat >&2) | tee >(wc -l >&2)
"""
POSIX = """
set -eu
x=${UNSET:-default}
[ "$x" = default ]
n=0
while [ $n -lt 3 ]; do n=$((n + 1)); done
test $n -eq 3 && echo three
cat <<END | tr a-z A-Z
here $x
END
if command -v no_such_program >/dev/null; then exit 1; fi
out=$(expr 1 + 1)
echo "$out"
( exit 3 ) || echo "sub $?"
set +e
( exit 4 )
status=$?
set -e
[ $status -eq 4 ] && echo "status $status"
trap 'echo bye' EXIT
exec 3>&1; echo "on three" >&3
"""
TIMED = """
timeout 20 python -c 'print("in time")'
if timeout 1 sleep 30; then exit 1; else echo "late: $?"; fi
env ODD=5 python -c 'import os; print(os.environ["ODD"])'
ODD=6 sh -c 'echo $ODD'
nice -n 1 python -c 'print("nice")'
time python -c 'print("timed")'
exec python -c 'print("the end")'
"""
JOBS = """
set -e
pids=()
for i in 1 2 3; do python -c "print($i)" & pids+=($!); done
for pid in "${pids[@]}"; do wait "$pid"; done
sleep 100 & sleeper=$!
disown $sleeper 2>/dev/null || true
kill $sleeper
(sleep 0.1; echo later) & wait -n
echo all
"""
TRACED = """
set -x
PS4='+ $LINENO: '
python -c 'print("traced")'
set +x
echo -e "Error: this is only text\\nfailed: 0"
printf 'Traceback of nothing\\n'
"""
GITTED = """
git status --porcelain | wc -l
test -z "$(git status --porcelain -uno)" && echo clean
git describe --always --dirty
git rev-parse HEAD
git log -1 --format=%s
git ls-files | head -3
git diff --quiet && echo "no difference"
git diff-index --quiet HEAD -- && echo "none indeed"
git rev-parse --abbrev-ref HEAD; git rev-parse --show-toplevel
git cat-file -t HEAD; git show HEAD:runbooks/r.yaml
git grep -q no_such_word -- odd_git || git grep -c . runbooks/r.yaml
git config user.name || echo nobody
git archive HEAD | tar t | head -2
git branch --show-current; git tag -l; git check-ignore none || true
"""
TOUCHED = """
touch runbooks/r.yaml odd_touched/*.txt
chmod u+w runbooks/r.yaml; chmod 644 odd_touched/a.txt
ln odd_touched/a.txt $TMPDIR/hard; ln -s a.txt odd_touched/soft; cat odd_touched/soft
cp odd_touched/a.txt odd_touched/b.tmp; mv odd_touched/b.tmp odd_touched/c.tmp; rm odd_touched/c.tmp
sed -n 1p odd_touched/a.txt
mkdir -p build .ruff_cache odd_touched/__pycache__; echo x > build/x; echo y > .coverage
"""
REWRITES = """
import json, pathlib
path = pathlib.Path("odd_data/data.json")
content = json.loads(path.read_text())
path.write_text(json.dumps(content))
print(path.stat().st_size)
"""
BLANKS = """
cat "odd names/ü ☃.txt" 'odd names/it'"'"'s.txt'
python "odd names/a script.py" "an argument"
for f in odd\\ names/*; do printf '%s\\n' "$f"; done | wc -l
find 'odd names' -type f -print0 | xargs -0 cat | wc -c
"""
MAKES_ENVIRONMENT = """
import os, subprocess, sys
made = os.path.join(os.environ["TMPDIR"], "made")
subprocess.run([sys.executable, "-m", "venv", "--without-pip", made], check=True)
argv = [made + "/bin/python", "-m", "unittest", "-v", "odd_made_environment.test_it"]
subprocess.run(argv, env={"PATH": os.environ["PATH"]}, check=True)
"""


def _says(
    name: str,
    says: str,
    *argv: str,
    prepare: Callable[[Path], None] | None = None,
    before: Sequence[Stage] = (),
    **over: Any,
) -> Case:
    """A program that owes its stdout."""
    return truth(runs(name, "passed", "", *argv, **over), says, prepare=prepare, before=before)


def _script(name: str, says: str, text: str, shell: str = "bash", **over: Any) -> Case:
    """A script of the tree."""
    files = {f"{name}/script.sh": text.lstrip(), **over.pop("files", {})}
    return _says(name, says, shell, f"{name}/script.sh", files=files, **over)


def _lines(name: str, says: str, text: str, files: Mapping[str, str] | None = None) -> Case:
    stage = {"name": name, "shell": text, "expect": {"artifacts": [artifact(f"{name}.txt", from_="stdout")]}}
    return Case(name, says, "passed", stage=stage, files=files or {})


def _python(name: str, says: str, source: str, *options: str, **over: Any) -> Case:
    """A script of the tree, under options of Python's."""
    files = {f"{name}/program.py": textwrap.dedent(source), **over.pop("files", {})}
    return _says(name, says, "python", *options, f"{name}/program.py", files=files, **over)


def _programs(root: Path) -> None:
    (root / "odd_program" / "tool").chmod(0o755)
    (root / "odd_program" / "run.sh").chmod(0o755)


def _links(root: Path) -> None:
    (root / "odd_links" / "latest").symlink_to("one")
    (root / "odd_links" / "file.py").symlink_to("one/real.py")
    (root / "odd_links" / "dangling").symlink_to("nowhere")


def _names(root: Path) -> None:
    folder = root / "odd names"
    folder.mkdir()
    for name in ("ü ☃.txt", "it's.txt", "[x] $HOME *.txt", "-dash", "a\ttab.txt", 'quote".txt'):
        (folder / name).write_text("content\n")
    (folder / "a script.py").write_text("import sys\nprint(sys.argv[1:])\n")


def _many(root: Path) -> None:
    for i in range(2000):
        path = root / "odd_many" / str(i % 20) / f"{i}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number {i}\n")


TRAPS = """
# Runs itself as one that fails, and looks for what its traps have said; as bats runs tests.
oops() {
  echo "oops $1"
  echo "in ${FUNCNAME[1]}"
}
fails() { [ "$1" = none ]; }
if [[ ${1-} == inner ]]; then
  set -ETeuo pipefail
  trap 'echo "bye $?"' EXIT
  trap 'oops $?' ERR
  trap 'n=$((${n-0} + $?))' DEBUG
  if [[ -n ${none-} ]]; then echo no; else echo yes; fi
  fails some
  echo never
fi
if [ $# = 2 ]; then echo no; fi
fails none
if said=$(bash "$0" inner); then exit 1; fi
[[ $said == *yes*"oops 1"*"bye 1"* && $said != *never* ]] || { echo "$said"; exit 2; }
echo traps have run
"""
THREADED = """
# Python ends such processes with 1, whatever they did (it joins a thread that is not there).
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
fork = multiprocessing.get_context("fork")
def square(x, results): results.put(x * x)
def run(x):
    results = fork.SimpleQueue()
    child = fork.Process(target=square, args=(x, results))
    child.start()
    child.join()
    return results.get()
with ThreadPoolExecutor() as pool: print(sum(pool.map(run, range(3))))
"""


SHELLS = [
    _script("odd_strict", "a careful script: traps, functions, arrays, a coprocess, process substitution", STRICT),
    _script("odd_loose", "a script of questions, and of removals that may fail", LOOSE),
    _script("odd_pipes", "pipes whose readers end first, find, xargs, tee", PIPES),
    _script("odd_posix", "a script for /bin/sh", POSIX, "sh"),
    _script("odd_timed", "timeout, env, nice, time, exec", TIMED),
    _script("odd_jobs", "jobs in the background, waited for or ended", JOBS),
    _script("odd_traced", "a traced script, with words that only look like failures", TRACED),
    _script("odd_server", "a server in the background, ended by a trap", SERVER),
    _script("odd_traps", "traps of a script's own under set -e, of its end, failures and each command", TRAPS),
    _lines("odd_lines", "lines with a continued one, a comment, a here-document and a loop",
           "# a comment\npython -c \\\n  'print(1)'\nfor i in 1 2; do\n  echo $i\ndone\ncat <<'END'\n$x ${y}\nEND\n"
           "grep -c none /dev/null || echo none\nx=$(grep none /dev/null || true)\n"
           "if [[ -z $x ]]; then echo empty; fi\n"),
    _lines("odd_pytest_in_lines", "pytest's output in a file and shown",
           "python -m pytest -q odd_pytest_in_lines/test_it.py > $TMPDIR/log 2>&1 || { cat $TMPDIR/log; exit 1; }\n"
           "tail -n 1 $TMPDIR/log\n", files={"odd_pytest_in_lines/test_it.py": "def test_a(): assert 1 + 1\n"}),
    _says("odd_make", "make with variables, recipes that ignore a missing file, and a test by diff", "make", "-s", "-f",
          "odd_make/rules.mk", "all", files={"odd_make/rules.mk":
          "SHELL := /bin/bash\nT := $(shell mktemp -d)\nall: made test\nmade:\n"
          "\t-rm $(T)/none\n\t@echo made > $(T)/made\n"
          "test: made\n\t@diff $(T)/made <(echo made) && echo same\n\t@[ -f none ] || echo none\n"
          "\t@if grep -q x $(T)/made; then exit 1; fi\n\t@$(MAKE) -s -f odd_make/rules.mk inner\n"
          "inner:\n\t@set -e; for i in 1 2; do echo $$i; done\n.PHONY: all test inner made\n"}),
    _says("odd_sh_c", "sh -c of a chain", "sh", "-c",
          "cd runbooks && ls r.yaml && cd .. && { test -e none || echo ok; }"),
    _script("odd_git", "a script that asks git", GITTED),
]  # fmt: skip
PYTHONS = [
    _python("odd_spawns", "processes of every kind of start, and sys.exit(0)", SPAWNS),
    _python("odd_retries", "exceptions that are logged, and tried again", RETRIES,
            expect={"artifacts": [artifact("odd_retries.txt", from_="stdout")], "allow_tracebacks": True}),
    _python("odd_modules", "modules made, reloaded, run and loaded lazily", MODULES, env={"PYTHONPATH": "odd_scripts"},
            files={"odd_scripts/plain.py": "VALUE = 1\n", "odd_scripts/odd_reloaded.py": "VALUE = 2\n",
                   "odd_scripts/odd_lazy.py": "VALUE = 4\n"}),
    _python("odd_hooks", "an import hook of its own", HOOKS),
    _python("odd_made_environment", "tests in an environment that the stage makes, with variables of their own, as tox",
            MAKES_ENVIRONMENT, expect={"tests": {"min_passed": 1}}, files={"odd_made_environment/test_it.py":
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(len('a'), 1)\n"}),
    _python("odd_forks", "forks, one that executes another program, and a daemon thread", FORKS),
    _python("odd_threaded", "processes that threads of a pool fork", THREADED),
    _python("odd_dev_mode", "Python's development mode, warnings as errors, isolated of the user", "print(1)\n",
            "-X", "dev", "-W", "error", "-s", "-B", "-u"),
    _python("odd_isolated", "Python's isolated mode", "import sys\nprint(sys.flags.isolated)\n", "-I"),
    _python("odd_customized", "a sitecustomize of the tree",
            "import sys\nprint(sys.odd_customized)\n", env={"PYTHONPATH": "odd_site"},
            files={"odd_site/sitecustomize.py": "import sys\nsys.odd_customized = 1\n",
                   "odd_site/usercustomize.py": "raise RuntimeError('not asked')\n"}),
    _python("odd_exits", "a program that ends itself by os._exit(0)",
            "import os, sys\nprint('flushed', flush=True)\nos._exit(0)\n"),
    _python("odd_closed_streams", "a program that closes its streams and changes folder",
            "import os, sys, tempfile\nprint(1, flush=True)\nos.chdir(tempfile.gettempdir())\n"
            "sys.stderr.close()\nos.environ.clear()\nimport json, subprocess\nsubprocess.run(['/bin/echo', '2'])\n"),
    _python("odd_excepthook", "an excepthook, a signal and an alarm of its own",
            "import signal, sys\nsys.excepthook = lambda *a: print('hook')\n"
            "signal.signal(signal.SIGALRM, lambda *a: print('alarm'))\n"
            "signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)\nsignal.pause()\n"
            "signal.setitimer(signal.ITIMER_REAL, 0)\nsys.settrace(None)\nsys.setrecursionlimit(500)\n"),
    _says("odd_stdin", "a program on stdin, of a here-document", "bash", "-c", "python - 1 <<'END'\nimport sys\n"
          "print(sys.argv)\nEND\n"),
    _says("odd_code", "python -c of several lines", "python", "-c", "import sys\nfor i in range(2):\n    print(i)\n"),
    _says("odd_module", "python -m of a package of the tree", "python", "-m", "odd_run", "--n", "2",
          files={"odd_run/__init__.py": "VALUE = 1\n", "odd_run/__main__.py": "from . import VALUE\nprint(VALUE)\n"}),
    _script("odd_zipapp", "a zipapp that the stage makes", ZIPAPP),
    _says("odd_folder_program", "python FOLDER", "python", "odd_folder",
          files={"odd_folder/__main__.py": "import beside_it\nprint(beside_it.VALUE)\n",
                 "odd_folder/beside_it.py": "VALUE = 1\n"}),
    _says("odd_program", "an executable without a suffix, by its shebang", "bash", "-c",
          "odd_program/tool && ./odd_program/run.sh", prepare=_programs,
          files={"odd_program/tool": "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[0])\n",
                 "odd_program/run.sh": "#!/bin/sh\nset -e\n\"$(dirname \"$0\")/tool\"\n"}),
]  # fmt: skip

BUILDS = """
import os, pathlib, subprocess, shutil, sysconfig
source = pathlib.Path('odd_ext/ext.c').read_text()
compiler = shutil.which('cc')
target = 'odd_ext/odd_ext' + sysconfig.get_config_var('EXT_SUFFIX')
if compiler: subprocess.run([compiler, '-shared', '-fPIC', '-o', 'odd_ext/libodd.so', 'odd_ext/ext.c'], check=True)
else: pathlib.Path('odd_ext/libodd.so').write_text(source)
"""
TREES = [
    _script("odd_touched", "files touched, linked, copied; caches left behind", TOUCHED,
            files={"odd_touched/a.txt": "a\n", ".gitignore": "*.log\n"}),
    _python("odd_after_caches", "the stage after one that left caches everywhere", "print(1)\n",
            before=first("odd_after_caches",
                         "import pathlib\nfor name in ('.pytest_cache/a', 'build/lib/a', '.mypy_cache/b', 'out.log', "
                         "'x.egg-info/PKG-INFO', '.hypothesis/c', '.coverage', 'odd_after_caches/d.o'):\n"
                         "    p = pathlib.Path(name); p.parent.mkdir(parents=True, exist_ok=True); p.write_text('x')")),
    _python("odd_rewrites", "a data file is written again with equal content", REWRITES,
            files={"odd_data/data.json": '{"a": 1}'}),
    _says("odd_built", "a library is built by one stage and loaded by the next", "python", "-c",
          "import ctypes, os\npath = os.path.abspath('odd_ext/libodd.so')\n"
          "print(ctypes.CDLL(path).odd() if open(path, 'rb').read(4) == b'\\x7fELF' else 5)",
          files={"odd_ext/ext.c": "int odd(void) { return 5; }\n"},
          before=first("odd_built", BUILDS, builds=["odd_ext/*.so"])),
    _script("odd_names", "names with blanks, quotes, umlauts and snowmen", BLANKS, prepare=_names),
    _script("odd_linked", "links in the tree, one of which leads nowhere",
            "cat odd_links/latest/data.txt\npython odd_links/file.py\n"
            "PYTHONPATH=odd_links/latest python -c 'import real'\n"
            "ls -l odd_links | wc -l\n", prepare=_links,
            files={"odd_links/one/data.txt": "data\n", "odd_links/one/real.py": "print(__name__)\n"}),
    _says("odd_many", "2,000 small files", "bash", "-c",
          "find odd_many -type f | wc -l; cat odd_many/*/*.txt | sort | tail -1",
          prepare=_many),
    _python("odd_writes_in_tree", "a stage writes beside its own code, and deletes it",
            "import pathlib\np = pathlib.Path(__file__).with_name('scratch.py')\np.write_text('VALUE = 8')\n"
            "import scratch\nprint(scratch.VALUE)\np.unlink()\n"),
]  # fmt: skip
TABLE = (
    "name,date,ok,version,took,gpu,commit,note,share\\nfwd,2026-11-22,True,2.8.1,1.2ms,NVIDIA H100 80GB,4106f1b,,12%\\n"
    'bwd,2026-11-23T10:00:00Z,false,3.0.0+cu128,3 s,none,0e12345,\\"a, b\\",n/a%\\n'
)
ARTIFACTS = [
    makes("odd_table", "passed", "", f"put('odd_table.csv', '{TABLE}'.replace('{{q}}', ''))",
          artifact("odd_table.csv", kind="csv", columns=["name", "date", "version"])),
    makes("odd_bom", "passed", "", "put('odd_bom.csv', '\\ufeffS;ms\\r\\n1;2\\r\\n'.replace(';', ','))",
          artifact("odd_bom.csv", kind="csv", min_rows=1)),
    makes("odd_scientific", "passed", "", "put('odd_scientific.csv', 'S,ms,d\\n1e3,-1.5E-4,+3\\n 2e3 , 0.0,-0\\n')",
          artifact("odd_scientific.csv", kind="csv", columns=["S", "ms"], checks=[{"finite": "all"}])),
    makes("odd_json", "passed", "",
          "import json; "
          "put('odd_json.json', json.dumps({'empty': [], 'none': None, 'deep': {'x': [0, False]}, 'n': 0}))",
          artifact("odd_json.json", kind="json", keys=["deep", "n"])),
    makes("odd_jsonl", "passed", "",
          "import json; put('odd_jsonl.jsonl', ''.join(json.dumps({'name': n, 'ms': i + .5, 'extra': None}) + '\\n'"
          " for i, n in enumerate('abc')))",
          artifact("odd_jsonl.jsonl", kind="jsonl", columns=["name", "ms"], min_rows=3)),
    makes("odd_text", "passed", "",
          "put('odd_text.txt', 'Error rate: 0.0\\n'"
          "'0 failed, skipped lines: 0\\nNaN handling: ok\\n\\x1b[32mgreen\\x1b[0m\\n')",
          artifact("odd_text.txt", contains=["ok"])),
    makes("odd_binary", "passed", "", "open(here + '/odd.bin', 'wb').write(bytes(range(256)))", artifact("odd.bin")),
    makes("odd_commit_name", "passed", "", "put('odd_' + os.environ['ODD_COMMIT'] + '.txt', 'x')",
          artifact("odd_{commit7}.txt"), env={"ODD_COMMIT": "{commit7}"}),
    makes("odd_stderr", "passed", "", "import sys; print('warning: figures follow', 1, file=sys.stderr)",
          artifact("odd_stderr.txt", from_="stderr")),
    makes("odd_from_tree", "passed", "",
          "os.makedirs('odd_out', exist_ok=True); open('odd_out/r.csv', 'w').write('S,ms\\n1,2\\n')",
          artifact("odd_from_tree.csv", from_="tree:odd_out/r.csv", kind="csv", columns=["S", "ms"])),
    makes("odd_folders", "passed", "", "os.makedirs(here + '/odd/deep'); put('odd/deep/a b.txt', 'x')",
          artifact("odd/deep/a b.txt")),
    makes("odd_renamed", "passed", "",
          "put('odd_renamed.tmp', 'x'); os.replace(here + '/odd_renamed.tmp', here + '/odd_renamed.txt')",
          artifact("odd_renamed.txt")),
]  # fmt: skip
_SAYS = {
    "odd_table": "a table of names, dates, truth values, versions, units, hashes, empty cells",
    "odd_bom": "a table from a spreadsheet: a byte order mark and CRLF",
    "odd_scientific": "numbers with exponents, signs and blanks",
    "odd_json": "JSON with empty and null parts that nobody owes",
    "odd_jsonl": "JSON lines with a null that nobody owes",
    "odd_text": "a text that speaks of errors, NaN and skipped lines, in colour",
    "odd_binary": "a file of bytes",
    "odd_commit_name": "a file named after the commit",
    "odd_stderr": "figures on stderr",
    "odd_from_tree": "a table that the stage leaves in the tree",
    "odd_folders": "folders, and a blank in the name",
    "odd_renamed": "a file that gets its name when it is whole",
}
CASES = [*SHELLS, *PYTHONS, *TREES, *(truth(made, _SAYS[made.name]) for made in ARTIFACTS)]
