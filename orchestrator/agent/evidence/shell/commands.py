"""What a command of a shell script does by itself: it prints, asks, sets a variable, or writes a file."""

from __future__ import annotations

import ast
import re
from typing import FrozenSet, Iterable, Iterator, List, Optional, Set, Tuple

from orchestrator.agent.evidence.shell.tree import (
    Block,
    Chain,
    Command,
    Compound,
    Function,
    Node,
    Pipeline,
    Simple,
    Substitution,
    Word,
)
from orchestrator.shared.pythons import is_python

SAYING = frozenset((
    "echo", "printf", "logger", "wall", ":", "true", "cat", "tee", "head", "tail", "date", "sleep", "sync", "ls", "pwd",
    "times", "tput", "clear", "set", "shopt", "shift", "unset", "break", "continue", "hash", "jobs", "umask",
    "env", "printenv", "id", "whoami", "uname", "hostname", "uptime", "df", "du", "free", "ps", "stat", "file", "wc",
    "which", "type", "nvidia-smi", "dmesg",
))  # fmt: skip
QUESTIONS = ("[", "[[", "test", "((")
ENDING = ("kill", "pkill", "killall", "wait")
"""They end what the script has begun: to do so because of a failure is no more than to tidy up."""
DECLARING = ("local", "declare", "typeset", "readonly")
READING = ("read", "mapfile", "readarray", "getopts")
# They show a file, or keep it, and nothing depends on what is in it.
_KEEPING = SAYING | frozenset((
    "column", "sort", "uniq", "less", "more", "nl", "jq", "cut", "tr", "grep", "egrep", "fgrep", "sed", "awk", "cp",
    "mv", "rm", "tar", "gzip", "zip", "chmod", "touch", "mkdir", "mail",
))  # fmt: skip
UNTIMED = _KEEPING - {"times"} | frozenset(
    ("git", "bc", "paste", "seq", "basename", "dirname", "test", "ln", "pip", "uv")
)
"""They run nothing else, and measure nothing; how `date` is asked says whether that does."""
LEAVING = ("break", "return", "exit")
_PRINTING = ("print", "pprint", "write", "flush")
_NAME = re.compile(r"[A-Za-z_]\w*")
_STATUS = re.compile(r"\$\{?(\?|PIPESTATUS)")
_SETS = re.compile(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)([A-Za-z_]\w*)")


def simple(nodes: Iterable[Node]) -> Iterator[Simple]:
    return (c for node in nodes for c in _in_this_shell(node) if isinstance(c, Simple))


def _in_this_shell(node: Node) -> Iterator[Node]:
    """What runs where `node` does: not the functions that it defines, nor what its words substitute."""
    yield node
    for part in node.parts():
        if not isinstance(part, (Function, Substitution)):
            yield from _in_this_shell(part)


def set_by(command: Simple) -> Iterator[str]:
    """The variables that a command sets."""
    words = [word.literal for word in command.words]
    if not words:
        yield from (name for name, _ in command.assignments)
    elif command.name in ("((", "let"):
        yield from (next(filter(None, match.groups())) for match in _SETS.finditer(" ".join(words[1:])))
    elif command.name in (*DECLARING, "export", *READING):
        yield from (match.group() for match in map(_NAME.match, words[1:]) if match)
    elif words[:2] == ["printf", "-v"]:
        yield from words[2:3]


def is_local(name: str, function: Function) -> bool:
    """Whether a function has a variable of this name as its own, which its caller does not see."""
    for command in simple([function.body]):
        options = [word.literal for word in command.words[1:] if word.literal.startswith("-")]
        elsewhere = any("g" in option or "n" in option for option in options)  # global, or another one's name
        if command.name in ("local", "declare", "typeset") and name in set_by(command) and not elsewhere:
            return True
    return False


def names_variable(text: str, name: str, *, bare: bool = False) -> bool:
    """Whether a text reads a variable."""
    found = rf"\$(?:\{{[#!]?)?{name}\b|\(\([^)]*\b{name}\b"
    return re.search(rf"{found}|\b{name}\b" if bare else found, text) is not None


def written_by(command: Simple) -> Iterator[str]:
    """The files that a command which only prints, or `touch`, writes, as the script names them."""
    names: List[str] = []
    if command.name in SAYING:
        found = (re.fullmatch(r"(?:>>?|>\||&>>?)\s*(.+)", word.text) for word in command.redirects)
        names += [match[1] for match in found if match]
    if command.name in ("touch", "tee"):
        names += [word.text for word in command.words[1:] if not word.text.startswith("-")]
    yield from (name for name in map(_unquoted, names) if not name.startswith(("/dev/", "&")))


def reads_file(node: Node, file: str) -> bool:
    """Whether a command has to do with a file, otherwise than to write it, to show it or to keep it."""
    words: List[Word] = [word for word in getattr(node, "redirects", ()) if not word.text.lstrip("&").startswith(">")]
    if isinstance(node, Simple):
        words += [*(word for _, word in node.assignments), *node.words]
        if node.name in _KEEPING:
            return False
    elif isinstance(node, Compound):
        words += node.words
    return any(re.search(rf"(?<![\w./-]){re.escape(file)}(?![\w/-])", _unquoted(word.text)) for word in words)


