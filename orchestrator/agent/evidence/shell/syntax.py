"""Reads a shell script as a tree (`tree`).

Only as much of bash's grammar as tells what a script makes of a command's status; `Unparsable` for all the rest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from orchestrator.agent.evidence.shell.tree import (
    Block,
    Chain,
    Command,
    Compound,
    Function,
    Pipeline,
    Simple,
    Substitution,
    Word,
)

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^]]*\])?\+?=")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-|<<|<>|<&|>&|>>|>\||<(?!\()|>(?!\())|&>>|&>")
_OPERATOR = re.compile(r"\n|;;&|;;|;&|;|&&|\|\||\|&|\||&(?!>)|\(|\)")
_ENDS_WORD = " \t\n;&|<>()"
_BODY_ENDS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")


class Unparsable(ValueError):
    """The text is no script, or one that is not understood."""


def parse(text: str, line: int = 1) -> Block:
    """The script `text`, which begins in `line` of its file."""
    try:
        reader = _Reader(text, line)
        block = reader.block(())
        if reader.at < len(text):
            raise Unparsable(f"line {reader.line}")
    except (RecursionError, IndexError):
        raise Unparsable("too deep, or cut") from None
    return block


class _Reader:
    def __init__(self, text: str, line: int) -> None:
        self._text, self._first = text, line
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._documents: List[Tuple[str, bool, bool, Command]] = []  # delimiter, tabs are dropped, literal, of which
        self.at = 0

    @property
    def line(self) -> int:
        return self._first + bisect_right(self._newlines, self.at - 1)

    def _looking_at(self, prefix: str) -> bool:
        return self._text.startswith(prefix, self.at)

    def _blanks(self) -> None:
        while self.at < len(self._text):
            if self._text[self.at] in " \t\r":
                self.at += 1
            elif self._looking_at("\\\n"):
                self.at += 2
            elif self._text[self.at] == "#":
                end = self._text.find("\n", self.at)
                self.at = len(self._text) if end < 0 else end
            else:
                return

    def _operator(self) -> str:
        """The operator that comes next, which is not taken; blank if it is none."""
        self._blanks()
        match = _OPERATOR.match(self._text, self.at)
        return match.group() if match else ""

    def _take(self, operator: str) -> None:
        if self._operator() != operator:
            raise Unparsable(f"line {self.line}: expected {operator!r}")
        self.at += len(operator)
        if operator == "\n":
            self._read_documents()

    def _newlines_too(self) -> None:
        while self._operator() == "\n":
            self._take("\n")

    def _reserved(self) -> str:
        """The word that comes next, if it is without quotes; it is not taken."""
        self._blanks()
        match = re.compile(r"[^\s;&|<>()'\"\\$`]+(?=[\s;&|<>()]|$)").match(self._text, self.at)
        return match.group() if match else ""

    def _expect(self, word: str) -> None:
        if self._reserved() != word:
            raise Unparsable(f"line {self.line}: expected {word}")
        self.at += len(word)

    def block(self, ends: Sequence[str]) -> Block:
        """Chains up to one of the words or operators in `ends`, which is not taken, or the end."""
        chains: List[Chain] = []
        while True:
            operator = self._operator()
            if operator in ("\n", ";") and operator not in ends:
                self._take(operator)
            elif self.at >= len(self._text) or operator in ends or (not operator and self._reserved() in ends):
                return Block(chains)
            else:
                if not operator and self._reserved() in _BODY_ENDS:
                    raise Unparsable(f"line {self.line}")
                chains.append(self._chain())

    def _chain(self) -> Chain:
        pipelines, operators = [self._pipeline()], []
        while self._operator() in ("&&", "||"):
            operators.append(self._operator())
            self._take(operators[-1])
            self._newlines_too()
            pipelines.append(self._pipeline())
        chain = Chain(pipelines, operators)
        if self._operator() == "&":
            self._take("&")
            chain.background = True
        return chain

    def _pipeline(self) -> Pipeline:
        negated = False
        while self._reserved() in ("!", "time", "-p", "coproc"):
            negated ^= self._reserved() == "!"
            self.at += len(self._reserved())
        members = [self._command()]
        while self._operator() in ("|", "|&"):
            self._take(self._operator())
            self._newlines_too()
            members.append(self._command())
        return Pipeline(members, negated)

    def _command(self) -> Command:
        compounds: Dict[str, Callable[[int], Command]] = {
            "if": self._if, "while": self._loop, "until": self._loop, "for": self._for, "select": self._for,
            "case": self._case, "{": self._group, "[[": self._test, "function": self._function,
        }  # fmt: skip
        word, line = self._reserved(), self.line
        if word in compounds:
            command = compounds[word](line)
        elif self._looking_at("((") and self._arithmetic_end() is not None:
            command = self._arithmetic(line)
        elif self._operator() == "(":
            command = self._subshell(line)
        else:
            return self._simple(line)
        self._blanks()
        while _REDIRECT.match(self._text, self.at):
            self._redirect(command)
            self._blanks()
        return self._held(command)

    def _held(self, command: Command) -> Command:
        for part in command.parts():
            part.parent = command
        return command

    def _if(self, line: int) -> Command:
        made, word = Compound("if", line), "if"
        while word != "fi":
            self._expect(word)
            if word != "else":
                made.conditions.append(self.block(("then",)))
                self._expect("then")
            made.bodies.append(self.block(("elif", "else", "fi")))
            word = self._reserved()
        self._expect("fi")
        return made

    def _loop(self, line: int) -> Command:
        made = Compound(self._reserved(), line)
        self._expect(made.kind)
        made.conditions.append(self.block(("do",)))
        self._do(made)
        return made

    def _do(self, made: Compound) -> None:
        end = "done"
        if self._reserved() == "{":
            end = "}"
            self._expect("{")
        else:
            self._expect("do")
        made.bodies.append(self.block((end,)))
        self._expect(end)

    def _for(self, line: int) -> Command:
        made = Compound("for", line)
        self.at += len(self._reserved())
        self._blanks()
        if self._looking_at("(("):
            made.words = list(self._arithmetic(line).words)
        else:
            self._word()
            self._newlines_too()
            if self._reserved() == "in":
                self._expect("in")
                while not self._operator():
                    made.words.append(self._word())
        if self._operator() == ";":
            self._take(";")
        self._newlines_too()
        self._do(made)
        return made

    def _case(self, line: int) -> Command:
        made = Compound("case", line)
        self._expect("case")
        self._blanks()
        made.words.append(self._word())
        self._newlines_too()
        self._expect("in")
        self._newlines_too()
        while self._reserved() != "esac":
            if self._operator() == "(":
                self._take("(")
            made.patterns.append([])
            while self._operator() != ")":
                if self._operator() == "|":
                    self._take("|")
                self._blanks()
                made.patterns[-1].append(self._word().literal)
            self._take(")")
            made.bodies.append(self.block((";;", ";&", ";;&", "esac")))
            if self._operator() in (";;", ";&", ";;&"):
                self._take(self._operator())
            self._newlines_too()
        self._expect("esac")
        return made

    def _group(self, line: int) -> Command:
        made = Compound("{", line)
        self._expect("{")
        made.bodies.append(self.block(("}",)))
        self._expect("}")
        return made

    def _subshell(self, line: int) -> Command:
        made = Compound("(", line)
        self._take("(")
        made.bodies.append(self.block((")",)))
        self._take(")")
        return made

    def _function(self, line: int) -> Command:
        self._expect("function")
        self._blanks()
        name = self._word().text
        if self._operator() == "(":
            self._take("(")
            self._take(")")
        self._newlines_too()
        return Function(name, self._command(), line)

    def _test(self, line: int) -> Simple:
        made, start = Simple(line), self.at
        inside: List[Substitution] = []
        while not re.compile(r"[\s)]\]\](?=[\s;&|<>()]|$)").match(self._text, self.at):
            self._skip_part(inside)
        self.at += 3
        return self._with_inside(made, "[[", start + 2, inside)

    def _arithmetic(self, line: int) -> Simple:
        made, start, end = Simple(line), self.at, self._arithmetic_end()
        if end is None:
            raise Unparsable(f"line {self.line}")
        self.at = end
        return self._with_inside(made, "((", start + 2, _in_text(self._text[start:end], line))

    def _with_inside(self, made: Simple, name: str, start: int, inside: List[Substitution]) -> Simple:
        made.words = [Word(name, ()), Word(self._text[start : self.at - 2], inside)]
        made.last_line = self.line
        return made

    def _arithmetic_end(self) -> Optional[int]:
        """Behind the `))` of the `((` that comes next; None if that is something else."""
        depth = 0
        for match in re.compile(r"[()\n]").finditer(self._text, self.at):
            depth += {"(": 1, ")": -1}.get(match.group(), 0)
            if depth == 0:
                end = match.end()
                return end if self._text.startswith("))", end - 2) else None
        return None

    def _simple(self, line: int) -> Command:
        made = Simple(line)
        while True:
            self._blanks()
            if _REDIRECT.match(self._text, self.at):
                self._redirect(made)
                continue
            if self._operator() == "(" and len(made.words) == 1 and not made.assignments:
                return self._short_function(made.words[0].text, line)
            if self._operator() or self.at >= len(self._text):
                break
            word = self._word()
            assignment = None if made.words else _ASSIGNMENT.match(word.text)
            if assignment:
                made.assignments.append((assignment[1], word))
            else:
                made.words.append(word)
            made.last_line = self.line
        if not made.words and not made.assignments and not made.redirects:
            raise Unparsable(f"line {self.line}")
        if made.name in ("eval", "trap"):
            words = made.words[1:2] if made.name == "trap" else made.words[1:]
            self._give(made, " ".join(_unquoted(word.text) for word in words), line)
        return self._held(made)

    def _short_function(self, name: str, line: int) -> Command:
        self._take("(")
        self._take(")")
        self._newlines_too()
        return Function(name, self._command(), line)

    def _give(self, made: Simple, text: str, line: int) -> None:
        try:
            made.given.append(parse(text, line))
        except Unparsable:
            return
        made.given[-1].parent = made

    def _redirect(self, command: Command) -> None:
        match = _REDIRECT.match(self._text, self.at)
        assert match is not None
        self.at = match.end()
        self._blanks()
        word = self._word()
        kind = match.group().lstrip("0123456789")
        if kind in ("<<", "<<-"):
            self._documents.append((word.literal, kind == "<<-", word.literal != word.text, command))
        else:
            command.redirects.append(Word(f"{kind} {word.text}", word.inside))

    def _read_documents(self) -> None:
        documents, self._documents = self._documents, []
        for delimiter, strip, literal, command in documents:
            first, lines = self.line, []
            while self.at < len(self._text):
                end = self._text.find("\n", self.at)
                end = len(self._text) if end < 0 else end
                line = self._text[self.at : end]
                self.at = min(end + 1, len(self._text))
                if (line.lstrip("\t") if strip else line) == delimiter:
                    break
                lines.append(line)
            text = "\n".join(lines)
            inside = [] if literal else _in_text(text, first)
            command.redirects.append(Word(text, inside))
            for found in inside:
                found.parent = command
            if isinstance(command, Simple) and command.name.rpartition("/")[2] in ("bash", "sh"):
                self._give(command, text, first)

    def _word(self) -> Word:
        start = self.at
        inside: List[Substitution] = []
        while self.at < len(self._text):
            char = self._text[self.at]
            if char in "<>" and self._looking_at(char + "("):
                self._skip_part(inside)
            elif char == "(" and self.at > start and self._in_a_word(start):
                self._skip_array(inside)
            elif char in _ENDS_WORD:
                break
            else:
                self._skip_part(inside)
        if self.at == start:
            raise Unparsable(f"line {self.line}")
        return Word(self._text[start : self.at].replace("\\\n", ""), inside)

    def _in_a_word(self, start: int) -> bool:
        """Whether the parenthesis that comes next is of an array, or of a pattern."""
        before = self._text[start : self.at]
        return bool(_ASSIGNMENT.fullmatch(before)) or before[-1] in "@?*+!"

    def _skip_array(self, inside: List[Substitution]) -> None:
        depth = 0
        while True:
            char = self._text[self.at]
            if char == "#" and self._text[self.at - 1] in " \t\n":
                self._blanks()
                continue
            depth += {"(": 1, ")": -1}.get(char, 0)
            if char in "()":
                self.at += 1
            else:
                self._skip_part(inside)
            if depth == 0:
                return

    def _skip_part(self, inside: List[Substitution]) -> None:
        """Goes on by a character, or by what is quoted or substituted."""
        char = self._text[self.at]
        if char == "\\":
            self.at += 2
        elif char == "'" or self._looking_at("$'"):
            self._skip_quoted(char == "$")
        elif char == '"':
            self.at += 1
            while self._text[self.at] != '"':
                self.skip_in_quotes(inside)
            self.at += 1
        elif char in "<>" and self._looking_at(char + "("):
            self._skip_substitution(char + "(", inside)
        else:
            self.skip_in_quotes(inside)

    def _skip_quoted(self, escapes: bool) -> None:
        self.at += 2 if escapes else 1
        while self._text[self.at] != "'":
            self.at += 2 if escapes and self._text[self.at] == "\\" else 1
        self.at += 1

    def skip_in_quotes(self, inside: List[Substitution]) -> None:
        """As far as double quotes allow it."""
        char = self._text[self.at]
        if char == "\\":
            self.at += 2
        elif char == "`":
            self._skip_backquotes(inside)
        elif self._looking_at("$((") and self._expansion_end() is not None:
            end = self._expansion_end() or 0
            inside += _in_text(self._text[self.at + 3 : end], self.line)
            self.at = end
        elif self._looking_at("$("):
            self._skip_substitution("$(", inside)
        elif self._looking_at("${"):
            self.at += 2
            while self._text[self.at] != "}":
                self._skip_part(inside)
            self.at += 1
        else:
            self.at += 1

    def _expansion_end(self) -> Optional[int]:
        self.at += 1
        try:
            return self._arithmetic_end()
        finally:
            self.at -= 1

    def _skip_substitution(self, kind: str, inside: List[Substitution]) -> None:
        self.at += len(kind)
        inside.append(Substitution(kind, self.block((")",))))
        self._take(")")

    def _skip_backquotes(self, inside: List[Substitution]) -> None:
        line, start = self.line, self.at + 1
        self.at = start
        while self._text[self.at] != "`":
            self.at += 2 if self._text[self.at] == "\\" else 1
        text = re.sub(r"\\([`$\\])", r"\1", self._text[start : self.at])
        inside.append(Substitution("$(", parse(text, line)))
        self.at += 1


def _in_text(text: str, line: int) -> List[Substitution]:
    """The substitutions in a here-document, or in an arithmetic expression."""
    reader = _Reader(text, line)
    inside: List[Substitution] = []
    while reader.at < len(text):
        reader.skip_in_quotes(inside)
    return inside


def _unquoted(text: str) -> str:
    """What a word stands for that is all in quotes."""
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\([\"\\$`])", r"\1", text[1:-1])
    return text
