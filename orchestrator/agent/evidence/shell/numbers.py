"""Whether a script tells a status from 0 that it looks at as a number, by what its questions come to with either.

`[ $? -ne 124 ]`, `case $? in 0|1)`, `(( rc == 2 )) && exit 1` and `exit $((rc / 2))` take a 1 for a 0. What cannot be
worked out here may tell them apart.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Set, Tuple

from orchestrator.agent.evidence.shell.commands import QUESTIONS, set_by
from orchestrator.agent.evidence.shell.tree import Block, Chain, Command, Compound, Node, Pipeline, Simple

STATUS = "?"
_OF_ANY_FAILURE = (1, 2)
"""The codes with which Python, and most programs, end where something failed; others are chosen by somebody."""
_ARITHMETIC = re.compile(r"\$\(\((.*?)\)\)", re.DOTALL)
_OF_PIPELINE = re.compile(r"\$\{PIPESTATUS\[\d+\]\}")
_OF_STATUS = re.compile(r"\$(?:\?|\{\?\})")
_CHOICE = re.compile(r"([^?]+)\?([^?:]+):([^?:]+)")
_OF_TEXTS = ("-n", "-z")
_IN_TESTS: Mapping[str, str] = {
    "-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">=", "=": "==", "-a": "and", "-o": "or",
    "&&": "and", "||": "or", "!": "not",
}  # fmt: skip
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip


class _Unknown(Exception):
    """What it comes to depends on something else."""


class Status:
    """The `code` that `command` returned, where a script reads it as STATUS, or what it has made of it, and would have
    of 0 (`zero`), in the variable `name`.
    """

    def __init__(self, command: Node, code: int, name: str = STATUS, zero: int = 0) -> None:
        self._command, self._code, self._name, self._zero = command, code, name, zero
        self._others = {} if name == STATUS else _others(command)

    def kept_by(self, setter: Simple, name: str) -> Optional[Status]:
        """As a command keeps it that sets a variable to it, or to a number made of it; None where it does not."""
        texts = [word.literal for _, word in setter.assignments] + [word.literal for word in setter.words[1:]]
        made = next((m[1] for m in (re.fullmatch(rf"{name}\s*=\s*(.*)", text) for text in texts) if m), "")
        if _OF_STATUS.search(made) is None:
            return None
        bare = setter.name in ("let", "((")
        try:
            given, zero = (self._number(f"$(({made}))" if bare else made, code) for code in (self._code, 0))
        except (_Unknown, ValueError):
            return None
        return Status(self._command, given, name, zero)

    def is_as_0(self, reader: Command) -> bool:
        """Whether a question, a `case`, `exit` or `return` that reads it comes to the same as it does with 0; not where
        it names the code, and that was chosen.
        """
        try:
            outcome = self._outcome(reader, self._code)
            same = outcome == self._outcome(reader, self._zero) and not any(map(_fails, _parts(reader, outcome)))
        except _Unknown:
            return False
        is_named = re.search(rf"\b{self._code}\b", _asked(reader)) is not None
        return same and not (is_named and self._code not in (self._zero, *_OF_ANY_FAILURE))

    def given_by(self, call: Simple) -> Optional[Status]:
        """As a function has it that is called with it alone."""
        is_given = len(call.words) == 2 and _OF_STATUS.fullmatch(call.words[1].literal)
        return Status(self._command, self._code, "1", self._zero) if is_given and self._name == STATUS else None

    def leaves_out(self, node: Node) -> bool:
        """Whether conditions around a part leave it out, with this code as with 0."""
        return all(self._is_left_out(node, code) for code in (self._code, self._zero))

    def _is_left_out(self, node: Node, code: int) -> bool:
        inner = node
        for above in node.above():
            with contextlib.suppress(_Unknown):
                if not self._reaches(above, inner, code):
                    return True
            inner = above
        return False

    def _reaches(self, above: Node, inner: Node, code: int) -> bool:
        if isinstance(above, Chain):
            return self._of_chain(above, code, until=inner)[1] is inner
        if isinstance(above, Compound) and above.kind == "if" and inner in above.bodies:
            index = above.bodies.index(inner)
            found = [self._truth(condition, code) for condition in above.conditions[: index + 1]]
            return found == [False] * index + [True] * (len(found) - index)
        return True

    def _outcome(self, reader: Command, code: int) -> object:
        chain = reader.parent and reader.parent.parent
        if isinstance(reader, Compound) and reader.kind == "case":
            return self._branch(reader, code)
        if isinstance(reader, Simple) and reader.name in ("exit", "return") and len(reader.words) == 2:
            return self._number(reader.words[1].literal, code) % 256
        if isinstance(reader, Simple) and reader.name in QUESTIONS and isinstance(chain, Chain):
            truth, last = self._of_chain(chain, code)
            return last if truth is None else truth
        raise _Unknown

    def _of_chain(
        self, chain: Chain, code: int, until: Optional[Node] = None
    ) -> Tuple[Optional[bool], Optional[Pipeline]]:
        """What a list returns, None if its last part is no question, and which it runs last; it ends at `until`."""
        truth: Optional[bool] = True
        runs: Optional[Pipeline] = None
        for index, pipeline in enumerate(chain.pipelines):
            is_last = pipeline in (until, chain.pipelines[-1])
            if not index or truth is (chain.operators[index - 1] == "&&"):
                runs = pipeline
                truth = None if is_last and not self._is_known(pipeline) else self._truth(pipeline, code)
            if pipeline is until:
                break
        return truth, runs

    def _is_known(self, pipeline: Pipeline) -> bool:
        member = pipeline.members[-1]
        return member is self._command or (isinstance(member, Simple) and member.name in QUESTIONS)

    def _truth(self, node: Node, code: int) -> bool:
        if isinstance(node, Block) and len(node.chains) == 1:
            truth = self._of_chain(node.chains[0], code)[0]
            if truth is not None:
                return truth
        if isinstance(node, Pipeline) and self._is_known(node):
            member = node.members[-1]
            truth = code == 0 if member is self._command else self._answer(member, code)  # type: ignore[arg-type]
            return truth is not node.negated
        raise _Unknown

    def _answer(self, question: Simple, code: int) -> bool:
        words = [word.literal for word in question.words[1:]]
        if question.name == "((":
            return bool(_computed(self._filled(" ".join(words), code, bare=True)))
        words = [word for text in words for word in self._filled(text, code).split() if word not in ("]", "]]")]
        if words[1:2] == ["=~"] and len(words) == 3:
            return re.search(words[2], words[0]) is not None
        if len(words) == 1 or (len(words) == 2 and words[0] in _OF_TEXTS):  # whether a text is blank
            return _is_number(words[-1]) and words[0] != "-z"
        return bool(_computed(" ".join(_IN_TESTS.get(word, word) for word in words)))

    def _branch(self, case: Compound, code: int) -> Optional[int]:
        text = self._filled(case.words[0].literal, code)
        if any("$" in pattern or "(" in pattern for patterns in case.patterns for pattern in patterns) or "$" in text:
            raise _Unknown
        matching = (i for i, patterns in enumerate(case.patterns) if any(fnmatchcase(text, p) for p in patterns))
        return next(matching, None)

    def _number(self, text: str, code: int) -> int:
        return int(_computed(self._filled(_ARITHMETIC.sub(lambda m: self._filled(m[1], code, bare=True), text), code)))

    def _filled(self, text: str, code: int, *, bare: bool = False) -> str:
        """With the code in place of its name, as C has its operators where that is `bare`."""
        name = re.escape(self._name)
        text = re.sub(rf"\$(?:\{{{name}\}}|{name}(?!\w))", str(code), text)
        text = _OF_PIPELINE.sub(str(code), text) if self._name == STATUS else text
        for other, value in self._others.items():
            if other != self._name:
                text = re.sub(rf"\$(?:\{{{other}\}}|{other}(?!\w))" + (rf"|\b{other}\b" if bare else ""), value, text)
        if not bare:
            return text
        if not self._name.isdigit():
            text = re.sub(rf"(?<![\w$]){name}(?!\w)", str(code), text)
        text = _CHOICE.sub(r"(\2) if (\1) else (\3)", text)
        return re.sub(r"&&|\|\||/", lambda m: {"&&": " and ", "||": " or ", "/": "//"}[m[0]], text)


def _others(command: Node) -> Mapping[str, str]:
    """The variables that hold one number all along, as other statuses do, of what did not fail."""
    found: Dict[str, Set[str]] = {}
    for setter in (node for node in [*command.above()][-1].walk() if isinstance(node, Simple)):
        values = {name: word.literal.partition("=")[2].replace("$?", "0") for name, word in setter.assignments}
        for name in {*values, *set_by(setter)}:
            found.setdefault(name, set()).add(values.get(name, ""))
    numbers = ((name, *values) for name, values in found.items() if len(values) == 1)
    return {name: value for name, value in numbers if value.isdigit()}


def _parts(reader: Command, outcome: object) -> Sequence[Node]:
    """What runs then: the end of a list, the branch of a `case`, or of an `if` that the list is the condition of."""
    if isinstance(outcome, Node):
        return [outcome]
    if isinstance(reader, Compound):
        return [reader.bodies[outcome]] if isinstance(outcome, int) else []
    block = next((node for node in reader.above() if isinstance(node, Block)), None)
    holder = block.parent if block is not None else None
    if not isinstance(holder, Compound) or holder.kind != "if" or block not in holder.conditions:
        return []
    index = holder.conditions.index(block)
    return holder.bodies[index : index + 1] if outcome is True else holder.bodies[len(holder.conditions) :]


def _fails(part: Node) -> bool:
    """Whether a script ends badly there, which this one has not."""
    ends = (node.words[1:] for node in part.walk() if isinstance(node, Simple) and node.name == "exit")
    return any(words and words[0].literal.isdigit() and words[0].literal != "0" for words in ends)


def _asked(reader: Command) -> str:
    """All that is asked beside it."""
    if isinstance(reader, Compound):
        return " ".join(pattern for patterns in reader.patterns for pattern in patterns)
    chain = reader.parent and reader.parent.parent
    return " ".join(c.text for c in chain.walk() if isinstance(c, Simple) and c.name in QUESTIONS) if chain else ""


def _is_number(word: str) -> bool:
    if not word.isdigit():
        raise _Unknown
    return True


def _computed(text: str) -> Any:
    """What an expression of numbers comes to."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError) as e:
        raise _Unknown from e


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BoolOp):
        found = [bool(_value(value)) for value in node.values]
        return all(found) if isinstance(node.op, ast.And) else any(found)
    if isinstance(node, ast.IfExp):
        return _value(node.body) if _value(node.test) else _value(node.orelse)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        return not _value(node.operand) if isinstance(node.op, ast.Not) else -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        return _OPERATORS[type(node.ops[0])](_value(node.left), _value(node.comparators[0]))
    raise _Unknown