def _unquoted(text: str) -> str:
    return re.sub(r"\$\{(\w+)\}", r"$\1", re.sub(r"[\\'\"]", "", text))


def only_prints(command: Simple) -> bool:
    """Whether it is a Python with a program, as a word, that does no more than to print."""
    words = command.words
    if len(words) < 3 or not is_python(words[0].literal) or words[1].literal != "-c":
        return False
    text = words[2].text
    text = text[1:-1].replace('\\"', '"') if text[:1] in ("'", '"') else text
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    plain = all(isinstance(statement, (ast.Expr, ast.Import, ast.ImportFrom)) for statement in module.body)
    return plain and all(getattr(c.func, "attr", getattr(c.func, "id", "")) in _PRINTING for c in calls)


def words_given(command: Simple) -> str:
    """The lines that a shell is given as a word: `bash -c LINES`."""
    words = command.words
    is_shell = len(words) > 2 and re.fullmatch(r"(?:.*/)?(?:ba|da)?sh", words[0].literal) is not None
    if not is_shell or words[1].literal not in ("-c", "-ec", "-lc"):
        return ""
    text = words[2].text
    return text[1:-1] if text[:1] in ("'", '"') else text


def reach(chain: Chain, index: int, status: bool) -> "Tuple[Set[int], Set[int], FrozenSet[bool]]":
    """Which pipelines behind `index` may and which must run after this status, and what the chain may return."""
    may: Set[int] = set()
    must: Set[int] = set()
    statuses = frozenset((status,))
    for i, operator in enumerate(chain.operators[index:], index + 1):
        wanted = operator == "&&"
        if wanted in statuses:
            may.add(i)
            must.update([i] if len(statuses) == 1 else [])
            statuses = statuses - {wanted} | _may_return(chain.pipelines[i])
    return may, must, statuses


def _may_return(pipeline: Pipeline) -> FrozenSet[bool]:
    last = pipeline.members[-1]
    if isinstance(last, Simple) and (last.name in SAYING or (not last.words and "$(" not in last.text)):
        return frozenset((not pipeline.negated,))
    return frozenset((True, False))


def is_overwritten(name: str, command: Node) -> bool:
    """Whether the variable that a statement sets is set anew by one after it, before it is read."""
    while not isinstance(command.parent, Block):
        if command.parent is None or (isinstance(command.parent, Chain) and len(command.parent.pipelines) > 1):
            return False
        command = command.parent
    chains = command.parent.chains
    for chain in chains[chains.index(command) + 1 :]:  # type: ignore[arg-type]
        commands = [node for node in chain.walk() if isinstance(node, (Simple, Compound))]
        if any(names_variable(text_of(c), name, bare=is_question(c)) for c in commands):
            return False
        first = chain.pipelines[0].members[0]
        if len(chain.pipelines) == 1 and isinstance(first, Simple) and name in set_by(first):
            return True
    return False


def is_set_anew(name: str, command: Node) -> bool:
    """Whether each turn of a loop sets the variable, and nothing reads it but the `exit` behind: of the other turns
    nobody hears, and the last has ended the script badly if it was that.
    """
    chain = command.parent and command.parent.parent
    loop = chain and chain.parent and chain.parent.parent
    if not (isinstance(chain, Chain) and isinstance(loop, Compound)) or loop.kind not in ("for", "while", "until"):
        return False
    script = [*command.above()][-1]
    inside = list(loop.walk())
    commands = (node for node in script.walk() if isinstance(node, (Simple, Compound)))
    readers = [c for c in commands if names_variable(text_of(c), name, bare=is_question(c))]
    is_left = any(isinstance(c, Simple) and c.name in LEAVING for c in inside)
    is_alone = len(chain.pipelines) == 1 and chain.parent in loop.bodies and not is_left
    return is_alone and bool(readers) and all(c not in inside and _ends_script(c) for c in readers)


def _ends_script(command: Command) -> bool:
    is_exit = isinstance(command, Simple) and command.name == "exit" and len(command.words) == 2
    return is_exit and all(isinstance(above, (Block, Chain, Pipeline)) for above in command.above())


def text_of(command: Command) -> str:
    words = [word.text for word in command.words_with_substitutions()]
    return " ".join(words)


def is_question(holder: Optional[Node]) -> bool:
    if isinstance(holder, Compound):
        return holder.kind == "case"
    return isinstance(holder, Simple) and holder.name in QUESTIONS


def reads_status(command: str) -> bool:
    """Whether a command expands the status of the one before it."""
    return _STATUS.search(command) is not None


def only_says(command: str) -> bool:
    """Whether a command that bash tells of is one that only prints."""
    return command.partition(" ")[0] in SAYING


def ends_its_loop(command: Node) -> bool:
    """Whether a success of the command ends a loop: what fails in it is tried again."""
    node = command
    for above in command.above():
        if isinstance(above, Chain):
            following = above.pipelines[above.pipelines.index(node) + 1 :]  # type: ignore[arg-type]
            if any(c.name in LEAVING for c in simple(following)):
                return True
        if isinstance(above, Compound) and any(node is condition for condition in above.conditions):
            return above.kind in ("while", "until") or any(c.name in LEAVING for c in simple(above.bodies))
        if isinstance(above, Function):
            return False
        node = above
    return False
